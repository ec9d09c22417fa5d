//! What one node takes, keeps and finishes, as a pure machine.
//!
//! No clock, no randomness, no I/O in here: `take` is told the time and what happened, `act` says
//! what is to be done. **Both expire first, at their own `now`.**
//!
//! # Why no two work on a task with valid windows
//! A slot is a lease of its own, over one document. A claim is a compare-and-set on the very
//! version that was looked at: one that is free, or one that stood still for its ttl on the
//! claimer's clock. The holder counts its window from before the claim or the renewal was *sent*,
//! for ttl/R, and any renewal makes the claim of somebody who counted from an older version fail.
//! The token rises with every claim and every refill.
//!
//! # Why a task is done once in the books
//! "Done" is a compare-and-set on the version that shows the task held by this node at the claim's
//! own token. Whoever was too late finds another version, is told so ([`Verdict::Refused`]), and
//! changes nothing. Nobody but the leader's refill puts anything else into a slot that is done, and
//! only at a higher token.
//!
//! # What a read may do
//! On a linearizable store a look that was sent after a write was given up shows what became of it.
//! On a weak one it proves nothing: only an acknowledged write grants or settles, so what a look
//! shows of our own is written again.
//!
//! # Why a task is begun before it is given up
//! A claim counts as an attempt, because nobody else can tell whether a node that vanished had
//! begun. But a node claims more than it has workers for, and whatever it had not begun when it
//! died would have lost an attempt. So the last attempt of a task is claimed only by a node that
//! can begin it at once.
//!
//! One look is under way at a time, one batch of writes, and of each slot at most one write.

mod acting;
mod looking;
#[cfg(test)]
mod tests;
mod writing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::documents::{
    Assignment, CLAIMS_A_TASK, DocumentError, Holding, MemberId, Progress, Slot,
};
use super::mutant::ClusterMutant;
use crate::clock::Moment;
use crate::lease::machine::{Ask, Lease};
use crate::lease::record::Op;
use crate::store::{Expect, Fault, Mark, Put, Reads, Version};
use crate::timing::Timing;

/// How many writes of one slot whose outcome is unknown are remembered. A forgotten one can no
/// longer grant.
const MOST_SENT: usize = 8;
/// How many slots are written in one batch.
pub const MOST_WRITES: usize = 256;

/// What a node is made of.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which member it is.
    pub member: MemberId,
    /// How its death can be proven, where it can.
    pub presence: Option<Mark>,
    /// The times of its locks.
    pub timing: Timing,
    /// What a read of the store proves.
    pub reads: Reads,
    /// Which kinds of tasks it can do.
    pub kinds: BTreeSet<String>,
    /// Draws the pauses. Two nodes should not have the same.
    pub seed: u64,
}

/// Where a node stands among the others: where it begins to look, and what its share is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// How many workers those have that stand before it in the node list.
    pub before: usize,
    /// Everybody in the node list.
    pub members: BTreeSet<MemberId>,
    /// How many workers it has.
    pub workers: usize,
    /// How many workers all nodes have.
    pub all_workers: usize,
}

/// What was found at a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The version that was read.
    pub version: Version,
    /// Its content, if it made sense.
    pub slot: Result<Slot, DocumentError>,
}

/// What certainly stood in a slot: an acknowledged write of this process, or what its planner found
/// there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// Which slot.
    pub slot: usize,
    /// At which version.
    pub version: Version,
    /// What stood there.
    pub content: Arc<Slot>,
}

impl Fact {
    /// Whether it is about something later than this, in the same slot.
    #[must_use]
    pub fn is_newer_than(&self, known: &Slot) -> bool {
        (self.content.token, self.content.revision) > (known.token, known.revision)
    }
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It is done; never again.
    Done(Option<String>),
    /// It failed; somebody may try again.
    Failed(String),
    /// It was stopped because somebody cancelled it.
    Cancelled,
    /// It was given up before its end, through no fault of its own: the attempt does not count.
    Returned,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// The leader rang: there may be work.
    Bell,
    /// Whether the store tells of changes.
    Notified(bool),
    /// Whether the leader is in this process, and tells of what it fills.
    Fed(bool),
    /// The leader in this process tells of slots with work in them.
    Told(Vec<Fact>),
    /// How many tasks it may hold at once, and work on at once. Fewer than it holds: it takes none.
    Hands {
        /// Held at once, at most.
        most: usize,
        /// Worked on at once, at most.
        workers: usize,
    },
    /// Where it stands among the others; without, it takes nothing.
    Place(Option<Place>),
    /// All slots were looked at, in their order.
    Looked(Ask, Result<Vec<Option<Seen>>, Fault>),
    /// A batch of writes was answered, in their order.
    Wrote(Ask, Vec<Result<Put, Fault>>),
    /// The holder with this mark is proven dead.
    HolderGone(Mark),
    /// A task reports; it goes out with the next renewal.
    Report(Claim, String),
    /// The work of a claim has ended, whether it is still held or not.
    Ended(Claim, Ending),
}

/// One claim of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Claim {
    /// Which slot.
    pub slot: usize,
    /// At which token.
    pub token: u64,
}

impl Claim {
    /// Under which serial the claimed task was accepted.
    #[must_use]
    pub fn serial(&self) -> u64 {
        self.token / CLAIMS_A_TASK
    }
}

/// One write of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotWrite {
    /// Which slot.
    pub slot: usize,
    /// The version it replaces.
    pub expect: Expect,
    /// What it says.
    pub body: Arc<Slot>,
    /// Whether it must survive a power cut: everything but a renewal.
    pub lasting: bool,
}

/// What came of a claim's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It is in the books.
    Accepted,
    /// Somebody else has the task, or had it since: this end counts for nothing.
    Refused,
    /// The task is at its end in the books and its slot was used again before the answer came: by
    /// this end or by a later attempt's.
    Unknown,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Look at all slots.
    Look(Ask),
    /// Write these.
    Write(Ask, Vec<SlotWrite>),
    /// Begin this work.
    Begin {
        /// The claim.
        claim: Claim,
        /// The lease to work under.
        lease: Lease,
        /// What to do.
        task: Arc<Assignment>,
        /// Which attempt this is, counted from 1.
        attempt: u32,
    },
    /// The lease of a claim is longer.
    Extended(Claim, Lease),
    /// The work must end before its lease does.
    MustStop(Claim),
    /// Somebody cancelled the task: its work must end.
    Cancel(Claim),
    /// The claim is lost: its work must end, and counts for nothing unless its end is accepted all
    /// the same.
    Lost(Claim),
    /// The end of a claim is decided.
    Settled(Claim, Verdict),
    /// A slot makes no sense and is left alone.
    Garbled(usize, DocumentError),
    /// It finished something, and there is nothing left to take.
    RanDry,
}

/// One node's part in the work of a cluster.
#[derive(Debug)]
pub struct Claims {
    settings: Settings,
    random: u64,
    place: Option<Place>,
    hands: usize,
    workers: usize,
    notified: bool,
    fed: bool,
    asks: u64,
    ops: u64,
    /// Counts what was learnt: a look that was sent before a slot's view was taken says nothing new
    /// of it.
    learnt: u64,
    look: Option<Look>,
    /// A look is wanted: the bell rang, or there may be more than was seen.
    stale: bool,
    /// What became of some write is not known: a look is wanted whether there are hands or not.
    doubt: bool,
    last_look: Option<Moment>,
    /// No look before this: the last one failed, or others shall have their share.
    pause: Option<(Moment, Duration)>,
    /// The first take since the bell has been: what is left now is for whoever has hands.
    shared_out: bool,
    /// Something was finished since it last ran dry.
    finished: bool,
    batch: Option<Batch>,
    /// How many writes leave in one batch: as many as the store answers well within a request's
    /// time.
    pace: usize,
    slots: Vec<Known>,
    mine: BTreeMap<usize, Mine>,
    outputs: Vec<Output>,
}

#[derive(Debug)]
struct Look {
    ask: Ask,
    sent: Moment,
    learnt: u64,
}

#[derive(Debug)]
struct Batch {
    ask: Ask,
    sent: Moment,
    writes: Vec<(usize, Arc<Slot>)>,
}

/// What is known of one slot.
#[derive(Clone, Debug, Default)]
struct Known {
    view: Option<View>,
    /// Writes of ours that may have been applied, and when they were sent.
    sent: Vec<(Op, Moment)>,
    /// A write is under way.
    flying: bool,
    /// What became of the last write is not known.
    doubt: bool,
    /// What makes no sense was told of already.
    garbled: Option<Version>,
}

#[derive(Clone, Debug)]
struct View {
    version: Version,
    slot: Arc<Slot>,
    /// When this very version was first seen, after the answer arrived.
    since: Moment,
    learnt: u64,
    /// Its holder is proven dead.
    gone: bool,
}

/// A claim of ours, from its grant until its end is settled.
#[derive(Debug)]
struct Mine {
    token: u64,
    /// Gone once it is lost.
    lease: Option<Lease>,
    stopping: bool,
    cancelled: bool,
    status: Option<String>,
    /// The status is not in the store yet.
    unreported: bool,
    ending: Option<Ending>,
}

impl Claims {
    /// A node that holds nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Claims {
        Claims {
            random: settings.seed | 1,
            settings,
            place: None,
            hands: 0,
            workers: 0,
            notified: false,
            fed: false,
            asks: 0,
            ops: 0,
            learnt: 0,
            look: None,
            stale: true,
            doubt: false,
            last_look: None,
            pause: None,
            shared_out: false,
            finished: false,
            batch: None,
            pace: MOST_WRITES / 4,
            slots: Vec::new(),
            mine: BTreeMap::new(),
            outputs: Vec::new(),
        }
    }

    /// How many tasks it holds, or is about to.
    #[must_use]
    pub fn holding(&self) -> usize {
        self.mine.len()
    }

    /// How many writes the store takes in one batch without keeping them waiting.
    #[must_use]
    pub fn pace(&self) -> usize {
        self.pace
    }

    /// The marks of others that hold something: those whose death is worth noticing.
    pub fn foreign_marks(&self) -> impl Iterator<Item = &Mark> {
        self.slots.iter().filter_map(|known| {
            let holding = known.view.as_ref().filter(|view| !view.gone)?.slot.holding()?;
            holding.presence.as_ref().filter(|_| holding.member != self.settings.member)
        })
    }

    /// Takes what happened; `act` says what follows.
    pub fn take(&mut self, now: Moment, input: Input) {
        self.expire(now);
        match input {
            Input::Bell => (self.stale, self.shared_out) = (true, false),
            Input::Notified(notified) => self.notified = notified,
            Input::Fed(fed) => self.fed = fed,
            Input::Told(facts) => self.told(now, facts),
            Input::Hands { most, workers } => (self.hands, self.workers) = (most, workers),
            Input::Place(place) => self.place = place,
            Input::Looked(ask, answer) => self.looked(now, ask, answer),
            Input::Wrote(ask, answers) => self.wrote(now, ask, answers),
            Input::HolderGone(mark) => self.holder_gone(&mark),
            Input::Report(claim, status) => {
                if let Some(mine) = self.claimed(claim) {
                    (mine.status, mine.unreported) = (Some(status), true);
                }
            }
            Input::Ended(claim, ending) => {
                if let Some(mine) = self.claimed(claim) {
                    mine.ending = Some(ending);
                }
            }
        }
    }

    /// What is to be done now. `wall` is only shown.
    pub fn act(&mut self, now: Moment, wall: u64) -> Vec<Output> {
        self.expire(now);
        self.give_up(now);
        self.write(now, wall);
        self.start_look(now);
        std::mem::take(&mut self.outputs)
    }

    fn claimed(&mut self, claim: Claim) -> Option<&mut Mine> {
        self.mine.get_mut(&claim.slot).filter(|mine| mine.token == claim.token)
    }

    fn holder_gone(&mut self, mark: &Mark) {
        for known in &mut self.slots {
            if let Some(view) = &mut known.view
                && view.slot.holding().and_then(|holding| holding.presence.as_ref()) == Some(mark)
            {
                view.gone = true;
            }
        }
    }

    /// What has passed by now is over, whatever is said afterwards.
    fn expire(&mut self, now: Moment) {
        for (slot, mine) in &mut self.mine {
            let claim = Claim { slot: *slot, token: mine.token };
            let Some(lease) = &mine.lease else { continue };
            if lease.remaining(now).is_zero() {
                mine.lease = None;
                self.outputs.push(Output::Lost(claim));
            } else if !mine.stopping && lease.until_stop(now).is_zero() {
                mine.stopping = true;
                self.outputs.push(Output::MustStop(claim));
            }
        }
    }

    fn lose(&mut self, slot: usize) {
        if let Some(mine) = self.mine.get_mut(&slot)
            && mine.lease.take().is_some()
        {
            self.outputs.push(Output::Lost(Claim { slot, token: mine.token }));
        }
    }

    fn ask(&mut self) -> Ask {
        self.asks += 1;
        Ask::numbered(self.asks)
    }

    fn op(&mut self) -> Op {
        self.ops += 1;
        Op::new(&self.settings.member, self.ops)
    }

    fn is_weak(&self) -> bool {
        self.settings.reads == Reads::Weak
    }

    /// A number below `bound`, drawn by the seed (xorshift).
    fn draw(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound.max(1)
    }
}
