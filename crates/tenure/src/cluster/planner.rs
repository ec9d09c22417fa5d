//! The leader's part: counting what is at its end, and putting what is next into slots.
//!
//! # Why no task is lost, and none counted twice
//! Everything turns on one document, the cursor, which a leader takes over first of all: from then
//! on no write of an earlier leader's to it succeeds. One compare-and-set of it records at once
//! what is counted, what is taken in, and the *intents*: what is now to be written into which slot,
//! under which serial number. Slots are written from recorded intents only, and the cursor moves on
//! only when each of them is seen in its slot; whoever leads next finishes them first. A slot that
//! is counted has an intent, so that it is used again before anything is counted once more; what is
//! taken in has an intent, so that it is in a slot before the cursor forgets it. Serial numbers
//! only rise and a slot's token rises with them: an intent that has been applied is recognised
//! whatever became of its slot since, and a leader that does not know yet that it was deposed can
//! only write what its successor would write, too.
//!
//! Every step may be cut off anywhere and done again: dead letters, outcomes and pieces of results
//! are written before the cursor counts what they are about, pages of the inbox are freed after it
//! says that they are taken. A dead letter that stands before its task is counted is not brought
//! back before it is: counting the task would make the letter once more.
//!
//! # What a read may do
//! On a weak store a read proves nothing, so that whatever is counted, taken in or relied on is
//! first written once more, at the version that was read: only an acknowledged write counts.

mod apply;
mod catching_up;
mod charter;
mod collect;
mod commits;
mod draft;
mod look;
mod members;
mod office;
mod pages;
mod papers;
mod source;
mod sweep;
#[cfg(test)]
mod tests;
mod vacancy;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use self::collect::Ended;
use self::commits::Commits;
use self::draft::{Draft, Fit};
use self::look::Look;
use self::members::Members;
use self::office::{Office, Stop};
use self::pages::{Item, Pages, What};
use self::source::Source;
use self::sweep::Sweep;
use super::books::Books;
use super::documents::{Cursor, DocumentError, Format as _, MemberId, Piece, Report};
use super::event::{Event, Events};
use super::input::Windowed;
use super::mutant::ClusterMutant;
use super::news::{Hearing, News};
use crate::clock::Moment;
use crate::store::{Expect, Fault, Put, StoreExt as _, Version};
use crate::{Error, Key, Mandate, Timing};

/// The shortest time between two rounds while there is still something for nodes to take: a round
/// costs about the same whether it counts one task or hundreds.
const PACE: Duration = Duration::from_millis(5);

/// How often the inbox is searched for a gap, where there should never be one.
const MENDING: Duration = Duration::from_secs(60);

/// Plans the work of a cluster, for as long as its node leads.
pub(super) struct Planner {
    pub(super) books: Books,
    pub(super) timing: Timing,
    pub(super) source: Option<Arc<dyn Windowed>>,
    /// What the node beside it has written, and what it is told of.
    pub(super) news: Arc<News>,
    pub(super) events: Events,
    pub(super) me: MemberId,
}

/// A later leader has taken the cursor over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deposed {
    /// The token of its mandate.
    pub(super) by: u64,
}

impl Planner {
    /// Plans until somebody else does. Run it in [`Mandate::scope`]: it stops when it is dropped.
    ///
    /// A store that does not serve, and a cursor that makes no sense, are told of and tried again.
    ///
    /// # Errors
    /// [`Error::Exhausted`] when there are no serial numbers left.
    ///
    /// # Cancel safety
    /// Cancel safe: whoever plans next finds what was recorded, and goes on from there.
    pub(super) async fn run(&mut self, mandate: &Mandate) -> Result<Deposed, Error> {
        let mut shift = Shift::new(self, mandate.token());
        loop {
            match shift.round().await {
                Ok(Round::Busy) => {}
                Ok(Round::Idle) => shift.rest().await,
                Err(Stop::Deposed(by)) => return Ok(Deposed { by }),
                Err(Stop::Unsure) => shift.leave_office(),
                Err(Stop::Failed(Error::Exhausted)) => return Err(Error::Exhausted),
                Err(Stop::Failed(error)) => {
                    shift.leave_office();
                    shift.pause(&error).await;
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

/// One leadership's planning. Whatever is in here can be lost at any moment.
struct Shift<'a> {
    planner: &'a Planner,
    token: u64,
    office: Option<Office>,
    /// What the node beside it writes, since the cursor was taken over.
    hearing: Option<Hearing<'a>>,
    /// The last look, and what was heard and written since. Much of it is usually still true at the
    /// next.
    look: Look,
    /// How many slots the charter has, by an acknowledged write.
    slots: Option<usize>,
    pages: Pages,
    source: Source,
    commits: Commits,
    members: Members,
    /// When the locks of members are looked at again.
    members_due: Moment,
    sweep: Sweep,
    /// When the inbox is searched for a gap again.
    mending_due: Moment,
    /// Slots were filled, or may have been by a predecessor, and nobody was told.
    bell_due: bool,
    /// What the call was when it was last looked at, before everything else was.
    call: Option<Version>,
    call_due: bool,
    /// When the last round began.
    began: Moment,
    /// When it was last known what there is, by a look or by what was heard.
    caught_up: Option<Moment>,
    last_look: Option<Moment>,
    /// Somebody rang since the last look, or something was done without one.
    look_due: bool,
    /// The last round left something for nodes to take.
    stocked: bool,
    /// Which documents make no sense, as was told.
    told: BTreeMap<Key, Version>,
    /// Why planning was held up last, as was told.
    held_up: Option<String>,
}

impl<'a> Shift<'a> {
    fn new(planner: &'a Planner, token: u64) -> Shift<'a> {
        let now = planner.books.backend.clock().now();
        Shift {
            planner,
            token,
            office: None,
            hearing: None,
            look: Look::default(),
            slots: None,
            pages: Pages::new(),
            source: Source::new(planner.source.clone()),
            commits: Commits::default(),
            members: Members::default(),
            members_due: now,
            sweep: Sweep::new(now),
            mending_due: now,
            bell_due: true,
            call: None,
            call_due: true,
            began: now,
            caught_up: None,
            last_look: None,
            look_due: true,
            stocked: false,
            told: BTreeMap::new(),
            held_up: None,
        }
    }

    fn books(&self) -> &'a Books {
        &self.planner.books
    }

    fn now(&self) -> Moment {
        self.books().backend.clock().now()
    }

    /// Nothing that was learnt about the cursor counts any more.
    fn leave_office(&mut self) {
        self.office = None;
        self.hearing = None;
        self.pages.forget();
    }

    async fn pause(&mut self, error: &Error) {
        // It is told once, however long it lasts.
        let says = format!("{error}: {}", cause(error).unwrap_or_default());
        if self.held_up.as_ref() != Some(&says) {
            if let Error::Document { key, source } = error {
                self.garbled(key.clone(), source.clone());
            } else {
                let cause = cause(error);
                tracing::warn!(%error, cause, "planning is held up, and goes on after a pause");
            }
            self.held_up = Some(says);
        }
        self.books().sleep(self.planner.timing.request()).await;
    }

    fn garbled(&self, key: Key, error: DocumentError) {
        tracing::warn!(%key, %error, "a document makes no sense");
        self.tell(Event::Garbled { key, error });
    }

    fn tell(&self, event: Event) {
        // That nobody listens is fine.
        let _ = self.planner.events.send(event);
    }

    /// One round: finish what is recorded, count what is at its end, take in what is next.
    async fn round(&mut self) -> Result<Round, Stop> {
        let books = self.books();
        self.began = self.now();
        if self.call_due {
            let call = books.store().get(&books.keys.call()).await?;
            (self.call, self.call_due) = (call.map(|document| document.version), false);
            self.look_due = true;
        }
        let mut office = match self.office.take() {
            Some(office) => office,
            None => {
                let office = Office::take(books, self.token).await?;
                (self.hearing, self.look_due) = (Some(self.planner.news.hear()), true);
                office
            }
        };
        let mut look = std::mem::take(&mut self.look);
        self.catch_up(&office, &mut look).await?;
        let round = self.act(&mut office, &mut look).await?;
        (self.office, self.look, self.held_up) = (Some(office), look, None);
        Ok(round)
    }

    async fn act(&mut self, office: &mut Office, look: &mut Look) -> Result<Round, Stop> {
        let books = self.books();
        if charter::uphold(books, office.cursor(), look, &mut self.slots).await? {
            // Somebody may have been faster, or the look was an old one: no hurry.
            books.sleep(PACE).await;
            look.is_outdated = true;
            return Ok(Round::Busy);
        }
        office.doubt(|slot| look.is_lost(slot));
        if !self.apply(office, look).await? {
            return Ok(Round::Busy);
        }
        self.keep_house(office, look).await;
        self.move_on(office, look).await
    }

    /// Does what keeps the store tidy. None of it may hold up the work.
    async fn keep_house(&mut self, office: &Office, look: &Look) {
        let books = self.books();
        let pages = self.pages.tidy(books, office.cursor()).await;
        let members = self.mind_members(look).await;
        let outcomes = self.sweep.turn(books).await;
        for error in [pages, members, outcomes].into_iter().filter_map(Result::err) {
            let cause = cause(&error);
            tracing::warn!(%error, cause, "keeping house failed; it is tried again");
        }
    }

    /// Writes the slots of recorded intents. False while one of them is not seen there.
    async fn apply(&mut self, office: &mut Office, look: &mut Look) -> Result<bool, Stop> {
        if office.unseen.is_empty() && !office.letters_due {
            return Ok(true);
        }
        let before = office.unseen.len();
        let applied = apply::apply(self.books(), self.planner.timing.ttl(), office, look).await?;
        self.bell_due |= applied.filled;
        self.planner.news.filled(applied.facts);
        if !applied.wholly && (applied.failed || office.unseen.len() == before) {
            // The store is in the way, or somebody: no hurry.
            let pause = if applied.failed { self.planner.timing.request() } else { PACE };
            self.books().sleep(pause).await;
        }
        Ok(applied.wholly)
    }

    /// Counts and takes in, by one write of the cursor, and then writes the slots.
    async fn move_on(&mut self, office: &mut Office, look: &mut Look) -> Result<Round, Stop> {
        let books = self.books();
        let ended = self.collect(office, look).await?;
        let free = vacancy::free(books, look, self.planner.timing.ttl()).await;
        if !office::has_serials(office.cursor(), 2 * (ended.len() + free.len()) + 1024) {
            return Err(Error::Exhausted.into());
        }
        let draft = self.draft(office, look, &ended, &free).await?;
        self.stocked = look.outstanding() > 0;
        if !draft.changed {
            let asks_again = matches!(draft.window, Fit::Only(fit) if fit > 0);
            return Ok(if asks_again { Round::Busy } else { Round::Idle });
        }
        if ClusterMutant::SlotsFirst.is_on() {
            self.write_slots_first(&draft, look).await;
        }
        if !draft.reports.is_empty() {
            self.write_piece(office, draft.reports).await?;
        }
        if ClusterMutant::PageFreedEarly.is_on() {
            self.pages.free(books, &draft.cursor).await;
        }
        office.record(books, draft.cursor).await?;
        for (serial, id, error) in draft.refused {
            tracing::warn!(serial, %error, "the source gave what cannot be a task; it counts as dead");
            self.tell(Event::Refused { serial, id, error });
        }
        if draft.window == Fit::Wholly {
            self.source.taken();
        }
        self.stocked |= office.cursor().intents.iter().any(|intent| intent.task.is_some());
        self.apply(office, look).await?;
        self.pages.free(books, office.cursor()).await;
        Ok(Round::Busy)
    }

    /// What is at its end, with all that must be in the store before it may be counted.
    async fn collect(&mut self, office: &Office, look: &mut Look) -> Result<Vec<Ended>, Stop> {
        let books = self.books();
        let now = self.now();
        let all = look.ended(office.cursor());
        self.commits.keep_only(&all.iter().map(|(_, slot)| slot.task.serial).collect());
        let ended = collect::choose(all, |serial| self.commits.waits(serial, now));
        let ended = collect::confirm(books, look, ended).await;
        let (limit, source) = (self.planner.timing.ttl(), self.source.windowed().cloned());
        let ended = self.commits.settle(books, source.as_ref(), limit, ended).await;
        Ok(papers::file(books, ended).await?)
    }

    async fn draft(
        &mut self,
        office: &Office,
        look: &Look,
        ended: &[Ended],
        free: &[usize],
    ) -> Result<Draft, Stop> {
        let (books, cursor) = (self.books(), office.cursor());
        let room = if look.is_paused() { 0 } else { ended.len() + free.len() };
        if room == 0 {
            return Ok(draft::draft(cursor, ended, &[], Vec::new(), None, books.fresh_op()));
        }
        let garbled = self.pages.read(books, cursor).await?;
        garbled.into_iter().for_each(|(key, error)| self.garbled(key, error));
        self.mend_inbox(cursor).await?;
        let mut items: Vec<Item> = self.pages.items(cursor, room);
        self.postpone_retries(look, ended, &mut items);
        pages::find_letters(books, &mut items).await?;
        pages::tell_cancelled(books, &mut items).await?;
        let left = room.saturating_sub(items.len());
        let pause = self.planner.timing.request();
        let window = self.source.offer(books, pause, cursor, left).await;
        let draft = draft::draft(cursor, ended, free, items, window, books.fresh_op());
        if let Fit::Only(fit) = draft.window {
            self.source.fits_only(fit);
        }
        Ok(draft)
    }

    /// Leaves dead letters in the inbox whose task is not counted and will not be now, and whatever
    /// comes after them.
    fn postpone_retries(&mut self, look: &Look, ended: &[Ended], items: &mut Vec<Item>) {
        let first = items.iter().position(|item| match item.what {
            What::Retry(serial) => {
                look.shows(serial) && ended.iter().all(|ended| ended.report.serial != serial)
            }
            What::Task(_) | What::Again { .. } | What::Cancelled(_) | What::Nothing => false,
        });
        let Some(first) = first else { return };
        if let What::Retry(serial) = items[first].what {
            // Letters are written after the source was told, and whatever comes of the retry tells
            // it again.
            self.commits.assume_told(serial);
        }
        items.truncate(first);
    }

    /// Now and then, looks whether there is something in the inbox beyond a page that nobody has
    /// written.
    async fn mend_inbox(&mut self, cursor: &Cursor) -> Result<(), Stop> {
        let now = self.now();
        if !self.pages.is_empty() || now.boot < self.mending_due.boot {
            return Ok(());
        }
        let ttl = self.planner.timing.ttl();
        self.mending_due = now + if self.books().is_weak() { ttl } else { ttl.max(MENDING) };
        if self.books().mend_inbox(cursor.page).await? {
            tracing::warn!(
                page = cursor.page,
                "a page of the inbox was never written; it is passed"
            );
            let garbled = self.pages.read(self.books(), cursor).await?;
            garbled.into_iter().for_each(|(key, error)| self.garbled(key, error));
        }
        Ok(())
    }

    /// Writes the next piece of the results. One that stands there already was written by somebody
    /// who never counted it.
    async fn write_piece(&mut self, office: &mut Office, reports: Vec<Report>) -> Result<(), Stop> {
        let books = self.books();
        let key = books.keys.piece(office.cursor().pieces);
        let piece = Piece { reports, op: books.fresh_op() }.encode();
        match books.store().put(&key, Expect::Absent, piece.clone()).await {
            Ok(Put::Stored(_)) => return Ok(()),
            Ok(Put::Conflict) => {}
            Err(error) if error.fault == Fault::Indeterminate => {}
            Err(error) => return Err(error.into()),
        }
        let found = books.store().get(&key).await?;
        // If it were a successor's, the cursor would have been taken over before it was written.
        office.confirm(books).await?;
        let expect = found.map_or(Expect::Absent, |found| Expect::At(found.version));
        match books.store().put(&key, expect, piece).await? {
            Put::Stored(_) => Ok(()),
            Put::Conflict => Err(Stop::Unsure),
        }
    }

    /// A rule broken on purpose: nothing says yet what these slots are filled from.
    async fn write_slots_first(&mut self, draft: &Draft, look: &mut Look) {
        let ttl = self.planner.timing.ttl();
        for intent in &draft.cursor.intents {
            let sight = &look.slots[intent.slot];
            let op = || self.books().fresh_op();
            if let apply::Ruling::Write(expect, slot) = apply::ruling(intent, sight, false, ttl, op)
            {
                let key = self.books().keys.slot(intent.slot);
                let put = self.books().store().put(&key, expect, slot.encode()).await;
                if let Ok(Put::Stored(version)) = put {
                    look.stored(intent.slot, version, Arc::new(slot));
                }
            }
        }
    }

    /// Looks after the members, every heartbeat.
    async fn mind_members(&mut self, look: &Look) -> Result<(), Error> {
        let now = self.now();
        if now.boot < self.members_due.boot {
            return Ok(());
        }
        let (books, timing) = (self.books(), self.planner.timing);
        self.members_due = now + timing.heartbeat();
        let Some(nodes) = look.nodes.content() else { return Ok(()) };
        let me = &self.planner.me;
        let suspects = self.members.suspects(books, me, timing.ttl(), nodes).await?;
        if !suspects.is_empty() {
            self.members.remove(books, look, suspects).await?;
        }
        Ok(())
    }

    /// Waits until there may be something to do.
    async fn rest(&mut self) {
        let books = self.books();
        let (request, limit) = (self.planner.timing.request(), self.planner.timing.ttl());
        let mut wake = self.now() + self.planner.timing.poll(books.store().notifies());
        let due = [self.commits.due(), self.source.due()].into_iter().flatten();
        let due = due.chain([self.members_due, self.sweep.due()]);
        let alone = self.is_alone(&self.look);
        // A bell that was not rung is tried again soon.
        let due = due.chain((self.bell_due && !alone).then(|| self.now() + request));
        // What others did shows in a look only.
        let unlooked = self.caught_up > self.last_look;
        let due = due.chain(self.next_look(alone).filter(|_| unlooked));
        for moment in due {
            // What was due before the last round began has been thought of there, and was not
            // possible or not wanted.
            if moment.boot > self.began.boot && moment.boot < wake.boot {
                wake = moment;
            }
        }
        let call = books.keys.call();
        let mut timer = books.backend.clock().timer();
        tokio::select! {
            biased;
            () = self.planner.news.planner_called() => {}
            () = books.store().changed(&call, self.call.as_ref()) => self.call_due = true,
            () = self.source.answered(books, request) => {}
            () = self.commits.any(books, limit) => {}
            () = self.members.proven_gone() => self.members_due = self.now(),
            () = timer.until(wake) => {}
        }
    }
}

/// What an error came of, which its own words leave out.
fn cause(error: &dyn std::error::Error) -> Option<String> {
    error.source().map(ToString::to_string)
}
