//! Grants, marks and revokes leases.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;

use super::super::super::fault::{Failure, Kind, LeaseTrouble};
use super::super::super::kv;
use super::super::super::proto::lease_client::LeaseClient;
use super::super::super::proto::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseRevokeRequest, LeaseRevokeResponse,
    LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, TxnResponse,
};
use super::super::requests;
use super::stream::ended;
use super::{Held, Keeper};

/// How many leases are asked for, or marked, at once.
pub(super) const MOST_AT_ONCE: usize = 60;

impl Keeper<'_> {
    /// Asks for the leases that several candidates of one election need.
    pub(super) async fn grant_more(&mut self) {
        let missing = self.shared.claims.leases_wanted().saturating_sub(self.held.len());
        let fresh: Vec<i64> = (0..missing.min(MOST_AT_ONCE)).map(|_| fresh()).collect();
        let granted = join_all(fresh.iter().map(|id| self.grant(*id))).await;
        let granted: Vec<i64> =
            fresh.iter().zip(granted).filter(|(_, it)| it.is_ok()).map(|(id, _)| *id).collect();
        if granted.is_empty() {
            return;
        }
        match self.mark(&granted).await {
            // This term was known before the leases were asked for.
            Ok(()) => self.held.extend(granted.iter().map(|id| Held::new(*id, self.term))),
            // These leases lapse by themselves.
            Err(failure) => tracing::debug!(error = %failure.source, "etcd: no further lease"),
        }
    }

    pub(super) async fn grant(&self, id: i64) -> Result<Duration, Failure> {
        let client = &self.shared.core.client;
        let request = LeaseGrantRequest { ttl: seconds(self.shared.ttl), id };
        let send =
            |channel, request| async move { LeaseClient::new(channel).lease_grant(request).await };
        let granted: Result<LeaseGrantResponse, Failure> =
            client.call(Kind::Write, request, send).await;
        match granted {
            Ok(granted) => duration(granted.ttl),
            // The number is random and ours: an earlier request was taken, and its answer was lost.
            Err(failure) if failure.lease == Some(LeaseTrouble::Exists) => {
                let request = LeaseTimeToLiveRequest { id, keys: false };
                let send = |channel, request| async move {
                    LeaseClient::new(channel).lease_time_to_live(request).await
                };
                let lease: LeaseTimeToLiveResponse = client.call(Kind::Read, request, send).await?;
                duration(lease.granted_ttl)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Writes the keys that stand for leases.
    pub(super) async fn mark(&self, leases: &[i64]) -> Result<(), Failure> {
        let says = Bytes::from(format!(r#"{{"pid":{}}}"#, std::process::id()));
        let txn = requests::sessions(&self.shared.keys, leases, &says);
        let send = |channel, request| async move { kv(channel).txn(request).await };
        let _: TxnResponse = self.shared.core.client.call(Kind::Write, txn, send).await?;
        Ok(())
    }

    pub(super) async fn revoke(&self, leases: Vec<i64>) {
        for some in leases.chunks(MOST_AT_ONCE) {
            let revoke = |id: &i64| {
                let send = |channel, request| async move {
                    LeaseClient::new(channel).lease_revoke(request).await
                };
                self.shared.core.client.call(Kind::Write, LeaseRevokeRequest { id: *id }, send)
            };
            let revoked: Vec<Result<LeaseRevokeResponse, Failure>> =
                join_all(some.iter().map(revoke)).await;
            let failed = revoked.iter().filter_map(|it| it.as_ref().err());
            // A lease that is already gone is no failure. The others lapse by themselves.
            if let Some(failure) = failed.into_iter().find(|failure| failure.lease.is_none()) {
                tracing::debug!(error = %failure.source, "etcd: a lease was not given back");
            }
        }
    }
}

/// A number for a lease. It is part of a key, where etcd's clients write it without a sign.
pub(super) fn fresh() -> i64 {
    (rand::random::<i64>() & i64::MAX).max(1)
}

fn seconds(ttl: Duration) -> i64 {
    let up = u64::from(ttl.subsec_nanos() > 0);
    i64::try_from(ttl.as_secs() + up).unwrap_or(i64::MAX).max(1)
}

pub(super) fn duration(ttl: i64) -> Result<Duration, Failure> {
    let seconds = u64::try_from(ttl).ok().filter(|seconds| *seconds > 0);
    seconds.map(Duration::from_secs).ok_or_else(|| ended("the server grants a lease of no time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_have_positive_numbers_and_whole_seconds() {
        assert!((0..1000).all(|_| fresh() > 0));
        assert_eq!(seconds(Duration::from_millis(2500)), 3);
        assert_eq!(seconds(Duration::from_secs(15)), 15);
        assert_eq!(seconds(Duration::ZERO), 1);
        assert!(duration(0).is_err() && duration(-1).is_err());
    }
}
