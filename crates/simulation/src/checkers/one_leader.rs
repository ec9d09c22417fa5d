//! S1: two processes never believe that they lead at the same real time.

use super::Check;
use crate::history::{Event, What, Who};
use crate::kernel::{Breach, Instant, Promise};

/// Watches S1.
#[derive(Debug, Default)]
pub struct OneLeader {
    /// The candidates that believe that they lead: token and end. A short list beats a map here.
    believers: Vec<(Who, u64, Instant)>,
    vandalised: bool,
}

impl OneLeader {
    pub(crate) fn leader(&self, at: Instant) -> Option<Who> {
        self.believers.iter().find(|(_, _, until)| *until > at).map(|(who, _, _)| *who)
    }

    fn stop(&mut self, gone: Who) {
        self.believers.retain(|(who, _, _)| *who != gone);
    }

    /// Two intervals overlap exactly if one is current when the other begins or grows.
    fn believe(&mut self, at: Instant, who: Who, token: u64, until: Instant) -> Result<(), Breach> {
        self.believers.retain(|(_, _, until)| *until > at);
        self.stop(who);
        let other = self.believers.first().copied();
        self.believers.push((who, token, until));
        match other {
            Some((other, its, until)) if !self.vandalised => Err(Breach::new(
                Promise::OneLeader,
                format!(
                    "candidate {who} leads at token {token} while candidate {other} leads at token \
                     {its} for {} more ns",
                    until - at
                ),
            )),
            Some(_) | None => Ok(()),
        }
    }
}

impl Check for OneLeader {
    fn observe(&mut self, event: &Event<'_>) -> Result<(), Breach> {
        match event.what {
            What::Elected { who, lease } | What::Extended { who, lease } => {
                self.believe(event.at, who, lease.token, lease.until)?;
            }
            What::Lost { who, .. } | What::GaveUp { who } | What::Crashed { who } => self.stop(who),
            What::Vandalised => self.vandalised = true,
            What::Stood { .. }
            | What::MustStop { .. }
            | What::WorkEnded { .. }
            | What::Paused { .. }
            | What::Learned { .. }
            | What::Sent { .. }
            | What::Deleted
            | What::Leaves { .. }
            | What::Committed { .. }
            | What::Over { .. } => {}
        }
        Ok(())
    }
}
