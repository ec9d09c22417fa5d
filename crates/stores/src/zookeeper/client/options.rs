//! How a session is begun and kept.

use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::ClientConfig;

use crate::servers::{Reconnect, Secret};

/// How a session is begun and kept.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// Each `host:port`; tried in random order.
    pub hosts: Vec<String>,
    /// How long servers are to keep a session that they do not hear of; they may grant another
    /// time.
    pub session: Duration,
    /// What is done when a connection is lost.
    pub reconnect: Reconnect,
    /// User and password, as `user:password`, for the digest scheme.
    pub digest: Option<Secret>,
    /// How TLS is spoken, if it is.
    pub tls: Option<Arc<ClientConfig>>,
}

impl ClientOptions {
    /// A session of 15 seconds with these servers.
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

    /// The same, with a session that servers are to keep for so long.
    #[must_use]
    pub fn with_session(mut self, session: Duration) -> ClientOptions {
        self.session = session;
        self
    }

    /// The same, with another answer to lost connections.
    #[must_use]
    pub fn with_reconnect(mut self, reconnect: Reconnect) -> ClientOptions {
        self.reconnect = reconnect;
        self
    }

    /// The same, as this user of the digest scheme.
    #[must_use]
    pub fn with_digest(mut self, user: &str, password: &str) -> ClientOptions {
        self.digest = Some(Secret::new(format!("{user}:{password}")));
        self
    }
}
