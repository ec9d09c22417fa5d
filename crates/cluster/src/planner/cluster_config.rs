//! Maintains the number of slots. It is set with the cluster, and grows when all slots are full and
//! workers hold most of them.

use tenure::store::{Expect, Fault, Put, StoreExt as _};

use super::look::{Look, Sight, slots_in_store, wanted_slots};
use crate::client::{ClusterClient, encoded};
use crate::documents::{ClusterConfig, Cursor, LEAST_SLOTS};
use crate::error::ClusterError;

/// Makes sure that there are enough slots. Returns true if that took a write, so that another look
/// is due.
///
/// `known` is the number that an acknowledged write of ours has shown. A weak read may show fewer
/// or more slots, and nodes would not look at a slot that is filled beyond the number in the
/// document.
pub(super) async fn uphold(
    client: &ClusterClient,
    cursor: &Cursor,
    look: &Look,
    known: &mut Option<usize>,
) -> Result<bool, ClusterError> {
    let intended = cursor.intents.iter().map(|intent| intent.slot + 1).max().unwrap_or(0);
    // Slots are never taken back, and the number of workers in the node list may be forged. Only
    // workers that hold slots prove the need for more.
    let now = look.cluster_config.content().map_or(0, |cluster_config| cluster_config.slots);
    let most = if look.is_crowded() { now.saturating_mul(2) } else { now };
    let most = most.max(LEAST_SLOTS);
    let wanted = wanted_slots(look.nodes.content().map(|nodes| &**nodes)).min(most).max(intended);
    let op = client.fresh_op();
    let (expect, cluster_config) = match &look.cluster_config {
        Sight::Found(_, cluster_config)
            if cluster_config.slots >= wanted
                && (!client.is_weak() || *known == Some(cluster_config.slots)) =>
        {
            return Ok(false);
        }
        Sight::Found(version, before) => {
            let revision = before.revision + 1;
            let slots = before.slots.max(wanted);
            let grown = ClusterConfig { slots, revision, op, ..ClusterConfig::clone(before) };
            (Expect::At(version.clone()), grown)
        }
        Sight::Unreadable => {
            let says = "the cluster document cannot be read; move it away";
            return Err(tenure::store::StoreError::new(
                Fault::Permanent,
                "store",
                "planning",
                says,
            )
            .into());
        }
        // The lost document may have counted more slots, and nodes would no longer look at those.
        Sight::Absent | Sight::Garbled(..) => {
            let slots = wanted.max(slots_in_store(client).await?);
            let expect =
                look.cluster_config.version().map_or(Expect::Absent, |v| Expect::At(v.clone()));
            (expect, ClusterConfig { slots, paused: false, revision: 1, op })
        }
    };
    let key = client.keys.cluster_config();
    match client.store().put(&key, expect, encoded(&key, &cluster_config)?).await {
        Ok(Put::Stored(_)) => {
            *known = Some(cluster_config.slots);
            Ok(true)
        }
        // The next look shows the result.
        Ok(Put::Conflict) => Ok(true),
        Err(error) if error.fault == Fault::Indeterminate => Ok(true),
        Err(error) => Err(error.into()),
    }
}
