//! Opens the store and the queue of a ZooKeeper URL.

use std::sync::Arc;
use std::time::Duration;

use tenure::store::{Fault, StoreError};

use super::client::{Client, ClientOptions, read_tls};
use super::fault::{Kind, failed};
use super::queue::{Recipe, ZookeeperQueue};
use super::wire::Acl;
use super::{ZookeeperStore, absolute};
use crate::servers::{Access, Servers};

/// The root node for a URL without a path.
const ROOT: &str = "tenure";

/// Documents and candidate queues in one session.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Zookeeper {
    /// The session. The program may use it too.
    pub client: Client,
    /// The documents.
    pub store: Arc<ZookeeperStore>,
    /// The candidate queues.
    pub queue: Arc<ZookeeperQueue>,
}

/// Connects to the servers of a URL, and waits for a connection.
///
/// # Errors
/// [`StoreError`] when the password or a certificate cannot be read, or no server accepts us within
/// the request's time.
///
/// # Cancel safety
/// Cancel safe.
pub async fn open(
    servers: &Servers,
    request: Duration,
    session: Duration,
) -> Result<Zookeeper, StoreError> {
    let refused =
        |doing: &str, says: String| StoreError::new(Fault::Permanent, "zookeeper", doing, says);
    let settings = &servers.settings;
    let mut options = ClientOptions::new(servers.hosts.iter().cloned())
        .with_session(settings.ttl.unwrap_or(session))
        .with_reconnect(settings.reconnect.unwrap_or_default());
    if let Some(user) = &servers.user {
        let password =
            crate::password::of(servers).map_err(|says| refused("finding the password", says))?;
        options = options.with_digest(user, password.reveal());
    }
    if let Some(tls) = &servers.tls {
        let tls = read_tls(tls).map_err(|says| refused("reading certificates", says))?;
        options.tls = Some(tls);
    }
    // With a user, our nodes belong to that user alone, unless the URL says otherwise.
    let acl = match (settings.access, &servers.user) {
        (Some(Access::Creator), _) | (None, Some(_)) => Acl::creator(),
        (Some(Access::CreatorAndReaders), _) => Acl::creator_and_readers(),
        (Some(Access::Open), _) | (None, None) => Acl::open(),
    };
    let recipe = settings.node_prefix.as_deref().and_then(Recipe::with_prefix).unwrap_or_default();
    let path = servers.path.trim_start_matches('/');
    let root = absolute(if path.is_empty() { ROOT } else { path });
    let client = Client::new(options);
    let connected = client.connected(request).await;
    connected.map_err(|error| failed(error, Kind::Read, "connecting"))?;
    Ok(Zookeeper {
        store: Arc::new(ZookeeperStore::new(client.clone(), &root, request).with_acl(acl.clone())),
        queue: Arc::new(
            ZookeeperQueue::new(client.clone(), &root, request).with_acl(acl).with_recipe(recipe),
        ),
        client,
    })
}
