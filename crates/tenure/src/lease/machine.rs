//! The lease protocol as a pure machine.
//!
//! No clock, no randomness, no I/O in here: `step` takes the time and one input, and returns the
//! actions to take. **Every step first expires the lease at its own `now`, and takes its input
//! afterwards**: if the answer to a grant comes too late, the lease is already over.
//!
//! One request is under way at a time. An answer that comes after its deadline is dropped; a later
//! read shows the outcome of that request.

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

use super::floor::Laid;
use super::mutant::Mutant;
use super::record::{Op, Record, RecordError};
use crate::clock::Moment;
use crate::protocol::{Ask, Farewell, Holder, Lease, Loss, Outcome};
use crate::store::{Durability, Expect, Fault, Put, Reads, Version};
use crate::timing::Timing;

/// The most writes with an unknown outcome that are remembered.
///
/// A forgotten write can no longer grant a lease.
const MOST_SENT: usize = 64;
/// The most versions of a weak store that are remembered.
///
/// Each is kept with the moment it was first seen.
const MOST_SEEN: usize = 8;

/// The settings of a candidacy.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The candidate, as it is written into the record when it holds the lease.
    pub candidate: Holder,
    /// The times of its leases.
    pub timing: Timing,
    /// The lock delay its claims put in force; `None` leaves the election's own.
    pub delay: Option<Duration>,
    /// How far a read of the store can be trusted.
    pub reads: Reads,
    /// How many tokens one raise adds to the election's floor; `None` where no floor is kept.
    pub floor: Option<u64>,
    /// The seed of the jitters. Two candidates should not share one.
    pub seed: u64,
}

/// The document found at the election's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The version that was read.
    pub version: Version,
    /// Its content, if it made sense.
    pub record: Result<Record, RecordError>,
}

/// The document found at the key of the election's floor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenFloor {
    /// The version that was read.
    pub version: Version,
    /// Its content, if it made sense.
    pub laid: Result<Laid, RecordError>,
}

/// An event that the machine reacts to.
#[derive(Clone, Debug)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// Requests of other candidacies are about to leave; requests due soon may join them.
    Batch,
    /// The document may have changed.
    Hint,
    /// The store began or stopped notifying of changes.
    Notified(bool),
    /// The holder in this very version is proven dead.
    HolderGone(Version),
    /// A read was answered.
    Read(Ask, Result<Option<Seen>, Fault>),
    /// A read of the floor was answered.
    ReadFloor(Ask, Result<Option<SeenFloor>, Fault>),
    /// A write was answered, of the record or of the floor.
    Wrote(Ask, Result<Put, Fault>),
    /// The work of a lost tenure has ended: the candidate stands again.
    WorkEnded,
    /// All work has ended: give up the lease and the candidacy.
    Release(Farewell),
    /// The work cannot be ended: leave, write nothing, and let the lease run out by itself.
    Abandon,
    /// The candidate publishes another value.
    Publish(Bytes),
    /// A program under test takes the leadership away.
    ForceLoss,
}

/// An action for the caller to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Read the record.
    Read {
        /// Must be given back with the answer.
        ask: Ask,
    },
    /// Write the record. `expire` is the caller's to fill in.
    Write {
        /// Must be given back with the answer.
        ask: Ask,
        /// The condition for the write.
        expect: Expect,
        /// The record to write.
        record: Record,
        /// How lasting the write must be.
        durability: Durability,
    },
    /// Read the floor.
    ReadFloor {
        /// Must be given back with the answer.
        ask: Ask,
    },
    /// Write the floor. It must last.
    WriteFloor {
        /// Must be given back with the answer.
        ask: Ask,
        /// The condition for the write.
        expect: Expect,
        /// The floor to write.
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
        /// The token of the lost tenure.
        token: u64,
        /// The reason.
        loss: Loss,
    },
    /// The store does not answer; the lease is running down.
    Suspended,
    /// The store answers again.
    Resumed,
    /// Another candidate leads (`Some`), or there is no leader (`None`).
    Following(Option<Arc<Holder>>),
    /// The document at the election's key is not a valid record.
    Garbled(RecordError),
    /// The candidacy is over; the machine does nothing more.
    Over(Outcome),
}

/// One candidacy in one election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    me: Arc<Holder>,
    timing: Timing,
    delay: Option<Duration>,
    reads: Reads,
    /// How many tokens one raise adds to the floor, where there is a floor.
    block: Option<u64>,
    notified: bool,
    seed: u64,
    draws: u64,
    asks: u64,
    ops: u64,

    view: Option<View>,
    /// The floor, as known since the version in view was first seen.
    floor: Known,
    /// The op of the newest raise of the floor sent for the version in view.
    raising: Option<Op>,
    /// Versions of a weak store, and when each was first seen. Versions never recur.
    first_seen: VecDeque<(Version, Moment)>,
    following: Option<Arc<Holder>>,
    generation: Option<u64>,
    highest_token: u64,
    ended_token: u64,
    lease: Option<Lease>,
    /// Work was told to stop. Latched: a renewal does not take it back.
    stopping: bool,
    /// A tenure was announced, and the end of its work was not reported yet.
    working: bool,
    suspended: bool,
    /// Writes with an unknown outcome. If a read finds one of them applied, the lease counts from
    /// the moment that write was sent.
    sent: Vec<Sent>,
    flight: Option<Flight>,
    /// The view must be read again before anything else.
    stale: bool,
    /// After a failure: the next request waits this long after that moment.
    pause: Option<(Moment, Duration)>,
    /// Conflicts in a row: writes that expected another version than the store had.
    conflicts: u32,
    last_read: Option<Moment>,
    /// A request is due soon, and a batch leaves now.
    renew_now: bool,
    tenure_began: Option<Moment>,
    /// When the last tenure was lost. The jitter after a lapse counts from here.
    lost_at: Option<Moment>,
    /// Tenures in a row that lapsed.
    lapses: u32,
    stage: Stage,
    #[cfg(feature = "mutants")]
    broken: Option<Mutant>,
    /// Requests that were given up. A sound machine would drop their answers.
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
    /// When the holder of this version was proven dead.
    gone: Option<Moment>,
}

/// The state of the floor, as known since the record's version was first seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Known {
    /// Nothing.
    Unread,
    /// The floor may have changed: a raise was refused, or not answered.
    Doubtful,
    /// A read showed this.
    Read(Option<(Version, Laid)>),
    /// We raised the floor, and the store confirmed it.
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
    /// Create a record where there is none. The new record is free, so a late creation does no
    /// harm.
    Create,
    Claim,
    Renew,
    /// Free or end the record that we hold.
    Release,
    /// Rewrite a record that a weak read showed: only the acknowledgement proves it.
    Confirm,
    /// Rewrite the record as it is.
    ///
    /// A write of ours that is still on its way can then no longer apply.
    Fence,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Standing,
    Leaving { farewell: Farewell, since: Moment, had_lease: bool, led: bool, tried: bool },
    Over,
}

impl Machine {
    /// Creates a candidate that knows nothing yet. The first step reads.
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

    /// Breaks one rule, to test that the suite notices.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn broken(mut self, mutant: Option<Mutant>) -> Machine {
        self.broken = mutant;
        self
    }

    /// Sets the wall clock of a broken machine; a sound one never reads it.
    #[cfg(feature = "mutants")]
    pub fn set_wall(&mut self, millis: u64) {
        self.wall = millis;
    }

    /// The candidate.
    #[must_use]
    pub fn candidate(&self) -> &Arc<Holder> {
        &self.me
    }

    /// The times of the candidate's leases.
    #[must_use]
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// The lease, as long as the candidate may believe in it.
    #[must_use]
    pub fn lease(&self, now: Moment) -> Option<Lease> {
        self.lease.filter(|lease| !lease.remaining(now).is_zero())
    }

    /// The version to wait on for a change, when nothing is under way.
    ///
    /// The outer option is `None` while waiting makes no sense. The inner option is the argument of
    /// [`Store::changed`].
    ///
    /// [`Store::changed`]: crate::store::Store::changed
    #[must_use]
    pub fn watching(&self) -> Option<Option<&Version>> {
        let idle = self.flight.is_none() && !self.stale && matches!(self.stage, Stage::Standing);
        let view = self.view.as_ref().filter(|_| idle)?;
        Some(view.found.as_ref().map(|(version, _)| version))
    }

    /// The version and holder to watch: if that holder dies, this candidate may claim early.
    #[must_use]
    pub fn awaiting_death(&self) -> Option<(&Version, &Arc<Holder>)> {
        let view = self.view.as_ref()?;
        let (version, record) = view.found.as_ref()?;
        let holder = record.holder().filter(|holder| holder.id != self.me.id)?;
        let waiting = matches!(self.stage, Stage::Standing) && view.gone.is_none();
        (waiting && holder.presence.is_some()).then_some((version, holder))
    }

    /// Returns true if this candidacy is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// Takes one input at one moment, and returns the actions to take.
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

    /// How long from now the next [`Input::Tick`] is needed.
    ///
    /// `None` while only another input can help.
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

/// A part of `whole`, from none to all of it, chosen by `draw`.
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
