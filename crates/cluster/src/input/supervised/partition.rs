//! Runs one partition under its lease.

use std::sync::Arc;

use tenure::{Candidate, Election, Error};

use super::Supervision;
use crate::input::pause::{Pauses, contained};
use crate::input::{InputError, Partition, PartitionContext};

/// Runs a partition whenever this member holds its lease. Never returns.
///
/// Starts the partition again whenever it ends, after pauses that grow.
pub(super) async fn run(supervision: Arc<Supervision>, lease: String, partition: Partition) {
    let mut pauses = Pauses::new();
    loop {
        let began = supervision.client.backend.clock().now();
        if let Err(error) = run_once(&supervision, &lease, &partition).await {
            supervision.warn(&error);
        }
        pauses.wait(&supervision.client, began).await;
    }
}

async fn run_once(
    supervision: &Supervision,
    lease: &str,
    partition: &Partition,
) -> Result<(), InputError> {
    let election = format!("{}/{}-{lease}", supervision.client.keys.root(), supervision.name);
    let says = |error: &Error| InputError::new(format!("waiting for the lease {election}"), error);
    let candidate = Candidate::new(supervision.me.as_str())
        .map_err(|error| InputError::new("standing for a partition", &error))?;
    let opened = Election::builder(&supervision.backend, &election)
        .timing(supervision.timing)
        .create_if_missing(true)
        .open()
        .await
        .map_err(|error| says(&error))?;
    let leadership = opened.campaign(candidate).await.map_err(|error| says(&error))?;
    let context =
        PartitionContext { mandate: leadership.mandate(), emitter: supervision.emitter() };
    // The work is dropped before the leadership, also when this future is dropped midway.
    let outcome = leadership.scope(contained(supervision.input.run(partition, &context))).await;
    leadership.resign().await;
    match outcome {
        Ok(ended) => ended,
        Err(lost) => Err(InputError::new(format!("running under the lease {election}"), &lost)),
    }
}
