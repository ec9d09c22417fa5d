//! Facts about slots that the planner and the node of one process exchange.
//!
//! The planner plans while the process leads; the node works.
//!
//! Neither has to read a slot that the other has just written. A *fact* is an acknowledged write of
//! a slot: this content stood there, at this version, when the write was answered. A node that
//! takes an old fact for the truth loses a compare-and-set, and no more.
//!
//! # Why the planner may count by facts
//! The planner counts a task once, and then only the planner puts anything else into the slot. So a
//! fact must not be about a task that an earlier leader has counted. A fact counts only if its
//! write was *sent* after this process took the cursor over: then its compare-and-set found the
//! task uncounted at a time when no other leader could count any more. And a fact counts only if it
//! is newer than the planner's knowledge of the slot. A slot's token rises with every task, and its
//! revision with every write.
//!
//! An acknowledged write needs no confirmation. So on a store with weak reads, facts also save one
//! write for each task.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::claims::AcknowledgedWrite;
use super::documents::Nodes;
use super::mutant::ClusterMutant;

/// The facts in both directions. Only the newest fact of each slot is kept, so the number of slots
/// bounds them.
#[derive(Debug, Default)]
pub struct LocalWrites {
    for_planner: Mutex<Worked>,
    for_node: Mutex<Filled>,
    planner_wakes: Notify,
    node_wakes: Notify,
}

#[derive(Debug, Default)]
struct Worked {
    /// How many times this process has taken over the cursor.
    takeovers: u64,
    /// True while a planner of this process holds the cursor.
    heard: bool,
    acknowledged: BTreeMap<usize, AcknowledgedWrite>,
}

#[derive(Debug, Default)]
struct Filled {
    acknowledged: BTreeMap<usize, AcknowledgedWrite>,
    nodes: Option<Arc<Nodes>>,
}

/// When a write was sent: after which takeover of the cursor, or `None` without the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent(Option<u64>);

impl LocalWrites {
    /// Starts to collect facts for a planner that has just taken over the cursor.
    ///
    /// It gets the facts of writes that are sent from now on.
    pub fn hear(self: &Arc<Self>) -> LocalWritesReader {
        let mut worked = self.worked_writes();
        worked.takeovers += 1;
        worked.heard = true;
        if !ClusterMutant::OldWritesCount.is_on() {
            worked.acknowledged.clear();
        }
        LocalWritesReader(self.clone(), worked.takeovers)
    }

    /// Returns true if a planner of this process plans, and reports the slots it fills.
    pub(super) fn has_planner(&self) -> bool {
        self.worked_writes().heard
    }

    /// Notes when a write is sent. Must be called before that.
    #[must_use]
    pub fn sending(&self) -> Sent {
        let worked = self.worked_writes();
        Sent(worked.heard.then_some(worked.takeovers))
    }

    /// Reports acknowledged writes that were sent at `sent`, and wakes the planner.
    pub fn worked(&self, sent: Sent, acknowledged: impl IntoIterator<Item = AcknowledgedWrite>) {
        let mut worked = self.worked_writes();
        let counts = worked.heard && sent == Sent(Some(worked.takeovers));
        if counts || ClusterMutant::OldWritesCount.is_on() {
            worked
                .acknowledged
                .extend(acknowledged.into_iter().map(|write_seen| (write_seen.slot, write_seen)));
        }
        drop(worked);
        self.call_planner();
    }

    /// Wakes the planner: there may be something to do.
    pub(super) fn call_planner(&self) {
        self.planner_wakes.notify_one();
    }

    /// Resolves when the planner was called.
    pub(super) async fn planner_called(&self) {
        self.planner_wakes.notified().await;
    }

    /// Tells the node that there is work in these slots.
    pub(super) fn filled(&self, acknowledged: impl IntoIterator<Item = AcknowledgedWrite>) {
        let mut filled = self.filled_writes();
        filled
            .acknowledged
            .extend(acknowledged.into_iter().map(|write_seen| (write_seen.slot, write_seen)));
        let any = !filled.acknowledged.is_empty();
        drop(filled);
        if any {
            self.node_wakes.notify_one();
        }
    }

    /// Takes the slots with work that the node was not told of before.
    pub(super) fn take_filled(&self) -> Vec<AcknowledgedWrite> {
        std::mem::take(&mut self.filled_writes().acknowledged).into_values().collect()
    }

    /// Passes on the node list. The planner does this before it reports more work.
    pub(super) fn saw_nodes(&self, nodes: Option<&Arc<Nodes>>) {
        if let Some(nodes) = nodes {
            self.filled_writes().nodes = Some(nodes.clone());
        }
    }

    /// Takes the node list, if there is one that the node was not told of before.
    pub(super) fn take_nodes(&self) -> Option<Arc<Nodes>> {
        self.filled_writes().nodes.take()
    }

    /// Resolves when the node was told of work.
    pub(super) async fn node_called(&self) {
        self.node_wakes.notified().await;
    }

    fn worked_writes(&self) -> MutexGuard<'_, Worked> {
        self.for_planner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn filled_writes(&self) -> MutexGuard<'_, Filled> {
        self.for_node.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Collects facts for a planner that holds the cursor, until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct LocalWritesReader(Arc<LocalWrites>, u64);

impl LocalWritesReader {
    /// Returns true if there are no new facts.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.0.worked_writes().acknowledged.is_empty()
    }

    /// Takes the new facts.
    #[must_use]
    pub fn take(&self) -> Vec<AcknowledgedWrite> {
        std::mem::take(&mut self.0.worked_writes().acknowledged).into_values().collect()
    }
}

impl Drop for LocalWritesReader {
    fn drop(&mut self) {
        let mut worked = self.0.worked_writes();
        worked.heard &= worked.takeovers != self.1;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::documents::{Assignment, Progress, Slot, first_token};
    use tenure::CandidateId;
    use tenure::lease::record::Op;
    use tenure::store::Version;

    fn write_seen(slot: usize, serial: u64) -> AcknowledgedWrite {
        let task = Assignment {
            serial,
            id: "a".into(),
            kind: "b".into(),
            payload: bytes::Bytes::new(),
            attempts: 1,
            timeout: None,
            to: None,
            receipt: None,
        };
        let content = Slot {
            task: Arc::new(task),
            progress: Progress::Done { result: None },
            cancel: false,
            token: first_token(serial),
            attempt: 1,
            ttl: Duration::from_secs(1),
            revision: serial,
            op: Op::new(&CandidateId::from_bits(1), serial),
        };
        AcknowledgedWrite { slot, version: Version::new("1"), content: Arc::new(content) }
    }

    #[test]
    fn what_was_sent_before_the_cursor_was_taken_over_is_never_heard() {
        let local_writes = Arc::new(LocalWrites::default());
        let before = local_writes.sending();
        let reader = local_writes.hear();
        local_writes.worked(before, [write_seen(1, 1)]);
        assert!(reader.is_silent());
        let during = local_writes.sending();
        drop(reader);
        let reader = local_writes.hear();
        local_writes.worked(during, [write_seen(1, 1)]);
        assert!(reader.is_silent(), "it was taken over again since");
        local_writes.worked(local_writes.sending(), [write_seen(1, 1), write_seen(2, 2)]);
        assert_eq!(reader.take().len(), 2);
        assert!(reader.is_silent());
    }

    #[test]
    fn nothing_is_kept_for_a_planner_that_does_not_plan() {
        let local_writes = Arc::new(LocalWrites::default());
        local_writes.worked(local_writes.sending(), [write_seen(1, 1)]);
        assert!(!local_writes.has_planner());
        drop(local_writes.hear());
        local_writes.worked(local_writes.sending(), [write_seen(1, 1)]);
        assert!(local_writes.hear().is_silent());
    }

    #[test]
    fn a_node_takes_the_newest_fact_of_each_slot_once() {
        let local_writes = LocalWrites::default();
        local_writes.filled([write_seen(3, 1), write_seen(4, 2)]);
        local_writes.filled([write_seen(3, 5)]);
        let taken = local_writes.take_filled();
        assert_eq!(
            taken.iter().map(|write_seen| write_seen.content.revision).collect::<Vec<_>>(),
            [5, 2]
        );
        assert!(local_writes.take_filled().is_empty());
    }

    #[test]
    fn tokens_come_before_revisions_because_a_slot_may_have_been_deleted() {
        let (earlier, later) = (write_seen(1, 7), write_seen(1, 8));
        assert!(later.is_newer_than(&earlier.content) && !earlier.is_newer_than(&later.content));
        let recreated = Slot { revision: 1, ..(*later.content).clone() };
        assert!(!earlier.is_newer_than(&recreated));
    }
}
