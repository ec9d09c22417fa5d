//! Goes on with an activity once the store has answered.

use super::held_cursor::Stop;
use super::pages::cut_cancelled;
use super::planning::Places;
use super::request::{Answer, Next};
use super::{Activity, After, Leader, Output, PACE, WakeUp, held};

impl Leader {
    /// Goes on with this activity.
    pub(super) fn go_on(&mut self, activity: Activity, answer: Answer) -> Result<(), Stop> {
        let common = &mut self.common;
        match activity {
            Activity::Waking => {
                self.wake_up = WakeUp::Read(answer.version()?);
                self.pace.last_look = None;
                self.hold_cursor()
            }
            Activity::TakingCursor(taking) => match taking.answer(common, answer)? {
                Next::Ask(taking, request) => self.ask(Activity::TakingCursor(taking), request),
                Next::Done(held_cursor) => {
                    common.outputs.push(Output::HoldsCursor(true));
                    (self.cursor, self.pace.last_look) = (Some(held_cursor), None);
                    self.catch_up()
                }
            },
            Activity::UpholdingConfig(upholding) => match upholding.answer(common, answer)? {
                Next::Ask(upholding, request) => {
                    self.ask(Activity::UpholdingConfig(upholding), request)
                }
                Next::Done(slots) => {
                    self.slots = slots.or(self.slots);
                    // Another process may have been faster, or the look was old: no hurry.
                    self.look.is_outdated = true;
                    self.pause(PACE, After::Planning)
                }
            },
            Activity::Applying(applying, after) => {
                let held_cursor = held(&mut self.cursor)?;
                let next = applying.answer(common, held_cursor, &mut self.look, answer)?;
                self.go_on_applying(next, after)
            }
            Activity::TidyingPages(tidying) => {
                let next = self.pages.tidied(common, tidying, answer);
                match self.tidy(next) {
                    Some((tidying, request)) => self.ask(Activity::TidyingPages(tidying), request),
                    None => self.mind_members(),
                }
            }
            Activity::MindingMembers(minding) => {
                let next = self.members.answer(common, &self.look, minding, answer);
                match self.tidy(next) {
                    Some((minding, request)) => {
                        self.ask(Activity::MindingMembers(minding), request)
                    }
                    None => self.sweep(),
                }
            }
            Activity::Sweeping(sweeping) => {
                let next = self.sweep.answer(common, sweeping, answer);
                match self.tidy(next) {
                    Some((sweeping, request)) => self.ask(Activity::Sweeping(sweeping), request),
                    None => self.collect(),
                }
            }
            Activity::ConfirmingEnds(confirming) => {
                let ended = confirming.answer(&mut self.look, answer);
                self.tell_source(ended)
            }
            Activity::FilingRecords(filing) => {
                let next = filing.answer(common, answer)?;
                self.go_on_filing(next)
            }
            Activity::ConfirmingVacancies(ended, vacating) => {
                let free = vacating.answer(&mut self.look, answer);
                self.take_in(Places { ended, free })
            }
            Activity::ReadingPages { places, reading, mended } => {
                match self.pages.answer(common, reading, answer)? {
                    Some((reading, request)) => {
                        self.ask(Activity::ReadingPages { places, reading, mended }, request)
                    }
                    None if mended => self.choose_items(places),
                    None => self.mend_inbox(places),
                }
            }
            Activity::MendingInbox(places) => {
                if !answer.done()? {
                    return self.choose_items(places);
                }
                let cursor = held(&mut self.cursor)?.cursor();
                common.warn("a page of the inbox was never written; it is passed", cursor.page);
                match self.pages.read(common, cursor) {
                    Some((reading, request)) => {
                        self.ask(Activity::ReadingPages { places, reading, mended: true }, request)
                    }
                    None => self.choose_items(places),
                }
            }
            Activity::FindingLetters(places, mut items, finding) => {
                match finding.answer(common, &mut items, answer)? {
                    Some((finding, request)) => {
                        self.ask(Activity::FindingLetters(places, items, finding), request)
                    }
                    None => self.tell_cancelled(places, items),
                }
            }
            Activity::TellingCancelled(places, mut items, ensuring) => {
                match ensuring.answer(common, answer)? {
                    Next::Ask(ensuring, request) => {
                        self.ask(Activity::TellingCancelled(places, items, ensuring), request)
                    }
                    Next::Done(missing) => {
                        if !missing.is_empty() {
                            cut_cancelled(&mut items);
                        }
                        self.ask_source(places, items)
                    }
                }
            }
            Activity::WritingSlotsFirst(draft, slots) => {
                self.wrote_slots_first(slots, answer);
                self.write_piece(draft)
            }
            Activity::Recording(recording) => self.go_on_recording(recording, answer),
            Activity::FreeingPages(draft) => {
                self.pages.freed(common, answer);
                match draft {
                    Some(draft) => self.write_cursor(draft),
                    None => self.end_round(),
                }
            }
        }
    }
}
