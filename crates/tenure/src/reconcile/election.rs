//! An election of this library as a source.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};

use super::reason::Reason;
use super::source::{Event, Identity, Release, Source};
use crate::{Candidacy, Candidate, Election, Error, Leadership};

/// Stands in an election, reports winning and losing it, and stands again.
///
/// It waits for a store that is silent. It reports an error if the store has answered only with
/// errors for a whole ttl while this candidate waits, or if the candidacy ends with an error. When
/// the election has ended the source ends too, see [`ended_by`](ElectionSource::ended_by).
///
/// Dropping the source while it leads abandons the leadership: the work may not have ended yet, so
/// the lease is left to run out.
#[derive(Debug)]
pub struct ElectionSource {
    election: Election,
    candidate: Candidate,
    phase: Phase,
    ended_by: Option<Error>,
}

enum Phase {
    /// Stands at the first call for an event.
    Ready,
    Standing {
        candidacy: Candidacy,
        /// The token of this candidate's last tenure.
        after: u64,
        /// Resolves when the store has failed for too long. Stored here, so that a dropped call to
        /// `next` does not restart the timeout.
        trouble: BoxFuture<'static, Error>,
    },
    Leading(Leadership),
    /// The loss was reported; the work may still wind down.
    Lost(Leadership),
    /// Standing again failed; the next event reports it.
    Failed(Error),
    /// Keeps away until told to stand again.
    Away,
    Over,
}

impl ElectionSource {
    /// Creates a source for one candidate of an election. It stands at the first call for an event.
    #[must_use]
    pub fn new(election: Election, candidate: Candidate) -> ElectionSource {
        ElectionSource { election, candidate, phase: Phase::Ready, ended_by: None }
    }

    /// The error that ended the source: the election has ended.
    ///
    /// To be able to ask, give the loop `&mut source`.
    #[must_use]
    pub fn ended_by(&self) -> Option<&Error> {
        self.ended_by.as_ref()
    }

    fn stand(&self, candidacy: Candidacy, after: u64) -> Phase {
        let trouble = trouble(&self.election, &candidacy).boxed();
        Phase::Standing { candidacy, after, trouble }
    }

    fn take_phase(&mut self) -> Phase {
        std::mem::replace(&mut self.phase, Phase::Away)
    }

    /// Reports the error that ended the candidacy, or ends with the election.
    fn fail(&mut self, error: Error) -> Option<Event> {
        if matches!(error, Error::Ended { .. }) {
            self.phase = Phase::Over;
            self.ended_by = Some(error);
            return None;
        }
        self.phase = Phase::Away;
        Some(Event::Error { reason: Reason::Error(with_causes(&error)) })
    }
}

#[async_trait]
impl Source for ElectionSource {
    fn identity(&self) -> Identity {
        Identity {
            election: self.election.name().to_string(),
            id: self.candidate.name().to_owned(),
            ttl: self.election.ttl(),
            stop_budget: self.election.grace(),
        }
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            match &mut self.phase {
                Phase::Ready => match self.election.stand(self.candidate.clone()) {
                    Ok(candidacy) => self.phase = self.stand(candidacy, 0),
                    Err(error) => return self.fail(error),
                },
                Phase::Standing { candidacy, after, trouble } => {
                    let won = tokio::select! {
                        biased;
                        won = candidacy.next_tenure(*after) => won,
                        error = trouble => Err(error),
                    };
                    // There is no await from here to the return, so the call cannot be dropped in
                    // between.
                    let tenure = match won {
                        Ok(tenure) => tenure,
                        Err(error) => return self.fail(error),
                    };
                    let Phase::Standing { candidacy, .. } = self.take_phase() else { continue };
                    let leadership = candidacy.lead(tenure);
                    let event = Event::elected(leadership.mandate());
                    self.phase = Phase::Leading(leadership);
                    return Some(event);
                }
                Phase::Leading(leadership) => {
                    let loss = leadership.lost().await;
                    if let Phase::Leading(leadership) = self.take_phase() {
                        self.phase = Phase::Lost(leadership);
                    }
                    return Some(Event::lost(loss));
                }
                Phase::Failed(_) => {
                    let Phase::Failed(error) = self.take_phase() else { continue };
                    return self.fail(error);
                }
                Phase::Lost(_) | Phase::Away => std::future::pending().await,
                Phase::Over => return None,
            }
        }
    }

    async fn release(&mut self, how: Release) {
        let phase = self.take_phase();
        match (how, phase) {
            (_, Phase::Over) => self.phase = Phase::Over,
            (Release::GiveUp, Phase::Leading(leadership) | Phase::Lost(leadership)) => {
                let resignation = leadership.resign().await;
                tracing::info!(election = %self.election.name(), ?resignation, "gave up leadership");
            }
            (Release::GiveUp | Release::Abandon, Phase::Standing { candidacy, .. }) => {
                withdraw(&self.election, candidacy).await;
            }
            (Release::Abandon, Phase::Leading(leadership) | Phase::Lost(leadership)) => {
                leadership.abandon().expired().await;
            }
            (Release::GiveUp | Release::Abandon, Phase::Ready | Phase::Failed(_) | Phase::Away) => {
            }
            (Release::StandAgain, Phase::Lost(leadership)) => {
                let token = leadership.mandate().token();
                self.phase = match leadership.stand_again() {
                    Ok(candidacy) => self.stand(candidacy, token),
                    Err(error) => Phase::Failed(error),
                };
            }
            (Release::StandAgain, Phase::Away) => self.phase = Phase::Ready,
            // The candidate already stands or leads, or has not yet reported why it cannot.
            (
                Release::StandAgain,
                phase @ (Phase::Ready
                | Phase::Standing { .. }
                | Phase::Leading(_)
                | Phase::Failed(_)),
            ) => self.phase = phase,
        }
    }
}

impl Drop for ElectionSource {
    fn drop(&mut self) {
        match self.take_phase() {
            Phase::Leading(leadership) | Phase::Lost(leadership) => drop(leadership.abandon()),
            Phase::Ready
            | Phase::Standing { .. }
            | Phase::Failed(_)
            | Phase::Away
            | Phase::Over => {}
        }
    }
}

/// Withdraws, waiting as long as a resignation would. The rest goes on in the background.
async fn withdraw(election: &Election, candidacy: Candidacy) {
    let clock = election.clock();
    let mut timer = clock.timer();
    tokio::select! {
        biased;
        () = candidacy.withdraw() => {}
        () = timer.until(clock.now() + election.timing().request() * 3) => {}
    }
}

/// Resolves when the store has answered only with errors for a whole ttl.
fn trouble(election: &Election, candidacy: &Candidacy) -> impl Future<Output = Error> + use<> {
    let (clock, patience) = (election.clock().clone(), election.ttl());
    let mut statuses = candidacy.statuses();
    async move {
        let mut timer = clock.timer();
        let mut since = None;
        let mut error = None;
        loop {
            let left = since.map_or(Duration::MAX, |since| {
                patience.saturating_sub(clock.now().at_least_since(since))
            });
            match error.clone() {
                Some(error) if left.is_zero() => return error,
                Some(_) | None => {}
            }
            tokio::select! {
                biased;
                status = statuses.next() => match status {
                    Some(status) => {
                        error = status.error;
                        since = error.as_ref().map(|_| since.unwrap_or_else(|| clock.now()));
                    }
                    // The candidacy is over, and reports so itself.
                    None => std::future::pending().await,
                },
                () = timer.until(clock.now() + left), if since.is_some() => {}
            }
        }
    }
}

fn with_causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}

impl fmt::Debug for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Phase::Ready => f.write_str("Ready"),
            Phase::Standing { candidacy, .. } => {
                f.debug_tuple("Standing").field(candidacy).finish()
            }
            Phase::Leading(leadership) => f.debug_tuple("Leading").field(leadership).finish(),
            Phase::Lost(leadership) => f.debug_tuple("Lost").field(leadership).finish(),
            Phase::Failed(error) => f.debug_tuple("Failed").field(error).finish(),
            Phase::Away => f.write_str("Away"),
            Phase::Over => f.write_str("Over"),
        }
    }
}
