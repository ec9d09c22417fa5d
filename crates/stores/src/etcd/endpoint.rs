//! The servers of a cluster, and the one in use.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tonic::transport::{Channel, Endpoint};

/// Channels to the servers of one cluster. Requests go to one of them until it fails.
#[derive(Debug)]
pub(super) struct Endpoints {
    slots: Vec<Slot>,
    /// Grows by one at every failure. Its remainder selects the server in use.
    current: AtomicUsize,
}

#[derive(Debug)]
struct Slot {
    /// The way to connect again; `None` if the channel is the caller's.
    endpoint: Option<Endpoint>,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    channel: Channel,
    /// The number of this connection to the server.
    number: usize,
}

/// A channel, with the data to report on it.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) channel: Channel,
    /// The server's name for messages; `None` if the channel is the caller's.
    pub(super) host: Option<String>,
    turn: usize,
    number: usize,
}

impl Endpoints {
    /// Connects on first use. Needs a runtime.
    pub(super) fn new(endpoints: Vec<Endpoint>) -> Endpoints {
        let slot = |endpoint: Endpoint| {
            let channel = endpoint.connect_lazy();
            Slot { endpoint: Some(endpoint), open: Mutex::new(Open { channel, number: 0 }) }
        };
        // Processes begin with different servers.
        let first = rand::random::<u32>() as usize % endpoints.len().max(1);
        Endpoints {
            slots: endpoints.into_iter().map(slot).collect(),
            current: AtomicUsize::new(first),
        }
    }

    pub(super) fn owned_by_caller(channel: Channel) -> Endpoints {
        let slot = Slot { endpoint: None, open: Mutex::new(Open { channel, number: 0 }) };
        Endpoints { slots: vec![slot], current: AtomicUsize::new(0) }
    }

    pub(super) fn count(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn choose(&self) -> Chosen {
        let turn = self.current.load(Ordering::Relaxed);
        let slot = &self.slots[turn % self.slots.len()];
        let authority = |endpoint: &Endpoint| endpoint.uri().authority().map(ToString::to_string);
        let host = slot.endpoint.as_ref().and_then(authority);
        let open = slot.lock();
        Chosen { channel: open.channel.clone(), host, turn, number: open.number }
    }

    /// Sends the next requests to another server. Of several reports of one failure, the first
    /// counts.
    pub(super) fn avoid(&self, chosen: &Chosen) {
        let (turn, next) = (chosen.turn, chosen.turn.wrapping_add(1));
        let _ = self.current.compare_exchange(turn, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Replaces a silent connection, which may be dead without our knowing.
    pub(super) fn replace(&self, chosen: &Chosen) {
        let slot = &self.slots[chosen.turn % self.slots.len()];
        let Some(endpoint) = &slot.endpoint else { return };
        let mut open = slot.lock();
        if open.number == chosen.number {
            *open = Open { channel: endpoint.connect_lazy(), number: chosen.number + 1 };
        }
    }
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Open> {
        // A channel is replaced as a whole, so a panic leaves nothing half done.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
