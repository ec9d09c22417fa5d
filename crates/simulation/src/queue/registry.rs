//! The agreed state of the servers: the root and its line, as of every transaction.

use std::sync::Arc;

use bytes::Bytes;
use tenure::protocol::Holder;
use tenure::queue::{Entry, Line, Place, Ticket};

use crate::history::Who;

/// One entry that was ever made.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) entry: Entry,
    pub(super) who: Who,
    pub(super) node: usize,
    pub(super) session: usize,
    /// The lease of the entry (etcd).
    pub(super) lease: u64,
    pub(super) ticket: Ticket,
    pub(super) holder: Arc<Holder>,
    /// The transaction that deleted it.
    pub(super) gone: Option<u64>,
    /// An operator deleted it.
    pub(super) removed: bool,
    /// How many were told of that.
    pub(super) told: Vec<Who>,
    /// The transaction that ended the election while this was its first entry. It rewrote the entry
    /// (etcd).
    pub(super) touched: u64,
}

/// The state of the root since one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Root {
    since: u64,
    pub(super) generation: u64,
    pub(super) state: RootState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RootState {
    Open,
    Ended,
    Missing,
}

/// The whole state, at every transaction.
#[derive(Clone, Debug)]
pub(super) struct Registry {
    pub(super) zxid: u64,
    pub(super) items: Vec<Item>,
    roots: Vec<Root>,
    /// The newest tenure that was not left cleanly. There is one item for each transaction that
    /// changed it.
    marks: Vec<(u64, Option<u64>)>,
    /// The token of the newest recorded tenure. There is one item for each recording transaction.
    recorded: Vec<(u64, u64)>,
}

impl Registry {
    pub(super) fn new() -> Registry {
        let root = Root { since: 0, generation: 1, state: RootState::Open };
        Registry {
            zxid: 1,
            items: Vec::new(),
            roots: vec![root],
            marks: vec![(0, None)],
            recorded: vec![(0, 0)],
        }
    }

    /// Models fresh servers that count from a lower number on.
    ///
    /// They have a copy of the lasting state.
    pub(super) fn rebuild(&mut self, zxid: u64) {
        let root = self.newest_root();
        let generation = root.generation.min(zxid);
        let (mark, recorded) = (self.mark(self.zxid), self.highest(self.zxid));
        self.items.clear();
        self.roots = vec![Root { since: 0, generation, ..root }];
        self.marks = vec![(0, mark)];
        self.recorded = vec![(0, recorded)];
        self.zxid = zxid;
    }

    pub(super) fn root(&self, zxid: u64) -> Root {
        let shown = self.roots.iter().rev().find(|root| root.since <= zxid);
        *shown.unwrap_or(&self.roots[0])
    }

    pub(super) fn newest_root(&self) -> Root {
        self.root(self.zxid)
    }

    /// A transaction that changes nothing here.
    pub(super) fn tick(&mut self) -> u64 {
        self.zxid += 1;
        self.zxid
    }

    pub(super) fn enter(
        &mut self,
        who: Who,
        node: usize,
        (session, lease): (usize, u64),
        ticket: &Ticket,
        holder: &Arc<Holder>,
    ) -> Entry {
        let token = self.tick();
        let entry = Entry { name: format!("{ticket}").into(), token };
        self.items.push(Item {
            entry: entry.clone(),
            who,
            node,
            session,
            lease,
            ticket: ticket.clone(),
            holder: holder.clone(),
            gone: None,
            removed: false,
            told: Vec::new(),
            touched: 0,
        });
        entry
    }

    /// Records that a tenure begins, if its entry stands.
    pub(super) fn begin(&mut self, token: u64) -> bool {
        let zxid = self.tick();
        let stands = self.living().any(|item| item.entry.token == token);
        if stands {
            self.marks.push((zxid, Some(token)));
            self.recorded.push((zxid, token));
        }
        stands
    }

    /// Records the token of a tenure that goes on, if its entry stands.
    pub(super) fn note(&mut self, token: u64) {
        let zxid = self.tick();
        if self.living().any(|item| item.entry.token == token) {
            self.recorded.push((zxid, token));
        }
    }

    /// The recorded token.
    pub(super) fn highest(&self, zxid: u64) -> u64 {
        let shown = self.recorded.iter().rev().find(|(since, _)| *since <= zxid);
        shown.map_or(0, |(_, token)| *token)
    }

    /// Stores another value at an entry, if it stands.
    pub(super) fn publish(&mut self, token: u64, value: &Bytes) {
        self.tick();
        let items = self.items.iter_mut();
        let mut standing = items.filter(|item| item.entry.token == token && item.gone.is_none());
        if let Some(item) = standing.next() {
            item.holder = Arc::new(Holder { value: value.clone(), ..(*item.holder).clone() });
        }
    }

    pub(super) fn mark(&self, zxid: u64) -> Option<u64> {
        let shown = self.marks.iter().rev().find(|(since, _)| *since <= zxid);
        shown.and_then(|(_, mark)| *mark)
    }

    pub(super) fn delete(&mut self, token: u64, clean: bool) -> bool {
        let zxid = self.tick();
        if clean
            && self.mark(zxid) == Some(token)
            && self.living().any(|item| item.entry.token == token)
        {
            self.marks.push((zxid, None));
        }
        match self.items.iter_mut().find(|item| item.entry.token == token && item.gone.is_none()) {
            Some(item) => {
                item.gone = Some(zxid);
                true
            }
            None => false,
        }
    }

    /// An operator deletes an entry that stands.
    pub(super) fn remove(&mut self, token: u64) {
        self.delete(token, false);
        let removed = self.items.iter_mut().filter(|item| item.entry.token == token);
        removed.for_each(|item| item.removed = true);
    }

    /// Moves all entries under one lease to another.
    pub(super) fn relet(&mut self, from: u64, to: u64) {
        self.tick();
        let items = self.items.iter_mut();
        items.filter(|item| item.lease == from && item.gone.is_none()).for_each(|item| {
            item.lease = to;
        });
    }

    /// Ends a session and its entries.
    pub(super) fn close(&mut self, session: usize) {
        let zxid = self.tick();
        for item in &mut self.items {
            if item.session == session && item.gone.is_none() {
                item.gone = Some(zxid);
            }
        }
    }

    pub(super) fn set_root(&mut self, state: RootState) {
        let since = self.tick();
        let generation = match state {
            RootState::Open => since,
            RootState::Ended | RootState::Missing => self.roots[self.roots.len() - 1].generation,
        };
        self.roots.push(Root { since, generation, state });
        let first = self.items.iter_mut().find(|item| item.gone.is_none());
        if let (RootState::Ended, Some(first)) = (state, first) {
            first.touched = since;
        }
        // A mark outlives its generation, because its entry does. A deletion removes it.
        if state == RootState::Missing {
            self.marks.push((since, None));
        }
    }

    pub(super) fn living(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(|item| item.gone.is_none())
    }

    pub(super) fn find(&self, token: u64) -> Option<&Item> {
        self.items.iter().find(|item| item.entry.token == token)
    }

    /// Returns true if this generation was open when an entry became the first.
    pub(super) fn was_first_in_time(&self, token: u64, generation: u64) -> bool {
        let before = self.items.iter().filter(|item| item.entry.token < token);
        let first = before.filter_map(|item| item.gone).fold(token, u64::max);
        // An entry from before the generation is in its line since the generation began.
        let root = self.root(first.max(generation));
        root.state == RootState::Open && root.generation == generation
    }

    /// Returns true if the entry exists as of this transaction.
    pub(super) fn shows(&self, token: u64, zxid: u64) -> bool {
        self.find(token)
            .is_some_and(|item| token <= zxid && item.gone.is_none_or(|gone| gone > zxid))
    }

    /// The line as a server at this transaction shows it to a process.
    pub(super) fn line(&self, zxid: u64, node: usize) -> Line {
        let root = self.root(zxid);
        let shown =
            |item: &&Item| item.entry.token <= zxid && item.gone.is_none_or(|gone| gone > zxid);
        let mut places: Vec<Place> = Vec::new();
        for item in self.items.iter().filter(shown) {
            places.push(Place {
                entry: item.entry.clone(),
                ticket: (item.node == node).then(|| item.ticket.clone()),
                holder: places.is_empty().then(|| item.holder.clone()),
            });
        }
        match root.state {
            RootState::Open => {
                let (unclean, highest) = (self.mark(zxid), self.highest(zxid));
                Line::Open { generation: root.generation, places, unclean, highest }
            }
            RootState::Ended => {
                places.retain(|place| place.ticket.is_some());
                Line::Ended { generation: root.generation, places }
            }
            RootState::Missing => Line::Missing,
        }
    }
}
