//! A place in an election: it waits for a tenure, talks to the driver, and says goodbye once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use crate::Error;
use crate::driver::{Command, Handle, HandleMessage, Shared};
use crate::election::Election;
use crate::mandate::Tenure;
use crate::protocol::{Farewell, Loss, Outcome};
use crate::status::{Role, Status};

/// A place in an election, shared by a candidacy and the leadership that it won.
pub(super) struct Place {
    pub(super) election: Election,
    pub(super) shared: Arc<Shared>,
    pub(super) driver: Handle,
    /// The highest token this handle of the election had led under when this candidacy began.
    pub(super) known: u64,
    pub(super) left: AtomicBool,
}

/// The meaning of a status for a caller that waits for a tenure.
enum Seen {
    Won(Arc<Tenure>, u64),
    /// A tenure was won and lost before the caller saw it.
    Missed(u64),
    Nothing,
}

impl Place {
    /// The first tenure won at a token above `after`. Cancel safe.
    pub(super) async fn next_tenure(&self, after: u64) -> Result<Arc<Tenure>, Error> {
        tokio::select! {
            biased;
            error = self.election.refused_grace() => {
                self.say_goodbye(Farewell::Free);
                Err(error)
            }
            tenure = self.won(after) => tenure,
        }
    }

    async fn won(&self, mut after: u64) -> Result<Arc<Tenure>, Error> {
        let mut status = self.shared.status.subscribe();
        loop {
            let seen = {
                let status = status.borrow_and_update();
                match &status.role {
                    Role::Leading { token }
                    | Role::Suspended { token, .. }
                    | Role::Stopping { token }
                        if *token > after =>
                    {
                        self.shared.tenure().map_or(Seen::Nothing, |won| Seen::Won(won, *token))
                    }
                    Role::Over(outcome) => {
                        let fallback = Error::from_outcome(self.election.name(), outcome);
                        // The store's own error says more than the mere refusal.
                        return Err(match (&fallback, &status.error) {
                            (Error::Refused(_) | Error::Finished, Some(error)) => error.clone(),
                            _ => fallback,
                        });
                    }
                    // Won and lost before the caller saw it: its work never began.
                    Role::Lost { token, .. } if *token > after => Seen::Missed(*token),
                    Role::Waiting
                    | Role::Leading { .. }
                    | Role::Suspended { .. }
                    | Role::Stopping { .. }
                    | Role::Lost { .. }
                    | Role::Leaving => Seen::Nothing,
                }
            };
            match seen {
                Seen::Won(tenure, token) => return self.checked(tenure, token),
                Seen::Missed(token) => {
                    after = token;
                    self.tell(HandleMessage::WorkEnded)?;
                }
                Seen::Nothing => {}
            }
            status.changed().await.map_err(|_| Error::Stopped)?;
        }
    }

    /// The tenure, unless this handle already led under its token or a higher one.
    ///
    /// In that case the election was deleted since, or its table created anew, and any check of
    /// tokens would refuse this leader.
    fn checked(&self, tenure: Arc<Tenure>, token: u64) -> Result<Arc<Tenure>, Error> {
        if token <= self.known {
            tenure.close(Loss::Regressed);
            // The caller may keep the candidacy. If it went on renewing, no other candidate could
            // lead.
            self.say_goodbye(Farewell::Free);
            return Err(Error::Regressed { found: token, known: self.known });
        }
        self.election.note_token(token);
        Ok(tenure)
    }

    pub(super) fn tell(&self, message: HandleMessage) -> Result<(), Error> {
        match &self.shared.status.borrow().role {
            Role::Over(outcome) => {
                return Err(Error::from_outcome(self.election.name(), outcome));
            }
            Role::Leaving => return Err(Error::Finished),
            Role::Waiting
            | Role::Leading { .. }
            | Role::Suspended { .. }
            | Role::Stopping { .. }
            | Role::Lost { .. } => {}
        }
        if self.driver.send(Command::Tell(self.shared.clone(), message)) {
            Ok(())
        } else {
            Err(Error::Stopped)
        }
    }

    pub(super) fn say_goodbye(&self, farewell: Farewell) {
        self.leave(HandleMessage::Release(farewell));
    }

    /// Says goodbye, once: later goodbyes change nothing.
    pub(super) fn leave(&self, goodbye: HandleMessage) {
        if self.left.swap(true, Ordering::Relaxed) {
            return;
        }
        // The mandates end here, not when the driver handles the message.
        self.shared.leave();
        if !matches!(self.shared.status.borrow().role, Role::Over(_)) {
            // A driver that has stopped has nothing left to release.
            let _ = self.tell(goodbye);
        }
    }

    /// How the candidacy ended, once it has.
    pub(super) async fn outcome(&self) -> Outcome {
        let mut status: watch::Receiver<Status> = self.shared.status.subscribe();
        loop {
            if let Role::Over(outcome) = &status.borrow_and_update().role {
                return outcome.clone();
            }
            if status.changed().await.is_err() {
                return Outcome::AlreadyLost;
            }
        }
    }
}
