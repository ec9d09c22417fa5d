//! The TLS provider of the whole process.

/// Makes ring the provider of this process, unless the program has chosen one.
///
/// reqwest is built without a provider, since rustls refuses to choose if two are compiled in.
pub(crate) fn install() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may be faster, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}
