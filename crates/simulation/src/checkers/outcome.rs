//! L3: the outcome that a candidacy reports is true.

use tenure::protocol::Outcome;

use super::Check;
use crate::history::{Event, What, Who};
use crate::kernel::{Breach, Promise};

/// Watches the reported outcomes of candidacies.
#[derive(Debug, Default)]
pub struct TruthfulOutcome {
    holder: Option<Who>,
    /// Candidates that were told of their release: the record never names them again.
    released: Vec<Who>,
    over: Vec<Who>,
    led: Vec<Who>,
    vandalised: bool,
}

impl Check for TruthfulOutcome {
    fn observe(&mut self, event: &Event<'_>) -> Result<(), Breach> {
        let broken = |how| Err(Breach::new(Promise::TruthfulOutcome, how));
        match event.what {
            What::Committed { holder, .. } => {
                self.holder = holder;
                if let Some(who) = holder.filter(|who| self.released.contains(who))
                    && !self.vandalised
                {
                    return broken(format!("candidate {who} was released, and holds the lease"));
                }
            }
            What::Elected { who, .. } | What::Extended { who, .. } if self.over.contains(&who) => {
                return broken(format!("candidate {who} leads after its candidacy was over"));
            }
            What::Elected { who, .. } => self.led.push(who),
            What::Over { who, outcome } => {
                self.over.push(who);
                if *outcome == Outcome::Released {
                    self.released.push(who);
                    if self.holder == Some(who) && !self.vandalised {
                        return broken(format!(
                            "candidate {who} reports a release, and the store still names it"
                        ));
                    }
                }
                if *outcome == Outcome::Withdrawn && self.led.contains(&who) {
                    return broken(format!("candidate {who} led, and says that it never did"));
                }
            }
            What::Vandalised => self.vandalised = true,
            What::Stood { .. }
            | What::Extended { .. }
            | What::MustStop { .. }
            | What::Lost { .. }
            | What::GaveUp { .. }
            | What::WorkEnded { .. }
            | What::Paused { .. }
            | What::Crashed { .. }
            | What::Learned { .. }
            | What::Sent { .. }
            | What::Deleted
            | What::Leaves { .. } => {}
        }
        Ok(())
    }
}
