//! The course of a round: from one phase to the next.

use super::held_cursor::{Stop, Taking};
use super::request::{Answer, Next, Request};
use super::{
    Activity, After, Leader, Output, PACE, Phase, Wait, WakeUp, apply, cluster_config, held,
};

impl Leader {
    /// Begins a round: finishes recorded intents, counts ended tasks, takes in the next.
    pub(super) fn begin_round(&mut self) -> Result<(), Stop> {
        self.pace.began = self.common.now;
        match self.wake_up {
            WakeUp::Unread => {
                let key = self.common.settings.keys.leader_wake_up();
                self.ask(Activity::Waking, Request::read(key))
            }
            WakeUp::Read(_) => self.hold_cursor(),
        }
    }

    pub(super) fn hold_cursor(&mut self) -> Result<(), Stop> {
        if self.cursor.is_some() {
            return self.catch_up();
        }
        let (taking, request) = Taking::begin(&self.common);
        self.ask(Activity::TakingCursor(taking), request)
    }

    /// Handles the passing of time.
    pub(super) fn time_passed(&mut self) -> Result<(), Stop> {
        let until = match self.wait() {
            Wait::Answers => return Ok(()),
            Wait::Time(until) | Wait::Offer(until) | Wait::Commits(until) | Wait::Any(until) => {
                until
            }
        };
        if until.boot > self.common.now.boot {
            return Ok(());
        }
        match self.take_phase() {
            Phase::Looking(looking) => self.go_on_looking(looking),
            Phase::Pacing { .. } => self.paced(),
            Phase::TellingSource(settling) => {
                let ended = self.commits.settled(settling);
                self.file(ended)
            }
            Phase::AskingSource { places, items, .. } => self.draft(places, items),
            Phase::Pausing { after: After::Planning, .. } | Phase::Resting { .. } => {
                self.begin_round()
            }
            Phase::Pausing { after: After::Recording, .. } => self.free_pages(),
            Phase::Awaiting(_) | Phase::Between => Ok(()),
        }
    }

    /// Goes on if this was waited for: something happened beside the store.
    pub(super) fn woken(&mut self) -> Result<(), Stop> {
        match self.take_phase() {
            Phase::TellingSource(settling) => {
                let settled = self.commits.go_on(&mut self.common, settling);
                self.settle(settled)
            }
            Phase::AskingSource { places, items, .. } if !self.source.is_asked() => {
                self.draft(places, items)
            }
            Phase::Resting { .. } => self.begin_round(),
            phase @ (Phase::Awaiting(_)
            | Phase::Looking(_)
            | Phase::Pacing { .. }
            | Phase::AskingSource { .. }
            | Phase::Pausing { .. }
            | Phase::Between) => {
                self.phase = phase;
                Ok(())
            }
        }
    }

    /// Takes in the answer to the request under way.
    pub(super) fn answered(&mut self, answer: Answer) -> Result<(), Stop> {
        match self.take_phase() {
            Phase::Awaiting(activity) => self.go_on(*activity, answer),
            Phase::Looking(looking) => self.shown(looking, answer),
            phase @ (Phase::Pacing { .. }
            | Phase::TellingSource(_)
            | Phase::AskingSource { .. }
            | Phase::Pausing { .. }
            | Phase::Resting { .. }
            | Phase::Between) => {
                self.phase = phase;
                Ok(())
            }
        }
    }

    /// Makes sure that there are enough slots, and applies recorded intents.
    pub(super) fn act(&mut self) -> Result<(), Stop> {
        let held_cursor = held(&mut self.cursor)?;
        let (cursor, look) = (held_cursor.cursor(), &self.look);
        if let Some((upholding, request)) =
            cluster_config::uphold(&mut self.common, cursor, look, self.slots)?
        {
            return self.ask(Activity::UpholdingConfig(upholding), request);
        }
        held_cursor.doubt(|slot| look.is_lost(slot));
        self.apply(After::Planning)
    }

    /// Writes the slots of recorded intents.
    pub(super) fn apply(&mut self, after: After) -> Result<(), Stop> {
        let held_cursor = held(&mut self.cursor)?;
        if held_cursor.is_seen_through() {
            return self.applied(after);
        }
        let next = apply::apply(&mut self.common, held_cursor, &mut self.look)?;
        self.go_on_applying(next, after)
    }

    pub(super) fn go_on_applying(
        &mut self,
        next: Next<apply::Applying, apply::Applied>,
        after: After,
    ) -> Result<(), Stop> {
        let applied = match next {
            Next::Ask(applying, request) => {
                return self.ask(Activity::Applying(applying, after), request);
            }
            Next::Done(applied) => applied,
        };
        self.unrung |= applied.filled;
        self.common.outputs.push(Output::Filled(applied.acknowledged));
        let wholly = held(&mut self.cursor)?.is_seen_through();
        if !wholly && (applied.failed || applied.stuck) {
            // The store failed, or another writer was faster: no hurry.
            let span = if applied.failed { self.common.settings.timing.request() } else { PACE };
            return self.pause(span, after);
        }
        match after {
            After::Planning if !wholly => self.begin_round(),
            After::Planning | After::Recording => self.applied(after),
        }
    }

    fn applied(&mut self, after: After) -> Result<(), Stop> {
        match after {
            After::Planning => self.keep_house(),
            After::Recording => self.free_pages(),
        }
    }

    /// Frees the pages that the cursor has taken, and begins the next round.
    pub(super) fn free_pages(&mut self) -> Result<(), Stop> {
        let cursor = held(&mut self.cursor)?.cursor();
        match self.pages.free(&mut self.common, cursor) {
            Some(request) => self.ask(Activity::FreeingPages(None), request),
            None => self.end_round(),
        }
    }

    /// Begins the next round at once: there may be more to do.
    pub(super) fn end_round(&mut self) -> Result<(), Stop> {
        self.held_up = None;
        self.begin_round()
    }

    /// Waits until there may be something to do.
    pub(super) fn rest(&mut self) -> Result<(), Stop> {
        self.held_up = None;
        let (now, timing, alone) = (self.common.now, self.common.settings.timing, self.is_alone());
        let due = [self.commits.due(), self.source.due()].into_iter().flatten();
        let due = due.chain([self.members.due(), self.sweep.due()]);
        // If the nodes were not woken, try again soon.
        let due = due.chain((self.unrung && !alone).then(|| now + timing.request()));
        let due = due.chain(self.pace.look_due(alone));
        // The last round already considered earlier deadlines. Their work was not possible or not
        // wanted then.
        let due = due.filter(|moment| moment.boot > self.pace.began.boot);
        let latest = now + timing.poll(self.notified);
        let until = due.fold(latest, |until, it| if it.boot < until.boot { it } else { until });
        self.phase = Phase::Resting { until };
        Ok(())
    }
}
