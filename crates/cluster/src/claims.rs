//! The claims of one node, as a pure state machine.
//!
//! There is no clock, no randomness and no I/O in here. `take` gets the time and an input, `act`
//! returns the actions to carry out. **Both expire first, at their own `now`.**
//!
//! # Why no two nodes work on a task with valid windows
//! Each slot is its own lease, over one document. A claim is a compare-and-set on the exact version
//! that the claimer looked at. That version is free, or it stood still for its ttl on the claimer's
//! clock. The holder counts its window from before the claim or the renewal was *sent*, for ttl/R.
//! Every renewal changes the version, so a claimer that counted from an older version fails. The
//! token rises with every claim and every refill.
//!
//! # Why a task is done once in the cluster's records
//! "Done" is a compare-and-set on the version that shows the task held by this node at the claim's
//! own token. A node that is too late finds another version, gets [`Verdict::Refused`], and changes
//! nothing. Only the leader's refill puts anything else into a slot that is done, and only at a
//! higher token.
//!
//! # How far reads are trusted
//! On a linearizable store, a look that was sent after a write was given up shows whether the write
//! took effect. On a weak store a look proves nothing: only an acknowledged write grants or settles
//! a claim. So if a look shows one of our own writes, the node writes it again.
//!
//! # Why a task is begun before it is given up
//! A claim counts as an attempt, because no other node can tell whether a node that vanished had
//! begun the task. But a node claims more tasks than it has workers, and a task that it had not
//! begun when it died would have lost an attempt. So the last attempt of a task is claimed only by
//! a node that can begin it at once.
//!
//! At any time at most one look is under way, one batch of writes, and one write of each slot.

mod acting;
mod looking;
#[cfg(test)]
mod tests;
mod writing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tenure::lease::record::Op;
use tenure::protocol::{Ask, Lease};
use tenure::store::{Expect, Fault, Mark, Put, Reads, Version};
use tenure::{Moment, Timing};

use super::documents::{Assignment, CLAIMS_A_TASK, DocumentError, MemberId, Slot};
use super::mutant::ClusterMutant;

/// How many writes with unknown outcome are remembered for one slot. A forgotten write can no
/// longer grant a claim.
const MOST_SENT: usize = 8;
/// The most slots that are written in one batch.
pub const MOST_WRITES: usize = 256;

/// The settings of a node.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The id of the member.
    pub member: MemberId,
    /// The mark by which others can prove the member's death, where that is possible.
    pub presence: Option<Mark>,
    /// The times of the member's locks.
    pub timing: Timing,
    /// How far reads of the store can be trusted.
    pub reads: Reads,
    /// The kinds of tasks that the node can run.
    pub kinds: BTreeSet<String>,
    /// Seeds the random pauses. Two nodes should not have the same seed.
    pub seed: u64,
}

/// A node's place in the node list: decides where it begins to claim, and its share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of workers of all nodes before it in the node list.
    pub before: usize,
    /// All members in the node list.
    pub members: BTreeSet<MemberId>,
    /// The number of its own workers.
    pub workers: usize,
    /// The number of workers of all nodes.
    pub all_workers: usize,
}

/// A slot as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The version that was read.
    pub version: Version,
    /// The content, or the reason why it makes no sense.
    pub slot: Result<Slot, DocumentError>,
}

/// A content that certainly stood in a slot.
///
/// It comes from an acknowledged write of this process, or its planner found it there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcknowledgedWrite {
    /// The slot.
    pub slot: usize,
    /// The version.
    pub version: Version,
    /// The content.
    pub content: Arc<Slot>,
}

impl AcknowledgedWrite {
    /// Returns true if this fact is newer than `known`, a content of the same slot.
    #[must_use]
    pub fn is_newer_than(&self, known: &Slot) -> bool {
        (self.content.token, self.content.revision) > (known.token, known.revision)
    }
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It is done, and never runs again.
    Done(Option<String>),
    /// It failed; a node may try it again.
    Failed(String),
    /// It was stopped because it was cancelled.
    Cancelled,
    /// It was given up before its end, through no fault of its own: the attempt does not count.
    Returned,
}

/// An input of the machine.
#[derive(Clone, Debug)]
pub enum Input {
    /// The leader woke the nodes: there may be work.
    WakeUp,
    /// True if the store notifies of changes.
    Notified(bool),
    /// True if the leader is in this process, and reports the slots that it fills.
    Fed(bool),
    /// The leader in this process reports slots with work in them.
    Told(Vec<AcknowledgedWrite>),
    /// How many tasks the node may hold at once, and work on at once. A node that holds `most` or
    /// more takes none.
    Hands {
        /// The most tasks held at once.
        most: usize,
        /// The most tasks worked on at once.
        workers: usize,
    },
    /// The node's place in the node list. Without a place it takes no tasks.
    Place(Option<Place>),
    /// The answer to a look at all slots, in their order.
    Looked(Ask, Result<Vec<Option<Seen>>, Fault>),
    /// The answers to a batch of writes, in their order.
    Wrote(Ask, Vec<Result<Put, Fault>>),
    /// The holder with this mark is proven dead.
    HolderGone(Mark),
    /// A task reports its status, which goes out with the next renewal.
    Report(Claim, String),
    /// The work of a claim has ended, whether the claim is still held or not.
    Ended(Claim, Ending),
}

/// One claim of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Claim {
    /// The slot.
    pub slot: usize,
    /// The token.
    pub token: u64,
}

impl Claim {
    /// The serial number of the claimed task.
    #[must_use]
    pub fn serial(&self) -> u64 {
        self.token / CLAIMS_A_TASK
    }
}

/// One write of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotWrite {
    /// The slot.
    pub slot: usize,
    /// The version it replaces.
    pub expect: Expect,
    /// The new content.
    pub body: Arc<Slot>,
    /// True if it must survive a power cut. All writes but renewals must.
    pub lasting: bool,
}

/// The decision on a claim's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The end is in the cluster's records.
    Accepted,
    /// Another node has the task, or had it since: this end counts for nothing.
    Refused,
    /// The slot was used again before the answer came. The task has ended in the cluster's records,
    /// by this end or by the end of a later attempt.
    Unknown,
}

/// An action to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Look at all slots.
    Look(Ask),
    /// Write these slots.
    Write(Ask, Vec<SlotWrite>),
    /// Begin this work.
    Begin {
        /// The claim.
        claim: Claim,
        /// The lease to work under.
        lease: Lease,
        /// The task.
        task: Arc<Assignment>,
        /// The number of this attempt, counted from 1.
        attempt: u32,
    },
    /// The lease of a claim was extended.
    Extended(Claim, Lease),
    /// The work must end before its lease does.
    MustStop(Claim),
    /// The task was cancelled: its work must end.
    Cancel(Claim),
    /// The claim is lost: its work must end, and counts for nothing unless its end is accepted all
    /// the same.
    Lost(Claim),
    /// The end of a claim is decided.
    Settled(Claim, Verdict),
    /// A slot makes no sense and is left alone.
    Garbled(usize, DocumentError),
    /// The node finished something, and there is nothing left to take.
    RanDry,
}

/// One node's claims on the tasks of a cluster.
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
    /// Rises with every update of a slot's view. A look that was sent before the update shows
    /// nothing newer of that slot.
    learnt: u64,
    look: Option<Look>,
    /// A look is wanted: the leader woke the nodes, or there may be more work than was seen.
    stale: bool,
    /// The outcome of some write is unknown: a look is needed even if the node can take no more
    /// tasks.
    doubt: bool,
    last_look: Option<Moment>,
    /// No look and no claim until this pause ends: a request failed, or other nodes get time to
    /// take their share.
    pause: Option<(Moment, Duration)>,
    /// The node took its fair share since the last wake-up; the rest is first come, first served.
    shared_out: bool,
    /// A claim was settled since the last [`Output::RanDry`].
    finished: bool,
    batch: Option<Batch>,
    /// The most writes in one batch: as many as the store answers well within a request's time.
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

/// The node's knowledge of one slot.
#[derive(Clone, Debug, Default)]
struct Known {
    view: Option<View>,
    /// Writes of ours that may have been applied, and when they were sent.
    sent: Vec<(Op, Moment)>,
    /// A write is under way.
    flying: bool,
    /// The outcome of the last write is unknown.
    doubt: bool,
    /// The version that was already reported as making no sense.
    garbled: Option<Version>,
}

#[derive(Clone, Debug)]
struct View {
    version: Version,
    slot: Arc<Slot>,
    /// When this version was first seen, after the answer arrived.
    since: Moment,
    learnt: u64,
    /// Its holder is proven dead.
    gone: bool,
}

/// A claim of ours, from its grant until its end is settled.
#[derive(Debug)]
struct Mine {
    token: u64,
    /// `None` once the claim is lost.
    lease: Option<Lease>,
    stopping: bool,
    cancelled: bool,
    status: Option<String>,
    /// The status is not in the store yet.
    unreported: bool,
    ending: Option<Ending>,
}

impl Claims {
    /// Creates the machine of a node that holds nothing yet.
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

    /// The number of claims that are not settled: granted, or sent and perhaps granted.
    ///
    /// A claim without an answer counts until its window is over: by then nothing could be done
    /// under it.
    #[must_use]
    pub fn unsettled(&self, now: Moment) -> usize {
        if ClusterMutant::LeavesWithClaimsUnderWay.is_on() {
            return self.mine.len();
        }
        let window = self.settings.timing.window();
        let is_open = |(slot, known): &(usize, &Known)| {
            let newest = known.sent.last().map(|(_, at)| now.at_least_since(*at));
            !self.mine.contains_key(slot) && newest.is_some_and(|elapsed| elapsed < window)
        };
        self.mine.len() + self.slots.iter().enumerate().filter(is_open).count()
    }

    /// How many writes the store answers in one batch without delay.
    #[must_use]
    pub fn pace(&self) -> usize {
        self.pace
    }

    /// The marks of other members that hold a task, to notice their death.
    pub fn foreign_marks(&self) -> impl Iterator<Item = &Mark> {
        self.slots.iter().filter_map(|known| {
            let holding = known.view.as_ref().filter(|view| !view.gone)?.slot.holding()?;
            holding.presence.as_ref().filter(|_| holding.member != self.settings.member)
        })
    }

    /// Handles an input. `act` returns the actions that follow.
    pub fn take(&mut self, now: Moment, input: Input) {
        self.expire(now);
        match input {
            Input::WakeUp => (self.stale, self.shared_out) = (true, false),
            Input::Notified(notified) => self.notified = notified,
            Input::Fed(fed) => self.fed = fed,
            Input::Told(acknowledged) => self.told(now, acknowledged),
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

    /// Returns the actions that are due now. `wall` is only shown to people.
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

    /// Ends leases that have run out, and stops work near the end of its lease.
    ///
    /// An answer that comes later changes neither.
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
