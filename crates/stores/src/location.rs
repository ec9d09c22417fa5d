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
mod tests {
    use super::*;
    use crate::url::SCHEMES;

    #[test]
    fn a_password_in_plain_text_to_another_machine_is_noticed() {
        let with_key = |url: &str, has_api_key| {
            parse(url).expect("a good URL").in_plain_text(has_api_key).join(" ")
        };
        let hosts = |url: &str| with_key(url, false);
        assert_eq!(
            hosts("etcd://u:p@10.0.0.5,localhost,[fd00::1]:7/x"),
            "10.0.0.5:2379 [fd00::1]:7"
        );
        assert_eq!(hosts("zookeeper://u:p@zk.example/x"), "zk.example:2181");
        assert_eq!(hosts("elasticsearch+http://u@es:9200/i"), "es:9200");
        assert_eq!(with_key("elasticsearch+http://es:9200/i", true), "es:9200");
        assert_eq!(with_key("etcd://10.0.0.5/x", true), "", "etcd has no API keys");
        assert_eq!(hosts("mongodb://u:p@m/x?authMechanism=PLAIN&authSource=$external"), "m:27017");
        for silent in [
            "etcd://10.0.0.5/x",
            "elasticsearch+http://es:9200/i",
            "mongodb://u:p@m/x?authMechanism=PLAIN&tls=true",
            "mongodb://u:p@m/x?authMechanism=SCRAM-SHA-256",
            "mongodb+srv://u:p@m/x?authMechanism=PLAIN",
            "etcd+https://u:p@10.0.0.5/x",
            "etcd://u:p@127.0.0.1,127.9.9.9:7,[::1]:7,localhost:7/x",
            "rethinkdb://u:p@10.0.0.5/x",
            "mongodb://u:p@10.0.0.5/x",
            "file:///srv/tenure",
            "memory:",
        ] {
            assert_eq!(hosts(silent), "", "{silent}");
        }
    }

    fn file(directory: &str, force: bool) -> Location {
        Location::File { directory: directory.into(), force, trust_parents: false }
    }

    #[test]
    fn good_urls_are_read() {
        for (url, location) in [
            ("memory:", Location::Memory),
            ("file:///var/lib/tenure", file("/var/lib/tenure", false)),
            ("FILE:///a", file("/a", false)),
            ("file:///a%20b/%C3%A9", file("/a b/é", false)),
            ("file:///a?force=true", file("/a", true)),
            ("file:///a?force=false", file("/a", false)),
        ] {
            assert_eq!(parse(url).as_ref(), Ok(&location), "{url}");
        }
    }

    #[test]
    fn a_location_shows_as_the_url_it_came_from() {
        for url in [
            "memory:",
            "file:///a%20b%25/c%3Fd%23",
            "file:///a?force=true",
            "file:///a?trust-parents=true",
            "file:///a?force=true&trust-parents=true",
            "etcd://h:2379/a/b",
            "etcd+https://h:2379/a?ca=/a%25",
            "etcd+https://h:1,[::1]:2?ca=/b",
            "etcd://h:2379/x?protocol=lease",
            "etcd://h:2379/x?ttl=5000ms",
            "rethinkdb://h:28015",
            "rethinkdb://h:1,h:2/d?table=t",
            "rethinkdb+tls://h:28015/d?table=t&ca=/a",
            "mongodb://h:27017",
            "mongodb://h:1,[::1]:2/d?collection=a%26b&replicaSet=r",
            "mongodb+srv://h.example/d?tls=true",
            "zookeeper://h:2181//x",
            "zookeeper+tls://h:2181/x?ca=/a&ttl=4000ms&node-prefix=latch-&acl=open",
            "zookeeper://h:2181/x?protocol=lease&reconnect=never",
            "elasticsearch+http://h:9200/tenure",
            "elasticsearch+https://h:9200,i:9201/x?ca=/ca.pem",
            "opensearch+http://h:9200",
            "opensearch+https://h:9200/x",
        ] {
            assert_eq!(parse(url).expect("a URL").to_string(), url);
        }
    }

    #[test]
    fn each_bad_url_says_what_is_wrong() {
        let long = format!("file:///{}", "x".repeat(5000));
        for (url, says) in [
            ("", "it is empty"),
            (long.as_str(), "has 5008 bytes"),
            ("/var/lib", "does not begin with a scheme"),
            ("1file:///a", "does not begin with a scheme"),
            (":", "does not begin with a scheme"),
            ("redis://h", "unknown scheme; known are elasticsearch+http:"),
            ("elasticsearch://h", "unknown scheme"),
            ("elasticsearch+http://h/x?ca=/ca.pem", "unknown setting; known: api-key-file"),
            ("elasticsearch+https://u:p@h/x?api-key-file=/k", "an API key and a user"),
            ("file:///a\0b", "control character at byte 9"),
            ("file:///a%00b", "control character"),
            ("file:///a%1", "`%` at byte 2"),
            ("file:///%zz", "`%` at byte 1"),
            ("file:///%é", "`%` at byte 1"),
            ("file:///%FF", "not UTF-8"),
            ("file:a/b", "not absolute"),
            ("file:/a/b", "not absolute"),
            ("file://./a", "not absolute"),
            ("file://host/a", "names a host"),
            ("file://user:secret@host/a", "a user or a password"),
            ("file://", "names no directory"),
            ("file:///", "names no directory"),
            ("file:///%2F/", "names no directory"),
            ("file:///a#b", "a fragment"),
            ("rethinkdb://h/a/b", "letters, digits"),
            ("rethinkdb://h/a?table=x.y", "letters, digits"),
            ("rethinkdb://h/a?table=x&table=x", "`table` twice"),
            ("rethinkdb://h/a?prefix=x", "unknown setting; known: table"),
            ("etcd://h/a?table=x", "unknown setting; known: ca"),
            ("memory:x", "nothing may follow"),
            ("memory://", "nothing may follow"),
            ("file:///a?", "unknown setting; known: force"),
            ("file:///a?fsync=no", "unknown setting; known: force"),
            ("file:///a?force", "neither `true` nor `false`"),
            ("file:///a?force=true&force=true", "`force` twice"),
            ("file:///a?trust-parents=1", "neither `true` nor `false`"),
        ] {
            let error = parse(url).expect_err(url);
            assert!(error.to_string().contains(says), "{url:?}: {error}");
        }
    }

    #[test]
    fn no_error_shows_a_password() {
        for url in [
            "file://u:canary@h/a",
            "nope://u:canary@h",
            "canary@:x",
            "canary:p@h",
            "file:///a?force=canary",
            "file:///a?canary@h",
            "mongodb://u:1?canary@h",
            "mongodb://u:1?canary&x@h",
            "etcd://u:1?canary@h",
            "etcd://u:1?ca=canary@h",
            "zookeeper://u:1?x&canary@h",
            "canary://u:p@h",
            "canary://h",
        ] {
            let error = parse(url).expect_err(url);
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
    }

    #[test]
    fn no_error_shows_a_part_of_the_url_wherever_the_secret_stands() {
        for scheme in SCHEMES {
            for rest in [
                "canary",
                "u:canary",
                "//u:canary",
                "//u:canary@",
                "//u:p@canary@h,,",
                "//h:canary",
                "//h/x//canary",
                "//h/x?canary",
                "//h/x?canary=1",
                "//h/x?ca=1&canary=1",
                "//h/x?tls=canary&tls=canary",
                "//h/x?ttl=canary",
                "//h/x#canary",
                "//u:1\ncanary@h",
            ] {
                let url = format!("{scheme}{rest}");
                if let Err(error) = parse(&url) {
                    let said = format!("{error} {error:?}");
                    assert!(!said.contains("canary"), "{url:?}: {said}");
                }
            }
        }
    }

    #[test]
    fn credentials_are_suspected_when_in_doubt() {
        assert!(!holds_credentials("file:///a"));
        assert!(!holds_credentials("etcd://h:2379/x"));
        assert!(holds_credentials("etcd://u:p@h/x"));
        assert!(holds_credentials("mongodb://h/x?password=y"));
        assert!(holds_credentials("mongodb://u:p@h/x"));
        assert!(!holds_credentials("mongodb://h/x?tls=true"));
        assert!(holds_credentials("not a url"));
    }

    #[test]
    fn no_prefix_of_any_of_them_panics() {
        let url = "file:///a%20b%C3%A9/c?force=true&x#é\u{0}";
        for end in (0..=url.len()).filter(|end| url.is_char_boundary(*end)) {
            let _ = parse(&url[..end]);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics_the_parser(text in ".{0,64}") {
            let _ = parse(&text);
            let _ = parse(&format!("file:///{text}"));
        }

        #[test]
        fn every_directory_survives_the_way_to_its_url_and_back(
            directory in "/[^\\x00-\\x1f\\x7f-\\x9f/]{1,20}",
            force: bool,
            trust_parents: bool,
        ) {
            let location = Location::File { directory: directory.into(), force, trust_parents };
            proptest::prop_assert_eq!(parse(&location.to_string()), Ok(location));
        }
    }
}
