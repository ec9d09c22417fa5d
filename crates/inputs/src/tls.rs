//! One provider of TLS in the whole process.

/// Makes ring the provider of this process, unless the program has chosen one.
///
/// reqwest is built without one, since with two compiled in rustls refuses to choose.
pub(crate) fn install() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Somebody else may be faster, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}
