//! The leader's part: asks the input for partitions, and writes the plan.

use tenure::store::{Document, Expect, Fault, Put, StoreExt, Version};
use tokio::sync::watch;

use super::Supervision;
use crate::documents::{Format, MAX_PLAN_BYTES, MOST_PARTITIONS, NodeEntry, Nodes, Plan};
use crate::error::ClusterError;
use crate::input::pause::{Pauses, contained};
use crate::input::spread::spread;
use crate::input::{InputError, Partition};

/// The versions of the node list and the plan that were read.
pub(super) struct Seen {
    nodes: Option<Version>,
    plan: Option<Version>,
}

impl Supervision {
    /// Plans whenever this member leads.
    pub(super) async fn plan_while(&self, mut leading: watch::Receiver<bool>) {
        let mut stopped = leading.clone();
        while leading.wait_for(|leads| *leads).await.is_ok() {
            let told = tokio::select! {
                biased;
                told = stopped.wait_for(|leads| !*leads) => told.is_ok(),
                () = self.keep_planned() => true,
            };
            if !told {
                break;
            }
        }
        // The sender is gone, so this member never leads again.
        std::future::pending().await
    }

    async fn keep_planned(&self) {
        let (nodes, mut pauses) = (self.client.keys.nodes(), Pauses::new());
        loop {
            let began = self.client.backend.clock().now();
            match self.plan_once().await {
                Ok(seen) => {
                    pauses = Pauses::new();
                    let seen = [(&nodes, seen.nodes.as_ref()), (&self.plan, seen.plan.as_ref())];
                    self.changed(&seen).await;
                }
                Err(error) => {
                    self.warn(&error);
                    pauses.wait(&self.client, began).await;
                }
            }
        }
    }

    /// Makes sure that the plan is for the members that take part now.
    ///
    /// The plan is only a hint to the members, so after a lost answer it is enough to look again.
    pub(super) async fn plan_once(&self) -> Result<Seen, InputError> {
        let keys = [self.client.keys.nodes(), self.plan.clone()];
        let found = self.client.store().get_many(&keys).await;
        let mut found = found
            .map_err(|error| InputError::new("planning", &ClusterError::from(error)))?
            .into_iter();
        let (nodes, plan) = (found.next().flatten(), found.next().flatten());
        let seen = Seen { nodes: version_of(&nodes), plan: version_of(&plan) };
        let Some(nodes) = nodes else { return Ok(seen) };
        let nodes = Nodes::decode(&nodes.body)
            .map_err(|error| InputError::new("reading the node list", &error))?;
        let members = taking_part(nodes);
        let before = plan.as_ref().and_then(|plan| match Plan::decode(&plan.body) {
            Ok(plan) => Some(plan),
            Err(error) => {
                self.warn(&InputError::new("writing over a plan", &error));
                None
            }
        });
        if before.as_ref().is_some_and(|plan| plan.is_for(members.iter().map(|node| &node.token))) {
            return Ok(seen);
        }
        let partitions = if members.is_empty() {
            Vec::new()
        } else {
            contained(self.input.partitions(&members)).await?
        };
        let after = self.draw_up(&members, partitions, before.as_ref())?;
        let expect = seen.plan.clone().map_or(Expect::Absent, Expect::At);
        match self.client.store().put(&self.plan, expect, after).await {
            Ok(Put::Stored(version)) => Ok(Seen { plan: Some(version), ..seen }),
            // The next look shows the plan that is there instead.
            Ok(Put::Conflict) => Ok(seen),
            Err(error) if error.fault == Fault::Indeterminate => Ok(seen),
            Err(error) => Err(InputError::new("writing the plan", &ClusterError::from(error))),
        }
    }

    fn draw_up(
        &self,
        members: &[NodeEntry],
        partitions: Vec<Partition>,
        before: Option<&Plan>,
    ) -> Result<bytes::Bytes, InputError> {
        if partitions.len() > MOST_PARTITIONS {
            let count = partitions.len();
            return Err(InputError(format!(
                "it has {count} partitions; at most {MOST_PARTITIONS} are allowed"
            )));
        }
        let partitions = partitions.into_iter().map(|partition| partition.0).collect();
        let revision = before.map_or(1, |plan| plan.revision + 1);
        let shares = spread(members, partitions, before);
        let body = Plan { shares, revision, op: self.client.fresh_op() }.encode();
        if body.len() > MAX_PLAN_BYTES {
            return Err(InputError(format!(
                "its partitions take {} bytes as JSON, with the members; at most {MAX_PLAN_BYTES} are allowed",
                body.len()
            )));
        }
        // Never write a plan that others cannot read: JSON can be nested too deeply.
        Plan::decode(&body).map_err(|error| InputError::new("writing the plan", &error))?;
        Ok(body)
    }
}

fn version_of(document: &Option<Document>) -> Option<Version> {
    document.as_ref().map(|document| document.version.clone())
}

/// The members that get partitions: those not draining and not declared dead.
fn taking_part(nodes: Nodes) -> Vec<NodeEntry> {
    let Nodes { nodes, dead, .. } = nodes;
    nodes.into_iter().filter(|node| !node.draining && !dead.contains(&node.token)).collect()
}
