use super::count::{Connection, Counters, Record};
use super::trap::Trap;
use super::{Count, Direction, Framing, Message};
use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many connections are remembered, closed ones included.
const REMEMBERED: usize = 10_000;

type Observer = Arc<dyn Fn(Message<'_>) + Send + Sync>;

/// The state that the proxy's thread and its owner share.
pub(super) struct Shared {
    pub(super) target: SocketAddr,
    pub(super) framing: Framing,
    trap: Mutex<Trap>,
    observer: Mutex<Option<Observer>>,
    total: Counters,
    records: Mutex<VecDeque<Arc<Record>>>,
}

impl Shared {
    pub(super) fn new(target: SocketAddr, framing: Framing) -> Shared {
        Shared {
            target,
            framing,
            trap: Mutex::default(),
            observer: Mutex::default(),
            total: Counters::default(),
            records: Mutex::default(),
        }
    }

    pub(super) fn trap(&self) -> MutexGuard<'_, Trap> {
        lock(&self.trap)
    }

    pub(super) fn observe(&self, observer: Observer) {
        *lock(&self.observer) = Some(observer);
    }

    pub(super) fn total(&self, direction: Direction) -> Count {
        self.total.count(direction)
    }

    pub(super) fn connections(&self) -> Vec<Connection> {
        lock(&self.records).iter().map(|record| record.read()).collect()
    }

    pub(super) fn remember(&self, record: Arc<Record>) {
        let mut records = lock(&self.records);
        if records.len() == REMEMBERED {
            records.pop_front();
        }
        records.push_back(record);
    }

    /// Counts a message and shows it to the observer, before the other end can react.
    pub(super) fn forwarding(&self, record: &Record, direction: Direction, bytes: &[u8]) {
        self.total.add(direction, bytes.len());
        record.counters.add(direction, bytes.len());
        let observer = lock(&self.observer).clone();
        if let Some(look) = observer {
            look(Message { connection: record.number, direction, bytes });
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Shared")
            .field("target", &self.target)
            .field("framing", &self.framing)
            .field("total", &self.total)
            .finish_non_exhaustive()
    }
}

/// Locks a mutex. Its data is consistent at every step, even if a test's predicate panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
