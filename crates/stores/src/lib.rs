//! Opens a [`Backend`] by its URL.
//!
//! | URL | store | cargo feature |
//! |---|---|---|
//! | `elasticsearch+http://host:port,host:port/index` | Elasticsearch 7 and 8; `elasticsearch+https:`, `?ca=…` with TLS | `elastic` |
//! | `opensearch+http://host:port,host:port/index` | OpenSearch 2 and 3; `opensearch+https:`, `?ca=…` with TLS | `elastic` |
//! | `etcd://host:port,host:port/prefix` | etcd 3.4 and later; `etcd+https:`, `?ca=…&cert=…&key=…` with TLS | `etcd` |
//! | `file:///absolute/directory` | a directory of this machine; `?force=true` on any file system, `?trust-parents=true` below parents that others can rename | `file` |
//! | `memory:` | this process | `memory` |
//! | `mongodb://host:port,host:port/database` | MongoDB 4.4 and later, a replica set; also `mongodb+srv:`, with MongoDB's settings and `?collection=…` | `mongodb` |
//! | `rethinkdb://host:port,host:port/database?table=…` | RethinkDB 2.3 and later; `rethinkdb+tls:`, `?ca=…` with TLS | `rethinkdb` |
//! | `zookeeper://host:port,host:port/node` | ZooKeeper 3.5 and later; `zookeeper+tls:`, `?ca=…&cert=…&key=…` with TLS | `zookeeper` |
//!
//! A user and a password stand in front of the hosts, `user:password@`; the password may instead be
//! the first line of a file (`?password-file=…`) or be in the environment, as
//! `TENURE_STORE_PASSWORD`. Elasticsearch takes an API key instead, from a file (`?api-key-file=…`)
//! or from `TENURE_STORE_API_KEY`.
//!
//! Elections are queues where the store has them; `?protocol=lease` decides them by documents
//! instead.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure_stores::OpenError> {
//! let opened = tenure_stores::open("memory:", &Default::default()).await?;
//! # let _ = opened.backend; Ok(()) }
//! ```

#[cfg(any(feature = "elastic", feature = "etcd", feature = "mongodb", feature = "rethinkdb"))]
mod background;
#[cfg(any(feature = "elastic", feature = "rethinkdb"))]
mod bounded;
#[cfg(feature = "elastic")]
pub mod elastic;
#[cfg(feature = "etcd")]
pub mod etcd;
mod location;
#[cfg(feature = "mongodb")]
pub mod mongodb;
mod mongodb_url;
#[cfg(any(
    feature = "elastic",
    feature = "etcd",
    feature = "mongodb",
    feature = "rethinkdb",
    feature = "zookeeper"
))]
mod password;
mod provided;
#[cfg(feature = "rethinkdb")]
pub mod rethinkdb;
mod servers;
mod url;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure::Backend;
use tenure::store::StoreError;

pub use location::{Location, holds_credentials, parse};
pub use mongodb_url::MongodbUrl;
pub use provided::provide_passwords;
pub use servers::{Access, Reconnect, Secret, Servers, Settings, Tls};
pub use url::{SCHEMES, UrlError};

/// The environment variable with the password of the URL's user.
///
/// It is used if the URL has neither a password nor a password file.
pub const PASSWORD_VARIABLE: &str = "TENURE_STORE_PASSWORD";

/// The environment variable with the API key.
///
/// It is used if the URL has neither an API key file nor a user.
pub const API_KEY_VARIABLE: &str = "TENURE_STORE_API_KEY";

/// The environment variable that accepts parents that other users could rename.
///
/// If it is `true`, it has the effect of `trust-parents=true` in a directory's URL.
pub const TRUST_PARENTS_VARIABLE: &str = "TENURE_TRUST_PARENTS";

/// How a store is opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenOptions {
    /// The time-out of each request to the store.
    pub request: Duration,
    /// How long the server keeps a silent session, where elections are queues.
    pub session: Option<Duration>,
    /// True to create the URL's database, table or collection if it is missing.
    pub create_if_missing: bool,
}

impl OpenOptions {
    /// Sets the time-out of requests: [`tenure::Timing::request`].
    #[must_use]
    pub fn with_request(mut self, request: Duration) -> OpenOptions {
        self.request = request;
        self
    }

    /// Sets how long the server keeps a silent session: [`tenure::Timing::ttl`].
    ///
    /// The default is 15 s.
    #[must_use]
    pub fn with_session(mut self, ttl: Duration) -> OpenOptions {
        self.session = Some(ttl);
        self
    }

    /// Sets whether a missing database, table or collection is created.
    ///
    /// Otherwise it is an error.
    #[must_use]
    pub fn with_create_if_missing(mut self, create: bool) -> OpenOptions {
        self.create_if_missing = create;
        self
    }
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        let request = tenure::Timing::default().request();
        OpenOptions { request, session: None, create_if_missing: true }
    }
}

/// A store that was opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Opened {
    /// The backend to hold elections on.
    pub backend: Backend,
    /// This process's proof of life, if the store has one. A supervisor shares it with others.
    #[cfg(target_os = "linux")]
    pub presence: Option<Arc<tenure::file::FilePresence>>,
}

/// Why a store could not be opened. Never shows credentials.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL is malformed.
    #[error("the store's URL is refused: {0}")]
    Url(#[from] UrlError),
    /// The store exists, but not in this build.
    #[error("the store `{scheme}:` is not built into this program; built in: {}", built_in())]
    NotBuiltIn {
        /// The scheme of the URL.
        scheme: &'static str,
    },
    /// There is no place for the embedded store.
    #[error(
        "no place for the embedded store: neither XDG_STATE_HOME nor HOME is an absolute path; \
         name a store, such as file:///var/lib/tenure"
    )]
    NoHome,
    /// The store does not serve.
    #[error("opening the store")]
    Store(#[from] StoreError),
}

/// Opens a store by its URL.
///
/// # Errors
/// [`OpenError`] says whether the URL, this build or the store is at fault.
///
/// # Cancel safety
/// Cancel safe.
pub async fn open(url: &str, options: &OpenOptions) -> Result<Opened, OpenError> {
    open_at(&parse(url)?, options).await
}

/// Opens a store by its parsed URL.
///
/// # Errors
/// As for [`open`].
///
/// # Cancel safety
/// Cancel safe.
pub async fn open_at(location: &Location, options: &OpenOptions) -> Result<Opened, OpenError> {
    // A build without stores uses none.
    let _ = options;
    match location {
        #[cfg(feature = "memory")]
        Location::Memory => Ok(memory()),
        #[cfg(not(feature = "memory"))]
        Location::Memory => missing("memory"),
        #[cfg(all(feature = "file", target_os = "linux"))]
        Location::File { directory, force, .. } => {
            file(directory, *force, trusts_parents(location), options)
        }
        #[cfg(not(all(feature = "file", target_os = "linux")))]
        Location::File { .. } => missing("file"),
        #[cfg(feature = "elastic")]
        Location::Elasticsearch(servers) => {
            elastic_store(elastic::Product::Elasticsearch, servers, options).await
        }
        #[cfg(not(feature = "elastic"))]
        Location::Elasticsearch(_) => missing("elasticsearch+http"),
        #[cfg(feature = "elastic")]
        Location::Opensearch(servers) => {
            elastic_store(elastic::Product::Opensearch, servers, options).await
        }
        #[cfg(not(feature = "elastic"))]
        Location::Opensearch(_) => missing("opensearch+http"),
        #[cfg(feature = "etcd")]
        Location::Etcd(servers) => etcd_store(servers, options).await,
        #[cfg(not(feature = "etcd"))]
        Location::Etcd(_) => missing("etcd"),
        #[cfg(feature = "mongodb")]
        Location::Mongodb(url) => mongodb_store(url, options).await,
        #[cfg(not(feature = "mongodb"))]
        Location::Mongodb(_) => missing("mongodb"),
        #[cfg(feature = "rethinkdb")]
        Location::Rethinkdb(servers) => rethinkdb_store(servers, options).await,
        #[cfg(not(feature = "rethinkdb"))]
        Location::Rethinkdb(_) => missing("rethinkdb"),
        #[cfg(feature = "zookeeper")]
        Location::Zookeeper(servers) => zookeeper_store(servers, options).await,
        #[cfg(not(feature = "zookeeper"))]
        Location::Zookeeper(_) => missing("zookeeper"),
    }
}

#[allow(dead_code, reason = "a build may have all stores")]
fn missing(scheme: &'static str) -> Result<Opened, OpenError> {
    Err(OpenError::NotBuiltIn { scheme })
}

/// Why the servers of a store should be newer; none if no reason is known. For `tenure doctor`.
///
/// # Errors
/// As for [`open`].
///
/// # Cancel safety
/// Cancel safe.
pub async fn advice(
    location: &Location,
    options: &OpenOptions,
) -> Result<Option<String>, OpenError> {
    #[cfg(feature = "etcd")]
    if let Location::Etcd(servers) = location {
        return Ok(etcd::EtcdStore::open(servers, options.request).await?.advice().await?);
    }
    // Every version of the other stores that we accept is good enough.
    let _ = (location, options);
    Ok(None)
}

/// Returns true if parents that other users could rename are accepted.
///
/// The URL or the environment accepts them.
#[must_use]
pub fn trusts_parents(location: &Location) -> bool {
    let named = std::env::var(TRUST_PARENTS_VARIABLE).is_ok_and(|value| value == "true");
    matches!(location, Location::File { trust_parents, .. } if named || *trust_parents)
}

/// The place of this user's embedded store.
///
/// It is `$XDG_STATE_HOME/tenure`, or `~/.local/state/tenure`.
///
/// # Errors
/// [`OpenError::NoHome`] when the environment names neither.
pub fn embedded() -> Result<Location, OpenError> {
    let absolute = |name: &str| {
        std::env::var_os(name).map(PathBuf::from).filter(|directory| directory.is_absolute())
    };
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .ok_or(OpenError::NoHome)?;
    let directory = state.join("tenure");
    Ok(Location::File { directory, force: false, trust_parents: false })
}

/// The schemes of this build, as text.
#[must_use]
pub fn built_in() -> String {
    let elastic = cfg!(feature = "elastic")
        .then_some("elasticsearch+http://HOST:PORT,…/INDEX, opensearch+http://HOST:PORT,…/INDEX");
    let etcd = cfg!(feature = "etcd").then_some("etcd://HOST:PORT,…/PREFIX");
    let file = cfg!(all(feature = "file", target_os = "linux")).then_some("file:///DIRECTORY");
    let memory = cfg!(feature = "memory").then_some("memory:");
    let mongodb = cfg!(feature = "mongodb").then_some("mongodb://HOST:PORT,…/DATABASE");
    let rethinkdb = cfg!(feature = "rethinkdb").then_some("rethinkdb://HOST:PORT,…/DATABASE");
    let zookeeper = cfg!(feature = "zookeeper").then_some("zookeeper://HOST:PORT,…/NODE");
    let all = [elastic, etcd, file, memory, mongodb, rethinkdb, zookeeper];
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(feature = "elastic")]
async fn elastic_store(
    product: elastic::Product,
    servers: &Servers,
    options: &OpenOptions,
) -> Result<Opened, OpenError> {
    let store = elastic::ElasticStore::open(product, servers, options.request).await?;
    Ok(without_presence(Backend::new(std::sync::Arc::new(store))))
}

#[cfg(feature = "etcd")]
async fn etcd_store(servers: &Servers, options: &OpenOptions) -> Result<Opened, OpenError> {
    let store = etcd::EtcdStore::open(servers, options.request).await?;
    let ttl = servers.settings.ttl.or(options.session).unwrap_or(Duration::from_secs(15));
    let queue = std::sync::Arc::new(store.queue(ttl));
    let backend = Backend::new(std::sync::Arc::new(store));
    Ok(without_presence(match servers.settings.lease {
        true => backend,
        false => backend.with_queue(queue),
    }))
}

#[cfg(feature = "mongodb")]
async fn mongodb_store(url: &MongodbUrl, options: &OpenOptions) -> Result<Opened, OpenError> {
    let create = options.create_if_missing;
    let store = mongodb::MongodbStore::open(url, options.request, create).await?;
    let feed = std::sync::Arc::new(store.feed());
    Ok(without_presence(Backend::new(std::sync::Arc::new(store)).with_feed(feed)))
}

#[cfg(feature = "rethinkdb")]
async fn rethinkdb_store(servers: &Servers, options: &OpenOptions) -> Result<Opened, OpenError> {
    let create = options.create_if_missing;
    let store = rethinkdb::RethinkStore::open(servers, options.request, create).await?;
    let feed = store.feed();
    Ok(without_presence(Backend::new(Arc::new(store)).with_feed(Arc::new(feed))))
}

#[cfg(feature = "zookeeper")]
async fn zookeeper_store(servers: &Servers, options: &OpenOptions) -> Result<Opened, OpenError> {
    let session = options.session.unwrap_or(Duration::from_secs(15));
    let opened = zookeeper::open(servers, options.request, session).await?;
    let backend = Backend::new(opened.store);
    Ok(without_presence(match servers.settings.lease {
        true => backend,
        // As with other clients of ZooKeeper, creating an election is a separate decision.
        false => backend.with_queue(opened.queue).with_creation(false),
    }))
}

/// A store without a proof of life: other machines share it, or it ends with the process.
#[cfg(any(
    feature = "elastic",
    feature = "etcd",
    feature = "memory",
    feature = "mongodb",
    feature = "rethinkdb",
    feature = "zookeeper"
))]
fn without_presence(backend: Backend) -> Opened {
    Opened {
        backend,
        #[cfg(target_os = "linux")]
        presence: None,
    }
}

#[cfg(feature = "memory")]
fn memory() -> Opened {
    without_presence(Backend::memory().with_feed(Arc::new(tenure::feed::MemoryFeed::new())))
}

#[cfg(all(feature = "file", target_os = "linux"))]
fn file(
    directory: &std::path::Path,
    force: bool,
    trust_parents: bool,
    options: &OpenOptions,
) -> Result<Opened, OpenError> {
    use tenure::file::{FileOptions, FileStore};
    let options = FileOptions {
        request: options.request,
        force_file_system: force,
        trust_parents,
        ..FileOptions::default()
    };
    let store = FileStore::open(directory, options)?;
    let presence = store.presence();
    let backend = Backend::new(Arc::new(store)).with_presence(presence.clone());
    Ok(Opened { backend, presence: Some(presence) })
}
