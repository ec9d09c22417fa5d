//! Detects servers that lose leases.

use std::sync::atomic::{AtomicBool, Ordering};

use super::super::client::Client;
use super::super::fault::{Failure, Kind};
use super::super::proto::maintenance_client::MaintenanceClient;
use super::super::proto::{StatusRequest, StatusResponse};

/// Warns once per process if the server should be newer.
pub(super) async fn warn(client: &Client) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.load(Ordering::Relaxed) {
        return;
    }
    if let Ok(version) = version(client).await
        && loses_leases(&version)
        && !SAID.swap(true, Ordering::Relaxed)
    {
        tracing::warn!(%version, "{LOSES_LEASES}");
    }
}

/// The reason to upgrade the server that answers, if there is one.
pub(in super::super) async fn advice(client: &Client) -> Result<Option<String>, Failure> {
    let version = version(client).await?;
    Ok(loses_leases(&version).then(|| format!("this is etcd {version}: {LOSES_LEASES}")))
}

const LOSES_LEASES: &str = "etcd before 3.4.31 and 3.5.13 may take a lease away after its own leader \
                            changed (etcd issue 15247): a leader may be replaced before its time; \
                            please update it";

async fn version(client: &Client) -> Result<String, Failure> {
    let send =
        |channel, request| async move { MaintenanceClient::new(channel).status(request).await };
    let status: StatusResponse = client.call(Kind::Read, StatusRequest {}, send).await?;
    Ok(status.version)
}

/// Returns true if a former leader of this version may still revoke leases.
fn loses_leases(version: &str) -> bool {
    let mut parts = version.split(['.', '-', '+']).map(|part| part.parse::<u64>().ok());
    let mut part = || parts.next().flatten();
    let (Some(major), Some(minor), Some(patch)) = (part(), part(), part()) else { return false };
    match (major, minor) {
        (3, 5) => patch < 13,
        (3, 4) => patch < 31,
        (3, minor) => minor < 4,
        (major, _) => major < 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_the_bug_are_known() {
        for (version, bad) in [
            ("3.4.23", true),
            ("3.4.31", false),
            ("3.5.12", true),
            ("3.5.13", false),
            ("3.6.0", false),
            ("3.7.3", false),
            ("3.3.27", true),
            ("3.5.0-rc.1", true),
            ("4.0.0", false),
            ("what", false),
        ] {
            assert_eq!(loses_leases(version), bad, "{version}");
        }
    }
}
