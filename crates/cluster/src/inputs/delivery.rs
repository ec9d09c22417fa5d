//! Hands in tasks, for as long as it takes.

use std::time::Duration;

use crate::ClusterError;
use crate::documents::Order;
use crate::input::Emitter;

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Hands in tasks until they are in the store.
///
/// Meanwhile nothing more is read, which slows senders down. Tasks that no cluster would take are
/// reported and dropped.
pub(crate) async fn deliver(emitter: &Emitter, mut orders: Vec<Order>) {
    orders.retain(|order| match order.check() {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(id = order.id, %error, "a task is dropped");
            false
        }
    });
    let mut pause = FIRST_PAUSE;
    while !orders.is_empty() {
        match emitter.emit(orders.clone()).await {
            Ok(()) => return,
            Err(ClusterError::PartlyAccepted { accepted, .. }) => {
                // The state of the others may be unknown; they are done twice rather than never.
                orders.drain(..accepted.min(orders.len()));
                tracing::warn!(
                    left = orders.len(),
                    "not all tasks could be stored; the others wait"
                );
            }
            Err(error) => tracing::warn!(%error, "tasks wait, since they cannot be stored"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
