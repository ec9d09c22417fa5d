//! Plans a round: collects ended tasks, finds new ones, and records both in the cursor.

use std::sync::Arc;

use tenure::store::{Expect, Fault, Put};

use super::collect::{self, Ended};
use super::commits::Settling;
use super::draft::{Draft, Fit, draft};
use super::held_cursor::{HeldCursor, Stop, has_serials};
use super::pages::{Item, What, find_letters, tell_cancelled};
use super::request::{Answer, Common, Next, Request, put};
use super::{Activity, After, Leader, Phase, apply, final_records, held, vacancy};
use crate::documents::{Cursor, Piece, Slot};
use crate::error::ClusterError;
use crate::event::Event;
use crate::mutant::ClusterMutant;

/// The slots that a round may fill.
#[derive(Debug)]
pub(super) struct Places {
    /// Slots with tasks that are counted.
    pub(super) ended: Vec<Ended>,
    /// Free slots, in the order of their use.
    pub(super) free: Vec<usize>,
}

impl Places {
    fn len(&self) -> usize {
        self.ended.len() + self.free.len()
    }
}

/// The writes of the next piece of the results and of the cursor.
#[derive(Debug)]
pub(super) struct Recording {
    draft: Draft,
    step: RecordingStep,
}

#[derive(Debug)]
enum RecordingStep {
    /// The piece is written, where there should be none.
    WritingPiece(Piece),
    /// A piece may stand there already, written by a leader that never counted it. It is read.
    ReadingPiece(Piece),
    /// The cursor is confirmed, on a weak store by this write of it. If a successor had written the
    /// piece, it would have taken over the cursor before.
    Confirming { piece: Piece, expect: Expect, again: Option<Cursor> },
    /// The piece is written over the one that was read.
    RewritingPiece,
    /// The cursor is written.
    WritingCursor,
}

impl Leader {
    /// Collects the ended tasks that are ready to be counted.
    ///
    /// The source is told of its own items, and all documents that must come before the count are
    /// written.
    pub(super) fn collect(&mut self) -> Result<(), Stop> {
        let all = self.look.ended(held(&mut self.cursor)?.cursor());
        self.commits.keep_only(&all.iter().map(|(_, slot)| slot.task.serial).collect());
        let now = self.common.now;
        let ended = collect::choose(all, |serial| self.commits.waits(serial, now));
        match collect::confirm(&mut self.common, &self.look, ended) {
            Next::Ask(confirming, request) => {
                self.ask(Activity::ConfirmingEnds(confirming), request)
            }
            Next::Done(ended) => self.tell_source(ended),
        }
    }

    pub(super) fn tell_source(&mut self, ended: Vec<Ended>) -> Result<(), Stop> {
        let settled = self.commits.settle(&mut self.common, ended);
        self.settle(settled)
    }

    /// Goes on with the tasks that the source was told of, or waits for it.
    pub(super) fn settle(&mut self, settled: Result<Vec<Ended>, Settling>) -> Result<(), Stop> {
        match settled {
            Ok(ended) => self.file(ended),
            Err(settling) => {
                self.phase = Phase::TellingSource(settling);
                Ok(())
            }
        }
    }

    pub(super) fn file(&mut self, ended: Vec<Ended>) -> Result<(), Stop> {
        let next = final_records::file(&mut self.common, ended);
        self.go_on_filing(next)
    }

    pub(super) fn go_on_filing(
        &mut self,
        next: Next<final_records::Filing, Vec<Ended>>,
    ) -> Result<(), Stop> {
        let ended = match next {
            Next::Ask(filing, request) => {
                return self.ask(Activity::FilingRecords(filing), request);
            }
            Next::Done(ended) => ended,
        };
        match vacancy::free(&mut self.common, &self.look) {
            Next::Ask(vacating, request) => {
                self.ask(Activity::ConfirmingVacancies(ended, vacating), request)
            }
            Next::Done(free) => self.take_in(Places { ended, free }),
        }
    }

    /// Finds the next tasks for these slots.
    pub(super) fn take_in(&mut self, places: Places) -> Result<(), Stop> {
        let cursor = held(&mut self.cursor)?.cursor();
        if !has_serials(cursor, 2 * places.len() + 1024) {
            return Err(ClusterError::Exhausted.into());
        }
        if self.look.is_paused() || places.len() == 0 {
            let op = self.common.op();
            let draft = draft(cursor, &places.ended, &[], Vec::new(), None, op);
            return self.decide(draft);
        }
        match self.pages.read(&self.common, cursor) {
            Some((reading, request)) => {
                self.ask(Activity::ReadingPages { places, reading, mended: false }, request)
            }
            None => self.mend_inbox(places),
        }
    }

    pub(super) fn choose_items(&mut self, places: Places) -> Result<(), Stop> {
        let mut items = self.pages.items(held(&mut self.cursor)?.cursor(), places.len());
        self.postpone_retries(&places.ended, &mut items);
        match find_letters(&self.common, &items) {
            Some((finding, request)) => {
                self.ask(Activity::FindingLetters(places, items, finding), request)
            }
            None => self.tell_cancelled(places, items),
        }
    }

    /// Leaves retries in the inbox while their tasks are not counted.
    ///
    /// A retry is postponed if its task is in a slot and this round does not count it. All entries
    /// after the retry wait, too.
    fn postpone_retries(&mut self, ended: &[Ended], items: &mut Vec<Item>) {
        let first = items.iter().position(|item| match item.what {
            What::Retry(serial) => {
                self.look.shows(serial) && ended.iter().all(|ended| ended.report.serial != serial)
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

    pub(super) fn tell_cancelled(&mut self, places: Places, items: Vec<Item>) -> Result<(), Stop> {
        match tell_cancelled(&mut self.common, &items) {
            Next::Ask(ensuring, request) => {
                self.ask(Activity::TellingCancelled(places, items, ensuring), request)
            }
            Next::Done(_) => self.ask_source(places, items),
        }
    }

    pub(super) fn ask_source(&mut self, places: Places, items: Vec<Item>) -> Result<(), Stop> {
        let left = places.len().saturating_sub(items.len());
        let cursor = held(&mut self.cursor)?.cursor();
        match self.source.ask(&mut self.common, cursor, left) {
            Some(until) => {
                self.phase = Phase::AskingSource { places, items, until };
                Ok(())
            }
            None => self.draft(places, items),
        }
    }

    pub(super) fn draft(&mut self, places: Places, items: Vec<Item>) -> Result<(), Stop> {
        let (cursor, op) = (held(&mut self.cursor)?.cursor(), self.common.op());
        let window = self.source.window(cursor);
        let draft = draft(cursor, &places.ended, &places.free, items, window, op);
        if let Fit::Only(fit) = draft.window {
            self.source.fits_only(fit);
        }
        self.decide(draft)
    }

    /// Counts and takes in tasks by one write of the cursor, if there are any.
    fn decide(&mut self, draft: Draft) -> Result<(), Stop> {
        self.pace.stocked = self.look.outstanding() > 0;
        if !draft.changed {
            let asks_again = matches!(draft.window, Fit::Only(fit) if fit > 0);
            return if asks_again { self.end_round() } else { self.rest() };
        }
        if ClusterMutant::SlotsFirst.is_on() {
            return self.write_slots_first(draft);
        }
        self.write_piece(draft)
    }

    /// Writes the next piece of the results.
    pub(super) fn write_piece(&mut self, mut draft: Draft) -> Result<(), Stop> {
        if draft.reports.is_empty() {
            return self.record(draft);
        }
        let reports = std::mem::take(&mut draft.reports);
        let piece = Piece { reports, op: self.common.op() };
        let key = self.common.settings.keys.piece(held(&mut self.cursor)?.cursor().pieces);
        let request = Request::put(key, Expect::Absent, &piece);
        let step = RecordingStep::WritingPiece(piece);
        self.ask(Activity::Recording(Recording { draft, step }), request)
    }

    fn record(&mut self, draft: Draft) -> Result<(), Stop> {
        if ClusterMutant::PageFreedEarly.is_on()
            && let Some(request) = self.pages.free(&mut self.common, &draft.cursor)
        {
            return self.ask(Activity::FreeingPages(Some(draft)), request);
        }
        self.write_cursor(draft)
    }

    pub(super) fn write_cursor(&mut self, draft: Draft) -> Result<(), Stop> {
        let request = held(&mut self.cursor)?.record(&self.common, &draft.cursor)?;
        let step = RecordingStep::WritingCursor;
        self.ask(Activity::Recording(Recording { draft, step }), request)
    }

    pub(super) fn go_on_recording(
        &mut self,
        recording: Recording,
        answer: Answer,
    ) -> Result<(), Stop> {
        let Recording { draft, step } = recording;
        let held_cursor = held(&mut self.cursor)?;
        let (step, request) = match step {
            RecordingStep::WritingPiece(piece) => match answer.put() {
                Ok(Put::Stored(_)) => return self.record(draft),
                Ok(Put::Conflict) => read_piece(&self.common, held_cursor, piece),
                Err(error) if error.fault == Fault::Indeterminate => {
                    read_piece(&self.common, held_cursor, piece)
                }
                Err(error) => return Err(error.into()),
            },
            RecordingStep::ReadingPiece(piece) => {
                let expect = answer.version()?.map_or(Expect::Absent, Expect::At);
                let (again, request) = held_cursor.confirm(&mut self.common)?;
                (RecordingStep::Confirming { piece, expect, again }, request)
            }
            RecordingStep::Confirming { piece, expect, again } => {
                held_cursor.confirmed(again, answer)?;
                let key = self.common.settings.keys.piece(held_cursor.cursor().pieces);
                (RecordingStep::RewritingPiece, Request::put(key, expect, &piece))
            }
            RecordingStep::RewritingPiece => match answer.put()? {
                Put::Stored(_) => return self.record(draft),
                Put::Conflict => return Err(Stop::Unsure),
            },
            RecordingStep::WritingCursor => {
                held_cursor.recorded(draft.cursor, answer)?;
                for (serial, id, error) in draft.refused {
                    let says = "the source gave what cannot be a task; it counts as dead";
                    self.common.warn_of(says, serial, &error);
                    self.common.tell(Event::Refused { serial, id, error });
                }
                if draft.window == Fit::Wholly {
                    self.source.taken();
                }
                let mut intents = held_cursor.cursor().intents.iter();
                self.pace.stocked |= intents.any(|intent| intent.task.is_some());
                return self.apply(After::Recording);
            }
        };
        self.ask(Activity::Recording(Recording { draft, step }), request)
    }

    /// A rule broken on purpose: slots are filled before the cursor records their intents.
    fn write_slots_first(&mut self, draft: Draft) -> Result<(), Stop> {
        let ttl = self.common.settings.timing.ttl();
        let (mut writes, mut slots) = (Vec::new(), Vec::new());
        for intent in &draft.cursor.intents {
            let sight = &self.look.slots[intent.slot];
            if let apply::Ruling::Write(expect, slot) =
                apply::ruling(intent, sight, false, ttl, || self.common.op())
            {
                writes.push(put(self.common.settings.keys.slot(intent.slot), expect, &slot));
                slots.push((intent.slot, slot));
            }
        }
        if writes.is_empty() {
            return self.write_piece(draft);
        }
        self.ask(Activity::WritingSlotsFirst(draft, slots), Request::Write(writes))
    }

    pub(super) fn wrote_slots_first(&mut self, slots: Vec<(usize, Slot)>, answer: Answer) {
        for ((number, slot), outcome) in slots.into_iter().zip(answer.wrote()) {
            if let Ok(Put::Stored(version)) = outcome {
                self.look.stored(number, version, Arc::new(slot));
            }
        }
    }
}

/// Reads the place of the next piece of the results.
fn read_piece(common: &Common, held_cursor: &HeldCursor, piece: Piece) -> (RecordingStep, Request) {
    let key = common.settings.keys.piece(held_cursor.cursor().pieces);
    (RecordingStep::ReadingPiece(piece), Request::read(key))
}
