//! The lease protocol as a pure machine.
//!
//! No clock, no randomness, no I/O in here: `step` is told the time and what happened, and answers
//! with what is to be done. **Every step expires first, at its own `now`, and takes its input
//! afterwards**: a grant that is answered too late finds the lease already over.
//!
//! One request is under way at a time. An answer that comes after its deadline is dropped; a read
//! will tell what became of the request.

mod footing;
mod inputs;
mod leaving;
mod reading;
mod standing;
mod writing;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::floor::{Floor, Laid};
use super::mutant::Mutant;
use super::record::{Holder, MAX_NUMBER, Op, Record, RecordError, State};
use crate::clock::Moment;
use crate::store::{Durability, Expect, Fault, Put, Reads, Version};
use crate::timing::{RATE_DENOMINATOR, RATE_NUMERATOR, Timing, window_of};

/// How many writes whose outcome is unknown are remembered. A forgotten one can no longer grant.
const MOST_SENT: usize = 64;
/// How many versions of a weak store are remembered with the moment they were first seen.
const MOST_SEEN: usize = 8;

/// What a candidacy is made of.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who stands, as it will be written when it holds the lease.
    pub candidate: Holder,
    /// The times of its leases.
    pub timing: Timing,
    /// The lock delay its claims put in force; `None` leaves the election's own.
    pub delay: Option<Duration>,
    /// What a read of the store proves.
    pub reads: Reads,
    /// By how many tokens the election's floor is raised at once; `None` where none is kept.
    pub floor: Option<u64>,
    /// Draws the jitters. Two candidates should not have the same.
    pub seed: u64,
}

/// Which request an answer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ask(u64);

impl Ask {
    pub(crate) fn numbered(number: u64) -> Ask {
        Ask(number)
    }
}

/// What was found at the election's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The version that was read.
    pub version: Version,
    /// Its content, if it made sense.
    pub record: Result<Record, RecordError>,
}

/// What was found where the election's floor is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenFloor {
    /// The version that was read.
    pub version: Version,
    /// Its content, if it made sense.
    pub laid: Result<Laid, RecordError>,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// Requests of others are about to leave; what is due soon may as well go along.
    Batch,
    /// The document may have changed.
    Hint,
    /// Whether the store tells of changes has changed.
    Notified(bool),
    /// The holder in this very version is proven dead.
    HolderGone(Version),
    /// A read was answered.
    Read(Ask, Result<Option<Seen>, Fault>),
    /// A read of the floor was answered.
    ReadFloor(Ask, Result<Option<SeenFloor>, Fault>),
    /// A write was answered, the floor's too.
    Wrote(Ask, Result<Put, Fault>),
    /// The work of a lost tenure has ended: stand again.
    WorkEnded,
    /// Whatever work there was has ended: give up the lease and the candidacy.
    Release(Farewell),
    /// Its work cannot be ended: leave, write nothing, and let the lease run out by itself.
    Abandon,
    /// The candidate publishes another value.
    Publish(Bytes),
    /// A program under test takes the leadership away.
    ForceLoss,
}

/// How a candidate leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Farewell {
    /// The next one may lead.
    Free,
    /// The election ends, for everyone.
    End,
}

/// A lease as its holder counts it: `window` after `from`, by whichever clock is faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The fencing token.
    pub token: u64,
    /// The moment before the request that granted it was sent.
    pub from: Moment,
    /// How long it may be believed in.
    pub window: Duration,
    /// How long before its end work is told to stop.
    pub grace: Duration,
}

impl Lease {
    /// How long it may still be believed in.
    #[must_use]
    pub fn remaining(&self, now: Moment) -> Duration {
        self.window.saturating_sub(now.at_most_since(self.from))
    }

    /// How long until its work must stop.
    #[must_use]
    pub fn until_stop(&self, now: Moment) -> Duration {
        self.remaining(now).saturating_sub(self.grace)
    }
}

/// Why leadership was lost.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// The window passed without a renewal.
    Expired,
    /// The store shows another holder, or this one at another token.
    Deposed,
    /// The election ended.
    Ended,
    /// The record is gone, or is no record any more; in a queue, the leader's own entry is.
    Vanished,
    /// The record went back to an earlier token.
    Regressed,
    /// A program under test took it away.
    Forced,
    /// It was given up.
    Resigned,
    /// This is a forked child of the process that leads.
    OtherProcess,
    /// The runtime that renewed it has stopped.
    Stopped,
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Loss::Expired => "the store did not answer in time to renew the lease",
            Loss::Deposed => "the store shows another leader",
            Loss::Ended => "the election has ended",
            Loss::Vanished => {
                "the election's record, or its own place in line, was deleted or overwritten"
            }
            Loss::Regressed => "the election's record went back to an earlier token",
            Loss::Forced => "a test took it away",
            Loss::Resigned => "it was given up",
            Loss::OtherProcess => "this process was forked from the one that leads",
            Loss::Stopped => "the runtime that renewed it has stopped",
        })
    }
}

/// How a candidacy ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The lease was given up, and the store says so.
    Released,
    /// There was no lease to give up any more.
    AlreadyLost,
    /// The store did not say. The lease runs out by itself.
    Unknown {
        /// After so long at the latest, others may lead.
        frees_within: Duration,
    },
    /// It left without ever having led.
    Withdrawn,
    /// The election ended.
    Ended,
    /// The record is gone although there was one.
    Vanished,
    /// The record went back to an earlier token.
    Regressed {
        /// What it says now.
        found: u64,
        /// What it once said.
        known: u64,
    },
    /// The store refuses, and always will.
    Refused(Fault),
    /// The token cannot rise any further.
    Exhausted,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Read the record.
    Read {
        /// To be given back with the answer.
        ask: Ask,
    },
    /// Write the record. `expire` is the caller's to fill in.
    Write {
        /// To be given back with the answer.
        ask: Ask,
        /// What must hold.
        expect: Expect,
        /// What to write.
        record: Record,
        /// What it must survive.
        durability: Durability,
    },
    /// Read the floor.
    ReadFloor {
        /// To be given back with the answer.
        ask: Ask,
    },
    /// Write the floor. It must last.
    WriteFloor {
        /// To be given back with the answer.
        ask: Ask,
        /// What must hold.
        expect: Expect,
        /// What to write.
        laid: Laid,
    },
    /// Leadership was won.
    Elected(Lease),
    /// The lease was renewed.
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
    /// The store does not answer; the lease is running down.
    Suspended,
    /// The store answers again.
    Resumed,
    /// Somebody else leads, or nobody does.
    Following(Option<Arc<Holder>>),
    /// What stands at the election's key makes no sense.
    Garbled(RecordError),
    /// The candidacy is over; nothing more will be done.
    Over(Outcome),
}

/// One candidacy in one election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    me: Arc<Holder>,
    timing: Timing,
    delay: Option<Duration>,
    reads: Reads,
    /// By how much the floor is raised, where there is one.
    block: Option<u64>,
    notified: bool,
    seed: u64,
    draws: u64,
    asks: u64,
    ops: u64,

    view: Option<View>,
    /// The floor under the version in view.
    floor: Known,
    /// The newest raise of it that was sent for the version in view.
    raising: Option<Op>,
    /// Versions of a weak store, and when each was first seen: they never recur.
    first_seen: VecDeque<(Version, Moment)>,
    following: Option<Arc<Holder>>,
    generation: Option<u64>,
    highest_token: u64,
    ended_token: u64,
    lease: Option<Lease>,
    /// Work was told to stop. Latched: a renewal does not take it back.
    stopping: bool,
    /// A tenure was announced, and its work has not been reported as ended.
    working: bool,
    suspended: bool,
    /// Writes whose outcome is unknown. Whichever of them a read finds, it grants from its sending.
    sent: Vec<Sent>,
    flight: Option<Flight>,
    /// The view must be read again before anything else.
    stale: bool,
    /// After a failure: not before this long after that moment.
    pause: Option<(Moment, Duration)>,
    /// Writes in a row that met another version than they expected.
    conflicts: u32,
    last_read: Option<Moment>,
    /// Something is due soon, and a batch leaves now.
    renew_now: bool,
    tenure_began: Option<Moment>,
    /// When the last tenure was lost: the jitter of a lapse counts from there.
    lost_at: Option<Moment>,
    /// Tenures in a row that lapsed.
    lapses: u32,
    stage: Stage,
    #[cfg(feature = "mutants")]
    broken: Option<Mutant>,
    /// Requests whose answers a sound machine would drop.
    #[cfg(feature = "mutants")]
    given_up: Vec<Flight>,
    #[cfg(feature = "mutants")]
    wall: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct View {
    found: Option<(Version, Record)>,
    /// When this version was first seen.
    since: Moment,
    /// Drawn once per version, so that a poll does not draw again and again.
    draw: u64,
    /// When its holder was proven dead.
    gone: Option<Moment>,
}

/// What is known of the floor, since the record's version was first seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Known {
    /// Nothing.
    Unread,
    /// It may have changed: a raise was refused, or not answered.
    Doubtful,
    /// A read showed this.
    Read(Option<(Version, Laid)>),
    /// We raised it, and the store said so.
    Raised(Laid),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sent {
    op: Op,
    at: Moment,
    base: Option<Version>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Flight {
    ask: Ask,
    sent: Moment,
    request: Request,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Request {
    Read,
    Write { record: Record, purpose: Purpose },
    ReadFloor,
    WriteFloor(Laid),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Purpose {
    /// Make a record where there is none. Held by nobody, so that it harms nobody when it arrives
    /// late.
    Create,
    Claim,
    Renew,
    /// Free or end what we hold.
    Release,
    /// Rewrite what a weak read showed: only the acknowledgement proves it.
    Confirm,
    /// Rewrite what is there, so that a write of ours still on its way can no longer apply.
    Fence,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Standing,
    Leaving { farewell: Farewell, since: Moment, had_lease: bool, led: bool, tried: bool },
    Over,
}

impl Machine {
    /// A candidate that knows nothing yet. The first step reads.
    #[must_use]
    pub fn new(settings: Settings) -> Machine {
        let Settings { candidate, timing, delay, reads, floor, seed } = settings;
        Machine {
            me: Arc::new(candidate),
            timing,
            delay,
            reads,
            block: floor,
            notified: false,
            seed,
            draws: 0,
            asks: 0,
            ops: 0,
            view: None,
            floor: Known::Unread,
            raising: None,
            first_seen: VecDeque::new(),
            following: None,
            generation: None,
            highest_token: 0,
            ended_token: 0,
            lease: None,
            stopping: false,
            working: false,
            suspended: false,
            sent: Vec::new(),
            flight: None,
            stale: true,
            pause: None,
            conflicts: 0,
            last_read: None,
            renew_now: false,
            tenure_began: None,
            lost_at: None,
            lapses: 0,
            stage: Stage::Standing,
            #[cfg(feature = "mutants")]
            broken: None,
            #[cfg(feature = "mutants")]
            given_up: Vec::new(),
            #[cfg(feature = "mutants")]
            wall: 0,
        }
    }

    /// Breaks one rule, for the suite that must notice.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn broken(mut self, mutant: Option<Mutant>) -> Machine {
        self.broken = mutant;
        self
    }

    /// Tells a broken machine what the wall clock says; a sound one never asks.
    #[cfg(feature = "mutants")]
    pub fn set_wall(&mut self, millis: u64) {
        self.wall = millis;
    }

    /// Who stands.
    #[must_use]
    pub fn candidate(&self) -> &Arc<Holder> {
        &self.me
    }

    /// The times of its leases.
    #[must_use]
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// The lease, while it may be believed in.
    #[must_use]
    pub fn lease(&self, now: Moment) -> Option<Lease> {
        self.lease.filter(|lease| !lease.remaining(now).is_zero())
    }

    /// The version to wait on for a change, when nothing is under way.
    ///
    /// The outer option says whether waiting makes sense now, the inner is what [`Store::changed`]
    /// takes.
    ///
    /// [`Store::changed`]: crate::Store::changed
    #[must_use]
    pub fn watching(&self) -> Option<Option<&Version>> {
        let idle = self.flight.is_none() && !self.stale && matches!(self.stage, Stage::Standing);
        let view = self.view.as_ref().filter(|_| idle)?;
        Some(view.found.as_ref().map(|(version, _)| version))
    }

    /// The version and holder whose death would let this candidate in at once.
    #[must_use]
    pub fn awaiting_death(&self) -> Option<(&Version, &Arc<Holder>)> {
        let view = self.view.as_ref()?;
        let (version, record) = view.found.as_ref()?;
        let holder = record.holder().filter(|holder| holder.id != self.me.id)?;
        let waiting = matches!(self.stage, Stage::Standing) && view.gone.is_none();
        (waiting && holder.presence.is_some()).then_some((version, holder))
    }

    /// Whether this candidacy is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// Takes one input at one moment, and says what is to be done.
    #[must_use]
    pub fn step(&mut self, now: Moment, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        if self.is_over() {
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
        self.tell_whom_we_follow(&mut out);
        out
    }

    /// How long from now the next [`Input::Tick`] is needed; `None` while only an input can help.
    #[must_use]
    pub fn wake(&self, now: Moment) -> Option<Duration> {
        if self.is(Mutant::NeverRests) && !self.is_over() {
            return Some(Duration::ZERO);
        }
        if self.is(Mutant::SleepsThroughExpiry) && self.flight.is_none() && self.following.is_some()
        {
            return None;
        }
        let mut soonest: Option<Duration> = None;
        let mut at = |span: Duration| soonest = Some(soonest.map_or(span, |least| least.min(span)));
        match &self.stage {
            Stage::Over => return None,
            Stage::Leaving { since, .. } => at(left(self.timing.ttl(), now.at_least_since(*since))),
            Stage::Standing => {}
        }
        if let Some(lease) = &self.lease {
            at(lease.remaining(now));
            if !self.stopping {
                at(lease.until_stop(now));
            }
        }
        match (&self.flight, self.pause) {
            (Some(flight), _) => at(left(self.timing.request(), now.at_most_since(flight.sent))),
            (None, Some((since, span))) => at(left(span, now.at_most_since(since))),
            (None, None) => {
                if let Some(span) = self.until_next_request(now) {
                    at(span);
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
}

fn left(span: Duration, elapsed: Duration) -> Duration {
    span.saturating_sub(elapsed)
}

/// A part of `whole`, from nothing to all of it, as `draw` says.
fn portion(whole: Duration, draw: u64) -> Duration {
    let part = u32::try_from(draw % 1024).unwrap_or(0);
    whole * part / 1023
}

/// Spreads the bits of a counter (splitmix64's finaliser).
fn mix(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
