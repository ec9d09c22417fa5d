//! Spreads the partitions of an input among the members, and runs our own.
//!
//! The leader writes a new plan whenever the node list differs from the one that the plan was made
//! for. Every member follows the plan. Both the list and the plan are hints, and may be late or
//! stale: a partition runs only under its own lease, so it never runs twice at once. A member that
//! loses a partition drops it and resigns; the new owner is already waiting for the lease.

mod partition;
mod planning;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure::store::{StoreExt, Version};
use tenure::{Backend, Key, Timing};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::pause::Pauses;
use super::{Emitter, InputError, Partition, Supervised};
use crate::client::ClusterClient;
use crate::documents::{Format, MemberId, Plan};
use crate::error::ClusterError;

/// Members come and go in bursts: a short wait turns many changes of plan into one.
const MOMENT: Duration = Duration::from_millis(20);

/// Runs this member's partitions, and plans for all members while it leads.
///
/// Never returns. Dropping the future stops the partitions and frees their leases.
pub(crate) async fn run_supervised(
    name: String,
    input: Arc<dyn Supervised>,
    client: ClusterClient,
    me: MemberId,
    timing: Timing,
    leading: watch::Receiver<bool>,
) {
    let plan = match client.keys.plan(&name) {
        Ok(plan) => plan,
        Err(error) => {
            // `Inputs::check` refuses such a name before anything starts.
            tracing::error!(input = name, %error, "an input with this name cannot run");
            return std::future::pending().await;
        }
    };
    // Partitions are leases on every store. In a queue, members that should no longer have a
    // partition would keep waiting for it.
    let backend = client.backend.clone().without_queue();
    let supervision = Arc::new(Supervision { name, input, client, backend, me, timing, plan });
    tokio::join!(supervision.plan_while(leading), follow(&supervision));
}

/// The shared state of planning and following.
struct Supervision {
    name: String,
    input: Arc<dyn Supervised>,
    client: ClusterClient,
    /// For the partitions' leases; one driver serves them all.
    backend: Backend,
    me: MemberId,
    timing: Timing,
    /// The key of the plan.
    plan: Key,
}

/// Keeps running the partitions that the plan gives to this member.
async fn follow(supervision: &Arc<Supervision>) {
    let mut partitions = JoinSet::new();
    let mut running: BTreeMap<String, AbortHandle> = BTreeMap::new();
    let mut pauses = Pauses::new();
    // The last invalid plan, so that it is reported once and not at every look.
    let mut refused: Option<Version> = None;
    loop {
        let began = supervision.client.backend.clock().now();
        let document = match supervision.client.store().get(&supervision.plan).await {
            Ok(document) => document,
            Err(error) => {
                // Running partitions go on: their leases limit them.
                supervision.warn(&InputError::new("reading the plan", &ClusterError::from(error)));
                pauses.wait(&supervision.client, began).await;
                continue;
            }
        };
        pauses = Pauses::new();
        let seen = document.as_ref().map(|document| document.version.clone());
        match document.map(|document| Plan::decode(&document.body)).transpose() {
            Ok(plan) => {
                settle(supervision, plan.as_ref(), &mut partitions, &mut running);
            }
            Err(error) if refused != seen => {
                supervision.warn(&InputError::new("reading the plan", &error));
                refused.clone_from(&seen);
            }
            Err(_) => {}
        }
        supervision.changed(&[(&supervision.plan, seen.as_ref())]).await;
    }
}

/// Stops partitions that this member should no longer run, and starts missing ones.
fn settle(
    supervision: &Arc<Supervision>,
    plan: Option<&Plan>,
    partitions: &mut JoinSet<()>,
    running: &mut BTreeMap<String, AbortHandle>,
) {
    // Frees the entries of partitions that were stopped earlier and have ended by now.
    while partitions.try_join_next().is_some() {}
    let own = plan.map(|plan| plan.share_of(&supervision.me)).unwrap_or_default();
    running.retain(|lease, partition| {
        let stays = own.contains_key(lease);
        if !stays {
            // The partition's work is dropped first, then its lease is freed.
            partition.abort();
        }
        stays && !partition.is_finished()
    });
    for (lease, partition) in own {
        running.entry(lease).or_insert_with_key(|lease| {
            let partition = Partition(partition.clone());
            partitions.spawn(partition::run(supervision.clone(), lease.clone(), partition))
        });
    }
}

impl Supervision {
    fn warn(&self, error: &InputError) {
        tracing::warn!(input = self.name, %error, "a supervised input is in trouble");
    }

    fn emitter(&self) -> Emitter {
        Emitter::new(self.client.clone())
    }

    /// Resolves when one of these documents may have changed.
    ///
    /// It resolves at the latest when the poll interval is over.
    async fn changed(&self, seen: &[(&Key, Option<&Version>)]) {
        let store = self.client.store();
        let changes = seen.iter().map(|(key, version)| store.changed(key, *version));
        tokio::select! {
            _ = futures_util::future::select_all(changes) => self.client.sleep(MOMENT).await,
            () = self.client.sleep(self.timing.poll(store.notifies())) => {}
        }
    }
}
