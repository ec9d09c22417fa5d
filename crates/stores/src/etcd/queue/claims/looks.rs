//! The last looks of our candidates at their queue: its mark, its leader, and the entry before.

use std::sync::Arc;

use tenure::protocol::Holder;
use tenure::{CandidateId, Key};

use super::Claims;

impl Claims {
    /// Records the revision of the mark that a candidacy of ours saw.
    pub(in super::super) fn saw_mark(
        &self,
        election: &Key,
        candidate: &CandidateId,
        revision: i64,
    ) {
        self.with(election, candidate, |claim| claim.mark = claim.mark.max(revision));
    }

    /// Records the entry before our candidacy's own.
    ///
    /// The queue was open at this revision of the store.
    pub(in super::super) fn saw_before(
        &self,
        election: &Key,
        candidate: &CandidateId,
        before: Option<u64>,
        revision: i64,
    ) {
        let behind = before.map(|token| (token, revision));
        self.with(election, candidate, |claim| claim.behind = behind);
    }

    /// The revision at which our candidates behind this entry last saw the queue open.
    pub(in super::super) fn looked(&self, election: &Key, before: u64) -> Option<i64> {
        let state = self.lock();
        let behind = state.claims.get(election)?.iter().filter_map(|claim| claim.behind);
        behind.filter(|(token, _)| *token == before).map(|(_, revision)| revision).min()
    }

    /// The oldest mark of the election that a candidacy of ours relies on.
    pub(in super::super) fn mark(&self, election: &Key) -> Option<i64> {
        self.lock().claims.get(election)?.iter().map(|claim| claim.mark).min()
    }

    /// The leader, if a candidacy of ours has seen this very entry at this revision.
    pub(in super::super) fn leader(
        &self,
        election: &Key,
        token: u64,
        revision: i64,
    ) -> Option<Arc<Holder>> {
        let state = self.lock();
        let mut seen = state.claims.get(election)?.iter().filter_map(|claim| claim.leader.as_ref());
        let seen = seen.find(|seen| (seen.0, seen.1) == (token, revision));
        seen.map(|(_, _, holder)| holder.clone())
    }

    pub(in super::super) fn saw_leader(
        &self,
        election: &Key,
        candidate: &CandidateId,
        token: u64,
        revision: i64,
        holder: &Arc<Holder>,
    ) {
        let leader = Some((token, revision, holder.clone()));
        self.with(election, candidate, |claim| claim.leader = leader);
    }
}
