//! Operator actions: declare members dead, drain them, pause and resume.

use super::client::ClusterClient;
use super::documents::{ClusterConfig, LEAST_SLOTS, MemberId, NodeEntry, Nodes};
use crate::error::ClusterError;

/// How many dead members the node list remembers. A member that joins again takes a fresh id, so an
/// old id never comes back by itself. A list of all dead members would outgrow its document.
const DEAD_KEPT: usize = 64;

impl ClusterClient {
    /// Declares a member dead: it takes no more tasks and does not come back.
    ///
    /// Returns true if the member was in the node list. The declaration is in the store when this
    /// returns. Other nodes take over the member's tasks only when its leases run out, because it
    /// may still be at work.
    ///
    /// # Errors
    /// [`ClusterError::Store`] when the store does not serve, [`ClusterError::Document`] when the
    /// node list makes no sense.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves it open whether the member is declared dead.
    pub async fn mark_dead(&self, member: &MemberId) -> Result<bool, ClusterError> {
        let mut was_listed = false;
        self.change_nodes(|nodes| {
            was_listed = nodes.position(member).is_some();
            if nodes.dead.contains(member) {
                return false;
            }
            nodes.dead.push(member.clone());
            nodes.dead.drain(..nodes.dead.len().saturating_sub(DEAD_KEPT));
            true
        })
        .await?;
        self.call_leader().await;
        Ok(was_listed)
    }

    /// Asks the members of this id or name to finish their tasks and leave.
    ///
    /// They take no more tasks. Returns their ids.
    ///
    /// # Errors
    /// As for [`ClusterClient::mark_dead`].
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves it open whether they were asked.
    pub async fn drain_member(&self, who: &str) -> Result<Vec<MemberId>, ClusterError> {
        let is_meant = |node: &NodeEntry| node.token.as_str() == who || node.name == who;
        let mut meant = Vec::new();
        self.change_nodes(|nodes| {
            let asked = nodes.nodes.iter_mut().filter(|node| is_meant(node));
            let is_news = asked.fold(false, |is_news, node| {
                is_news | !std::mem::replace(&mut node.draining, true)
            });
            let all = nodes.nodes.iter().filter(|node| is_meant(node));
            meant = all.map(|node| node.token.clone()).collect();
            is_news
        })
        .await?;
        // Idle members wait for the wake-up document to change.
        if !meant.is_empty()
            && let Err(error) = self.ring(&self.keys.wake_up()).await
        {
            tracing::debug!(cluster = %self.name, %error, "the members could not be rung for");
        }
        Ok(meant)
    }

    /// Pauses the cluster: tasks in slots are finished, all others wait.
    ///
    /// # Errors
    /// [`ClusterError::Store`] when the store does not serve, [`ClusterError::Document`] when the
    /// cluster document makes no sense.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves it open whether the cluster is paused.
    pub async fn pause(&self) -> Result<(), ClusterError> {
        self.set_paused(true).await
    }

    /// Resumes the cluster: the leader takes in tasks again.
    ///
    /// # Errors
    /// As for [`ClusterClient::pause`].
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves it open whether the cluster is paused.
    pub async fn resume(&self) -> Result<(), ClusterError> {
        self.set_paused(false).await
    }

    async fn set_paused(&self, paused: bool) -> Result<(), ClusterError> {
        let is_weak = self.is_weak();
        self.update(
            &self.keys.cluster_config(),
            |cluster_config: &ClusterConfig| &cluster_config.op,
            |before, op| {
                Ok(match before {
                    // A weak read proves nothing, so the document is rewritten even if nothing
                    // changes.
                    Some(before) if before.paused == paused && !is_weak => None,
                    Some(before) => Some(ClusterConfig {
                        paused,
                        revision: before.revision + 1,
                        op,
                        ..before.clone()
                    }),
                    None => Some(ClusterConfig { slots: LEAST_SLOTS, paused, revision: 1, op }),
                })
            },
        )
        .await?;
        self.call_leader().await;
        Ok(())
    }

    /// Changes the node list. `change` returns true if it changed the list.
    async fn change_nodes(
        &self,
        mut change: impl FnMut(&mut Nodes) -> bool,
    ) -> Result<(), ClusterError> {
        let is_weak = self.is_weak();
        self.update(
            &self.keys.nodes(),
            |nodes: &Nodes| &nodes.op,
            |before, op| {
                let mut nodes = match before {
                    Some(before) => Nodes { revision: before.revision + 1, op, ..before.clone() },
                    None => Nodes { nodes: Vec::new(), dead: Vec::new(), revision: 1, op },
                };
                Ok((change(&mut nodes) || is_weak).then_some(nodes))
            },
        )
        .await?;
        Ok(())
    }
}
