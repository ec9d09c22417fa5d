//! Finds slots that may be filled.

use std::sync::Arc;
use std::time::Duration;

use tenure::store::{Durability, Expect, Put, Write};

use super::apply::nothing;
use super::look::{Look, Sight};
use crate::client::ClusterClient;
use crate::documents::{Format as _, Progress, Slot};
use crate::mutant::ClusterMutant;

/// The free slots.
///
/// On a weak store a slot may only look free while a node works on its task, and an intent would
/// overwrite that task. So there a slot is free only once a write of ours has made it so.
pub(super) async fn free(client: &ClusterClient, look: &mut Look, ttl: Duration) -> Vec<usize> {
    let free = look.free();
    if !client.is_weak() || ClusterMutant::WeakFills.is_on() {
        return free;
    }
    let (known, doubtful): (Vec<usize>, Vec<usize>) =
        free.iter().partition(|number| look.is_acknowledged(**number));
    let mut writes = Vec::new();
    let mut vacant = Vec::new();
    for number in doubtful {
        let (expect, slot) = match &look.slots[number] {
            Sight::Found(version, slot) => {
                let again = slot.following(client.fresh_op(), slot.progress.clone());
                (Expect::At(version.clone()), again)
            }
            Sight::Absent => (Expect::Absent, never_used(ttl, client)),
            Sight::Garbled(..) | Sight::Unreadable => continue,
        };
        writes.push(Write {
            key: client.keys.slot(number),
            expect,
            body: Some(slot.encode()),
            durability: Durability::Lasting,
        });
        vacant.push((number, slot));
    }
    if writes.is_empty() {
        return known;
    }
    let outcomes = client.store().put_many(writes).await;
    for ((number, slot), outcome) in vacant.into_iter().zip(outcomes) {
        if let Ok(Put::Stored(version)) = outcome {
            look.stored(number, version, Arc::new(slot));
        } else {
            look.is_outdated = true;
        }
    }
    free.into_iter().filter(|number| look.is_acknowledged(*number)).collect()
}

/// A slot that never held a task.
fn never_used(ttl: Duration, client: &ClusterClient) -> Slot {
    Slot {
        task: Arc::new(nothing(0)),
        progress: Progress::Vacant,
        cancel: false,
        token: 0,
        attempt: 0,
        ttl,
        revision: 1,
        op: client.fresh_op(),
    }
}
