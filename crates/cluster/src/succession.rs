//! Keeps the leaders' tokens above those that the cluster's records know.
//!
//! A leader writes its token into the cursor, and gives way to a greater one. If the document of
//! the leadership is deleted, tokens begin at 1 again. Then every leader would give way to a leader
//! that is long gone, until the tokens have risen far enough.

use std::time::Duration;

use tenure::Protocol;
use tenure::lease::record::{Record, State};
use tenure::store::{Expect, Put, StoreExt as _};

use super::client::ClusterClient;
use super::documents::Cursor;
use crate::error::ClusterError;

impl ClusterClient {
    /// Makes sure that the next leader's token is greater than the last leader's.
    ///
    /// A leadership that is held is left alone: only its holder can give it up.
    ///
    /// # Errors
    /// [`ClusterError::Store`] when the store does not serve, [`ClusterError::Document`] when the
    /// cursor makes no sense.
    ///
    /// # Cancel safety
    /// Cancel safe: the one write is done, or not.
    pub(super) async fn uphold_succession(&self) -> Result<(), ClusterError> {
        let Some((_, cursor)) = self.read::<Cursor>(&self.keys.cursor()).await? else {
            return Ok(());
        };
        let key = self.keys.leader();
        let (expect, before) = match self.store().get(&key).await? {
            None => (Expect::Absent, None),
            Some(document) => match Record::decode(&document.body) {
                Ok(record) => (Expect::At(document.version), Some(record)),
                // A candidate that stands reports the error in the record.
                Err(_) => return Ok(()),
            },
        };
        let Some(record) = raised(before, cursor.leader, self) else { return Ok(()) };
        match self.store().put(&key, expect, record.encode()).await? {
            Put::Stored(_) => tracing::warn!(
                cluster = %self.name, token = cursor.leader,
                "somebody deleted the document of the leadership; its token was put back"
            ),
            // Another process was faster. If its token is too low as well, the next call finds
            // that.
            Put::Conflict => {}
        }
        Ok(())
    }
}

/// The record raised to this token, if its own is smaller and it is free.
fn raised(before: Option<Record>, token: u64, client: &ClusterClient) -> Option<Record> {
    let op = client.fresh_op();
    match before {
        Some(record) if record.token >= token => None,
        Some(record) if !matches!(record.state, State::Free { .. }) => None,
        Some(record) => Some(Record { token, revision: record.revision + 1, op, ..record }),
        None if token == 0 => None,
        None => Some(Record {
            protocol: Protocol::Lease,
            // It is unknown how the last leadership ended.
            state: State::Free { clean: false },
            expire: 0,
            token,
            ttl: client.timing.ttl(),
            delay: Duration::ZERO,
            next_delay: None,
            generation: 1,
            revision: 1,
            op,
            floor: None,
        }),
    }
}
