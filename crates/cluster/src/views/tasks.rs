//! The tasks of a cluster that have not ended.

use tenure::Key;

use super::Garbled;
use crate::client::{ClusterClient, Found};
use crate::documents::{Cursor, Entry, INBOX_PAGES, MemberId, Order, Progress, Slot};
use crate::error::ClusterError;

/// How many pages are read at a time.
const PAGES: u64 = 16;

/// The progress of a task in a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It waits for a member.
    Outstanding {
        /// Why it failed last, if it did.
        error: Option<String>,
    },
    /// A member works on it, or did until it vanished.
    Running {
        /// The member.
        member: MemberId,
        /// When its lease ends by its own wall clock, in milliseconds since 1970.
        expire: u64,
        /// The last status that the task reported.
        status: Option<String>,
    },
}

/// One task that is in a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskView {
    /// The number under which it was accepted.
    pub serial: u64,
    /// Its name for people.
    pub id: String,
    /// The registered type that runs it.
    pub kind: String,
    /// How often it has been begun.
    pub attempt: u32,
    /// How often it may be begun.
    pub attempts: u32,
    /// Its progress.
    pub stage: Stage,
    /// Its cancellation was requested.
    pub cancelled: bool,
    /// The only member that may take it, if any.
    pub to: Option<MemberId>,
}

/// The tasks that have not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// The tasks in slots, by their serial numbers.
    pub live: Vec<TaskView>,
    /// The first of the tasks that wait in the inbox, in their order.
    pub next: Vec<Order>,
    /// The number of tasks that wait in the inbox.
    pub waiting: u64,
    /// The number of dead letters to bring back that wait in the inbox.
    pub retries: u64,
    /// Invalid documents.
    pub garbled: Vec<Garbled>,
}

impl ClusterClient {
    /// The tasks that have not ended.
    ///
    /// These are the tasks in slots, and at most `most_waiting` of the tasks that wait in the
    /// inbox.
    ///
    /// # Errors
    /// [`ClusterError::Store`] if the store does not serve, [`ClusterError::Document`] if the
    /// cursor or the cluster document is invalid.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn tasks(&self, most_waiting: usize) -> Result<Work, ClusterError> {
        let mut work = Work::default();
        self.look_at_the_inbox(most_waiting, &mut work).await?;
        let keys: Vec<Key> =
            (0..self.slots().await?).map(|number| self.keys.slot(number)).collect();
        let slots = self.find_many::<Slot>(&keys).await?;
        for (key, found) in keys.into_iter().zip(slots) {
            match found.map(|found| found.content) {
                Some(Ok(slot)) => work.live.extend(view(&slot)),
                Some(Err(error)) => work.garbled.push((key, error)),
                None => {}
            }
        }
        work.live.sort_by_key(|task| task.serial);
        Ok(work)
    }

    async fn look_at_the_inbox(&self, most: usize, work: &mut Work) -> Result<(), ClusterError> {
        let cursor = self.read::<Cursor>(&self.keys.cursor()).await?;
        let (from, taken) = cursor.map_or((0, 0), |(_, cursor)| (cursor.page, cursor.taken));
        for first in (from..from + INBOX_PAGES).step_by(PAGES as usize) {
            let numbers: Vec<u64> = (first..first + PAGES).collect();
            let pages = self.pages(&numbers).await?;
            let mut is_over = true;
            for (number, found) in numbers.into_iter().zip(pages) {
                let Some(Found { content, .. }) = found else { continue };
                let page = match content {
                    Ok(page) => page,
                    Err(error) => {
                        work.garbled.push((self.keys.page(number), error));
                        continue;
                    }
                };
                // A page that moved on meanwhile was taken in, so there may be pages with entries
                // after it.
                is_over &= page.number == number && page.entries.is_empty() || page.number < number;
                if page.number == number {
                    let skipped = if number == from { taken } else { 0 };
                    page.entries
                        .into_iter()
                        .skip(skipped)
                        .for_each(|entry| work.count(entry, most));
                }
            }
            if is_over {
                break;
            }
        }
        Ok(())
    }
}

impl Work {
    fn count(&mut self, entry: Entry, most: usize) {
        match entry {
            Entry::Task(order) => {
                self.waiting += 1;
                if self.next.len() < most {
                    self.next.push(order);
                }
            }
            Entry::Retry(0) | Entry::Cancelled(_) => {}
            Entry::Retry(_) => self.retries += 1,
        }
    }
}

fn view(slot: &Slot) -> Option<TaskView> {
    let stage = match &slot.progress {
        Progress::Outstanding { error, .. } => Stage::Outstanding { error: error.clone() },
        Progress::Held(holding) => Stage::Running {
            member: holding.member.clone(),
            expire: holding.expire,
            status: holding.status.clone(),
        },
        Progress::Vacant | Progress::Done { .. } | Progress::Dead { .. } => return None,
    };
    let task = &slot.task;
    Some(TaskView {
        serial: task.serial,
        id: task.id.clone(),
        kind: task.kind.clone(),
        attempt: slot.attempt,
        attempts: task.attempts,
        stage,
        cancelled: slot.cancel,
        to: task.to.clone(),
    })
}
