//! Waiting for a store that does not serve, within limits.

use std::time::Duration;

use tenure::Moment;
use tenure::store::{Fault, StoreError};

use super::client::ClusterClient;
use crate::error::ClusterError;

/// A store that gives no answer for this long is given up.
const LONGEST: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Measures how long a store has not served. Any answer ends that.
#[derive(Debug)]
pub(super) struct Patience<'a> {
    client: &'a ClusterClient,
    /// Since when the store fails, and how long to pause next.
    failing: Option<(Moment, Duration)>,
}

impl<'a> Patience<'a> {
    pub(super) fn new(client: &'a ClusterClient) -> Patience<'a> {
        Patience { client, failing: None }
    }

    /// Notes that the store has answered.
    pub(super) fn renew(&mut self) {
        self.failing = None;
    }

    /// Pauses after an error that may pass.
    ///
    /// Returns any other error, and after a minute this one, too.
    pub(super) async fn after(&mut self, error: ClusterError) -> Result<(), ClusterError> {
        let passes = matches!(
            &error,
            ClusterError::Store(StoreError {
                fault: Fault::Unavailable | Fault::Indeterminate,
                ..
            })
        );
        let now = self.client.backend.clock().now();
        let (since, pause) = self.failing.unwrap_or((now, FIRST_PAUSE));
        if !passes || now.at_least_since(since) >= LONGEST {
            return Err(error);
        }
        self.failing = Some((since, (pause * 2).min(LONGEST_PAUSE)));
        self.client.sleep(pause).await;
        Ok(())
    }
}
