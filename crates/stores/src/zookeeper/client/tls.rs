//! The TLS configuration for the servers of a URL.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::servers::Tls;

/// Reads the certificates and keys that a URL names.
pub(in super::super) fn read(tls: &Tls) -> Result<Arc<ClientConfig>, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots(tls.ca.as_deref())?);
    let config = match (&tls.cert, &tls.key) {
        (Some(cert), Some(key)) => {
            let key = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| format!("{}: {error}", key.display()))?;
            builder
                .with_client_auth_cert(certificates(cert)?, key)
                .map_err(|error| format!("{}: {error}", cert.display()))?
        }
        (Some(_) | None, Some(_) | None) => builder.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(ca) => {
            for certificate in certificates(ca)? {
                roots.add(certificate).map_err(|error| format!("{}: {error}", ca.display()))?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    if roots.is_empty() { Err("no authority to trust was found".to_owned()) } else { Ok(roots) }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|error| format!("{}: {error}", file.display()))
}
