//! URLs of MongoDB: its own connection strings, with a few settings of ours.

use std::fmt::{self, Write as _};
use std::path::PathBuf;

use crate::servers::{Secret, parse_hosts, parse_login};
use crate::url::{Parts, UrlError, decode, encode, value_of};

/// The default names of the database and the collection.
const DATABASE: &str = "tenure";
const COLLECTION: &str = "tenure";
/// The default port of the servers.
const PORT: u16 = 27017;
/// MongoDB's own limit for the name of a database.
const LONGEST_DATABASE: usize = 63;
/// Far below MongoDB's own limit, which is for both names together.
const LONGEST_COLLECTION: usize = 120;

/// MongoDB's settings that are passed to its driver.
const DRIVERS: [&str; 22] = [
    "appName",
    "authMechanism",
    "authSource",
    "connectTimeoutMS",
    "directConnection",
    "heartbeatFrequencyMS",
    "localThresholdMS",
    "maxConnecting",
    "maxIdleTimeMS",
    "maxPoolSize",
    "minPoolSize",
    "replicaSet",
    "serverMonitoringMode",
    "srvMaxHosts",
    "srvServiceName",
    "ssl",
    "tls",
    "tlsAllowInvalidCertificates",
    "tlsCAFile",
    "tlsCertificateKeyFile",
    "tlsInsecure",
    "uuidRepresentation",
];

/// MongoDB's settings that have no effect: the protocol decides them. URLs may have them.
const WITHOUT_EFFECT: [&str; 12] = [
    "compressors",
    "journal",
    "maxStalenessSeconds",
    "readConcernLevel",
    "readPreference",
    "readPreferenceTags",
    "retryReads",
    "retryWrites",
    "serverSelectionTimeoutMS",
    "socketTimeoutMS",
    "w",
    "wTimeoutMS",
];

/// Settings of ours.
const OURS: [&str; 2] = ["collection", "password-file"];

/// A store on MongoDB, as described by its URL.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MongodbUrl {
    /// True if the host's DNS entry names the servers: `mongodb+srv:`.
    pub srv: bool,
    /// Each `host:port`; an IPv6 address is in brackets. With `srv` one host, without a port.
    pub hosts: Vec<String>,
    /// The database, if the URL has one.
    pub database: Option<String>,
    /// The collection.
    pub collection: String,
    /// Our user name, if the URL has one.
    pub user: Option<String>,
    /// The user's password, if the URL has one.
    pub password: Option<Secret>,
    /// A file with the password in its first line.
    pub password_file: Option<PathBuf>,
    /// The driver's settings, by MongoDB's names.
    pub settings: Vec<(&'static str, String)>,
}

impl MongodbUrl {
    /// Returns true if the password itself is sent over a connection without TLS.
    pub(crate) fn sends_password_in_plain_text(&self) -> bool {
        let says = |name: &str| {
            let found = self.settings.iter().find(|(setting, _)| *setting == name);
            found.map(|(_, value)| value.as_str())
        };
        let tls = says("tls").or_else(|| says("ssl")).map_or(self.srv, |value| value == "true");
        !tls && says("authMechanism") == Some("PLAIN")
    }

    /// Parses the part of a URL after the scheme's colon.
    pub(crate) fn parse(rest: &str, srv: bool) -> Result<MongodbUrl, UrlError> {
        let Parts { login, hosts, path, query } = Parts::of(rest)?;
        let (user, password) = login.map(parse_login).transpose()?.unwrap_or_default();
        let mut url = MongodbUrl {
            srv,
            hosts: parse_hosts(hosts, PORT)?,
            database: parse_database(path)?,
            collection: COLLECTION.to_owned(),
            user,
            password,
            password_file: None,
            settings: Vec::new(),
        };
        if srv {
            if hosts.contains([',', ':']) {
                return Err(UrlError::OneHost);
            }
            url.hosts = vec![hosts.to_owned()];
        }
        query.map_or(Ok(()), |query| url.read_query(query))?;
        let two_passwords = url.password.is_some() || url.user.is_none();
        if url.password_file.is_some() && two_passwords {
            return Err(UrlError::PasswordFile);
        }
        Ok(url)
    }

    /// The database's name.
    #[must_use]
    pub fn database(&self) -> &str {
        self.database.as_deref().unwrap_or(DATABASE)
    }

    fn read_query(&mut self, query: &str) -> Result<(), UrlError> {
        let mut given = Vec::new();
        for pair in query.split('&') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            // The driver ignores case, too.
            let known = OURS.into_iter().chain(DRIVERS).chain(WITHOUT_EFFECT);
            let Some(key) = known.into_iter().find(|known| known.eq_ignore_ascii_case(key)) else {
                let known = [&OURS[..], &DRIVERS[..]].concat().join(", ");
                return Err(UrlError::UnknownSetting { known });
            };
            if given.contains(&key) && key != "readPreferenceTags" {
                return Err(UrlError::Twice { key: key.into() });
            }
            given.push(key);
            let value = value_of(key, value)?;
            match key {
                "collection" => self.collection = collection(value)?,
                "password-file" => self.password_file = Some(value.into()),
                key if DRIVERS.contains(&key) => self.settings.push((key, value)),
                _ => {}
            }
        }
        Ok(())
    }

    /// MongoDB's own connection string, without a password and our own settings.
    #[cfg(feature = "mongodb")]
    pub(crate) fn connection_string(&self) -> String {
        let mut text = self.scheme().to_owned();
        if let Some(user) = &self.user {
            let user = encode(user.as_bytes());
            text += &user.replace(':', "%3A").replace('/', "%2F").replace('[', "%5B");
            text = text.replace(']', "%5D") + "@";
        }
        text += &self.hosts.join(",");
        text.push('/');
        text += &encode(self.database.as_deref().unwrap_or_default().as_bytes());
        for (at, (key, value)) in self.settings.iter().enumerate() {
            text.push(if at == 0 { '?' } else { '&' });
            text += &setting(key, value);
        }
        text
    }

    fn scheme(&self) -> &'static str {
        if self.srv { "mongodb+srv://" } else { "mongodb://" }
    }

    /// Writes the URL without user and password.
    pub(crate) fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.scheme(), self.hosts.join(","))?;
        if let Some(database) = &self.database {
            write!(f, "/{}", encode(database.as_bytes()))?;
        }
        let collection = ("collection", self.collection.as_str());
        let ours = (self.collection != COLLECTION).then_some(collection);
        let drivers = self.settings.iter().map(|(key, value)| (*key, value.as_str()));
        let mut between = '?';
        for (key, value) in ours.into_iter().chain(drivers) {
            f.write_char(between)?;
            f.write_str(&setting(key, value))?;
            between = '&';
        }
        Ok(())
    }
}

fn setting(key: &str, value: &str) -> String {
    format!("{key}={}", encode(value.as_bytes()).replace('&', "%26"))
}

fn parse_database(path: &str) -> Result<Option<String>, UrlError> {
    if path.contains('@') {
        // Most likely a password with a slash in it, which would be shown.
        return Err(UrlError::BadPath);
    }
    let decoded = String::from_utf8(decode(path)?).map_err(|_| UrlError::NotUtf8)?;
    if decoded.is_empty() {
        return Ok(None);
    }
    let odd = |c: char| c.is_control() || "/\\. \"$*<>:|?".contains(c);
    // The servers' own databases.
    let theirs = ["admin", "local", "config"].contains(&decoded.as_str());
    if decoded.chars().any(odd) || decoded.len() > LONGEST_DATABASE || theirs {
        return Err(UrlError::BadDatabase);
    }
    Ok(Some(decoded))
}

fn collection(name: String) -> Result<String, UrlError> {
    let odd = |c: char| c.is_control() || c == '$';
    let dots = name.starts_with('.') || name.ends_with('.') || name.contains("..");
    if name.chars().any(odd)
        || dots
        || name.starts_with("system.")
        || name.len() > LONGEST_COLLECTION
    {
        return Err(UrlError::BadCollection);
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rest: &str) -> MongodbUrl {
        MongodbUrl::parse(rest, false).expect(rest)
    }

    #[test]
    fn a_url_without_a_database_or_a_collection_has_ours() {
        for rest in ["//a", "//a/", "//a/?tls=true"] {
            let url = read(rest);
            assert_eq!((url.database(), url.collection.as_str()), ("tenure", "tenure"), "{rest}");
        }
        let url = read("//a:1,b/jobs?collection=leaders");
        assert_eq!(url.hosts, ["a:1", "b:27017"]);
        assert_eq!((url.database(), url.collection.as_str()), ("jobs", "leaders"));
    }

    #[test]
    fn mongodbs_settings_are_read_in_any_case_and_those_of_no_effect_are_left_out() {
        let url = read("//u:p%40@a/x?REPLICASET=rs&retryWrites=true&w=1&authSource=admin");
        assert_eq!(
            url.settings,
            [("replicaSet", "rs".to_owned()), ("authSource", "admin".to_owned())]
        );
        assert_eq!(url.password.as_ref().map(Secret::reveal), Some("p@"));
    }

    #[cfg(feature = "mongodb")]
    #[test]
    fn the_driver_is_told_all_but_the_password() {
        let url = read("//u%3A%40:canary@a/x?replicaSet=r%26s&collection=y");
        assert_eq!(url.connection_string(), "mongodb://u%3A%40@a:27017/x?replicaSet=r%26s");
        let srv = MongodbUrl::parse("//cluster.example/x", true).expect("good");
        assert_eq!(srv.connection_string(), "mongodb+srv://cluster.example/x");
    }

    #[test]
    fn a_url_that_names_servers_by_dns_has_one_host_and_no_port() {
        for rest in ["//a,b/x", "//a:1/x"] {
            let error = MongodbUrl::parse(rest, true).expect_err(rest);
            assert!(error.to_string().contains("one host"), "{error}");
        }
    }

    #[test]
    fn each_bad_url_says_what_is_wrong_and_shows_no_secret() {
        for (rest, says) in [
            ("a", "names no host"),
            ("//", "names no host"),
            ("//u:canary@b:canary@", "names no host"),
            ("//:canary@a", "no user"),
            ("//root:1/canary@a", "its path"),
            ("//a/x/y", "database"),
            ("//a/x.y", "database"),
            ("//a/admin", "database"),
            ("//a/x?collection=a$b", "collection"),
            ("//a/x?collection=system.users", "collection"),
            ("//a/x?collection=", "no value"),
            ("//a/x?collection=a&collection=b", "twice"),
            ("//a/x?authMechanismProperties=canary", "unknown setting"),
            ("//a/x?canary=1", "unknown setting"),
            ("//a/x?password-file=x", "password file"),
            ("//a/x#y", "fragment"),
        ] {
            let error = MongodbUrl::parse(rest, false).expect_err(rest);
            assert!(error.to_string().contains(says), "{rest}: {error}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
    }
}
