//! Members that can list the source, as seen by a member that cannot.
//!
//! The leader lists the source. If a node without a source led, the source would not be listed. So
//! such a node leaves the lead to nodes that have one, as long as they live.

use std::collections::BTreeMap;

use tenure::{Moment, Timing};

use super::client::ClusterClient;
use super::documents::MemberId;
use super::planner::Planner;
use super::views::{Life, MemberView};

/// The known members that can list the source.
#[derive(Debug)]
pub(super) struct SourceOwners {
    client: ClusterClient,
    timing: Timing,
    /// True if this node can list the source itself, and need not know of others.
    is_one: bool,
    /// The revision of each member's lock, and when it was first seen.
    seen: Seen,
}

impl SourceOwners {
    /// Creates an empty list: no other member is known yet.
    pub(super) fn new(planner: &Planner) -> SourceOwners {
        let (client, timing) = (planner.client.clone(), planner.timing);
        SourceOwners { client, timing, is_one: planner.source.is_some(), seen: BTreeMap::new() }
    }

    /// Waits while this node should not lead.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn gone(&mut self) {
        while !self.is_one && self.are_there().await {
            self.client.sleep(self.timing.heartbeat()).await;
        }
    }

    /// Waits until this node should not lead.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn come(&mut self) {
        if self.is_one {
            std::future::pending::<()>().await;
        }
        while !self.are_there().await {
            self.client.sleep(self.timing.heartbeat()).await;
        }
    }

    /// Returns true if a member lives that can list the source.
    ///
    /// In doubt it returns false: then this node leads, so that there is a leader at least.
    async fn are_there(&mut self) -> bool {
        match self.client.members().await {
            Ok(members) => {
                let now = self.client.backend.clock().now();
                look(&mut self.seen, now, &members.items)
            }
            Err(error) => {
                tracing::debug!(%error, "the members could not be read");
                false
            }
        }
    }
}

type Seen = BTreeMap<MemberId, (u64, Moment)>;

/// Returns true if one of these members lives and can list the source.
///
/// A lock that stands still for its ttl on this clock belongs to a dead member.
fn look(seen: &mut Seen, now: Moment, members: &[MemberView]) -> bool {
    let before = std::mem::take(seen);
    let mut alive = false;
    for member in members {
        let lock = match &member.life {
            Life::Alive(lock) | Life::Late(lock) => lock,
            Life::Left(_) | Life::Unknown => continue,
        };
        if !lock.lists || member.dead || member.draining {
            continue;
        }
        let known = before.get(&member.id).filter(|(revision, _)| *revision == lock.revision);
        let since = known.map_or(now, |(_, since)| *since);
        alive |= now.at_least_since(since) < lock.ttl;
        seen.insert(member.id.clone(), (lock.revision, since));
    }
    alive
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::documents::MemberLock;
    use tenure::lease::record::Op;

    fn member(bits: u128, revision: u64, lists: bool) -> MemberView {
        let id = MemberId::from_bits(bits);
        let lock = MemberLock {
            holder: id.clone(),
            expire: 1,
            ttl: Duration::from_secs(15),
            idle: 1,
            finished: 0,
            lists,
            presence: None,
            revision,
            op: Op::new(&id, 1),
        };
        let (name, life) = (String::new(), Life::Late(lock));
        MemberView { id, name, workers: 1, draining: false, dead: false, life }
    }

    #[test]
    fn a_lister_is_left_the_lead_for_as_long_as_its_lock_moves() {
        let zero = tenure::system_clock().now();
        let second = |count| zero + Duration::from_secs(count);
        let mut seen = Seen::new();
        let mut look = |at, member| look(&mut seen, second(at), &[member]);
        assert!(!look(0, member(1, 5, false)), "it lists nothing");
        assert!(look(0, member(2, 1, true)));
        assert!(look(14, member(2, 1, true)));
        assert!(look(14, member(2, 2, true)), "it was renewed");
        assert!(look(28, member(2, 2, true)));
        assert!(!look(30, member(2, 2, true)), "it stands still");
        assert!(look(31, member(2, 3, true)), "it was only slow");
        let draining = MemberView { draining: true, ..member(2, 4, true) };
        assert!(!look(31, draining), "it is about to leave");
    }
}
