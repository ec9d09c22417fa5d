//! Maintains the number of slots. It is set with the cluster, and grows when all slots are full and
//! workers hold most of them.

use tenure::Key;
use tenure::store::{Expect, Fault, Put, StoreError};

use super::look::{Look, Sight, count_slots, wanted_slots};
use super::request::{Answer, Common, Next, Request};
use crate::client::encoded;
use crate::documents::{ClusterConfig, Cursor, LEAST_SLOTS};
use crate::error::ClusterError;

/// Makes sure that there are enough slots.
#[derive(Debug)]
pub(super) enum Upholding {
    /// The slots are listed. The lost document may have counted more slots than are wanted, and
    /// nodes would no longer look at those.
    Listing { expect: Expect, slots: usize },
    /// The document is written, with this number of slots.
    Writing { slots: usize },
}

/// Returns the first move if there are not enough slots.
///
/// `known` is the number that an acknowledged write of ours has shown. A weak read may show fewer
/// or more slots, and nodes would not look at a slot that is filled beyond the number in the
/// document.
pub(super) fn uphold(
    common: &mut Common,
    cursor: &Cursor,
    look: &Look,
    known: Option<usize>,
) -> Result<Option<(Upholding, Request)>, ClusterError> {
    let intended = cursor.intents.iter().map(|intent| intent.slot + 1).max().unwrap_or(0);
    // Slots are never taken back, and the number of workers in the node list may be forged. Only
    // workers that hold slots prove the need for more.
    let now = look.cluster_config.content().map_or(0, |cluster_config| cluster_config.slots);
    let most = if look.is_crowded() { now.saturating_mul(2) } else { now };
    let least = common.settings.least_slots;
    let wanted = wanted_slots(look.nodes.content().map(|nodes| &**nodes), least);
    let wanted = wanted.min(most.max(least)).max(intended);
    match &look.cluster_config {
        Sight::Found(_, cluster_config)
            if cluster_config.slots >= wanted
                && (!common.is_weak() || known == Some(cluster_config.slots)) =>
        {
            Ok(None)
        }
        Sight::Found(version, before) => {
            let (revision, slots) = (before.revision + 1, before.slots.max(wanted));
            let op = common.op();
            let grown = ClusterConfig { slots, revision, op, ..ClusterConfig::clone(before) };
            Ok(Some(write(common, Expect::At(version.clone()), &grown)?))
        }
        Sight::Unreadable => {
            let says = "the cluster document cannot be read; move it away";
            Err(StoreError::new(Fault::Permanent, "store", "planning", says).into())
        }
        Sight::Absent | Sight::Garbled(..) => {
            let version = look.cluster_config.version();
            let expect = version.map_or(Expect::Absent, |version| Expect::At(version.clone()));
            Ok(Some(list(common, expect, wanted, None)))
        }
    }
}

fn list(common: &Common, expect: Expect, slots: usize, after: Option<Key>) -> (Upholding, Request) {
    let request = Request::List { prefix: common.settings.keys.slots(), after, limit: LEAST_SLOTS };
    (Upholding::Listing { expect, slots }, request)
}

fn write(
    common: &Common,
    expect: Expect,
    cluster_config: &ClusterConfig,
) -> Result<(Upholding, Request), ClusterError> {
    let key = common.settings.keys.cluster_config();
    // Refused if a person put a number at its limit there.
    encoded(&key, cluster_config)?;
    let slots = cluster_config.slots;
    Ok((Upholding::Writing { slots }, Request::put(key, expect, cluster_config)))
}

impl Upholding {
    /// Ends with the number of slots that is in the store now, if that is certain.
    pub(super) fn answer(
        self,
        common: &mut Common,
        answer: Answer,
    ) -> Result<Next<Upholding, Option<usize>>, ClusterError> {
        match self {
            Upholding::Listing { expect, slots } => {
                let page = answer.listed()?;
                let slots = slots.max(count_slots(&common.settings.keys, &page));
                let (upholding, request) = match page.next {
                    Some(next) => list(common, expect, slots, Some(next)),
                    None => {
                        let op = common.op();
                        let first = ClusterConfig { slots, paused: false, revision: 1, op };
                        write(common, expect, &first)?
                    }
                };
                Ok(Next::Ask(upholding, request))
            }
            Upholding::Writing { slots } => match answer.put() {
                Ok(Put::Stored(_)) => Ok(Next::Done(Some(slots))),
                // The next look shows the result.
                Ok(Put::Conflict) => Ok(Next::Done(None)),
                Err(error) if error.fault == Fault::Indeterminate => Ok(Next::Done(None)),
                Err(error) => Err(error.into()),
            },
        }
    }
}
