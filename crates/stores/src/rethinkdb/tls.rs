//! TLS to the servers, with rustls and ring.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::servers::Tls;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The TLS connector, with the keys that the URL names.
pub(super) fn connector(tls: &Tls) -> Result<TlsConnector, Error> {
    let mut roots = RootCertStore::empty();
    match &tls.ca {
        Some(file) => {
            for certificate in certificates(file)? {
                roots.add(certificate)?;
            }
        }
        // An unreadable certificate of the system does not spoil the others.
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let config = match (&tls.cert, &tls.key) {
        (Some(cert), Some(key)) => {
            let private = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| format!("reading {}: {error}", key.display()))?;
            config.with_client_auth_cert(certificates(cert)?, private)?
        }
        _ => config.with_no_client_auth(),
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The name that the server's certificate must have.
pub(super) fn server_name(host: &str) -> Result<ServerName<'static>, Error> {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    Ok(ServerName::try_from(name.to_owned())?)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let says = |error| format!("reading {}: {error}", file.display());
    let certificates = CertificateDer::pem_file_iter(file).map_err(says)?;
    let certificates: Vec<_> = certificates.collect::<Result<_, _>>().map_err(says)?;
    if certificates.is_empty() {
        return Err(format!("there is no certificate in {}", file.display()).into());
    }
    Ok(certificates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_has_to_be_proven_is_the_host() {
        for (host, name) in [("a.b:1", "a.b"), ("127.0.0.1:1", "127.0.0.1"), ("[::1]:1", "::1")] {
            assert_eq!(server_name(host).expect("a name").to_str(), name);
        }
    }

    #[test]
    fn files_that_hold_no_keys_are_named() {
        let tls = Tls { ca: Some("/nowhere/ca.pem".into()), ..Tls::default() };
        let error = connector(&tls).err().expect("there is no such file");
        assert!(error.to_string().contains("/nowhere/ca.pem"), "{error}");
    }
}
