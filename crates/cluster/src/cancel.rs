//! Cancelling a task: on an inbox page, recorded for a slot, or in a slot.
//!
//! A task moves from its page into the cursor, and from there into a slot. A search in that order
//! does not miss it.
//!
//! On a page, an [`Entry::Cancelled`] replaces the task. A leader that read the page earlier may
//! still be about to take the task in, by a compare-and-set of the cursor. So the cursor is then
//! rewritten unchanged. Either the leader's write conflicts, and the leader reads everything again.
//! Or the leader's write came first, and the rewritten cursor shows that the entry is taken.

use std::time::Duration;

use tenure::Key;
use tenure::store::{Expect, Fault, Put, StoreExt, Version};

use super::client::{ClusterClient, Found};
use super::documents::{
    Cursor, Entry, Format, INBOX_PAGES, MemberId, Outcome, OutcomeState, Page, Progress, Slot,
    first_token,
};
use crate::error::ClusterError;

/// How many times to look for the task before giving up.
const MOST_LOOKS: u32 = 64;
/// The longest wait for the leader to fill a slot, before another look.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How many pages are read at a time.
const PAGES: u64 = 16;

/// The result of cancelling a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancellation {
    /// No node had begun the task, or none works on it now: it is cancelled.
    Cancelled,
    /// A node works on the task, and learns of the request at its next renewal. If that node dies,
    /// its successor learns of it. The task's outcome shows whether the request came in time.
    Asked,
    /// The task has already ended, or never existed.
    NotFound,
}

/// Identifies the task to cancel.
#[derive(Clone, Copy, Debug)]
enum Whose<'a> {
    Serial(u64),
    Receipt(&'a MemberId),
}

impl Whose<'_> {
    fn is(self, serial: u64, receipt: Option<&MemberId>) -> bool {
        match self {
            Whose::Serial(wanted) => wanted == serial,
            Whose::Receipt(wanted) => receipt == Some(wanted),
        }
    }
}

/// The result of a write. `Again` means that it conflicted or its effect is unknown: look again.
enum Written {
    Stored,
    Again,
}

/// The result of removing a task from its page, before any leader took it.
enum Off {
    Surely,
    /// Reads prove nothing here, and no cursor was seen. The leader that passes the page writes the
    /// outcome for the waiting process.
    Perhaps,
    /// A leader took it, or another look is needed.
    No,
}

impl ClusterClient {
    /// Cancels the task of this serial number.
    ///
    /// The request is in the store when this returns. A task that no node works on has ended. A
    /// task that a node works on is stopped when that node next renews its lease.
    ///
    /// # Errors
    /// [`ClusterError::Store`] when the store does not serve, [`ClusterError::Contended`] when
    /// other writers were always faster.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves it open whether the task was cancelled.
    pub async fn cancel(&self, serial: u64) -> Result<Cancellation, ClusterError> {
        self.call_off(Whose::Serial(serial)).await
    }

    /// Cancels the task that was submitted with this receipt.
    ///
    /// It may still wait in the inbox.
    ///
    /// # Errors
    /// As for [`ClusterClient::cancel`].
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves it open whether the task was cancelled.
    pub async fn cancel_submitted(&self, receipt: &MemberId) -> Result<Cancellation, ClusterError> {
        self.call_off(Whose::Receipt(receipt)).await
    }

    async fn call_off(&self, whose: Whose<'_>) -> Result<Cancellation, ClusterError> {
        for _ in 0..MOST_LOOKS {
            if let Whose::Receipt(receipt) = whose
                && let Some(listed) = self.find_on_a_page(receipt).await?
            {
                match self.take_off_the_page(&listed, receipt).await? {
                    Off::Surely => {
                        self.tell_cancelled(receipt).await?;
                        return Ok(Cancellation::Cancelled);
                    }
                    Off::Perhaps => return Ok(Cancellation::Asked),
                    Off::No => continue,
                }
            }
            match self.cancel_in_a_slot(whose).await? {
                Some(Cancellation::NotFound) => return self.read_cancellation(whose).await,
                Some(cancellation) => return Ok(cancellation),
                None => {}
            }
        }
        Err(ClusterError::Contended { attempts: MOST_LOOKS })
    }

    async fn find_on_a_page(&self, receipt: &MemberId) -> Result<Option<Listed>, ClusterError> {
        let Some((_, cursor)) = self.read::<Cursor>(&self.keys.cursor()).await? else {
            return self.search_pages(0, 0, receipt).await;
        };
        self.search_pages(cursor.page, cursor.taken, receipt).await
    }

    async fn search_pages(
        &self,
        from: u64,
        taken: usize,
        receipt: &MemberId,
    ) -> Result<Option<Listed>, ClusterError> {
        for first in (from..from + INBOX_PAGES).step_by(PAGES as usize) {
            let numbers: Vec<u64> = (first..(first + PAGES).min(from + INBOX_PAGES)).collect();
            let found = self.pages(&numbers).await?;
            // Pages are filled in order. Where reads prove nothing there may be a gap, but hardly
            // one of so many pages.
            let mut is_over = true;
            for (number, found) in numbers.into_iter().zip(found) {
                let Some(Found { version, content: Ok(page) }) = found else { continue };
                if page.number != number || page.entries.is_empty() {
                    continue;
                }
                is_over = false;
                let skipped = if number == from { taken } else { 0 };
                let index = page.entries.iter().skip(skipped).position(|entry| match entry {
                    Entry::Task(order) => order.receipt.as_ref() == Some(receipt),
                    Entry::Cancelled(cancelled) => cancelled == receipt,
                    Entry::Retry(_) => false,
                });
                if let Some(index) = index {
                    return Ok(Some(Listed { index: index + skipped, version, page }));
                }
            }
            if is_over {
                break;
            }
        }
        Ok(None)
    }

    /// Replaces the entry on its page, and checks whether a leader took it before.
    async fn take_off_the_page(
        &self,
        listed: &Listed,
        receipt: &MemberId,
    ) -> Result<Off, ClusterError> {
        let Listed { index, version, page } = listed;
        // If another process has replaced the entry already, replacing it again proves that and
        // does no harm.
        let after = page.cancelling(*index, receipt.clone(), self.fresh_op());
        match self.replace(&self.keys.page(page.number), version, after.encode()).await? {
            Written::Stored => {}
            Written::Again => return Ok(Off::No),
        }
        Ok(match self.touch_cursor().await? {
            Some(cursor) if page.number < cursor.page => Off::No,
            Some(cursor) if page.number == cursor.page && *index < cursor.taken => Off::No,
            Some(_) => Off::Surely,
            // No leader has begun: a leader creates the cursor before it reads the pages.
            None if !self.is_weak() => Off::Surely,
            None => Off::Perhaps,
        })
    }

    /// Rewrites the cursor unchanged, so that a leader must plan on it again.
    ///
    /// Does not create a cursor: only a leader does.
    async fn touch_cursor(&self) -> Result<Option<Cursor>, ClusterError> {
        self.update(
            &self.keys.cursor(),
            |cursor: &Cursor| &cursor.op,
            |before, op| {
                let again = |before: &Cursor| Cursor {
                    revision: before.revision + 1,
                    op,
                    ..before.clone()
                };
                Ok(before.map(again))
            },
        )
        .await
    }

    /// Writes the outcome for the waiting process. No leader knows of the task.
    async fn tell_cancelled(&self, receipt: &MemberId) -> Result<(), ClusterError> {
        let (at, op) = (self.wall(), self.fresh_op());
        let outcome = Outcome { serial: 0, state: OutcomeState::Cancelled, note: None, at, op };
        let key = self.keys.outcome(receipt);
        match self.store().put(&key, Expect::Absent, outcome.encode()).await {
            Ok(Put::Stored(_) | Put::Conflict) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether a task that was found nowhere ended because it was cancelled.
    async fn read_cancellation(&self, whose: Whose<'_>) -> Result<Cancellation, ClusterError> {
        let Whose::Receipt(receipt) = whose else { return Ok(Cancellation::NotFound) };
        let outcome = self.read::<Outcome>(&self.keys.outcome(receipt)).await?;
        Ok(match outcome.map(|(_, outcome)| outcome.state) {
            Some(OutcomeState::Cancelled) => Cancellation::Cancelled,
            Some(OutcomeState::Done | OutcomeState::Dead) | None => Cancellation::NotFound,
        })
    }

    /// Cancels the task in its slot. `None` means that it must be looked for again.
    async fn cancel_in_a_slot(
        &self,
        whose: Whose<'_>,
    ) -> Result<Option<Cancellation>, ClusterError> {
        // Read the cursor before the slots: a task that has left the cursor is in its slot, or was.
        let cursor = self.read::<Cursor>(&self.keys.cursor()).await?;
        let intents = cursor.map(|(_, cursor)| cursor.intents).unwrap_or_default();
        let intent = intents.into_iter().find(|intent| {
            let receipt = intent.task.as_ref().and_then(|task| task.receipt.as_ref());
            intent.task.is_some() && whose.is(intent.serial, receipt)
        });
        let keys: Vec<Key> = match &intent {
            Some(intent) => vec![self.keys.slot(intent.slot)],
            None => (0..self.slots().await?).map(|number| self.keys.slot(number)).collect(),
        };
        let found = self.find_many::<Slot>(&keys).await?;
        for (key, found) in keys.iter().zip(&found) {
            let Some(Found { version, content: Ok(slot) }) = found else { continue };
            if whose.is(slot.task.serial, slot.task.receipt.as_ref()) {
                return self.cancel_slot(key, version, slot).await;
            }
        }
        let Some(intent) = intent else { return Ok(Some(Cancellation::NotFound)) };
        let found = found.into_iter().next().flatten();
        let token =
            found.as_ref().and_then(|found| found.content.as_ref().ok()).map(|slot| slot.token);
        if token.is_some_and(|token| token >= first_token(intent.serial)) {
            return Ok(Some(Cancellation::NotFound));
        }
        // Only a leader writes the task into its slot, so wait for that.
        let (pause, seen) = (self.poll().min(LONGEST_PAUSE), found.map(|found| found.version));
        self.wait_for(&keys[0], seen.as_ref(), pause).await;
        Ok(None)
    }

    async fn cancel_slot(
        &self,
        key: &Key,
        version: &Version,
        slot: &Slot,
    ) -> Result<Option<Cancellation>, ClusterError> {
        let (progress, cancellation) = match &slot.progress {
            Progress::Outstanding { .. } => {
                (Progress::Dead { error: "cancelled".into() }, Cancellation::Cancelled)
            }
            Progress::Held(_) if slot.cancel && !self.is_weak() => {
                return Ok(Some(Cancellation::Asked));
            }
            Progress::Held(_) => (slot.progress.clone(), Cancellation::Asked),
            Progress::Dead { .. } if slot.cancel => return Ok(Some(Cancellation::Cancelled)),
            Progress::Vacant | Progress::Done { .. } | Progress::Dead { .. } => {
                return Ok(Some(Cancellation::NotFound));
            }
        };
        let after = Slot { cancel: true, ..slot.following(self.fresh_op(), progress) };
        match self.replace(key, version, after.encode()).await? {
            Written::Again => Ok(None),
            Written::Stored => {
                if cancellation == Cancellation::Cancelled {
                    self.call_leader().await;
                }
                Ok(Some(cancellation))
            }
        }
    }

    /// Replaces a document that is at this version.
    ///
    /// If the effect is unknown, the caller looks again and finds out.
    async fn replace(
        &self,
        key: &Key,
        version: &Version,
        body: bytes::Bytes,
    ) -> Result<Written, ClusterError> {
        match self.store().put(key, Expect::At(version.clone()), body).await {
            Ok(Put::Stored(_)) => Ok(Written::Stored),
            Ok(Put::Conflict) => Ok(Written::Again),
            Err(error) if error.fault == Fault::Indeterminate => Ok(Written::Again),
            Err(error) => Err(error.into()),
        }
    }
}

/// A task that waits on a page.
#[derive(Debug)]
struct Listed {
    index: usize,
    version: Version,
    page: Page,
}
