//! The options of a session.

use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::ClientConfig;

use crate::servers::{Reconnect, Secret};

/// The options of a session.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// The servers, each `host:port`, tried in random order.
    pub hosts: Vec<String>,
    /// How long servers keep a session that they do not hear from. They may grant another time.
    pub session: Duration,
    /// The reaction to a lost connection.
    pub reconnect: Reconnect,
    /// User and password, as `user:password`, for the digest scheme.
    pub digest: Option<Secret>,
    /// The TLS configuration, if TLS is used.
    pub tls: Option<Arc<ClientConfig>>,
}

impl ClientOptions {
    /// Options for a session of 15 seconds with these servers.
    #[must_use]
    pub fn new<H: Into<String>>(hosts: impl IntoIterator<Item = H>) -> ClientOptions {
        ClientOptions {
            hosts: hosts.into_iter().map(Into::into).collect(),
            session: Duration::from_secs(15),
            reconnect: Reconnect::default(),
            digest: None,
            tls: None,
        }
    }

    /// Sets how long servers keep a session that they do not hear from.
    #[must_use]
    pub fn with_session(mut self, session: Duration) -> ClientOptions {
        self.session = session;
        self
    }

    /// Sets the reaction to a lost connection.
    #[must_use]
    pub fn with_reconnect(mut self, reconnect: Reconnect) -> ClientOptions {
        self.reconnect = reconnect;
        self
    }

    /// Authenticates as this user of the digest scheme.
    #[must_use]
    pub fn with_digest(mut self, user: &str, password: &str) -> ClientOptions {
        self.digest = Some(Secret::new(format!("{user}:{password}")));
        self
    }
}
