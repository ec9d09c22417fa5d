//! Runs one partition under its lease.

use std::sync::Arc;

use super::Office;
use crate::Error;
use crate::cluster::input::pause::{Pauses, contained};
use crate::cluster::input::{InputError, Partition, PartitionContext};
use crate::{Candidate, Election};

/// Runs a partition whenever this member holds its lease. Never returns.
///
/// Starts the partition again whenever it ends, after pauses that grow.
pub(super) async fn run(office: Arc<Office>, lease: String, partition: Partition) {
    let mut pauses = Pauses::new();
    loop {
        let began = office.books.backend.clock().now();
        if let Err(error) = run_once(&office, &lease, &partition).await {
            office.warn(&error);
        }
        pauses.wait(&office.books, began).await;
    }
}

async fn run_once(office: &Office, lease: &str, partition: &Partition) -> Result<(), InputError> {
    let election = format!("{}/{}-{lease}", office.books.keys.root(), office.name);
    let says = |error: &Error| InputError::new(format!("waiting for the lease {election}"), error);
    let candidate = Candidate::new(office.me.as_str())
        .map_err(|error| InputError::new("standing for a partition", &error))?;
    let opened = Election::builder(&office.backend, &election)
        .timing(office.timing)
        .create_if_missing(true)
        .open()
        .await
        .map_err(|error| says(&error))?;
    let leadership = opened.campaign(candidate).await.map_err(|error| says(&error))?;
    let context = PartitionContext { mandate: leadership.mandate(), emitter: office.emitter() };
    // The work is dropped before the leadership, also when this future is dropped midway.
    let outcome = leadership.scope(contained(office.input.run(partition, &context))).await;
    leadership.resign().await;
    match outcome {
        Ok(ended) => ended,
        Err(lost) => Err(InputError::new(format!("running under the lease {election}"), &lost)),
    }
}
