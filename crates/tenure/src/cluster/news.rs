//! What the two parts of one process tell each other about slots: the planner, if it leads, and the
//! node that works.
//!
//! Neither has to read what the other has just written. A *fact* is an acknowledged write of a
//! slot: this content stood there, at this version, when the write was answered. A node that takes
//! an old fact for the truth loses a compare-and-set, and no more.
//!
//! # Why the planner may count by facts
//! It counts a task once, and then only it puts anything else into the slot, so a fact must not be
//! about something that a leader before it has counted. A fact counts only if its write was *sent*
//! after this process took the cursor over: then its compare-and-set found the task uncounted at a
//! time when nobody else could count any more. And it counts only if it is newer than what the
//! planner knows of the slot, whose tokens rise with every task and revisions with every write.
//!
//! An acknowledged write needs no confirmation, so that on a store whose reads prove nothing this
//! saves a write a task as well.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::claims::Fact;
use super::documents::Nodes;
use super::mutant::ClusterMutant;

/// Both directions. Of each slot the newest fact is kept, so that it is bounded by their number.
#[derive(Debug, Default)]
pub(super) struct News {
    for_planner: Mutex<Worked>,
    for_node: Mutex<Filled>,
    planner_wakes: Notify,
    node_wakes: Notify,
}

#[derive(Debug, Default)]
struct Worked {
    /// Counts how often the cursor was taken over here.
    takeovers: u64,
    /// The cursor is ours.
    heard: bool,
    facts: BTreeMap<usize, Fact>,
}

#[derive(Debug, Default)]
struct Filled {
    facts: BTreeMap<usize, Fact>,
    nodes: Option<Arc<Nodes>>,
}

/// When something was sent: after which taking over of the cursor, if this process had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent(Option<u64>);

impl News {
    /// For a planner that has taken the cursor over just now: what is sent from now on is for it.
    pub(super) fn hear(&self) -> Hearing<'_> {
        let mut worked = self.worked_facts();
        worked.takeovers += 1;
        worked.heard = true;
        if !ClusterMutant::OldNewsCount.is_on() {
            worked.facts.clear();
        }
        Hearing(self, worked.takeovers)
    }

    /// Whether a planner of this process plans, so that it tells of what it fills.
    pub(super) fn has_planner(&self) -> bool {
        self.worked_facts().heard
    }

    /// To be called before a write leaves.
    pub(super) fn sending(&self) -> Sent {
        let worked = self.worked_facts();
        Sent(worked.heard.then_some(worked.takeovers))
    }

    /// These writes, sent then, were acknowledged.
    pub(super) fn worked(&self, sent: Sent, facts: impl IntoIterator<Item = Fact>) {
        let mut worked = self.worked_facts();
        let counts = worked.heard && sent == Sent(Some(worked.takeovers));
        if counts || ClusterMutant::OldNewsCount.is_on() {
            worked.facts.extend(facts.into_iter().map(|fact| (fact.slot, fact)));
        }
        drop(worked);
        self.call_planner();
    }

    /// There may be something to do for the planner.
    pub(super) fn call_planner(&self) {
        self.planner_wakes.notify_one();
    }

    /// Resolves when the planner was called.
    pub(super) async fn planner_called(&self) {
        self.planner_wakes.notified().await;
    }

    /// There is work in these slots.
    pub(super) fn filled(&self, facts: impl IntoIterator<Item = Fact>) {
        let mut filled = self.filled_facts();
        filled.facts.extend(facts.into_iter().map(|fact| (fact.slot, fact)));
        let any = !filled.facts.is_empty();
        drop(filled);
        if any {
            self.node_wakes.notify_one();
        }
    }

    /// Where there is work, as far as the node was not told before.
    pub(super) fn take_filled(&self) -> Vec<Fact> {
        std::mem::take(&mut self.filled_facts().facts).into_values().collect()
    }

    /// Who takes part, as the planner saw it before it tells of more work.
    pub(super) fn saw_nodes(&self, nodes: Option<&Arc<Nodes>>) {
        if let Some(nodes) = nodes {
            self.filled_facts().nodes = Some(nodes.clone());
        }
    }

    /// The same, as far as the node was not told before.
    pub(super) fn take_nodes(&self) -> Option<Arc<Nodes>> {
        self.filled_facts().nodes.take()
    }

    /// Resolves when there is something to take.
    pub(super) async fn node_called(&self) {
        self.node_wakes.notified().await;
    }

    fn worked_facts(&self) -> MutexGuard<'_, Worked> {
        self.for_planner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn filled_facts(&self) -> MutexGuard<'_, Filled> {
        self.for_node.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A planner that holds the cursor, and hears what is written beside it until this is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct Hearing<'a>(&'a News, u64);

impl Hearing<'_> {
    pub(super) fn is_silent(&self) -> bool {
        self.0.worked_facts().facts.is_empty()
    }

    pub(super) fn take(&self) -> Vec<Fact> {
        std::mem::take(&mut self.0.worked_facts().facts).into_values().collect()
    }
}

impl Drop for Hearing<'_> {
    fn drop(&mut self) {
        let mut worked = self.0.worked_facts();
        worked.heard &= worked.takeovers != self.1;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::CandidateId;
    use crate::cluster::documents::{Assignment, Progress, Slot, first_token};
    use crate::lease::record::Op;
    use crate::store::Version;

    fn fact(slot: usize, serial: u64) -> Fact {
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
        Fact { slot, version: Version::new("1"), content: Arc::new(content) }
    }

    #[test]
    fn what_was_sent_before_the_cursor_was_taken_over_is_never_heard() {
        let news = News::default();
        let before = news.sending();
        let hearing = news.hear();
        news.worked(before, [fact(1, 1)]);
        assert!(hearing.is_silent());
        let during = news.sending();
        drop(hearing);
        let hearing = news.hear();
        news.worked(during, [fact(1, 1)]);
        assert!(hearing.is_silent(), "it was taken over again since");
        news.worked(news.sending(), [fact(1, 1), fact(2, 2)]);
        assert_eq!(hearing.take().len(), 2);
        assert!(hearing.is_silent());
    }

    #[test]
    fn nothing_is_kept_for_a_planner_that_does_not_plan() {
        let news = News::default();
        news.worked(news.sending(), [fact(1, 1)]);
        assert!(!news.has_planner());
        drop(news.hear());
        news.worked(news.sending(), [fact(1, 1)]);
        assert!(news.hear().is_silent());
    }

    #[test]
    fn a_node_takes_the_newest_fact_of_each_slot_once() {
        let news = News::default();
        news.filled([fact(3, 1), fact(4, 2)]);
        news.filled([fact(3, 5)]);
        let taken = news.take_filled();
        assert_eq!(taken.iter().map(|fact| fact.content.revision).collect::<Vec<_>>(), [5, 2]);
        assert!(news.take_filled().is_empty());
    }

    #[test]
    fn tokens_come_before_revisions_because_a_slot_may_have_been_deleted() {
        let (earlier, later) = (fact(1, 7), fact(1, 8));
        assert!(later.is_newer_than(&earlier.content) && !earlier.is_newer_than(&later.content));
        let recreated = Slot { revision: 1, ..(*later.content).clone() };
        assert!(!earlier.is_newer_than(&recreated));
    }
}
