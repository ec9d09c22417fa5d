//! The servers of a cluster, and the one that is asked.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tonic::transport::{Channel, Endpoint};

/// Channels to the servers of one cluster; requests go to one of them until it fails.
#[derive(Debug)]
pub(super) struct Endpoints {
    slots: Vec<Slot>,
    /// Grows by one at every failure; its remainder is the server that is asked.
    current: AtomicUsize,
}

#[derive(Debug)]
struct Slot {
    /// How to connect again; none when the channel is the caller's.
    endpoint: Option<Endpoint>,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    channel: Channel,
    /// Which of the connections to this server it is.
    number: usize,
}

/// A channel, and how to report on it.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) channel: Channel,
    /// Which server it is, for messages; none when the channel is the caller's.
    pub(super) host: Option<String>,
    turn: usize,
    number: usize,
}

impl Endpoints {
    /// Connects when first used. Needs a runtime.
    pub(super) fn new(endpoints: Vec<Endpoint>) -> Endpoints {
        let slot = |endpoint: Endpoint| {
            let channel = endpoint.connect_lazy();
            Slot { endpoint: Some(endpoint), open: Mutex::new(Open { channel, number: 0 }) }
        };
        // Not everybody asks the same server first.
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

    /// The next request goes elsewhere; the first of those who report the same failure has its way.
    pub(super) fn avoid(&self, chosen: &Chosen) {
        let (turn, next) = (chosen.turn, chosen.turn.wrapping_add(1));
        let _ = self.current.compare_exchange(turn, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The connection was silent. It may be dead without anybody having told us: open another.
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
        // A channel is replaced whole: a panic leaves nothing half done.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
