//! S2: every token is greater than all earlier ones.
//!
//! A lost tenure never returns.

use super::Check;
use crate::history::{Event, What, Who};
use crate::kernel::{Breach, Instant, Promise};

/// Watches S2.
#[derive(Debug, Default)]
pub struct Fencing {
    highest: u64,
    /// The current tenures: the candidate, its token, and the end of its window.
    current: Vec<(Who, u64, Instant)>,
    /// The highest token that was proven to each candidate.
    known: Vec<(Who, u64)>,
    vandalised: bool,
}

impl Fencing {
    fn learn(&mut self, who: Who, token: u64) {
        match self.known.iter_mut().find(|(whose, _)| *whose == who) {
            Some((_, known)) => *known = token.max(*known),
            None => self.known.push((who, token)),
        }
    }
}

impl Check for Fencing {
    fn observe(&mut self, event: &Event<'_>) -> Result<(), Breach> {
        let broken = |how| Err(Breach::new(Promise::Fencing, how));
        match event.what {
            What::Elected { who, lease } => {
                if lease.token <= self.highest && !self.vandalised {
                    return broken(format!(
                        "candidate {who} is elected at token {}, after token {}",
                        lease.token, self.highest
                    ));
                }
                self.highest = self.highest.max(lease.token);
                self.learn(who, lease.token);
                self.current.retain(|(whose, _, _)| *whose != who);
                self.current.push((who, lease.token, lease.until));
            }
            What::Extended { who, lease } => {
                let Some(held) = self.current.iter_mut().find(|(whose, _, _)| *whose == who) else {
                    return broken(format!("candidate {who} extends a tenure it does not have"));
                };
                if held.1 != lease.token {
                    return broken(format!(
                        "candidate {who}'s tenure goes from token {} to {}",
                        held.1, lease.token
                    ));
                }
                if held.2 <= event.at {
                    return broken(format!(
                        "candidate {who}'s token {} returns {} ns after its window ended",
                        held.1,
                        event.at - held.2
                    ));
                }
                held.2 = lease.until;
            }
            What::Learned { who, token } => self.learn(who, token),
            What::Sent { who, record, gives_up: _ } => {
                // This check trusts no other writer, so it holds in a vandalised store, too.
                let known = self.known.iter().find(|(whose, _)| *whose == who);
                if let Some((_, known)) = known
                    && record.token < *known
                    && self.vandalised
                {
                    return broken(format!(
                        "candidate {who} writes token {}, and knows of token {known}",
                        record.token
                    ));
                }
            }
            What::Lost { who, .. } | What::GaveUp { who } | What::Crashed { who } => {
                self.current.retain(|(whose, _, _)| *whose != who);
            }
            What::Vandalised => self.vandalised = true,
            What::Deleted
            | What::Leaves { .. }
            | What::Stood { .. }
            | What::MustStop { .. }
            | What::WorkEnded { .. }
            | What::Paused { .. }
            | What::Committed { .. }
            | What::Over { .. } => {}
        }
        Ok(())
    }
}
