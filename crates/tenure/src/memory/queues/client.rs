//! A client of the queues: its session, its connection, and the failures to simulate.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;

use super::Counts;
use super::server::{Server, State};
use crate::Key;
use crate::clock::{Clock, Moment};
use crate::queue::{Life, Pace, Proof, Session};
use crate::store::{Fault, StoreError};
use crate::timing::window_of;

#[derive(Debug)]
pub(super) struct Client {
    pub(super) number: u64,
    pub(super) server: Arc<Server>,
    pub(super) known: watch::Sender<Session>,
    pub(super) link: Mutex<Link>,
}

/// The state of a client's connection, and the failures to simulate.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// The server's number of the session.
    pub(super) session: u64,
    pub(super) cut: Option<Moment>,
    pub(super) expired: bool,
    pub(super) lose: u32,
    pub(super) refuse: u32,
    pub(super) pace: Pace,
    pub(super) counts: Counts,
}

pub(super) fn live(now: Moment, ttl: Duration) -> Life {
    Life::Live { proof: Some(Proof { from: now, window: window_of(ttl) }) }
}

/// Keeps a session alive while its client exists.
pub(super) async fn beat(client: Weak<Client>, clock: Arc<dyn Clock>, ttl: Duration) {
    let mut timer = clock.timer();
    loop {
        timer.until(clock.now() + ttl / 8).await;
        match client.upgrade() {
            Some(client) => client.beat(),
            None => return,
        }
    }
}

impl Client {
    pub(super) fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beat(&self) {
        let now = self.server.clock.now();
        let (cut, expired) = {
            let link = self.link();
            (link.cut, link.expired)
        };
        let ttl = self.known.borrow().ttl;
        match cut {
            Some(cut) if !expired && now.at_least_since(cut) >= ttl => self.expire(),
            Some(_) => {}
            None => self.known.send_modify(|session| {
                if session.is_live() {
                    session.life = live(now, ttl);
                }
            }),
        }
    }

    pub(super) fn suspend(&self) {
        let now = self.server.clock.now();
        self.link().cut.get_or_insert(now);
        self.known.send_modify(|session| {
            session.life = Life::Suspended { proof: session.proof() };
        });
    }

    pub(super) fn resume(&self) {
        let expired = {
            let mut link = self.link();
            link.cut = None;
            link.expired
        };
        if expired {
            return self.begin_again();
        }
        let now = self.server.clock.now();
        self.known.send_modify(|session| {
            session.connection += 1;
            session.life = live(now, session.ttl);
        });
    }

    /// Makes the server forget the session and its entries. The client may not know it yet.
    pub(super) fn expire(&self) {
        let session = {
            let mut link = self.link();
            link.expired = true;
            link.session
        };
        let mut state = self.server.lock();
        let gone = state.entries.iter().filter(|(_, entry)| entry.session == session);
        let gone: Vec<(Key, u64)> = gone.map(|(place, _)| place.clone()).collect();
        for (key, token) in gone {
            state.delete(&key, token);
        }
    }

    pub(super) fn begin_again(&self) {
        let fresh = {
            let mut state = self.server.lock();
            state.sessions += 1;
            state.sessions
        };
        {
            let mut link = self.link();
            (link.session, link.expired, link.cut) = (fresh, false, None);
        }
        let now = self.server.clock.now();
        self.known.send_modify(|session| {
            session.number += 1;
            session.connection += 1;
            session.life = live(now, session.ttl);
        });
    }

    /// Makes a call, subject to the simulated failures.
    pub(super) fn call<T>(
        &self,
        doing: &str,
        act: impl FnOnce(&mut State, u64) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let error = |fault, says| Err(StoreError::new(fault, "memory", doing, says));
        let session = {
            let mut link = self.link();
            if link.cut.is_some() || self.known.borrow().life == Life::Closed {
                return error(Fault::Unavailable, "not connected");
            }
            if link.refuse > 0 {
                link.refuse -= 1;
                return error(Fault::Unavailable, "refused");
            }
            link.session
        };
        let answer = act(&mut self.server.lock(), session);
        let mut link = self.link();
        if link.lose > 0 {
            link.lose -= 1;
            link.counts.lost += 1;
            return error(Fault::Indeterminate, "the answer was lost");
        }
        answer
    }

    /// Waits until this queue or the connection has changed.
    pub(super) async fn change(&self, key: &Key, mut seen: impl FnMut(&mut State) -> bool) {
        let mut session = self.known.subscribe();
        let mut topic = self.server.lock().topic(key);
        loop {
            session.mark_unchanged();
            topic.mark_unchanged();
            let connected = self.link().cut.is_none();
            if connected && seen(&mut self.server.lock()) {
                return;
            }
            tokio::select! {
                changed = session.changed() => if changed.is_err() { std::future::pending().await },
                changed = topic.changed() => if changed.is_err() { std::future::pending().await },
            }
        }
    }
}
