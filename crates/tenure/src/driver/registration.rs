//! A candidate's entry in the list of candidates.
//!
//! No decision uses the list: it is for people, and for programs that show the candidates. An entry
//! is written once, refreshed rarely, and removed when the candidate leaves.

use std::time::Duration;

use bytes::Bytes;

use super::SlotId;
use super::requests::{Answer, Batch, Request};
use crate::candidate::CandidateId;
use crate::clock::Moment;
use crate::protocol::Holder;
use crate::registry::{Entry, REFRESH_TTLS};
use crate::store::{Durability, Expect, Put, Version, Write};
use crate::{Key, Name, Timing};

/// A removal that keeps failing is given up: the entry is then shown as stale.
const MOST_REMOVALS: u32 = 3;

pub(super) struct Registration {
    election: Name,
    key: Option<Key>,
    entry: Entry,
    timing: Timing,
    stored: Stored,
    busy: Option<Doing>,
    /// Since when, and for how long, there is nothing to do; `None` means to act at once.
    rest: Option<(Moment, Duration)>,
    removing: Option<u32>,
    settled: bool,
}

enum Stored {
    Absent,
    At(Version),
    /// The last write was not answered: read before the next write.
    Unknown,
}

/// The purpose of the request under way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    Looking,
    Entering,
    Removing,
}

pub(super) enum Next {
    Read(Key),
    Write(Write),
}

impl Next {
    pub(super) fn join(self, id: SlotId, batch: &mut Batch) {
        match self {
            Next::Read(key) => batch.read(id, Request::Registration, key),
            Next::Write(write) => batch.write(id, Request::Registration, write),
        }
    }
}

impl Registration {
    pub(super) fn new(election: &Name, candidate: &Holder, timing: Timing) -> Registration {
        let id: &CandidateId = &candidate.id;
        Registration {
            election: election.clone(),
            // A name of full length leaves room for one more segment.
            key: Key::candidates(election).child(id.as_str()).ok(),
            entry: Entry::new(candidate, timing),
            timing,
            stored: Stored::Absent,
            busy: None,
            rest: None,
            removing: None,
            settled: false,
        }
    }

    pub(super) fn election(&self) -> &Name {
        &self.election
    }

    pub(super) fn publish(&mut self, value: Bytes) {
        self.entry.value = value;
        self.rest = None;
    }

    pub(super) fn remove(&mut self) {
        self.removing.get_or_insert(0);
    }

    pub(super) fn is_settled(&self) -> bool {
        self.settled
    }

    pub(super) fn wake(&self, now: Moment) -> Option<Duration> {
        if self.busy.is_some() || self.settled {
            return None;
        }
        let (since, span) = self.rest.unwrap_or((now, Duration::ZERO));
        Some(span.saturating_sub(now.at_least_since(since)))
    }

    /// The next request to the store, if one is due.
    pub(super) fn next(&mut self, now: Moment, wall: u64) -> Option<Next> {
        if self.settled || self.busy.is_some() {
            return None;
        }
        let key = self.key.clone()?;
        if self.removing.is_none() && !self.wake(now)?.is_zero() {
            return None;
        }
        let expect = match &self.stored {
            Stored::Unknown => {
                self.busy = Some(Doing::Looking);
                return Some(Next::Read(key));
            }
            Stored::Absent if self.removing.is_some() => {
                self.settled = true;
                return None;
            }
            Stored::Absent => Expect::Absent,
            Stored::At(version) => Expect::At(version.clone()),
        };
        let body = self.removing.is_none().then(|| self.entry.encode(wall));
        self.busy = Some(if body.is_some() { Doing::Entering } else { Doing::Removing });
        self.rest = Some((now, self.timing.ttl() * REFRESH_TTLS));
        Some(Next::Write(Write { key, expect, body, durability: Durability::UntilPowerCut }))
    }

    pub(super) fn answer(&mut self, now: Moment, answer: Answer) {
        let doing = self.busy.take();
        match answer {
            Answer::Read(Ok(document)) => {
                self.stored =
                    document.map_or(Stored::Absent, |document| Stored::At(document.version));
                self.rest = None;
            }
            Answer::Write(Ok(Put::Stored(version))) => {
                // If the candidate left while its entry was still on the way, the entry must still
                // be removed.
                self.settled = doing == Some(Doing::Removing);
                self.stored = Stored::At(version);
            }
            Answer::Write(Ok(Put::Conflict)) | Answer::Read(Err(_)) | Answer::Write(Err(_)) => {
                self.stored = Stored::Unknown;
                // The candidate's machine reports the store's troubles; here it is enough to try
                // later.
                self.rest = Some((now, self.timing.ttl()));
            }
        }
        if let Some(attempts) = &mut self.removing
            && doing != Some(Doing::Entering)
            && !self.settled
        {
            *attempts += 1;
            self.settled = *attempts > MOST_REMOVALS;
        }
    }
}
