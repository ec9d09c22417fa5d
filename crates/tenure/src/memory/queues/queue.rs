//! The queue of a client: every call goes to the server in this process.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;

use super::MemoryQueue;
use super::server::{Root, State, Stored, key_of, named};
use crate::Key;
use crate::protocol::Holder;
use crate::queue::{
    Entry, Freshness, Gone, Joined, Left, Pace, Queue, Session, SessionQueue, Ticket,
};
use crate::store::{Fault, StoreError};

#[async_trait]
impl SessionQueue for MemoryQueue {
    async fn join(
        &self,
        election: &Key,
        ticket: &Ticket,
        holder: &Arc<Holder>,
    ) -> Result<Joined, StoreError> {
        let client = &self.client;
        client.link().counts.joins += 1;
        let known = client.known.borrow().number;
        client.call("joining", |state, session| {
            let open = state.roots.get(election).is_some_and(|root| !root.ended);
            let entry = open.then(|| {
                let token = state.next();
                let stored = Stored {
                    session,
                    client: client.number,
                    ticket: ticket.clone(),
                    holder: holder.clone(),
                };
                state.entries.insert((election.clone(), token), stored);
                state.ring(election);
                named(election, token)
            });
            let queue = state.read(election, Some(client.number));
            Ok(Joined { session: known, entry, queue })
        })
    }

    async fn read(
        &self,
        election: &Key,
        _ticket: &Ticket,
        _freshness: Freshness,
    ) -> Result<Queue, StoreError> {
        let client = &self.client;
        client.link().counts.reads += 1;
        client.call("reading", |state, _| Ok(state.read(election, Some(client.number))))
    }

    async fn gone(&self, entry: &Entry) -> Gone {
        let Some(key) = key_of(entry) else { return Gone::Perhaps };
        let mut open = false;
        let gone = |state: &mut State| {
            open = state.is_open_since(&key, entry.token);
            state.find(entry).is_none()
        };
        self.client.change(&key, gone).await;
        self.client.link().counts.told += 1;
        if open { Gone::Deleted } else { Gone::DeletedMaybeEnded }
    }

    async fn ended(&self, election: &Key, generation: u64) {
        let ended = |state: &mut State| {
            let root = state.roots.get(election);
            root.is_none_or(|root| root.ended || root.generation != generation)
        };
        self.client.change(election, ended).await;
    }

    async fn begin(&self, entry: &Entry) -> Result<(), StoreError> {
        self.client.call("beginning", |state, _| {
            let key = state.find(entry).map(|(key, _)| key);
            match key.and_then(|key| state.roots.get_mut(&key)) {
                Some(root) => {
                    (root.unclean, root.highest) = (Some(entry.token), entry.token);
                    Ok(())
                }
                None => {
                    let says = "there is no such entry";
                    Err(StoreError::new(Fault::Unavailable, "memory", "beginning", says))
                }
            }
        })
    }

    async fn note(&self, entry: &Entry) -> Result<(), StoreError> {
        self.client.call("recording a token", |state, _| {
            let key = state.find(entry).map(|(key, _)| key);
            if let Some(root) = key.and_then(|key| state.roots.get_mut(&key)) {
                root.highest = entry.token;
            }
            Ok(())
        })
    }

    async fn leave(&self, entry: &Entry, clean: bool) -> Result<Left, StoreError> {
        self.client.call("leaving", |state, _| {
            let Some((key, _)) = state.find(entry) else { return Ok(Left::Absent) };
            if let Some(root) = state.roots.get_mut(&key)
                && clean
            {
                root.unclean.take_if(|token| *token == entry.token);
            }
            state.delete(&key, entry.token);
            Ok(Left::Deleted)
        })
    }

    async fn publish(&self, entry: &Entry, value: &Bytes) -> Result<(), StoreError> {
        self.client.call("publishing", |state, _| {
            let Some((key, stored)) = state.find(entry) else { return Ok(()) };
            stored.holder = Arc::new(Holder { value: value.clone(), ..(*stored.holder).clone() });
            state.ring(&key);
            Ok(())
        })
    }

    async fn create(&self, election: &Key) -> Result<u64, StoreError> {
        self.client.call("creating", |state, _| {
            if let Some(root) = state.roots.get(election).filter(|root| !root.ended) {
                return Ok(root.generation);
            }
            let earlier = state.roots.get(election);
            let unclean = earlier.and_then(|root| root.unclean);
            let highest = earlier.map_or(0, |root| root.highest);
            let generation = state.next();
            let root = Root { generation, ended: false, unclean, highest };
            state.roots.insert(election.clone(), root);
            state.ring(election);
            Ok(generation)
        })
    }

    async fn end(&self, election: &Key, generation: u64) -> Result<(), StoreError> {
        self.client.call("ending", |state, _| {
            if let Some(root) =
                state.roots.get_mut(election).filter(|root| root.generation == generation)
            {
                root.ended = true;
                state.ring(election);
            }
            Ok(())
        })
    }

    async fn remove(&self, election: &Key) -> Result<bool, StoreError> {
        self.client.call("removing", |state, _| {
            let standing = state.standing(election).next().is_some();
            match state.roots.get(election) {
                None => return Ok(true),
                Some(root) if !root.ended || standing => return Ok(false),
                Some(_) => {}
            }
            state.roots.remove(election);
            state.ring(election);
            Ok(true)
        })
    }

    async fn look(&self, election: &Key, _freshness: Freshness) -> Result<Queue, StoreError> {
        self.client.call("looking", |state, _| Ok(state.read(election, None)))
    }

    async fn survey(&self, election: &Key) -> Result<Queue, StoreError> {
        self.look(election, Freshness::Barrier).await
    }

    async fn moved(&self, election: &Key, first: Option<&Entry>) {
        let seen = {
            let mut state = self.client.server.lock();
            let _ = state.topic(election);
            summary(&state, election)
        };
        let moved = |state: &mut State| {
            let now = summary(state, election);
            now.1.as_ref() != first || now != seen
        };
        self.client.change(election, moved).await;
    }

    fn session(&self) -> watch::Receiver<Session> {
        self.client.known.subscribe()
    }

    fn trouble(&self) -> Option<StoreError> {
        None
    }

    fn pace(&self, pace: Pace) {
        self.client.link().pace = pace;
    }
}

type Summary = (Option<(u64, bool)>, Option<Entry>, Option<Bytes>);

/// The state of an election, its first entry, and the first entry's value.
fn summary(state: &State, key: &Key) -> Summary {
    let root = state.roots.get(key).map(|root| (root.generation, root.ended));
    let first = state.standing(key).next();
    let value = first.map(|(_, stored)| stored.holder.value.clone());
    (root, first.map(|(token, _)| named(key, token)), value)
}
