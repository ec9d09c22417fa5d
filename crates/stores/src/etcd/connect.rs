//! Turns a URL into channels.

use std::path::Path;
use std::time::Duration;

use tenure::store::{Fault, StoreError};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::client::Login;
use crate::servers::{Servers, Tls};

/// etcd closes connections that are probed more often than every 5 s.
const PROBE: Duration = Duration::from_secs(10);
const PROBE_ANSWER: Duration = Duration::from_secs(3);

pub(super) fn endpoints(servers: &Servers, request: Duration) -> Result<Vec<Endpoint>, StoreError> {
    let tls = servers.tls.as_ref().map(configure).transpose()?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let endpoint = |host: &String| {
        let endpoint = Endpoint::from_shared(format!("{scheme}://{host}"))?
            // This leaves time to try another server. A connection that fails certainly had no
            // effect.
            .connect_timeout(request / 2)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PROBE)
            .keep_alive_timeout(PROBE_ANSWER);
        match &tls {
            Some(tls) => endpoint.tls_config(tls.clone()),
            None => Ok(endpoint),
        }
    };
    let endpoints: Result<_, tonic::transport::Error> =
        servers.hosts.iter().map(endpoint).collect();
    endpoints.map_err(|error| refused("reading its address and keys", error))
}

pub(super) fn login(servers: &Servers) -> Result<Option<Login>, StoreError> {
    let Some(user) = &servers.user else { return Ok(None) };
    let password =
        crate::password::of(servers).map_err(|says| refused("finding the password", says))?;
    Ok(Some(Login { user: user.clone(), password }))
}

fn configure(tls: &Tls) -> Result<ClientTlsConfig, StoreError> {
    let config = match &tls.ca {
        Some(ca) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(ca)?)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    Ok(match (&tls.cert, &tls.key) {
        (Some(cert), Some(key)) => config.identity(Identity::from_pem(read(cert)?, read(key)?)),
        _ => config,
    })
}

fn read(file: &Path) -> Result<Vec<u8>, StoreError> {
    std::fs::read(file).map_err(|error| refused(format!("reading {}", file.display()), error))
}

fn refused(
    doing: impl Into<String>,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> StoreError {
    StoreError::new(Fault::Permanent, "etcd", doing, source)
}
