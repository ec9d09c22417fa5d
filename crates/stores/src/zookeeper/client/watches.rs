//! Who is told when a node changes.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::super::wire::{self, EventKind, Request};

/// The fewest watches among which unused ones are looked for.
const FEW: usize = 256;

/// What a watch says, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Event {
    /// The node was created.
    Created,
    /// The node was deleted.
    Deleted,
    /// Its data, or its children, changed.
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
    /// What was read with it is known to whoever watches.
    confirmed: bool,
    tell: oneshot::Sender<Event>,
}

/// The watches of a connection.
#[derive(Debug, Default)]
pub(super) struct Watches {
    nodes: HashMap<Arc<str>, Vec<Watcher>>,
    children: HashMap<Arc<str>, Vec<Watcher>>,
    count: u64,
    /// Unused ones are looked for when there are so many.
    crowd: usize,
}

impl Watches {
    /// Remembers who asked, before the question is sent: no event comes too early.
    pub(super) fn begin(&mut self, request: &Request) -> Watching {
        let (tell, told) = oneshot::channel();
        self.count += 1;
        let id = self.count;
        let (place, path) = match request {
            Request::Exists { path, .. } | Request::Data { path, .. } => (&mut self.nodes, path),
            Request::Children { path, .. } => (&mut self.children, path),
            // The sender is dropped: whoever waits is told at once that there is nothing to wait
            // for.
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

    /// What was read when this watch was set is as it should be; a change since then has not been
    /// told of.
    pub(super) fn confirm(&mut self, path: &str, id: u64) {
        for watcher in self.nodes.get_mut(path).into_iter().flatten() {
            watcher.confirmed |= watcher.id == id;
        }
    }

    /// Whether somebody watches a node that was as it should be, and nothing was told of it since.
    ///
    /// Events come in the order of what they tell of, so everything before the newest event is
    /// covered by this.
    pub(super) fn is_unchanged(&self, path: &str) -> bool {
        let watchers = self.nodes.get(path);
        watchers.is_some_and(|watchers| {
            watchers.iter().any(|watcher| watcher.confirmed && !watcher.tell.is_closed())
        })
    }

    /// Tells everyone whom an event concerns.
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
                // Nobody may be waiting any more.
                let _ = watcher.tell.send(says);
            }
        }
    }

    /// The connection is lost, and everyone is told by the loss of its sender.
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
