//! The queue protocol as a pure machine.
//!
//! No clock, no randomness, no I/O in here: `step` takes the time and one input, and returns the
//! actions to take. **Every step first expires the lease at its own `now`, and takes its input
//! afterwards.**
//!
//! One request is under way at a time, and only while the session lives. The backend answers every
//! request or ends the connection. Then the outcome of the request under way is unknown, and a
//! barrier read shows it.
//!
//! [`Machine::is_over`] is true once the caller knows how the candidacy ended.
//! [`Machine::is_settled`] comes later if the store did not answer. Until then an entry may stand
//! in a queue, and dropping the machine would leave the entry there.

mod delay;
mod inputs;
mod interface;
mod leaving;
mod reading;
mod regression;
mod standing;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use self::delay::Turn;
pub use self::interface::{Input, Output, Settings};
use super::mutant::Mutant;
use super::{Entry, Freshness, Pace, Session, Ticket};
use crate::clock::Moment;
use crate::protocol::{Ask, Holder, Lease};
use crate::store::Fault;
use crate::timing::{RATE_DENOMINATOR, RATE_NUMERATOR};

/// The longest time between two reads of a queue without any notification.
const LONGEST_POLL: Duration = Duration::from_secs(30);

/// One candidacy in one election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    me: Arc<Holder>,
    grace: Option<Duration>,
    generation: Option<u64>,
    delay: Duration,
    session: Session,
    asks: u64,
    attempts: u64,
    flight: Option<Flight>,
    /// After a failure: the next request waits this long after that moment.
    pause: Option<(Moment, Duration)>,

    mine: Option<Mine>,
    /// A join with an unknown outcome.
    doubt: Option<Ticket>,
    /// Entries of ours that must be deleted.
    strays: Vec<Entry>,
    /// The queue must be read again.
    stale: bool,
    last_read: Option<Moment>,
    following: Option<Arc<Holder>>,
    /// The candidate has a new value that the entry does not show yet.
    unpublished: bool,

    lease: Option<Lease>,
    ended_token: u64,
    /// The highest token of any known tenure, except that of our own entry.
    highest: u64,
    /// Work was told to stop. Latched: a proof does not take it back.
    stopping: bool,
    /// A tenure was announced, and the end of its work was not reported yet.
    working: bool,
    led: bool,
    /// The connection was lost. The candidate neither begins nor extends a tenure before it has
    /// seen its entry again.
    unverified: bool,
    /// The leader was told that the connection is lost.
    suspended: bool,
    /// The last lease of the tenure that was lost last.
    lost: Option<Lease>,
    stage: Stage,
    #[cfg(feature = "mutants")]
    broken: Option<Mutant>,
}

/// Our entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Mine {
    entry: Entry,
    session: u64,
    ahead: Ahead,
    /// The progress of the lock delay.
    turn: Turn,
    /// The tenure of this entry was lost: the entry must be deleted.
    discard: bool,
    /// The work had not ended by the time at which the session could have ended.
    outlived: bool,
    /// The state of recording this tenure's token, and since when it is due.
    note: Note,
}

impl Mine {
    fn new(entry: Entry, session: u64) -> Mine {
        let (ahead, turn) = (Ahead::Unknown, Turn::Unread);
        let note = Note::Unled;
        Mine { entry, session, ahead, turn, discard: false, outlived: false, note }
    }
}

/// The progress of recording a tenure's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Note {
    /// The entry does not lead.
    Unled,
    /// The entry has led since this moment, and its token is not recorded yet.
    Since(Moment),
    /// The token is recorded.
    Done,
}

/// The entries before ours, by the newest queue that showed our entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Ahead {
    Nobody,
    Before {
        predecessor: Entry,
        /// True if the predecessor was the first in the queue.
        is_first: bool,
        /// The first in the queue.
        first: Entry,
    },
    /// The predecessor is gone, and it was not the first.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Flight {
    ask: Ask,
    request: Request,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Request {
    Join(Ticket),
    Read {
        freshness: Freshness,
        /// True if our entry was already first when the queue was asked for.
        first: bool,
    },
    Begin(Entry),
    Note(Entry),
    Leave(Entry),
    End,
    Publish,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Standing,
    Leaving(Leaving),
    Settled,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Leaving {
    why: Why,
    since: Moment,
    had_lease: bool,
    /// A deletion was sent.
    tried: bool,
    /// The session was over before the deletion was answered.
    unanswered: bool,
    /// The caller has been told how it ended; what is left is to clean up.
    told: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Why {
    /// The caller asked to leave.
    Farewell,
    /// The caller asked to leave and to end the election, and the end is still to be written.
    EndFirst,
    /// The election has ended.
    Ended,
    /// The store refuses, and always will.
    Refused(Fault),
    /// The store's numbers have fallen: `found` is below `known`.
    Regressed { found: u64, known: u64 },
}

impl Machine {
    /// Creates a candidate that knows nothing yet. It joins when it is told of a session.
    #[must_use]
    pub fn new(settings: Settings) -> Machine {
        let Settings { candidate, grace, generation, delay, highest } = settings;
        Machine {
            me: Arc::new(candidate),
            grace,
            generation,
            delay,
            session: Session::none(),
            asks: 0,
            attempts: 0,
            flight: None,
            pause: None,
            mine: None,
            doubt: None,
            strays: Vec::new(),
            stale: false,
            last_read: None,
            following: None,
            unpublished: false,
            lease: None,
            ended_token: 0,
            highest,
            stopping: false,
            working: false,
            led: false,
            unverified: false,
            suspended: false,
            lost: None,
            stage: Stage::Standing,
            #[cfg(feature = "mutants")]
            broken: None,
        }
    }

    /// Breaks one rule, to test that the suite notices.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn broken(mut self, mutant: Option<Mutant>) -> Machine {
        self.broken = mutant;
        self
    }

    /// The candidate.
    #[must_use]
    pub fn candidate(&self) -> &Arc<Holder> {
        &self.me
    }

    /// The lease, as long as the candidate may believe in it.
    #[must_use]
    pub fn lease(&self, now: Moment) -> Option<Lease> {
        self.lease.filter(|lease| !lease.remaining(now).is_zero())
    }

    /// The entries to watch: our own and the one before it, no others.
    #[must_use]
    pub fn watching(&self) -> [Option<&Entry>; 2] {
        let Some(mine) = self.mine.as_ref().filter(|_| !self.is_settled()) else {
            return [None, None];
        };
        let before = match &mine.ahead {
            Ahead::Before { first, .. } if self.is(Mutant::Herd) => Some(first),
            Ahead::Before { predecessor, .. } => Some(predecessor),
            Ahead::Nobody | Ahead::Unknown => None,
        };
        [Some(&mine.entry), before.filter(|_| matches!(self.stage, Stage::Standing))]
    }

    /// The generation to watch for its end, while that matters.
    #[must_use]
    pub fn awaiting_end(&self) -> Option<u64> {
        self.generation.filter(|_| matches!(self.stage, Stage::Standing))
    }

    /// How eagerly the session must prove its life for this candidate.
    #[must_use]
    pub fn pace(&self) -> Pace {
        let near = self.mine.as_ref().is_some_and(|mine| match &mine.ahead {
            Ahead::Nobody => true,
            Ahead::Before { is_first, .. } => *is_first,
            Ahead::Unknown => true,
        });
        if near && matches!(self.stage, Stage::Standing) { Pace::Leading } else { Pace::Waiting }
    }

    /// Returns true if an entry belongs to this candidacy.
    ///
    /// That is its own entry, one that is about to be deleted, or the entry of a join in doubt.
    ///
    /// In some backends, a join may arrive after it was given up. Such a backend deletes entries
    /// that no candidacy claims.
    #[must_use]
    pub fn claims(&self, entry: &Entry, ticket: &Ticket) -> bool {
        let own = self.mine.as_ref().is_some_and(|mine| mine.entry == *entry);
        let joining = matches!(&self.flight, Some(Flight { request: Request::Join(sent), .. })
            if sent == ticket);
        own || joining || self.doubt.as_ref() == Some(ticket) || self.strays.contains(entry)
    }

    /// Returns true if the caller was told how this candidacy ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match &self.stage {
            Stage::Standing => false,
            Stage::Leaving(leaving) => leaving.told,
            Stage::Settled => true,
        }
    }

    /// Returns true if nothing of this candidacy is left in the store.
    ///
    /// No action will follow.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        matches!(self.stage, Stage::Settled)
    }

    /// Takes one input at one moment, and returns the actions to take.
    #[must_use]
    pub fn step(&mut self, now: Moment, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        if self.is_settled() {
            return out;
        }
        if self.is(Mutant::InputBeforeExpiry) {
            self.take(now, input, &mut out);
            self.expire(now, &mut out);
        } else {
            self.expire(now, &mut out);
            self.take(now, input, &mut out);
        }
        self.act(now, &mut out);
        out
    }

    /// How long from now the next [`Input::Tick`] is needed.
    ///
    /// `None` while only another input can help.
    #[must_use]
    pub fn wake(&self, now: Moment) -> Option<Duration> {
        let mut soonest: Option<Duration> = None;
        let mut at = |span: Duration| soonest = Some(soonest.map_or(span, |least| least.min(span)));
        if let Some(lease) = &self.lease {
            at(lease.remaining(now));
            if !self.stopping {
                at(lease.until_stop(now));
            }
        }
        match &self.stage {
            Stage::Settled => return None,
            Stage::Leaving(leaving) if !leaving.told => {
                at(left(self.session.ttl, now.at_least_since(leaving.since)));
            }
            Stage::Leaving(_) | Stage::Standing => {}
        }
        if self.flight.is_none() && self.session.is_live() {
            match self.pause {
                Some((since, span)) => at(left(span, now.at_most_since(since))),
                None => {
                    if let Some(span) = self.until_next_request(now) {
                        at(span);
                    }
                }
            }
        }
        soonest
    }

    fn is(&self, mutant: Mutant) -> bool {
        #[cfg(feature = "mutants")]
        return self.broken == Some(mutant);
        #[cfg(not(feature = "mutants"))]
        {
            let _ = mutant;
            false
        }
    }

    /// B, the stop budget.
    fn grace(&self) -> Duration {
        self.grace.unwrap_or(self.session.ttl / 10)
    }

    /// P, the poll interval: a read at this interval makes up for a lost notification.
    fn poll(&self) -> Duration {
        (self.session.ttl * 2).min(LONGEST_POLL)
    }

    /// R·T: after this time the server has ended a session that it no longer hears from.
    fn beyond_the_session(&self) -> Duration {
        self.session.ttl * RATE_NUMERATOR / RATE_DENOMINATOR
    }

    fn ticket(&self) -> Ticket {
        Ticket { candidate: self.me.id.clone(), attempt: self.attempts }
    }

    fn next_ask(&mut self) -> Ask {
        self.asks += 1;
        Ask::numbered(self.asks)
    }

    /// Returns true if the entry belongs to the current session.
    fn is_current(&self, mine: &Mine) -> bool {
        mine.session == self.session.number
    }
}

fn left(span: Duration, elapsed: Duration) -> Duration {
    span.saturating_sub(elapsed)
}
