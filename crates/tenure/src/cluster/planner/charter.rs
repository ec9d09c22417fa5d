//! How many slots there are: made with the cluster, and grown when they are full and workers hold
//! most of them.

use super::look::{Look, Sight, slots_in_store, wanted_slots};
use crate::Error;
use crate::cluster::books::{Books, encoded};
use crate::cluster::documents::{Charter, Cursor, LEAST_SLOTS};
use crate::store::{Expect, Fault, Put, StoreExt as _};

/// Sees to it that there are enough slots. True when that took a write, so that another look is
/// due.
///
/// `known` is how many an acknowledged write of ours has shown: what a weak read shows may be less
/// or more, and nodes would not look at a slot that is filled beyond what the document comes to
/// say.
pub(super) async fn uphold(
    books: &Books,
    cursor: &Cursor,
    look: &Look,
    known: &mut Option<usize>,
) -> Result<bool, Error> {
    let intended = cursor.intents.iter().map(|intent| intent.slot + 1).max().unwrap_or(0);
    // Slots are never taken back, and a count of workers in the node list may be forged: workers
    // that hold slots are the evidence for more.
    let now = look.charter.content().map_or(0, |charter| charter.slots);
    let most = if look.is_crowded() { now.saturating_mul(2) } else { now };
    let most = most.max(LEAST_SLOTS);
    let wanted = wanted_slots(look.nodes.content().map(|nodes| &**nodes)).min(most).max(intended);
    let op = books.fresh_op();
    let (expect, charter) = match &look.charter {
        Sight::Found(_, charter)
            if charter.slots >= wanted && (!books.is_weak() || *known == Some(charter.slots)) =>
        {
            return Ok(false);
        }
        Sight::Found(version, before) => {
            let revision = before.revision + 1;
            let slots = before.slots.max(wanted);
            let grown = Charter { slots, revision, op, ..Charter::clone(before) };
            (Expect::At(version.clone()), grown)
        }
        Sight::Unreadable => {
            let says = "the cluster document cannot be read; move it away";
            return Err(crate::StoreError::new(Fault::Permanent, "store", "planning", says).into());
        }
        // What stood there knew of slots that nobody would look at any more.
        Sight::Absent | Sight::Garbled(..) => {
            let slots = wanted.max(slots_in_store(books).await?);
            let expect = look.charter.version().map_or(Expect::Absent, |v| Expect::At(v.clone()));
            (expect, Charter { slots, paused: false, revision: 1, op })
        }
    };
    let key = books.keys.charter();
    match books.store().put(&key, expect, encoded(&key, &charter)?).await {
        Ok(Put::Stored(_)) => {
            *known = Some(charter.slots);
            Ok(true)
        }
        // Whatever came of it, the next look shows it.
        Ok(Put::Conflict) => Ok(true),
        Err(error) if error.fault == Fault::Indeterminate => Ok(true),
        Err(error) => Err(error.into()),
    }
}
