//! Delivers the events of nodes to their watchers.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::super::wire::{self, EventKind, Request};

/// Below this number of watches, unused ones are not looked for.
const FEW: usize = 256;

/// The single event of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Event {
    /// The node was created.
    Created,
    /// The node was deleted.
    Deleted,
    /// The node's data, or its children, changed.
    Changed,
    /// The connection is lost, and the watch with it.
    Lost,
}

/// Waits for an event.
#[derive(Debug)]
pub(in super::super) struct Watching {
    pub(super) id: u64,
    told: oneshot::Receiver<Event>,
}

impl Watching {
    pub(in super::super) async fn event(self) -> Event {
        self.told.await.unwrap_or(Event::Lost)
    }
}

#[derive(Debug)]
struct Watcher {
    id: u64,
    /// The watcher has checked the answer that came with this watch.
    confirmed: bool,
    tell: oneshot::Sender<Event>,
}

/// The watches of a connection.
#[derive(Debug, Default)]
pub(super) struct Watches {
    nodes: HashMap<Arc<str>, Vec<Watcher>>,
    children: HashMap<Arc<str>, Vec<Watcher>>,
    count: u64,
    /// The number of watches at which unused ones are looked for.
    crowd: usize,
}

impl Watches {
    /// Registers a watcher. Call this before the request is sent, lest an event is missed.
    pub(super) fn begin(&mut self, request: &Request) -> Watching {
        let (tell, told) = oneshot::channel();
        self.count += 1;
        let id = self.count;
        let (place, path) = match request {
            Request::Exists { path, .. } | Request::Data { path, .. } => (&mut self.nodes, path),
            Request::Children { path, .. } => (&mut self.children, path),
            // The sender is dropped, so a waiter learns at once that there is no event to wait for.
            Request::Create { .. }
            | Request::Delete { .. }
            | Request::SetData { .. }
            | Request::Check { .. }
            | Request::Sync { .. }
            | Request::Multi(_)
            | Request::ManyData(_)
            | Request::Close => return Watching { id, told },
        };
        let watchers = place.entry(path.clone()).or_insert_with(|| Vec::with_capacity(1));
        watchers.retain(|watcher| !watcher.tell.is_closed());
        watchers.push(Watcher { id, confirmed: false, tell });
        self.prune();
        Watching { id, told }
    }

    /// Records that the watcher has checked and accepts the answer of this watch.
    ///
    /// A later change may have happened without being reported yet.
    pub(super) fn confirm(&mut self, path: &str, id: u64) {
        for watcher in self.nodes.get_mut(path).into_iter().flatten() {
            watcher.confirmed |= watcher.id == id;
        }
    }

    /// Returns true if a confirmed watch on this node has reported nothing.
    ///
    /// Events come in the order of the changes, so this covers every change before the newest
    /// event.
    pub(super) fn is_unchanged(&self, path: &str) -> bool {
        let watchers = self.nodes.get(path);
        watchers.is_some_and(|watchers| {
            watchers.iter().any(|watcher| watcher.confirmed && !watcher.tell.is_closed())
        })
    }

    /// Delivers an event to the watchers of its node.
    pub(super) fn ring(&mut self, event: wire::Event<'_>) {
        let (says, places) = match event.kind {
            EventKind::Created => (Event::Created, [Some(&mut self.nodes), None]),
            EventKind::Changed => (Event::Changed, [Some(&mut self.nodes), None]),
            EventKind::Children => (Event::Changed, [Some(&mut self.children), None]),
            EventKind::Deleted => {
                (Event::Deleted, [Some(&mut self.nodes), Some(&mut self.children)])
            }
        };
        for place in places.into_iter().flatten() {
            for watcher in place.remove(event.path).into_iter().flatten() {
                // The watcher may have stopped waiting.
                let _ = watcher.tell.send(says);
            }
        }
    }

    /// Drops all watches, because the connection is lost. Each watcher sees that its sender is
    /// gone.
    pub(super) fn lose(&mut self) {
        *self = Watches { count: self.count, ..Watches::default() };
    }

    fn prune(&mut self) {
        let count = self.nodes.len() + self.children.len();
        if count < self.crowd.max(FEW) {
            return;
        }
        for place in [&mut self.nodes, &mut self.children] {
            place.retain(|_, watchers| watchers.iter().any(|watcher| !watcher.tell.is_closed()));
        }
        self.crowd = (self.nodes.len() + self.children.len()) * 2;
    }
}
