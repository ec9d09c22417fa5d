//! The leader's part: counts ended tasks, and puts the next tasks into slots.
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
mod source;
mod sweep;
#[cfg(test)]
mod tests;
mod vacancy;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure::store::{Expect, Fault, Put, StoreExt as _, Version};
use tenure::{Key, Mandate, Moment, Timing};

use self::collect::Ended;
use self::commits::Commits;
use self::draft::{Draft, Fit};
use self::held_cursor::{HeldCursor, Stop};
use self::look::Look;
use self::members::Members;
use self::pages::{Item, Pages, What};
use self::source::Source;
use self::sweep::Sweep;
use super::client::ClusterClient;
use super::documents::{DocumentError, Format as _, MemberId, Piece, Report};
use super::event::{Event, Events};
use super::input::Windowed;
use super::local_writes::{LocalWrites, LocalWritesReader};
use super::mutant::ClusterMutant;
use crate::error::ClusterError;

/// The shortest time between two rounds while nodes have tasks to take. A round costs about the
/// same whether it counts one task or hundreds.
const PACE: Duration = Duration::from_millis(5);

/// Plans the work of a cluster, for as long as its node leads.
pub(super) struct Planner {
    pub(super) client: ClusterClient,
    pub(super) timing: Timing,
    pub(super) source: Option<Arc<dyn Windowed>>,
    /// Exchanges facts with the node of this process.
    pub(super) local_writes: Arc<LocalWrites>,
    pub(super) events: Events,
    pub(super) me: MemberId,
}

/// A later leader has taken the cursor over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deposed {
    /// The token of that leader's mandate.
    pub(super) by: u64,
}

impl Planner {
    /// Plans until a later leader does.
    ///
    /// Run it in [`Mandate::scope`]: it stops when it is dropped.
    ///
    /// If the store does not serve, or the cursor makes no sense, that is reported and tried again.
    ///
    /// # Errors
    /// [`ClusterError::Exhausted`] when there are no serial numbers left.
    ///
    /// # Cancel safety
    /// Cancel safe: the next leader finds the recorded state, and goes on from there.
    pub(super) async fn run(&mut self, mandate: &Mandate) -> Result<Deposed, ClusterError> {
        let mut leader = LeaderState::new(self, mandate.token());
        loop {
            match leader.round().await {
                Ok(Round::Busy) => {}
                Ok(Round::Idle) => leader.rest().await,
                Err(Stop::Deposed(by)) => return Ok(Deposed { by }),
                Err(Stop::Unsure) => leader.drop_cursor(),
                Err(Stop::Failed(ClusterError::Exhausted)) => return Err(ClusterError::Exhausted),
                Err(Stop::Failed(error)) => {
                    leader.drop_cursor();
                    leader.pause(&error).await;
                }
            }
        }
    }
}

/// How a round went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// There may be more to do at once.
    Busy,
    /// There was nothing to do.
    Idle,
}

/// The planning of one leadership. All of this state can be lost at any moment.
struct LeaderState<'a> {
    planner: &'a Planner,
    token: u64,
    held_cursor: Option<HeldCursor>,
    /// Facts from the node of this process, since the cursor was taken over.
    reader: Option<LocalWritesReader<'a>>,
    /// The last look, with the facts and writes since. Much of it is usually still true at the next
    /// look.
    look: Look,
    /// The number of slots in the cluster's configuration, by an acknowledged write.
    slots: Option<usize>,
    pages: Pages,
    source: Source,
    commits: Commits,
    members: Members,
    /// When to look at the locks of members again.
    members_due: Moment,
    sweep: Sweep,
    /// When to search the inbox for a gap again.
    mending_due: Moment,
    /// Slots were filled, perhaps by a predecessor, and the nodes were not told.
    wake_up_due: bool,
    /// The version of the call document when it was last read, before everything else.
    leader_wake_up: Option<Version>,
    leader_wake_up_due: bool,
    /// When the last round began.
    began: Moment,
    /// When the planner last learnt the state of the slots, by a look or by facts.
    caught_up: Option<Moment>,
    last_look: Option<Moment>,
    /// A look is due: the leader was called, or the cursor was taken over.
    look_due: bool,
    /// The last round left tasks for nodes to take.
    stocked: bool,
    /// The versions of documents that were reported as making no sense.
    told: BTreeMap<Key, Version>,
    /// The reported reason why planning was last held up.
    held_up: Option<String>,
}

impl<'a> LeaderState<'a> {
    fn new(planner: &'a Planner, token: u64) -> LeaderState<'a> {
        let now = planner.client.backend.clock().now();
        LeaderState {
            planner,
            token,
            held_cursor: None,
            reader: None,
            look: Look::default(),
            slots: None,
            pages: Pages::new(),
            source: Source::new(planner.source.clone()),
            commits: Commits::default(),
            members: Members::default(),
            members_due: now,
            sweep: Sweep::new(now),
            mending_due: now,
            wake_up_due: true,
            leader_wake_up: None,
            leader_wake_up_due: true,
            began: now,
            caught_up: None,
            last_look: None,
            look_due: true,
            stocked: false,
            told: BTreeMap::new(),
            held_up: None,
        }
    }

    fn client(&self) -> &'a ClusterClient {
        &self.planner.client
    }

    fn now(&self) -> Moment {
        self.client().backend.clock().now()
    }

    /// Forgets the cursor, and the facts and pages that were learnt under it.
    fn drop_cursor(&mut self) {
        self.held_cursor = None;
        self.reader = None;
        self.pages.forget();
    }

    async fn pause(&mut self, error: &ClusterError) {
        // The same reason is reported once, however long it lasts.
        let says = format!("{error}: {}", cause(error).unwrap_or_default());
        if self.held_up.as_ref() != Some(&says) {
            if let ClusterError::Document { key, source } = error {
                self.garbled(key.clone(), source.clone());
            } else {
                let cause = cause(error);
                tracing::warn!(%error, cause, "planning is held up, and goes on after a pause");
            }
            self.held_up = Some(says);
        }
        self.client().sleep(self.planner.timing.request()).await;
    }

    fn garbled(&self, key: Key, error: DocumentError) {
        tracing::warn!(%key, %error, "a document makes no sense");
        self.tell(Event::Garbled { key, error });
    }

    fn tell(&self, event: Event) {
        // An error means that there is no listener, which is fine.
        let _ = self.planner.events.send(event);
    }

    /// Does one round: finishes recorded intents, counts ended tasks, takes in the next.
    async fn round(&mut self) -> Result<Round, Stop> {
        let client = self.client();
        self.began = self.now();
        if self.leader_wake_up_due {
            let leader_wake_up = client.store().get(&client.keys.leader_wake_up()).await?;
            (self.leader_wake_up, self.leader_wake_up_due) =
                (leader_wake_up.map(|document| document.version), false);
            self.look_due = true;
        }
        let mut held_cursor = match self.held_cursor.take() {
            Some(held_cursor) => held_cursor,
            None => {
                let held_cursor = HeldCursor::take(client, self.token).await?;
                (self.reader, self.look_due) = (Some(self.planner.local_writes.hear()), true);
                held_cursor
            }
        };
        let mut look = std::mem::take(&mut self.look);
        self.catch_up(&held_cursor, &mut look).await?;
        let round = self.act(&mut held_cursor, &mut look).await?;
        (self.held_cursor, self.look, self.held_up) = (Some(held_cursor), look, None);
        Ok(round)
    }

    async fn act(&mut self, held_cursor: &mut HeldCursor, look: &mut Look) -> Result<Round, Stop> {
        let client = self.client();
        if cluster_config::uphold(client, held_cursor.cursor(), look, &mut self.slots).await? {
            // Another process may have been faster, or the look was old: no hurry.
            client.sleep(PACE).await;
            look.is_outdated = true;
            return Ok(Round::Busy);
        }
        held_cursor.doubt(|slot| look.is_lost(slot));
        if !self.apply(held_cursor, look).await? {
            return Ok(Round::Busy);
        }
        self.keep_house(held_cursor, look).await;
        self.move_on(held_cursor, look).await
    }

    /// Writes the slots of recorded intents.
    ///
    /// Returns false while an intent is not seen in its slot.
    async fn apply(&mut self, held_cursor: &mut HeldCursor, look: &mut Look) -> Result<bool, Stop> {
        if held_cursor.unseen.is_empty() && !held_cursor.letters_due {
            return Ok(true);
        }
        let before = held_cursor.unseen.len();
        let applied =
            apply::apply(self.client(), self.planner.timing.ttl(), held_cursor, look).await?;
        self.wake_up_due |= applied.filled;
        self.planner.local_writes.filled(applied.acknowledged);
        if !applied.wholly && (applied.failed || held_cursor.unseen.len() == before) {
            // The store failed, or another writer was faster: no hurry.
            let pause = if applied.failed { self.planner.timing.request() } else { PACE };
            self.client().sleep(pause).await;
        }
        Ok(applied.wholly)
    }

    /// Counts and takes in tasks by one write of the cursor, then writes the slots.
    async fn move_on(
        &mut self,
        held_cursor: &mut HeldCursor,
        look: &mut Look,
    ) -> Result<Round, Stop> {
        let client = self.client();
        let ended = self.collect(held_cursor, look).await?;
        let free = vacancy::free(client, look, self.planner.timing.ttl()).await;
        if !held_cursor::has_serials(held_cursor.cursor(), 2 * (ended.len() + free.len()) + 1024) {
            return Err(ClusterError::Exhausted.into());
        }
        let draft = self.draft(held_cursor, look, &ended, &free).await?;
        self.stocked = look.outstanding() > 0;
        if !draft.changed {
            let asks_again = matches!(draft.window, Fit::Only(fit) if fit > 0);
            return Ok(if asks_again { Round::Busy } else { Round::Idle });
        }
        if ClusterMutant::SlotsFirst.is_on() {
            self.write_slots_first(&draft, look).await;
        }
        if !draft.reports.is_empty() {
            self.write_piece(held_cursor, draft.reports).await?;
        }
        if ClusterMutant::PageFreedEarly.is_on() {
            self.pages.free(client, &draft.cursor).await;
        }
        held_cursor.record(client, draft.cursor).await?;
        for (serial, id, error) in draft.refused {
            tracing::warn!(serial, %error, "the source gave what cannot be a task; it counts as dead");
            self.tell(Event::Refused { serial, id, error });
        }
        if draft.window == Fit::Wholly {
            self.source.taken();
        }
        self.stocked |= held_cursor.cursor().intents.iter().any(|intent| intent.task.is_some());
        self.apply(held_cursor, look).await?;
        self.pages.free(client, held_cursor.cursor()).await;
        Ok(Round::Busy)
    }

    /// Collects the ended tasks that are ready to be counted.
    ///
    /// The source was told of its own items, and all documents that must come before the count are
    /// in the store.
    async fn collect(
        &mut self,
        held_cursor: &HeldCursor,
        look: &mut Look,
    ) -> Result<Vec<Ended>, Stop> {
        let client = self.client();
        let now = self.now();
        let all = look.ended(held_cursor.cursor());
        self.commits.keep_only(&all.iter().map(|(_, slot)| slot.task.serial).collect());
        let ended = collect::choose(all, |serial| self.commits.waits(serial, now));
        let ended = collect::confirm(client, look, ended).await;
        let (limit, source) = (self.planner.timing.ttl(), self.source.windowed().cloned());
        let ended = self.commits.settle(client, source.as_ref(), limit, ended).await;
        Ok(final_records::file(client, ended).await?)
    }

    async fn draft(
        &mut self,
        held_cursor: &HeldCursor,
        look: &Look,
        ended: &[Ended],
        free: &[usize],
    ) -> Result<Draft, Stop> {
        let (client, cursor) = (self.client(), held_cursor.cursor());
        let room = if look.is_paused() { 0 } else { ended.len() + free.len() };
        if room == 0 {
            return Ok(draft::draft(cursor, ended, &[], Vec::new(), None, client.fresh_op()));
        }
        let garbled = self.pages.read(client, cursor).await?;
        garbled.into_iter().for_each(|(key, error)| self.garbled(key, error));
        self.mend_inbox(cursor).await?;
        let mut items: Vec<Item> = self.pages.items(cursor, room);
        self.postpone_retries(look, ended, &mut items);
        pages::find_letters(client, &mut items).await?;
        pages::tell_cancelled(client, &mut items).await?;
        let left = room.saturating_sub(items.len());
        let pause = self.planner.timing.request();
        let window = self.source.offer(client, pause, cursor, left).await;
        let draft = draft::draft(cursor, ended, free, items, window, client.fresh_op());
        if let Fit::Only(fit) = draft.window {
            self.source.fits_only(fit);
        }
        Ok(draft)
    }

    /// Leaves retries in the inbox while their tasks are not counted.
    ///
    /// A retry is postponed if its task is in a slot and this round does not count it. All entries
    /// after the retry wait, too.
    fn postpone_retries(&mut self, look: &Look, ended: &[Ended], items: &mut Vec<Item>) {
        let first = items.iter().position(|item| match item.what {
            What::Retry(serial) => {
                look.shows(serial) && ended.iter().all(|ended| ended.report.serial != serial)
            }
            What::Task(_) | What::Again { .. } | What::Cancelled(_) | What::Nothing => false,
        });
        let Some(first) = first else { return };
        if let What::Retry(serial) = items[first].what {
            // The source was told before the letter was written, and the end of the retry tells it
            // again.
            self.commits.assume_told(serial);
        }
        items.truncate(first);
    }

    /// Writes the next piece of the results.
    ///
    /// A piece that stands there already was written by a leader that never counted it.
    async fn write_piece(
        &mut self,
        held_cursor: &mut HeldCursor,
        reports: Vec<Report>,
    ) -> Result<(), Stop> {
        let client = self.client();
        let key = client.keys.piece(held_cursor.cursor().pieces);
        let piece = Piece { reports, op: client.fresh_op() }.encode();
        match client.store().put(&key, Expect::Absent, piece.clone()).await {
            Ok(Put::Stored(_)) => return Ok(()),
            Ok(Put::Conflict) => {}
            Err(error) if error.fault == Fault::Indeterminate => {}
            Err(error) => return Err(error.into()),
        }
        let found = client.store().get(&key).await?;
        // If a successor had written the piece, it would have taken over the cursor before.
        held_cursor.confirm(client).await?;
        let expect = found.map_or(Expect::Absent, |found| Expect::At(found.version));
        match client.store().put(&key, expect, piece).await? {
            Put::Stored(_) => Ok(()),
            Put::Conflict => Err(Stop::Unsure),
        }
    }

    /// A rule broken on purpose: slots are filled before the cursor records their intents.
    async fn write_slots_first(&mut self, draft: &Draft, look: &mut Look) {
        let ttl = self.planner.timing.ttl();
        for intent in &draft.cursor.intents {
            let sight = &look.slots[intent.slot];
            let op = || self.client().fresh_op();
            if let apply::Ruling::Write(expect, slot) = apply::ruling(intent, sight, false, ttl, op)
            {
                let key = self.client().keys.slot(intent.slot);
                let put = self.client().store().put(&key, expect, slot.encode()).await;
                if let Ok(Put::Stored(version)) = put {
                    look.stored(intent.slot, version, Arc::new(slot));
                }
            }
        }
    }

    /// Waits until there may be something to do.
    async fn rest(&mut self) {
        let client = self.client();
        let (request, limit) = (self.planner.timing.request(), self.planner.timing.ttl());
        let mut wake = self.now() + self.planner.timing.poll(client.store().notifies());
        let due = [self.commits.due(), self.source.due()].into_iter().flatten();
        let due = due.chain([self.members_due, self.sweep.due()]);
        let alone = self.is_alone(&self.look);
        // If the nodes were not woken, try again soon.
        let due = due.chain((self.wake_up_due && !alone).then(|| self.now() + request));
        // Only a look shows the writes of other nodes.
        let unlooked = self.caught_up > self.last_look;
        let due = due.chain(self.next_look(alone).filter(|_| unlooked));
        for moment in due {
            // The last round already considered earlier deadlines. Their work was not possible or
            // not wanted then.
            if moment.boot > self.began.boot && moment.boot < wake.boot {
                wake = moment;
            }
        }
        let leader_wake_up = client.keys.leader_wake_up();
        let mut timer = client.backend.clock().timer();
        tokio::select! {
            biased;
            () = self.planner.local_writes.planner_called() => {}
            () = client.store().changed(&leader_wake_up, self.leader_wake_up.as_ref()) => self.leader_wake_up_due = true,
            () = self.source.answered(client, request) => {}
            () = self.commits.any(client, limit) => {}
            () = self.members.proven_gone() => self.members_due = self.now(),
            () = timer.until(wake) => {}
        }
    }
}

/// The cause of an error, which the error's own text leaves out.
fn cause(error: &dyn std::error::Error) -> Option<String> {
    error.source().map(ToString::to_string)
}
