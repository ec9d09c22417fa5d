//! A source with events from a script.

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::source::{Event, Identity, Release, Source};

/// How many events may wait until the loop takes them.
const MOST_WAITING: usize = 64;

/// A source that emits the events of its [`Script`], for tests or custom events.
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
    /// Creates a source for the candidate `id` of an election, and its script. The ttl is 15 s.
    #[must_use]
    pub fn new(election: &str, id: &str) -> (Script, ScriptedSource) {
        ScriptedSource::with_identity(Identity {
            election: election.to_owned(),
            id: id.to_owned(),
            ttl: Duration::from_secs(15),
            stop_budget: Duration::from_secs(2),
        })
    }

    /// Creates a source with the given identity, and its script.
    #[must_use]
    pub fn with_identity(identity: Identity) -> (Script, ScriptedSource) {
        let (say, events) = mpsc::channel(MOST_WAITING);
        // Unbounded, since the script need not read it. The loop sends about one release per event.
        let (releases, heard) = mpsc::unbounded_channel();
        (Script { events: say, releases: heard }, ScriptedSource { identity, events, releases })
    }
}

impl Script {
    /// Emits an event, once there is room. Does nothing when the loop is over.
    ///
    /// # Cancel safety
    /// Cancel safe: the event is either emitted or not.
    pub async fn say(&self, event: Event) {
        // An error means that the loop is over.
        let _ = self.events.send(event).await;
    }

    /// The next order that the loop gave the source; `None` when the loop is over.
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
        // An error means that the script was dropped.
        let _ = self.releases.send(how);
    }
}
