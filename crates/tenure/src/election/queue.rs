//! Elections that are lines: opened, entered, ended and deleted.
//!
//! The document of such an election says that it is a queue, so that no process holds it by a
//! lease; everything else is in the queue itself. The document is written before any candidate
//! joins, and never says more than the queue does.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::Election;
use super::leadership::Candidacy;
use crate::candidate::Candidate;
use crate::driver::{Command, QueueCandidate, Shared};
use crate::lease::record::Record;
use crate::lease::ruling::{self, Ruling};
use crate::observer::line;
use crate::protocol::Holder;
use crate::queue::{Freshness, Line, SessionQueue};
use crate::status::Status;
use crate::store::{Document, Expect, Fault, Put, StoreError};
use crate::timing::check_session_grace;
use crate::{Error, Protocol};

/// How long candidates may take to leave, beside the time for their sessions to end.
const LONGEST_WIND_DOWN: Duration = Duration::from_secs(10);
/// The time after which a second read makes up for a lost notification.
const SECOND_LOOK: Duration = Duration::from_secs(1);
/// How often a call with an unknown outcome is repeated. All of these calls may be repeated.
const MOST_ATTEMPTS: u32 = 5;
/// How often a deletion may lose a race against a creation.
const MOST_RACES: u32 = 64;

impl Election {
    /// Makes sure that the line exists, that the record says so, and that it has not ended.
    pub(super) async fn ensure_line(
        &self,
        queue: &Arc<dyn SessionQueue>,
        create: bool,
    ) -> Result<(), Error> {
        self.check_grace(queue).await?;
        match made(queue.survey(&self.key).await?) {
            Line::Open { .. } => self.record_line(false).await,
            Line::Ended { .. } => {
                self.record_line(false).await?;
                Err(Error::Ended { name: self.name.clone() })
            }
            Line::Missing if create => self.make_line(queue).await.map(|_| ()),
            Line::Missing => {
                // A lease of this name is another matter than none at all.
                let freshness = Freshness::Session;
                line::look(self.backend.store(), queue, &self.name, &self.key, freshness).await?;
                Err(Error::Missing { name: self.name.clone() })
            }
        }
    }

    /// Creates the line, or the next generation of one that has ended.
    pub(super) async fn create_line(&self, queue: &Arc<dyn SessionQueue>) -> Result<(), Error> {
        self.check_grace(queue).await?;
        let line = match made(queue.survey(&self.key).await?) {
            // It may have ended since, and no later step here would notice, as a join does.
            Line::Open { .. } => self.made_line(queue).await?,
            line @ (Line::Ended { .. } | Line::Missing) => line,
        };
        match line {
            Line::Open { .. } => self.record_line(false).await,
            Line::Ended { .. } | Line::Missing => self.make_line(queue).await.map(|_| ()),
        }
    }

    /// Ends the line. A missing line is created first, so that its end lasts.
    pub(super) async fn end_line(&self, queue: &Arc<dyn SessionQueue>) -> Result<(), Error> {
        let generation = match self.made_line(queue).await? {
            Line::Ended { .. } => return self.record_line(false).await,
            Line::Open { generation, .. } => {
                self.record_line(false).await?;
                generation
            }
            Line::Missing => self.make_line(queue).await?,
        };
        self.write_end(queue, generation).await
    }

    /// Ends the line, hides it, and removes it when all candidates have left.
    ///
    /// The record is hidden before the line is removed, and only if it is still the version that
    /// was read before the line was looked at. The creation of the next generation rewrites the
    /// record, and that generation stays.
    pub(super) async fn delete_line(&self, queue: &Arc<dyn SessionQueue>) -> Result<(), Error> {
        let mut ended = None;
        for _ in 0..MOST_RACES {
            let found = self.read().await?;
            if let Some((record, _)) = &found
                && record.protocol == Protocol::Lease
                && !record.is_deleted()
            {
                return Err(self.other_protocol(record.protocol));
            }
            match self.made_line(queue).await? {
                Line::Missing => {}
                Line::Ended { generation, .. } => ended = Some(generation),
                // Another process has created the line again since: that one is not ours to delete.
                Line::Open { .. } if ended.is_some() => return Ok(()),
                Line::Open { generation, .. } => {
                    self.write_end(queue, generation).await?;
                    ended = Some(generation);
                }
            }
            if self.hide(found).await? {
                return match ended {
                    Some(generation) => self.remove_line(queue, generation).await,
                    None => Ok(()),
                };
            }
        }
        Err(Error::Contended { attempts: MOST_RACES })
    }

    /// Marks this very record as deleted; returns true if it had not changed meanwhile.
    async fn hide(&self, found: Option<(Record, Document)>) -> Result<bool, Error> {
        let Some((record, document)) = found else { return Ok(true) };
        let op = self.backend.parts().fresh_op();
        let ruling = ruling::delete_queue(Some(&record), op)
            .map_err(|recorded| self.other_protocol(recorded))?;
        let Ruling::Write(hidden) = ruling else { return Ok(true) };
        match self.write(Expect::At(document.version), hidden.encode()).await {
            Ok(Put::Stored(_)) => Ok(true),
            Ok(Put::Conflict) => Ok(false),
            // The next round reads again and finds out.
            Err(Error::Store(error)) if error.fault == Fault::Indeterminate => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The line, for a decision that is final.
    async fn made_line(&self, queue: &Arc<dyn SessionQueue>) -> Result<Line, Error> {
        Ok(made(queue.look(&self.key, Freshness::Barrier).await?))
    }

    /// Starts a candidacy in line.
    pub(super) fn stand_in_line(&self, candidate: Candidate) -> Result<Candidacy, Error> {
        let parts = self.backend.parts();
        let id = parts.fresh_id();
        let (name, value) = candidate.into_parts();
        let shared = Shared::new(&self.name, Status::waiting(id.clone()));
        let (election, key, grace) =
            (self.name.clone(), self.key.clone(), self.timing.chosen_grace());
        let holder = Holder { id, name, value, presence: None };
        let candidate = QueueCandidate::new(election, key, holder, grace, shared.clone());
        let driver = self.backend.driver()?;
        if !driver.send(Command::Admit(Box::new(candidate))) {
            return Err(Error::Stopped);
        }
        Ok(Candidacy::new(self.clone(), shared, driver))
    }

    /// Refuses a stop budget that is too long for the session.
    async fn check_grace(&self, queue: &Arc<dyn SessionQueue>) -> Result<(), Error> {
        let Some(grace) = self.timing.chosen_grace() else { return Ok(()) };
        let mut sessions = queue.session();
        // Before the first session its ttl is not known, and some stores begin one only now.
        let first = sessions.wait_for(|session| session.number > 0);
        let granted = match tokio::time::timeout(self.timing.request(), first).await {
            Ok(Ok(session)) => session.ttl,
            Ok(Err(_)) | Err(_) => return Ok(()),
        };
        Ok(check_session_grace(grace, granted)?)
    }

    /// Resolves once a session is granted that is too short for the stop budget.
    ///
    /// The session may have come too late for the check in [`Election::open`], or a new session has
    /// replaced it since.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn refused_grace(&self) -> Error {
        let queue = self.backend.queue();
        if let Some((queue, grace)) = queue.zip(self.timing.chosen_grace()) {
            let refused = |ttl| check_session_grace(grace, ttl).err();
            let mut sessions = queue.session();
            let unfit =
                sessions.wait_for(|session| session.number > 0 && refused(session.ttl).is_some());
            // A queue that is gone grants no more sessions.
            if let Some(error) = unfit.await.ok().and_then(|session| refused(session.ttl)) {
                return error.into();
            }
        }
        std::future::pending().await
    }

    /// Records that this election is a queue.
    ///
    /// `again` means that its last generation has ended, so that its settings may change.
    async fn record_line(&self, again: bool) -> Result<(), Error> {
        let decide = |record: Option<&_>, op| {
            ruling::queue(record, self.terms(), again, op)
                .map_err(|recorded| self.other_protocol(recorded))
        };
        self.rule(decide).await
    }

    /// Creates the line, between two writes of its record.
    ///
    /// The first write says that it is a queue, before any candidate can join. The second says that
    /// the line exists, so that a concurrent deletion notices.
    async fn make_line(&self, queue: &Arc<dyn SessionQueue>) -> Result<u64, Error> {
        self.record_line(true).await?;
        let generation = insistently(|| queue.create(&self.key)).await?;
        let decide = |record: Option<&_>, op| {
            ruling::queue_made(record, self.terms(), op)
                .map_err(|recorded| self.other_protocol(recorded))
        };
        self.rule(decide).await?;
        Ok(generation)
    }

    async fn write_end(&self, queue: &Arc<dyn SessionQueue>, generation: u64) -> Result<(), Error> {
        insistently(|| queue.end(&self.key, generation)).await
    }

    async fn remove_line(
        &self,
        queue: &Arc<dyn SessionQueue>,
        generation: u64,
    ) -> Result<(), Error> {
        let clock = self.backend.clock();
        let limit = queue.session().borrow().ttl * 2 + LONGEST_WIND_DOWN;
        let began = clock.now();
        let mut timer = clock.timer();
        let mut freshness = Freshness::Session;
        loop {
            if insistently(|| queue.remove(&self.key)).await? {
                return Ok(());
            }
            let seen = queue.look(&self.key, freshness).await?;
            let first = match &seen {
                Line::Ended { generation: found, places } if *found == generation => {
                    places.first().map(|place| place.entry.clone())
                }
                // Perhaps it was read before this generation was made.
                Line::Missing | Line::Open { .. } | Line::Ended { .. }
                    if freshness == Freshness::Session =>
                {
                    freshness = Freshness::Barrier;
                    continue;
                }
                // It is gone, and perhaps created again.
                Line::Missing | Line::Open { .. } | Line::Ended { .. } => return Ok(()),
            };
            freshness = Freshness::Session;
            if clock.now().at_least_since(began) >= limit {
                let (name, who) = (self.name.clone(), line::names(&seen));
                return Err(Error::Occupied { name, who });
            }
            tokio::select! {
                biased;
                () = queue.moved(&self.key, first.as_ref()) => {
                    // Hints that keep coming must not make us ask without a pause.
                    timer.until(clock.now() + SECOND_LOOK / 20).await;
                }
                () = timer.until(clock.now() + SECOND_LOOK) => {}
            }
        }
    }
}

/// The line as tenure made it. A line that only other clients of the store have used is not made
/// yet.
fn made(line: Line) -> Line {
    match line {
        Line::Open { generation: 0, .. } => Line::Missing,
        line @ (Line::Open { .. } | Line::Ended { .. } | Line::Missing) => line,
    }
}

/// Repeats an idempotent call until its outcome is known.
async fn insistently<'a, T>(
    mut call: impl FnMut() -> BoxFuture<'a, Result<T, StoreError>> + Send,
) -> Result<T, Error> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        match call().await {
            Ok(done) => return Ok(done),
            Err(error) if error.fault == Fault::Indeterminate && attempts < MOST_ATTEMPTS => {}
            Err(error) => return Err(Error::Store(error)),
        }
    }
}
