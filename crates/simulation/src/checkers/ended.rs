//! S4: an end is final for its generation.
//!
//! No candidate is told of an end that never was.

use tenure::lease::record::State;
use tenure::protocol::{Loss, Outcome};

use super::Check;
use crate::history::{Event, What, Who};
use crate::kernel::{Breach, Instant, Promise};

/// Watches S4.
#[derive(Debug, Default)]
pub struct EndedIsTerminal {
    /// When each candidate began to stand.
    stood: Vec<(Who, Instant)>,
    /// The latest moment at which the lasting record was an ended one.
    ended_until: Option<Instant>,
    ended_now: bool,
    generation: u64,
    holder: Option<(Who, u64)>,
    /// The record was deleted. Its generations began again, and candidates that knew it may say so.
    deleted: bool,
    vandalised: bool,
}

impl EndedIsTerminal {
    fn was_ended_for(&self, who: Who) -> bool {
        let since = self.stood.iter().find(|(whose, _)| *whose == who).map(|(_, since)| *since);
        self.ended_now || self.ended_until.zip(since).is_some_and(|(until, since)| until >= since)
    }

    // Both enums may grow: a new variant says nothing about the record until a checker learns it.
    #[allow(clippy::wildcard_enum_match_arm)]
    fn lost(&self, who: Who, token: u64, loss: &Loss) -> Result<(), String> {
        let truthful = match loss {
            Loss::Ended | Loss::Vanished | Loss::Regressed if self.deleted => true,
            Loss::Ended => self.was_ended_for(who),
            Loss::Deposed => self.holder != Some((who, token)),
            Loss::Vanished | Loss::Regressed => false,
            _ => true,
        };
        if truthful {
            return Ok(());
        }
        Err(format!("candidate {who} loses token {token} as {loss:?}, which never happened"))
    }

    #[allow(clippy::wildcard_enum_match_arm)]
    fn over(&self, who: Who, outcome: &Outcome) -> Result<(), String> {
        let truthful = match outcome {
            Outcome::Ended | Outcome::Vanished | Outcome::Regressed { .. } if self.deleted => true,
            Outcome::Ended => self.was_ended_for(who),
            Outcome::Vanished | Outcome::Regressed { .. } => false,
            _ => true,
        };
        if truthful {
            return Ok(());
        }
        Err(format!("candidate {who} is over as {outcome:?}, which never happened"))
    }
}

impl Check for EndedIsTerminal {
    fn observe(&mut self, event: &Event<'_>) -> Result<(), Breach> {
        let verdict = match event.what {
            What::Stood { who, .. } => {
                self.stood.push((who, event.at));
                Ok(())
            }
            What::Committed { by, holder, record } => {
                let was_ended = self.ended_now;
                let before = self.generation;
                self.ended_now =
                    record.is_some_and(|record| matches!(record.state, State::Ended { .. }));
                self.generation = record.map_or(0, |record| record.generation);
                self.holder = holder.zip(record.map(|record| record.token));
                if was_ended || self.ended_now {
                    self.ended_until = Some(event.at);
                }
                match by {
                    Some(who) if was_ended && !self.ended_now => {
                        Err(format!("candidate {who} wrote over the end of the election"))
                    }
                    Some(who) if before != 0 && before != self.generation => {
                        Err(format!("candidate {who} changed the election's generation"))
                    }
                    Some(_) | None => Ok(()),
                }
            }
            What::Lost { who, token, loss } => self.lost(who, token, loss),
            What::Over { who, outcome } => self.over(who, outcome),
            What::Deleted => {
                self.deleted = true;
                Ok(())
            }
            What::Vandalised => {
                self.vandalised = true;
                Ok(())
            }
            What::Elected { .. }
            | What::Extended { .. }
            | What::MustStop { .. }
            | What::GaveUp { .. }
            | What::WorkEnded { .. }
            | What::Paused { .. }
            | What::Crashed { .. }
            | What::Learned { .. }
            | What::Sent { .. }
            | What::Leaves { .. } => Ok(()),
        };
        match verdict {
            Err(how) if !self.vandalised => Err(Breach::new(Promise::EndedIsTerminal, how)),
            Err(_) | Ok(()) => Ok(()),
        }
    }
}
