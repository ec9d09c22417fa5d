//! The queue protocol as a pure machine.
//!
//! No clock, no randomness, no I/O in here: `step` is told the time and what happened, and answers with
//! what is to be done. **Every step expires first, at its own `now`, and takes its input afterwards.**
//!
//! One request is under way at a time, and only while the session lives. The backend answers every request or
//! ends the connection; what was under way then is in doubt, and a barrier read tells.
//!
//! [`Machine::is_over`] is what the caller is told; [`Machine::is_settled`] comes later if the store did not
//! answer: until then an entry may stand in a line, and a machine that is dropped cannot delete it.

mod delay;
mod inputs;
mod leaving;
mod reading;
mod regression;
mod standing;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use self::delay::Turn;
use super::mutant::Mutant;
use super::{Entry, Freshness, Gone, Joined, Left, Life, Line, Pace, Place, Session, Ticket};
use crate::clock::Moment;
use crate::lease::machine::{Ask, Farewell, Lease, Loss, Outcome};
use crate::lease::record::Holder;
use crate::store::Fault;
use crate::timing::{RATE_DENOMINATOR, RATE_NUMERATOR};

/// How often a line is looked at although nothing was heard, at most.
const LONGEST_POLL: Duration = Duration::from_secs(30);

/// What a candidacy is made of.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who stands.
    pub candidate: Holder,
    /// The stop budget; a tenth of the session's ttl if it is not given.
    pub grace: Option<Duration>,
    /// Which creation of the election it stands in; `None` takes the first it finds.
    pub generation: Option<u64>,
    /// D: how long it waits after a tenure that did not end cleanly; zero if the election has no lock delay.
    pub delay: Duration,
    /// The highest token that this process has led the election with; 0 if it never did.
    pub highest: u64,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// Something is known of the session.
    Session(Session),
    /// A join was answered.
    Joined(Ask, Result<Joined, Fault>),
    /// The line was read.
    Line(Ask, Result<Line, Fault>),
    /// The record of a tenure's beginning was answered.
    Begun(Ask, Result<(), Fault>),
    /// The record of a tenure's token was answered.
    Noted(Ask, Result<(), Fault>),
    /// A deletion was answered.
    Left(Ask, Result<Left, Fault>),
    /// An end was answered.
    Ended(Ask, Result<(), Fault>),
    /// A new value was answered.
    Published(Ask, Result<(), Fault>),
    /// A watched entry may be gone.
    Gone(Entry, Gone),
    /// The election may have ended.
    Hint,
    /// The work of a lost tenure has ended: stand again.
    WorkEnded,
    /// Whatever work there was has ended: give up the entry and the candidacy.
    Release(Farewell),
    /// Its work cannot be ended: leave, and let the entry stand as long as the session would have.
    Abandon,
    /// The candidate publishes another value.
    Publish(Bytes),
    /// A program under test takes the leadership away.
    ForceLoss,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Join the line.
    Join {
        /// To be given back with the answer.
        ask: Ask,
        /// Marks the entry.
        ticket: Ticket,
        /// Who joins.
        holder: Arc<Holder>,
    },
    /// Read the line.
    Line {
        /// To be given back with the answer.
        ask: Ask,
        /// Whose entries it is about.
        ticket: Ticket,
        /// How new it must be.
        freshness: Freshness,
    },
    /// Record that the tenure of this entry begins.
    Begin {
        /// To be given back with the answer.
        ask: Ask,
        /// Whose.
        entry: Entry,
    },
    /// Record the token of a tenure that goes on.
    Note {
        /// To be given back with the answer.
        ask: Ask,
        /// Whose.
        entry: Entry,
    },
    /// Delete an entry.
    Leave {
        /// To be given back with the answer.
        ask: Ask,
        /// Which.
        entry: Entry,
        /// Whether its work, if there was any, ended while nobody else could lead.
        clean: bool,
    },
    /// End the election.
    End {
        /// To be given back with the answer.
        ask: Ask,
        /// Which creation of it.
        generation: u64,
    },
    /// Publish another value.
    Publish {
        /// To be given back with the answer.
        ask: Ask,
        /// Where.
        entry: Entry,
        /// What.
        value: Bytes,
    },
    /// Leadership was won.
    Elected(Lease),
    /// Life was proven for longer.
    Extended(Lease),
    /// The work must end before the lease does.
    MustStop,
    /// Leadership is over.
    Lost {
        /// Which tenure's.
        token: u64,
        /// Why.
        loss: Loss,
    },
    /// The connection is lost; the lease is running down.
    Suspended,
    /// The connection is back, and the entry still stands.
    Resumed,
    /// Somebody else is first in line, or nobody is.
    Following(Option<Arc<Holder>>),
    /// The candidacy is over for its caller.
    Over(Outcome),
}

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
    /// After a failure: not before this long after that moment.
    pause: Option<(Moment, Duration)>,

    mine: Option<Mine>,
    /// A join whose outcome is unknown.
    doubt: Option<Ticket>,
    /// Entries of ours that must go.
    strays: Vec<Entry>,
    /// The line must be read again.
    stale: bool,
    last_read: Option<Moment>,
    following: Option<Arc<Holder>>,
    /// A value that the entry does not show yet.
    unpublished: bool,

    lease: Option<Lease>,
    ended_token: u64,
    /// The highest token of any tenure that is known of, but for the one of our own entry.
    highest: u64,
    /// Work was told to stop. Latched: a proof does not take it back.
    stopping: bool,
    /// A tenure was announced, and its work has not been reported as ended.
    working: bool,
    led: bool,
    /// The connection was lost: nothing is led, or led any longer, before the entry was seen again.
    unverified: bool,
    /// Its leader was told so.
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
    /// How far the lock delay has come.
    turn: Turn,
    /// Its tenure was lost: it must go.
    discard: bool,
    /// Its work had not ended when the session could have.
    outlived: bool,
    /// Whether the token of its tenure is recorded, and since when that is due.
    note: Note,
}

impl Mine {
    fn new(entry: Entry, session: u64) -> Mine {
        let (ahead, turn) = (Ahead::Unknown, Turn::Unread);
        let note = Note::Unled;
        Mine { entry, session, ahead, turn, discard: false, outlived: false, note }
    }
}

/// How far the record of a tenure's token has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Note {
    /// It does not lead.
    Unled,
    /// It leads since this moment, and that is not recorded.
    Since(Moment),
    /// It is recorded.
    Done,
}

/// Who is before us, by the newest line that showed our entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Ahead {
    Nobody,
    Before {
        predecessor: Entry,
        /// Whether it had nobody before it.
        is_first: bool,
        /// The first in line.
        first: Entry,
    },
    /// The predecessor is gone, and it was not first.
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
    Line {
        freshness: Freshness,
        /// It was asked for when nobody was before us any more.
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
    /// It was asked to.
    Farewell,
    /// It was asked to, and the election's end is still to be written.
    EndFirst,
    /// The election has ended.
    Ended,
    /// The store refuses, and always will.
    Refused(Fault),
    /// The store's numbers have fallen: to the first of these, below the second.
    Regressed { found: u64, known: u64 },
}

impl Machine {
    /// A candidate that knows nothing yet. It joins when it is told of a session.
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

    /// Breaks one rule, for the suite that must notice.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn broken(mut self, mutant: Option<Mutant>) -> Machine {
        self.broken = mutant;
        self
    }

    /// Who stands.
    #[must_use]
    pub fn candidate(&self) -> &Arc<Holder> {
        &self.me
    }

    /// The lease, while it may be believed in.
    #[must_use]
    pub fn lease(&self, now: Moment) -> Option<Lease> {
        self.lease.filter(|lease| !lease.remaining(now).is_zero())
    }

    /// The entries to watch: our own and the one before it, nobody else's.
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

    /// The generation whose end to watch for, while that matters.
    #[must_use]
    pub fn awaiting_end(&self) -> Option<u64> {
        self.generation.filter(|_| matches!(self.stage, Stage::Standing))
    }

    /// How eagerly the session must prove its life on this candidate's account.
    #[must_use]
    pub fn pace(&self) -> Pace {
        let near = self.mine.as_ref().is_some_and(|mine| match &mine.ahead {
            Ahead::Nobody => true,
            Ahead::Before { is_first, .. } => *is_first,
            Ahead::Unknown => true,
        });
        if near && matches!(self.stage, Stage::Standing) { Pace::Leading } else { Pace::Waiting }
    }

    /// Whether an entry is this candidacy's: its own, one that is about to go, or of a join in doubt.
    ///
    /// A backend whose joins may arrive after they were given up deletes entries that nobody claims.
    #[must_use]
    pub fn claims(&self, entry: &Entry, ticket: &Ticket) -> bool {
        let own = self.mine.as_ref().is_some_and(|mine| mine.entry == *entry);
        let joining = matches!(&self.flight, Some(Flight { request: Request::Join(sent), .. })
            if sent == ticket);
        own || joining || self.doubt.as_ref() == Some(ticket) || self.strays.contains(entry)
    }

    /// Whether its caller has been told how this candidacy ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match &self.stage {
            Stage::Standing => false,
            Stage::Leaving(leaving) => leaving.told,
            Stage::Settled => true,
        }
    }

    /// Whether nothing of this candidacy is left in the store, and nothing more will be done.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        matches!(self.stage, Stage::Settled)
    }

    /// Takes one input at one moment, and says what is to be done.
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

    /// How long from now the next [`Input::Tick`] is needed; `None` while only an input can help.
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

    /// B.
    fn grace(&self) -> Duration {
        self.grace.unwrap_or(self.session.ttl / 10)
    }

    /// P: a notification that was lost is made good by then.
    fn poll(&self) -> Duration {
        (self.session.ttl * 2).min(LONGEST_POLL)
    }

    /// R·T: by then the server would have let go of a session that it no longer heard of.
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

    /// Whether the entry stands in the session that is known of.
    fn is_current(&self, mine: &Mine) -> bool {
        mine.session == self.session.number
    }
}

fn left(span: Duration, elapsed: Duration) -> Duration {
    span.saturating_sub(elapsed)
}
