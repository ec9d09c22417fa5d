//! Queues in this process's memory, for programs under test.
//!
//! Their sessions can be cut off, expired and closed.

mod client;
mod queue;
mod server;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use self::client::{Client, Link, beat, live};
use self::server::Server;
use crate::Key;
use crate::clock::Clock;
use crate::queue::{Life, Pace, Session};

/// A server with queues. Clones share it; every [`MemoryQueues::connect`] is another process's
/// session.
#[derive(Clone, Debug)]
pub struct MemoryQueues {
    server: Arc<Server>,
}

impl MemoryQueues {
    /// A server without queues, on this clock.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> MemoryQueues {
        MemoryQueues { server: Arc::new(Server { clock, state: Mutex::default() }) }
    }

    /// Opens a session that the server keeps for `ttl` after it last heard from it.
    ///
    /// # Panics
    /// Outside a tokio runtime, because the session could not be kept alive.
    #[must_use]
    pub fn connect(&self, ttl: Duration) -> MemoryQueue {
        let mut state = self.server.lock();
        state.clients += 1;
        state.sessions += 1;
        let link = Link { session: state.sessions, ..Link::default() };
        let now = self.server.clock.now();
        let session = Session { number: 1, connection: 1, ttl, life: live(now, ttl) };
        let client = Client {
            number: state.clients,
            server: self.server.clone(),
            known: watch::Sender::new(session),
            link: Mutex::new(link),
        };
        drop(state);
        let client = Arc::new(client);
        let heart = tokio::spawn(beat(Arc::downgrade(&client), self.server.clock.clone(), ttl));
        MemoryQueue { client, heart: Arc::new(Heart(heart.abort_handle())) }
    }

    /// Makes a client without a session yet: [`MemoryQueue::resume`] begins the first.
    ///
    /// # Panics
    /// Outside a tokio runtime, as [`MemoryQueues::connect`] does.
    #[must_use]
    pub fn connect_later(&self, ttl: Duration) -> MemoryQueue {
        let queue = self.connect(ttl);
        queue.client.link().expired = true;
        queue.client.known.send_replace(Session { ttl, ..Session::none() });
        queue
    }

    /// Deletes the first entry of a queue, as an operator could; returns true if there was one.
    pub fn delete_first(&self, election: &Key) -> bool {
        let mut state = self.server.lock();
        let first = state.standing(election).next().map(|(token, _)| token);
        first.is_some_and(|token| state.delete(election, token))
    }
}

/// One session of one process at a time. Clones share it.
#[derive(Clone, Debug)]
pub struct MemoryQueue {
    client: Arc<Client>,
    /// Ends with the last clone.
    #[expect(dead_code, reason = "it is there to be dropped")]
    heart: Arc<Heart>,
}

#[derive(Debug)]
struct Heart(tokio::task::AbortHandle);

impl Drop for Heart {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Counts of calls and answers of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Joins.
    pub joins: u64,
    /// Reads of a queue.
    pub reads: u64,
    /// Watches of entries that reported a deletion.
    pub told: u64,
    /// Answers that were lost.
    pub lost: u64,
}

impl MemoryQueue {
    /// Cuts the connection. The server forgets the session after its ttl.
    pub fn suspend(&self) {
        self.client.suspend();
    }

    /// Connects again: the same session if the server still has it, else a new one.
    pub fn resume(&self) {
        self.client.resume();
    }

    /// The server ends the session, and the client hears of it and begins another.
    pub fn expire(&self) {
        self.client.expire();
        self.client.begin_again();
    }

    /// Ends the session for good, and its entries with it.
    pub fn close(&self) {
        self.client.expire();
        self.client.known.send_modify(|session| session.life = Life::Closed);
    }

    /// The next `count` calls take effect, but their answers are lost.
    pub fn lose_answers(&self, count: u32) {
        self.client.link().lose = count;
    }

    /// The next `count` calls have no effect.
    pub fn refuse(&self, count: u32) {
        self.client.link().refuse = count;
    }

    /// The counts of calls and answers.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.client.link().counts
    }

    /// The last requested pace of proving its life.
    #[must_use]
    pub fn last_pace(&self) -> Pace {
        self.client.link().pace
    }
}
