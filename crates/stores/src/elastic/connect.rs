//! Builds an HTTP client from a URL.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use reqwest::header::HeaderValue;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::password;
use crate::servers::{Servers, Tls};

/// How long an idle connection is kept. Servers and proxies keep a silent one for longer.
const IDLE: Duration = Duration::from_secs(30);

pub(super) fn addresses(servers: &Servers) -> Result<Vec<Url>, String> {
    let scheme = if servers.tls.is_some() { "https" } else { "http" };
    let address = |host: &String| {
        Url::parse(&format!("{scheme}://{host}/")).map_err(|error| format!("{host}: {error}"))
    };
    servers.hosts.iter().map(address).collect()
}

pub(super) fn client(servers: &Servers, request: Duration) -> Result<reqwest::Client, String> {
    let tls = configure(&servers.tls.clone().unwrap_or_default(), servers.tls.is_some())?;
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        // Neither server speaks HTTP/2, and dropping an HTTP/1 request closes its connection.
        .http1_only()
        .retry(reqwest::retry::never())
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .no_proxy()
        // Leaves time to try another server. A time-out here certainly had no effect.
        .connect_timeout(request / 2)
        .pool_idle_timeout(IDLE)
        .user_agent(concat!("tenure/", env!("CARGO_PKG_VERSION")));
    client.build().map_err(|error| super::fault::chain(&error))
}

/// The credentials to send, if there are any.
pub(super) fn authorization(servers: &Servers) -> Result<Option<HeaderValue>, String> {
    let text = if let Some(user) = &servers.user {
        let password = password::of(servers)?;
        format!("Basic {}", STANDARD.encode(format!("{user}:{}", password.reveal())))
    } else if let Some(key) = password::api_key(servers)? {
        format!("ApiKey {}", key.reveal())
    } else {
        return Ok(None);
    };
    let value = HeaderValue::from_str(&text);
    let mut value = value.map_err(|_| "the API key is not one line of ASCII".to_owned())?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// The TLS configuration, with ring as its provider.
///
/// It does not depend on the provider of the process: without one, the default builder would panic.
fn configure(tls: &Tls, used: bool) -> Result<ClientConfig, String> {
    let mut trusted = RootCertStore::empty();
    match &tls.ca {
        Some(ca) => {
            for certificate in certificates(ca)? {
                trusted.add(certificate).map_err(|error| format!("{}: {error}", ca.display()))?;
            }
        }
        // Unreadable certificates of the system are not trusted. Without any, no connection
        // succeeds.
        None if used => {
            trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        None => {}
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(trusted);
    let (Some(cert), Some(key)) = (&tls.cert, &tls.key) else {
        return Ok(config.with_no_client_auth());
    };
    let secret = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| format!("reading {}: {error}", key.display()))?;
    config
        .with_client_auth_cert(certificates(cert)?, secret)
        .map_err(|error| format!("{}: {error}", cert.display()))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(certificates) if certificates.is_empty() => {
            Err(format!("{} has no certificate", file.display()))
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(format!("reading {}: {error}", file.display())),
    }
}
