//! The leader's part, as a pure state machine: counts ended tasks, and puts the next tasks into
//! slots.
//!
//! There is no clock, no randomness and no I/O in here. `step` gets the time and an input, and
//! returns the actions to carry out. The planner runs the machine on a store.
//!
//! # Why no task is lost, and none counted twice
//! Everything depends on one document, the cursor. A new leader takes it over before anything else;
//! from then on no earlier leader's write to it succeeds. One compare-and-set of the cursor records
//! the tasks that are counted, the tasks that are taken in, and the *intents*. An intent says which
//! task is to be written into which slot, under which serial number; without a task it makes the
//! slot vacant.
//!
//! Slots are written from recorded intents only. The cursor moves on only when each intent is seen
//! in its slot, and the next leader finishes the intents first. Each counted slot has an intent, so
//! it is used again before anything is counted once more. Each task that is taken in has an intent,
//! so it is in a slot before the cursor forgets it. Serial numbers only rise, and a slot's token
//! rises with them. So an intent that was applied is recognised even if its slot has changed since.
//! And a leader that does not know yet that it was deposed can only write the same content as its
//! successor.
//!
//! Every step may be cut off anywhere and done again. Dead letters, outcomes and pieces of results
//! are written before the cursor counts their tasks. Pages of the inbox are freed after the cursor
//! says that they are taken. A dead letter may stand in the store before its task is counted. It is
//! not brought back until then, because counting the task would write the letter once more.
//!
//! # How far reads are trusted
//! On a weak store a read proves nothing. So the leader writes a document once more, at the version
//! that it read, before it counts, takes in or relies on anything there: only an acknowledged write
//! counts.
//!
//! # Rounds
//! The leader works in rounds. Each round goes through the phases below in their order, and leaves
//! out those that have nothing to do. At any time at most one request to the store is under way,
//! and beside a look the one that wakes the nodes. Calls of the source go on across rounds.

mod answers;
mod apply;
mod catching_up;
mod cluster_config;
mod collect;
mod commits;
mod draft;
mod final_records;
mod held_cursor;
mod housekeeping;
mod look;
mod members;
mod pages;
mod planning;
mod request;
mod round;
mod source;
mod sweep;
#[cfg(test)]
mod tests;
mod vacancy;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure::protocol::Ask;
use tenure::store::{Mark, Reads, Version};
use tenure::{Key, Moment, Timing};

use self::apply::Applying;
use self::catching_up::{Looking, Pace};
use self::cluster_config::Upholding;
use self::collect::{Confirming, Ended};
use self::commits::{Commits, Settling};
use self::draft::Draft;
use self::final_records::{Ensuring, Filing};
use self::held_cursor::{HeldCursor, Stop, Taking};
use self::look::Look;
use self::members::{Members, Minding};
use self::pages::{FindingLetters, Item, Pages, Reading, Tidying};
use self::planning::{Places, Recording};
use self::request::Common;
use self::source::Source;
use self::sweep::{Sweep, Sweeping};
use self::vacancy::Vacating;
use super::claims::AcknowledgedWrite;
use super::documents::{Assignment, Keys, MemberId, Nodes, Slot};
use super::event::Event;
use super::input::{End, InputError, Window};
use crate::error::ClusterError;

pub use self::members::without;
pub use self::request::{Answer, OpId, Request, Warning};
pub use super::client::Shown;

/// The shortest time between two rounds while nodes have tasks to take. A round costs about the
/// same whether it counts one task or hundreds.
const PACE: Duration = Duration::from_millis(5);

/// The settings of a leader.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The keys of the cluster's documents.
    pub keys: Keys,
    /// The member in the leader's process.
    pub me: MemberId,
    /// The token of the leadership.
    pub token: u64,
    /// The times of the cluster's locks.
    pub timing: Timing,
    /// How far reads of the store can be trusted.
    pub reads: Reads,
    /// True if the leader lists a source.
    pub lists: bool,
    /// The fewest slots of the cluster.
    pub least_slots: usize,
    /// The id under which it makes its ops.
    pub ops: OpId,
}

/// An input of the machine.
#[derive(Debug)]
pub enum Input {
    /// Time has passed.
    Time,
    /// True if the store notifies of changes.
    Notified(bool),
    /// The answer to a request.
    Answered(Ask, Answer),
    /// Acknowledged writes of the node in this process, all sent while the cursor was held.
    Heard(Vec<AcknowledgedWrite>),
    /// The node in this process calls: there may be something to do.
    Called,
    /// The document that wakes the leader may have changed.
    WakeUp,
    /// The source has answered.
    Offered(Result<Window, InputError>),
    /// The source was told of the end of the task with this serial number.
    Committed(u64, Result<(), InputError>),
    /// A member is proven dead.
    MemberGone(MemberId),
}

/// An action to carry out.
#[derive(Debug)]
pub enum Output {
    /// Send this request. There is one at a time, and one of [`Request::Ring`].
    Request(Ask, Request),
    /// Ask the source for at most `max` items after this position.
    Offer {
        /// The position.
        position: Option<String>,
        /// The most items.
        max: usize,
    },
    /// Tell the source how this task ended.
    Commit(Arc<Assignment>, End),
    /// The cursor was taken over, or is given up: start or stop to hear of the node's writes.
    HoldsCursor(bool),
    /// Tell the node in this process of slots with work in them.
    Filled(Vec<AcknowledgedWrite>),
    /// Tell the node in this process of the node list.
    SawNodes(Arc<Nodes>),
    /// Wait for the proof that this member is dead.
    Watch(MemberId, Mark),
    /// Stop to wait for all such proofs.
    Unwatch,
    /// Tell the programs that show events.
    Tell(Event),
    /// A line for the log.
    Warn(Warning),
    /// This member is gone, and was taken from the list.
    Removed(MemberId),
    /// The leadership is over.
    Over(Over),
}

/// How the machine ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// A later leader has taken the cursor over, with this token.
    Deposed(u64),
    /// There are no serial numbers left.
    Exhausted,
}

/// The inputs that the machine waits for, beside answers to its requests. At the given time it
/// wants [`Input::Time`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It waits only for answers.
    Answers,
    /// It waits for the time.
    Time(Moment),
    /// It waits for the source's answer.
    Offer(Moment),
    /// It waits until the source was told of a task's end.
    Commits(Moment),
    /// It waits for any input.
    Any(Moment),
}

/// What the leader is doing.
#[derive(Debug)]
enum Phase {
    /// A round waits for the store's answer.
    Awaiting(Box<Activity>),
    /// All documents are looked at, and the nodes may be woken.
    Looking(Looking),
    /// Several tasks may have ended by this time. Local writes are taken in then.
    Pacing { until: Moment },
    /// The source is told of ended tasks.
    TellingSource(Settling),
    /// The source is asked for items. The round goes on without them at this time.
    AskingSource { places: Places, items: Vec<Item>, until: Moment },
    /// Another process was faster, or the store failed: no hurry.
    Pausing { until: Moment, after: After },
    /// There is nothing to do.
    Resting { until: Moment },
    /// A step is being taken, or the leadership is over.
    Between,
}

/// The activities of a round that wait for the store, in their order.
#[derive(Debug)]
enum Activity {
    /// The wake-up document is read, before everything else.
    Waking,
    /// The cursor is taken over. Then the leader catches up, by a look or by local writes.
    TakingCursor(Taking),
    /// The number of slots is set.
    UpholdingConfig(Upholding),
    /// The slots of recorded intents are written.
    Applying(Applying, After),
    /// Pages that a predecessor left behind are freed.
    TidyingPages(Tidying),
    /// Members that are gone are removed.
    MindingMembers(Minding),
    /// Old outcomes are removed.
    Sweeping(Sweeping),
    /// Ended tasks are proven to have ended. Then the source is told.
    ConfirmingEnds(Confirming),
    /// The documents of ended tasks are written.
    FilingRecords(Filing),
    /// Slots are proven to be free.
    ConfirmingVacancies(Vec<Ended>, Vacating),
    /// Pages of the inbox are read; for the second time if `mended`.
    ReadingPages { places: Places, reading: Reading, mended: bool },
    /// A gap in the inbox is searched for.
    MendingInbox(Places),
    /// The dead letters to bring back are looked up.
    FindingLetters(Places, Vec<Item>, FindingLetters),
    /// The submitters of cancelled tasks are told. Then the source is asked.
    TellingCancelled(Places, Vec<Item>, Ensuring),
    /// A rule is broken on purpose: slots are filled before the cursor records their intents.
    WritingSlotsFirst(Draft, Vec<(usize, Slot)>),
    /// The results and the cursor are written. Then the slots are, as above.
    Recording(Recording),
    /// Pages that were taken are freed. If a rule is broken, this draft is recorded only then.
    FreeingPages(Option<Draft>),
}

/// How a round goes on after a pause, or once intents were applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// With a new round, unless all intents are seen applied.
    Planning,
    /// By freeing pages: this round has recorded the intents.
    Recording,
}

/// The document that wakes the leader.
#[derive(Debug)]
enum WakeUp {
    /// It may have changed since it was read.
    Unread,
    /// It had this version.
    Read(Option<Version>),
}

/// The planning of one leadership. All of this state can be lost at any moment.
#[derive(Debug)]
pub struct Leader {
    common: Common,
    phase: Phase,
    asks: u64,
    /// The request under way, other than a wake-up of the nodes.
    asked: Option<Ask>,
    /// The wake-up of the nodes under way.
    ringing: Option<Ask>,
    cursor: Option<HeldCursor>,
    /// Local writes since the cursor was taken over, the newest of each slot.
    heard: BTreeMap<usize, AcknowledgedWrite>,
    /// The last look, with the facts and writes since. Much of it is usually still true at the next
    /// look.
    look: Look,
    /// The number of slots in the cluster's configuration, by an acknowledged write.
    slots: Option<usize>,
    pages: Pages,
    source: Source,
    commits: Commits,
    members: Members,
    sweep: Sweep,
    /// When to search the inbox for a gap again.
    mending_due: Moment,
    /// Slots were filled, perhaps by a predecessor, and the nodes were not told.
    unrung: bool,
    wake_up: WakeUp,
    pace: Pace,
    notified: bool,
    /// The versions of documents that were reported as making no sense.
    told: BTreeMap<Key, Version>,
    /// The reported reason why planning was last held up.
    held_up: Option<String>,
}

impl Leader {
    /// Creates the machine of a leader that knows nothing yet. It begins with [`Input::Time`].
    #[must_use]
    pub fn new(settings: Settings, now: Moment) -> Leader {
        Leader {
            common: Common::new(settings, now),
            phase: Phase::Resting { until: now },
            asks: 0,
            asked: None,
            ringing: None,
            cursor: None,
            heard: BTreeMap::new(),
            look: Look::default(),
            slots: None,
            pages: Pages::new(),
            source: Source::new(),
            commits: Commits::default(),
            members: Members::new(now),
            sweep: Sweep::new(now),
            mending_due: now,
            unrung: true,
            wake_up: WakeUp::Unread,
            pace: Pace::default(),
            notified: false,
            told: BTreeMap::new(),
            held_up: None,
        }
    }

    /// The inputs that the machine waits for.
    #[must_use]
    pub fn wait(&self) -> Wait {
        match &self.phase {
            Phase::Awaiting(_) | Phase::Between => Wait::Answers,
            Phase::Looking(looking) => looking.pace().map_or(Wait::Answers, Wait::Time),
            Phase::Pacing { until } | Phase::Pausing { until, .. } => Wait::Time(*until),
            Phase::TellingSource(settling) => Wait::Commits(settling.until),
            Phase::AskingSource { until, .. } => Wait::Offer(*until),
            Phase::Resting { until } => Wait::Any(*until),
        }
    }

    /// The version of the document that wakes the leader, as it was last read.
    #[must_use]
    pub fn wake_up(&self) -> Option<&Version> {
        match &self.wake_up {
            WakeUp::Unread => None,
            WakeUp::Read(version) => version.as_ref(),
        }
    }

    /// Handles an input. Returns the actions to carry out, in their order. `wall` is only shown to
    /// people.
    pub fn step(&mut self, now: Moment, wall: u64, input: Input) -> Vec<Output> {
        (self.common.now, self.common.wall) = (now, wall);
        let mut went = self.take(input);
        while let Err(stop) = went {
            went = self.stopped(stop);
        }
        std::mem::take(&mut self.common.outputs)
    }

    fn take(&mut self, input: Input) -> Result<(), Stop> {
        match input {
            Input::Time => return self.time_passed(),
            Input::Answered(ask, answer) => {
                if self.ringing.take_if(|ringing| *ringing == ask).is_some() {
                    return self.rang(answer);
                }
                if self.asked.take_if(|asked| *asked == ask).is_some() {
                    return self.answered(answer);
                }
                return Ok(());
            }
            Input::Notified(notified) => {
                self.notified = notified;
                return Ok(());
            }
            Input::Heard(writes) => {
                if self.cursor.is_some() {
                    self.heard.extend(writes.into_iter().map(|write| (write.slot, write)));
                }
                return Ok(());
            }
            Input::Called => {}
            Input::WakeUp => self.wake_up = WakeUp::Unread,
            Input::Offered(answer) => self.source.answered(&mut self.common, answer),
            Input::Committed(serial, result) => {
                self.commits.take(&mut self.common, serial, result);
            }
            Input::MemberGone(member) => self.members.proven_gone(member, self.common.now),
        }
        self.woken()
    }

    /// Sends a request, and goes on with this activity once it is answered.
    fn ask(&mut self, activity: Activity, request: Request) -> Result<(), Stop> {
        self.wait_in(Phase::Awaiting(Box::new(activity)), request)
    }

    fn wait_in(&mut self, phase: Phase, request: Request) -> Result<(), Stop> {
        self.phase = phase;
        let ask = self.send(request);
        self.asked = Some(ask);
        Ok(())
    }

    fn send(&mut self, request: Request) -> Ask {
        self.asks += 1;
        let ask = Ask::numbered(self.asks);
        self.common.outputs.push(Output::Request(ask, request));
        ask
    }

    /// Handles the early end of a round.
    fn stopped(&mut self, stop: Stop) -> Result<(), Stop> {
        let over = match stop {
            Stop::Deposed(by) => Over::Deposed(by),
            Stop::Failed(ClusterError::Exhausted) => Over::Exhausted,
            Stop::Unsure => {
                self.drop_cursor();
                return self.begin_round();
            }
            Stop::Failed(error) => {
                self.drop_cursor();
                self.report(error);
                return self.pause(self.common.settings.timing.request(), After::Planning);
            }
        };
        self.phase = Phase::Between;
        self.common.outputs.push(Output::Over(over));
        Ok(())
    }

    /// Forgets the cursor, and everything that was learnt under it.
    fn drop_cursor(&mut self) {
        (self.cursor, self.look) = (None, Look::default());
        self.heard.clear();
        self.pages.forget();
        self.common.outputs.push(Output::HoldsCursor(false));
    }

    /// Reports why planning is held up: the same reason once, however long it lasts.
    fn report(&mut self, error: ClusterError) {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        let says = format!("{error}: {}", cause.unwrap_or_default());
        if self.held_up.as_ref() == Some(&says) {
            return;
        }
        self.held_up = Some(says);
        if let ClusterError::Document { key, source } = error {
            self.common.garbled(key, source);
        } else {
            let says = "planning is held up, and goes on after a pause";
            self.common.warn_of(says, "", &error);
        }
    }

    fn take_phase(&mut self) -> Phase {
        std::mem::replace(&mut self.phase, Phase::Between)
    }

    fn pause(&mut self, span: Duration, after: After) -> Result<(), Stop> {
        self.phase = Phase::Pausing { until: self.common.now + span, after };
        Ok(())
    }
}

/// The cursor, in a phase that has it. Without it, it is taken over again.
fn held(cursor: &mut Option<HeldCursor>) -> Result<&mut HeldCursor, Stop> {
    cursor.as_mut().ok_or(Stop::Unsure)
}
