//! URLs of stores, parsed strictly. A mistyped URL must not elect in the wrong place.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::mongodb_url::MongodbUrl;
use crate::servers::{Dialect, Servers};
use crate::url::{MOST_BYTES, UrlError, decode, encode};

/// The form of etcd URLs.
const ETCD: Dialect = Dialect {
    port: 2379,
    tls: false,
    settings: &["ca", "cert", "key", "password-file", "protocol", "ttl"],
};
/// The form of etcd URLs with TLS.
const ETCD_HTTPS: Dialect = Dialect { tls: true, ..ETCD };
/// The form of Elasticsearch and OpenSearch URLs.
const ELASTIC: Dialect =
    Dialect { port: 9200, tls: false, settings: &["api-key-file", "password-file"] };
/// The form of Elasticsearch and OpenSearch URLs with TLS.
const ELASTIC_HTTPS: Dialect = Dialect {
    tls: true,
    settings: &["api-key-file", "ca", "cert", "key", "password-file"],
    ..ELASTIC
};
/// The form of ZooKeeper URLs.
const ZOOKEEPER: Dialect = Dialect {
    port: 2181,
    tls: false,
    settings: &[
        "ca",
        "cert",
        "key",
        "password-file",
        "protocol",
        "ttl",
        "recipe",
        "node-prefix",
        "acl",
        "reconnect",
    ],
};
/// The form of ZooKeeper URLs with TLS.
const ZOOKEEPER_TLS: Dialect = Dialect { tls: true, ..ZOOKEEPER };
/// The form of RethinkDB URLs.
const RETHINKDB: Dialect =
    Dialect { port: 28015, tls: false, settings: &["table", "ca", "cert", "key", "password-file"] };
/// The form of RethinkDB URLs with TLS.
const RETHINKDB_TLS: Dialect = Dialect { tls: true, ..RETHINKDB };

/// The place of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Location {
    /// In this process.
    Memory,
    /// In a directory of this machine.
    File {
        /// The directory, an absolute path.
        directory: PathBuf,
        /// True to accept file systems that are not known to be safe: `force=true`.
        force: bool,
        /// True to accept parents that another user could rename: `trust-parents=true`.
        trust_parents: bool,
    },
    /// On Elasticsearch.
    Elasticsearch(Servers),
    /// On OpenSearch.
    Opensearch(Servers),
    /// On etcd.
    Etcd(Servers),
    /// On MongoDB.
    Mongodb(MongodbUrl),
    /// On RethinkDB.
    Rethinkdb(Servers),
    /// On ZooKeeper.
    Zookeeper(Servers),
}

/// Parses the URL of a store. Never panics; public so that it can be fuzzed.
///
/// # Errors
/// [`UrlError`] says why the URL is refused.
pub fn parse(url: &str) -> Result<Location, UrlError> {
    if url.is_empty() {
        return Err(UrlError::Empty);
    }
    if url.len() > MOST_BYTES {
        return Err(UrlError::TooLong { bytes: url.len() });
    }
    if let Some((at, _)) = url.char_indices().find(|(_, character)| character.is_control()) {
        return Err(UrlError::Control { at });
    }
    let (scheme, rest) = split_scheme(url).ok_or(UrlError::NoScheme)?;
    if url.split_once('?').is_some_and(|(_, query)| query.contains('@')) {
        return Err(UrlError::BadQuery);
    }
    let location = match scheme.as_str() {
        "memory" if rest.is_empty() => Location::Memory,
        "memory" => return Err(UrlError::MemoryTail),
        "file" => parse_file(rest)?,
        "etcd" => Location::Etcd(Servers::parse(rest, &ETCD)?),
        "etcd+https" => Location::Etcd(Servers::parse(rest, &ETCD_HTTPS)?),
        "elasticsearch+http" => Location::Elasticsearch(Servers::parse(rest, &ELASTIC)?),
        "elasticsearch+https" => Location::Elasticsearch(Servers::parse(rest, &ELASTIC_HTTPS)?),
        "opensearch+http" => Location::Opensearch(Servers::parse(rest, &ELASTIC)?),
        "opensearch+https" => Location::Opensearch(Servers::parse(rest, &ELASTIC_HTTPS)?),
        "mongodb" => Location::Mongodb(MongodbUrl::parse(rest, false)?),
        "mongodb+srv" => Location::Mongodb(MongodbUrl::parse(rest, true)?),
        "rethinkdb" => Location::Rethinkdb(one_database(Servers::parse(rest, &RETHINKDB)?)?),
        "rethinkdb+tls" => {
            Location::Rethinkdb(one_database(Servers::parse(rest, &RETHINKDB_TLS)?)?)
        }
        "zookeeper" => Location::Zookeeper(Servers::parse(rest, &ZOOKEEPER)?),
        "zookeeper+tls" => Location::Zookeeper(Servers::parse(rest, &ZOOKEEPER_TLS)?),
        _ if rest.starts_with("//") => return Err(UrlError::UnknownScheme),
        // More likely a user in front of a password than a scheme.
        _ => return Err(UrlError::NoScheme),
    };
    // The length of the URL as it is shown, with every special character escaped.
    let bytes = location.to_string().len();
    if bytes > MOST_BYTES { Err(UrlError::TooLong { bytes }) } else { Ok(location) }
}

/// Returns true if a URL may hold a password or another secret. In doubt, true.
#[must_use]
pub fn holds_credentials(url: &str) -> bool {
    match parse(url) {
        Ok(Location::Memory | Location::File { .. }) => false,
        Ok(
            Location::Elasticsearch(servers)
            | Location::Opensearch(servers)
            | Location::Etcd(servers)
            | Location::Rethinkdb(servers)
            | Location::Zookeeper(servers),
        ) => servers.password.is_some(),
        Ok(Location::Mongodb(url)) => url.password.is_some(),
        Err(_) => true,
    }
}

/// Checks that the server accepts the names of the database and the table.
fn one_database(servers: Servers) -> Result<Servers, UrlError> {
    let odd = |name: &str| {
        name.len() > 127 || name.chars().any(|c| !(c.is_ascii_alphanumeric() || "_-".contains(c)))
    };
    let names = std::iter::once(servers.path.as_str()).chain(servers.table.as_deref());
    if names.into_iter().any(odd) { Err(UrlError::BadTable) } else { Ok(servers) }
}

/// Returns true if the host is this machine. No data sent to it leaves the machine.
fn is_loopback(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || address.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

impl Location {
    /// How long the servers keep a session, if elections are queues.
    ///
    /// It is `ttl` unless the URL sets another time. `None` if elections are leases.
    #[must_use]
    pub fn session(&self, ttl: Duration) -> Option<Duration> {
        match self {
            Location::Etcd(servers) | Location::Zookeeper(servers) => {
                (!servers.settings.lease).then(|| servers.settings.ttl.unwrap_or(ttl))
            }
            Location::Memory
            | Location::File { .. }
            | Location::Elasticsearch(_)
            | Location::Opensearch(_)
            | Location::Mongodb(_)
            | Location::Rethinkdb(_) => None,
        }
    }

    /// The other hosts that receive a password or an API key without TLS.
    ///
    /// RethinkDB is not among them, and MongoDB only with `authMechanism=PLAIN`: otherwise their
    /// clients prove that they know the password, and never send it.
    #[must_use]
    pub fn hosts_that_passwords_reach_in_plain_text(&self) -> Vec<&str> {
        self.in_plain_text(crate::provided::has_api_key())
    }

    fn in_plain_text(&self, has_api_key: bool) -> Vec<&str> {
        let (hosts, sends) = match self {
            Location::Elasticsearch(servers) | Location::Opensearch(servers) => {
                let sends = servers.user.is_some() || servers.api_key_file.is_some() || has_api_key;
                (&servers.hosts, sends && servers.tls.is_none())
            }
            Location::Etcd(servers) | Location::Zookeeper(servers) => {
                (&servers.hosts, servers.user.is_some() && servers.tls.is_none())
            }
            Location::Mongodb(url) => (&url.hosts, url.sends_password_in_plain_text()),
            Location::Memory | Location::File { .. } | Location::Rethinkdb(_) => return Vec::new(),
        };
        let hosts = hosts.iter().map(String::as_str);
        hosts.filter(|host| sends && !is_loopback(host)).collect()
    }

    /// Sets the table, where the store has tables.
    #[must_use]
    pub fn with_table(mut self, table: &str) -> Location {
        if let Location::Rethinkdb(servers) = &mut self {
            servers.table = Some(table.to_owned());
        }
        self
    }
}

fn split_scheme(url: &str) -> Option<(String, &str)> {
    let (scheme, rest) = url.split_once(':')?;
    let first_is_a_letter = scheme.starts_with(|first: char| first.is_ascii_alphabetic());
    let clean = scheme.chars().all(|other| other.is_ascii_alphanumeric() || "+-.".contains(other));
    (first_is_a_letter && clean && scheme.len() <= 32).then(|| (scheme.to_ascii_lowercase(), rest))
}

fn parse_file(rest: &str) -> Result<Location, UrlError> {
    if rest.contains('#') {
        return Err(UrlError::Fragment);
    }
    let (path, query) = match rest.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (rest, None),
    };
    let path = path.strip_prefix("//").ok_or(UrlError::Relative)?;
    if !path.starts_with('/') {
        let host = path.split('/').next().unwrap_or_default();
        return Err(match host {
            "" => UrlError::NoDirectory,
            "." | ".." | "~" => UrlError::Relative,
            host if host.contains('@') => UrlError::Credentials,
            _ => UrlError::Host,
        });
    }
    let decoded = decode(path)?;
    if decoded.iter().all(|byte| *byte == b'/') {
        return Err(UrlError::NoDirectory);
    }
    let [force, trust_parents] = query.map_or(Ok([false; 2]), parse_query)?;
    let directory = String::from_utf8(decoded).map_err(|_| UrlError::NotUtf8)?;
    Ok(Location::File { directory: PathBuf::from(directory), force, trust_parents })
}

/// The settings of a directory's URL, each `true` or `false`.
const FILE_SETTINGS: [&str; 2] = ["force", "trust-parents"];

/// Parses the values of [`FILE_SETTINGS`], in that order.
fn parse_query(query: &str) -> Result<[bool; 2], UrlError> {
    let mut settings = [None; 2];
    for pair in query.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some(at) = FILE_SETTINGS.iter().position(|known| *known == key) else {
            return Err(UrlError::UnknownSetting { known: FILE_SETTINGS.join(", ") });
        };
        let value = match value {
            "true" => true,
            "false" => false,
            _ => return Err(UrlError::NotBoolean { key: key.into() }),
        };
        if settings[at].replace(value).is_some() {
            return Err(UrlError::Twice { key: key.into() });
        }
    }
    Ok(settings.map(Option::unwrap_or_default))
}

impl fmt::Display for Location {
    /// Writes the URL without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Memory => f.write_str("memory:"),
            Location::Etcd(servers) => {
                servers.show(f, if servers.tls.is_some() { "etcd+https" } else { "etcd" })
            }
            Location::Elasticsearch(servers) => {
                let tls = servers.tls.is_some();
                servers.show(f, if tls { "elasticsearch+https" } else { "elasticsearch+http" })
            }
            Location::Opensearch(servers) => {
                let tls = servers.tls.is_some();
                servers.show(f, if tls { "opensearch+https" } else { "opensearch+http" })
            }
            Location::Mongodb(url) => url.show(f),
            Location::Rethinkdb(servers) => {
                servers.show(f, if servers.tls.is_some() { "rethinkdb+tls" } else { "rethinkdb" })
            }
            Location::Zookeeper(servers) => {
                servers.show(f, if servers.tls.is_some() { "zookeeper+tls" } else { "zookeeper" })
            }
            Location::File { directory, force, trust_parents } => {
                write!(f, "file://{}", encode(directory.to_string_lossy().as_bytes()))?;
                let given = FILE_SETTINGS.iter().zip([*force, *trust_parents]);
                for (at, (key, _)) in given.filter(|(_, given)| *given).enumerate() {
                    write!(f, "{}{key}=true", if at == 0 { '?' } else { '&' })?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests;
