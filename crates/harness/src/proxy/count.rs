use super::Direction;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The amount that was forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Bytes, including the lengths in front of messages.
    pub bytes: u64,
    /// Messages, as the framing delimits them.
    pub messages: u64,
}

/// The amounts that were forwarded on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Its number, from 0 in the order they were accepted.
    pub number: u64,
    /// The client's address.
    pub client: SocketAddr,
    /// True while it is open.
    pub open: bool,
    /// From the client to the server.
    pub to_server: Count,
    /// From the server to the client.
    pub to_client: Count,
}

/// Counters that grow while other threads read them.
#[derive(Debug, Default)]
pub(super) struct Counters {
    to_server: Counter,
    to_client: Counter,
}

/// The counters of one connection.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) number: u64,
    client: SocketAddr,
    closed: AtomicBool,
    pub(super) counters: Counters,
}

#[derive(Debug, Default)]
struct Counter {
    bytes: AtomicU64,
    messages: AtomicU64,
}

impl Counters {
    pub(super) fn add(&self, direction: Direction, bytes: usize) {
        let counter = self.counter(direction);
        counter.bytes.fetch_add(bytes as u64, Relaxed);
        counter.messages.fetch_add(1, Relaxed);
    }

    pub(super) fn count(&self, direction: Direction) -> Count {
        let counter = self.counter(direction);
        Count { bytes: counter.bytes.load(Relaxed), messages: counter.messages.load(Relaxed) }
    }

    fn counter(&self, direction: Direction) -> &Counter {
        match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        }
    }
}

impl Record {
    pub(super) fn new(number: u64, client: SocketAddr) -> Record {
        Record { number, client, closed: AtomicBool::new(false), counters: Counters::default() }
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Relaxed);
    }

    pub(super) fn read(&self) -> Connection {
        Connection {
            number: self.number,
            client: self.client,
            open: !self.closed.load(Relaxed),
            to_server: self.counters.count(Direction::ToServer),
            to_client: self.counters.count(Direction::ToClient),
        }
    }
}
