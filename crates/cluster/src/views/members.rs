//! The members of a cluster.

use tenure::Key;

use super::Garbled;
use crate::client::ClusterClient;
use crate::documents::{MemberId, MemberLock, NodeEntry, Nodes};
use crate::error::ClusterError;

/// Signs of a member's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Life {
    /// Its lock is current.
    Alive(MemberLock),
    /// Its lock has run out, as far as its wall clock and ours agree.
    Late(MemberLock),
    /// It has left.
    Left(MemberLock),
    /// It has no lock, or an invalid one.
    Unknown,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// The member.
    pub id: MemberId,
    /// Its name for people; perhaps empty.
    pub name: String,
    /// How many tasks it works on at once.
    pub workers: u32,
    /// It was asked to finish its tasks, to take no more and to leave.
    pub draining: bool,
    /// It was declared dead.
    pub dead: bool,
    /// Its signs of life.
    pub life: Life,
}

impl MemberView {
    /// The number of its idle workers, as it last reported.
    ///
    /// It is 0 if the member is not alive, is draining or was declared dead.
    #[must_use]
    pub fn idle(&self) -> u32 {
        match &self.life {
            Life::Alive(lock) if !self.dead && !self.draining => lock.idle,
            Life::Alive(_) | Life::Late(_) | Life::Left(_) | Life::Unknown => 0,
        }
    }

    /// The number of tasks it has finished, as it last reported.
    #[must_use]
    pub fn finished(&self) -> u64 {
        match &self.life {
            Life::Alive(lock) | Life::Late(lock) | Life::Left(lock) => lock.finished,
            Life::Unknown => 0,
        }
    }
}

/// The members of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The members, in the order in which they joined.
    pub items: Vec<MemberView>,
    /// Invalid documents.
    pub garbled: Vec<Garbled>,
}

impl ClusterClient {
    /// The members, in the order in which they joined.
    ///
    /// # Errors
    /// [`ClusterError::Store`] if the store does not serve, [`ClusterError::Document`] if the node
    /// list is invalid.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn members(&self) -> Result<Members, ClusterError> {
        let Some((_, nodes)) = self.read::<Nodes>(&self.keys.nodes()).await? else {
            return Ok(Members::default());
        };
        let keys: Vec<Key> = nodes.nodes.iter().map(|node| self.keys.member(&node.token)).collect();
        let locks = self.find_many::<MemberLock>(&keys).await?;
        let wall = self.wall();
        let mut members = Members::default();
        for ((node, key), lock) in nodes.nodes.into_iter().zip(keys).zip(locks) {
            let lock = match lock.map(|found| found.content) {
                Some(Ok(lock)) => Some(lock),
                Some(Err(error)) => {
                    members.garbled.push((key, error));
                    None
                }
                None => None,
            };
            let dead = nodes.dead.contains(&node.token);
            members.items.push(view(node, dead, lock, wall));
        }
        Ok(members)
    }
}

fn view(node: NodeEntry, dead: bool, lock: Option<MemberLock>, wall: u64) -> MemberView {
    let life = match lock {
        Some(lock) if lock.expire == 0 => Life::Left(lock),
        Some(lock) if lock.expire <= wall => Life::Late(lock),
        Some(lock) => Life::Alive(lock),
        None => Life::Unknown,
    };
    let NodeEntry { token: id, workers, name, draining } = node;
    MemberView { id, name, workers, draining, dead, life }
}
