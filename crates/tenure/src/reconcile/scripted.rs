//! A source that says what it is told to say.

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::source::{Event, Identity, Release, Source};

/// How many events may wait to be taken.
const MOST_WAITING: usize = 64;

/// A source that says what its [`Script`] tells it: for tests, and for events of one's own.
#[derive(Debug)]
pub struct ScriptedSource {
    identity: Identity,
    events: mpsc::Receiver<Event>,
    releases: mpsc::UnboundedSender<Release>,
}

/// The other end of a [`ScriptedSource`]. The source ends when this is dropped.
#[derive(Debug)]
pub struct Script {
    events: mpsc::Sender<Event>,
    releases: mpsc::UnboundedReceiver<Release>,
}

impl ScriptedSource {
    /// A source for the candidate `id` of an election, and its script. The ttl is 15 s.
    #[must_use]
    pub fn new(election: &str, id: &str) -> (Script, ScriptedSource) {
        ScriptedSource::with_identity(Identity {
            election: election.to_owned(),
            id: id.to_owned(),
            ttl: Duration::from_secs(15),
            stop_budget: Duration::from_secs(2),
        })
    }

    /// A source with an identity of one's own, and its script.
    #[must_use]
    pub fn with_identity(identity: Identity) -> (Script, ScriptedSource) {
        let (say, events) = mpsc::channel(MOST_WAITING);
        // Unbounded, since nobody has to read it; the loop makes about one of them for each event.
        let (releases, heard) = mpsc::unbounded_channel();
        (Script { events: say, releases: heard }, ScriptedSource { identity, events, releases })
    }
}

impl Script {
    /// Lets the source say this, once there is room. Nothing happens when the loop is over.
    ///
    /// # Cancel safety
    /// Cancel safe: the event is said or not.
    pub async fn say(&self, event: Event) {
        // The loop is over: nobody is left to be told.
        let _ = self.events.send(event).await;
    }

    /// What the loop told the source next; `None` when the loop is over.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn released(&mut self) -> Option<Release> {
        self.releases.recv().await
    }
}

#[async_trait]
impl Source for ScriptedSource {
    fn identity(&self) -> Identity {
        self.identity.clone()
    }

    async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    async fn release(&mut self, how: Release) {
        // A script that does not want to know has dropped its end.
        let _ = self.releases.send(how);
    }
}
