//! The server of the queues: its elections, and the entries of every queue.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::Key;
use crate::clock::Clock;
use crate::protocol::Holder;
use crate::queue::{Entry, Place, Queue, Ticket};

#[derive(Debug)]
pub(super) struct Server {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Counts every change: tokens and generations come from it.
    writes: u64,
    pub(super) sessions: u64,
    pub(super) clients: u64,
    pub(super) roots: BTreeMap<Key, Root>,
    /// By election and token, which is the order of every queue.
    pub(super) entries: BTreeMap<(Key, u64), Stored>,
    /// The waiters for changes, by queue.
    topics: BTreeMap<Key, watch::Sender<()>>,
}

#[derive(Debug)]
pub(super) struct Root {
    pub(super) generation: u64,
    pub(super) ended: bool,
    pub(super) unclean: Option<u64>,
    pub(super) highest: u64,
}

#[derive(Debug)]
pub(super) struct Stored {
    pub(super) session: u64,
    pub(super) client: u64,
    pub(super) ticket: Ticket,
    pub(super) holder: Arc<Holder>,
}

impl Server {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Only a failed test panics while it holds this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    pub(super) fn next(&mut self) -> u64 {
        self.writes += 1;
        self.writes
    }

    pub(super) fn standing(&self, key: &Key) -> impl Iterator<Item = (u64, &Stored)> {
        let whole = (key.clone(), 0)..=(key.clone(), u64::MAX);
        self.entries.range(whole).map(|((_, token), entry)| (*token, entry))
    }

    pub(super) fn topic(&mut self, key: &Key) -> watch::Receiver<()> {
        self.topics.entry(key.clone()).or_default().subscribe()
    }

    pub(super) fn ring(&mut self, key: &Key) {
        if let Some(topic) = self.topics.get(key) {
            topic.send_replace(());
        }
    }

    /// Returns true if the election has been open since this entry joined it.
    ///
    /// Then no end came before its deletion.
    pub(super) fn is_open_since(&self, key: &Key, token: u64) -> bool {
        self.roots.get(key).is_some_and(|root| !root.ended && root.generation <= token)
    }

    pub(super) fn delete(&mut self, key: &Key, token: u64) -> bool {
        let deleted = self.entries.remove(&(key.clone(), token)).is_some();
        if deleted {
            self.ring(key);
        }
        deleted
    }

    pub(super) fn find(&mut self, entry: &Entry) -> Option<(Key, &mut Stored)> {
        let key = key_of(entry)?;
        let stored = self.entries.get_mut(&(key.clone(), entry.token))?;
        Some((key, stored))
    }

    /// The queue as `client` may see it.
    ///
    /// Without a client, all entries of an ended queue are included.
    pub(super) fn read(&self, key: &Key, client: Option<u64>) -> Queue {
        let Some(root) = self.roots.get(key) else { return Queue::Missing };
        let generation = root.generation;
        let mine = |entry: &Stored| client.is_none_or(|client| entry.client == client);
        let places = self.standing(key).filter(|(_, entry)| !root.ended || mine(entry));
        let places = places.map(|(token, entry)| Place {
            entry: named(key, token),
            ticket: (client == Some(entry.client)).then(|| entry.ticket.clone()),
            holder: Some(entry.holder.clone()),
        });
        let places = places.collect();
        if root.ended {
            Queue::Ended { generation, places }
        } else {
            let (unclean, highest) = (root.unclean, root.highest);
            Queue::Open { generation, places, unclean, highest }
        }
    }
}

pub(super) fn named(key: &Key, token: u64) -> Entry {
    Entry { name: format!("{key}#{token}").into(), token }
}

pub(super) fn key_of(entry: &Entry) -> Option<Key> {
    let (key, _) = entry.name.rsplit_once('#')?;
    Key::parse(key).ok()
}
