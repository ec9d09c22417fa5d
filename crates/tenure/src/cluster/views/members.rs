//! The members of a cluster.

use super::Garbled;
use crate::cluster::books::Books;
use crate::cluster::documents::{MemberId, MemberLock, NodeEntry, Nodes};
use crate::{Error, Key};

/// What can be seen of a member's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Life {
    /// It says that it lives.
    Alive(MemberLock),
    /// It has not said so for longer than its lock lasts, as far as its wall clock and ours agree.
    Late(MemberLock),
    /// It has left.
    Left(MemberLock),
    /// It has never said so, or what it said makes no sense.
    Unknown,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// Which member.
    pub id: MemberId,
    /// Its name for people; perhaps empty.
    pub name: String,
    /// How many tasks it works on at once.
    pub workers: u32,
    /// It was asked to finish what it has, to take nothing more and to leave.
    pub draining: bool,
    /// Somebody declared it dead.
    pub dead: bool,
    /// Whether it lives.
    pub life: Life,
}

impl MemberView {
    /// How many of its workers are idle, as it last said; none of one that does not live or may
    /// take nothing.
    #[must_use]
    pub fn idle(&self) -> u32 {
        match &self.life {
            Life::Alive(lock) if !self.dead && !self.draining => lock.idle,
            Life::Alive(_) | Life::Late(_) | Life::Left(_) | Life::Unknown => 0,
        }
    }

    /// How many tasks it has finished, as it last said.
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
    /// In the order in which they came.
    pub items: Vec<MemberView>,
    /// Documents that make no sense.
    pub garbled: Vec<Garbled>,
}

impl Books {
    /// The members, in the order in which they came.
    ///
    /// # Errors
    /// [`Error::Store`] when the store does not serve, [`Error::Document`] when the node list makes
    /// no sense.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn members(&self) -> Result<Members, Error> {
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
