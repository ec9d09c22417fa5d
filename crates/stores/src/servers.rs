//! URLs of stores on servers.
//!
//! Their form is `scheme://user:password@host:port,host:port/path?setting=value`.

use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use crate::url::{Parts, UrlError, decode, encode, value_of};

/// The most hosts that a URL may name. More of them are a mistake.
const MOST_HOSTS: usize = 32;

/// A store on servers, as described by its URL.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Servers {
    /// Each `host:port`; an IPv6 address is in brackets.
    pub hosts: Vec<String>,
    /// The path after the hosts, without the slash between; empty if there is none.
    pub path: String,
    /// Our user name, if the URL has one.
    pub user: Option<String>,
    /// The user's password, if the URL has one.
    pub password: Option<Secret>,
    /// A file with the password in its first line.
    pub password_file: Option<PathBuf>,
    /// A file with an API key in its first line, where servers have API keys.
    pub api_key_file: Option<PathBuf>,
    /// The keys for TLS; none if TLS is not used.
    pub tls: Option<Tls>,
    /// The table, where the store has tables.
    pub table: Option<String>,
    /// The other settings of the URL.
    pub settings: Settings,
}

/// Other settings of a URL; the store decides which of them it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// True if elections are leases although the store has queues: `protocol=lease`.
    pub lease: bool,
    /// How long the server keeps a session without hearing from it: `ttl=15s`.
    pub ttl: Option<Duration>,
    /// The text before the number in a queue node's name: `node-prefix` or `recipe`.
    pub node_prefix: Option<String>,
    /// Who may use the nodes we create: `acl`.
    pub access: Option<Access>,
    /// How a lost connection is handled: `reconnect`.
    pub reconnect: Option<Reconnect>,
}

/// Who may use the nodes we create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Only we: `acl=creator`.
    Creator,
    /// Only we, but everyone may read: `acl=creator-and-readers`.
    CreatorAndReaders,
    /// Everyone: `acl=open`.
    Open,
}

/// How a lost connection, or a failure to connect, is handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reconnect {
    /// Tries forever.
    #[default]
    Forever,
    /// Tries for this long, then gives up the session for good.
    For(Duration),
    /// Gives up the session together with its connection.
    Never,
}

/// The keys and certificates for TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tls {
    /// The authorities to trust, a PEM file; the system's when absent.
    pub ca: Option<PathBuf>,
    /// Our certificate, a PEM file.
    pub cert: Option<PathBuf>,
    /// The key of our certificate, a PEM file.
    pub key: Option<PathBuf>,
}

/// Text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides this text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text, for code that must send it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The default port, TLS and settings of one kind of server's URLs.
pub(crate) struct Dialect {
    pub(crate) port: u16,
    pub(crate) tls: bool,
    pub(crate) settings: &'static [&'static str],
}

impl Servers {
    /// Parses the part of a URL after the scheme's colon.
    pub(crate) fn parse(rest: &str, dialect: &Dialect) -> Result<Servers, UrlError> {
        let Parts { login, hosts, path, query } = Parts::of(rest)?;
        let mut servers = Servers {
            hosts: parse_hosts(hosts, dialect.port)?,
            path: parse_path(path)?,
            user: None,
            password: None,
            password_file: None,
            api_key_file: None,
            tls: dialect.tls.then(Tls::default),
            table: None,
            settings: Settings::default(),
        };
        if let Some(login) = login {
            (servers.user, servers.password) = parse_login(login)?;
        }
        query.map_or(Ok(()), |query| servers.read_query(query, dialect))?;
        if servers.password_file.is_some() && (servers.password.is_some() || servers.user.is_none())
        {
            return Err(UrlError::PasswordFile);
        }
        if servers.api_key_file.is_some() && servers.user.is_some() {
            return Err(UrlError::ApiKeyFile);
        }
        match &servers.tls {
            Some(tls) if tls.cert.is_some() != tls.key.is_some() => Err(UrlError::HalfACertificate),
            _ => Ok(servers),
        }
    }

    fn read_query(&mut self, query: &str, dialect: &Dialect) -> Result<(), UrlError> {
        for pair in query.split('&') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !dialect.settings.contains(&key) {
                return Err(UrlError::UnknownSetting { known: dialect.settings.join(", ") });
            }
            let value = value_of(key, value)?;
            let again = match key {
                "table" => self.table.replace(value).is_some(),
                "api-key-file" => self.api_key_file.replace(value.into()).is_some(),
                "password-file" => self.password_file.replace(value.into()).is_some(),
                "ca" => self.tls().ca.replace(value.into()).is_some(),
                "cert" => self.tls().cert.replace(value.into()).is_some(),
                "key" => self.tls().key.replace(value.into()).is_some(),
                _ => self
                    .settings
                    .set(key, &value)
                    .ok_or_else(|| UrlError::BadValue { key: key.into() })?,
            };
            if again {
                return Err(UrlError::Twice { key: key.into() });
            }
        }
        Ok(())
    }

    fn tls(&mut self) -> &mut Tls {
        self.tls.get_or_insert_default()
    }

    /// Writes the URL without user and password.
    pub(crate) fn show(&self, f: &mut fmt::Formatter<'_>, scheme: &str) -> fmt::Result {
        write!(f, "{scheme}://{}", self.hosts.join(","))?;
        if !self.path.is_empty() {
            write!(f, "/{}", encode(self.path.as_bytes()))?;
        }
        let tls = self.tls.clone().unwrap_or_default();
        let files = [("ca", &tls.ca), ("cert", &tls.cert), ("key", &tls.key)];
        let files = files
            .into_iter()
            .filter_map(|(key, file)| Some((key, file.as_ref()?.to_string_lossy().into_owned())));
        let table = self.table.clone().map(|table| ("table", table));
        let mut between = '?';
        for (key, value) in table.into_iter().chain(files).chain(self.settings.shown()) {
            f.write_char(between)?;
            write!(f, "{key}={}", encode(value.as_bytes()).replace('&', "%26"))?;
            between = '&';
        }
        Ok(())
    }
}

impl Settings {
    /// Applies one setting. Returns true if it was set before, none if the value is invalid.
    fn set(&mut self, key: &str, value: &str) -> Option<bool> {
        Some(match (key, value) {
            ("protocol", "lease") => std::mem::replace(&mut self.lease, true),
            ("ttl", span) => self.ttl.replace(duration(span)?).is_some(),
            ("recipe", "curator-latch") => self.set_prefix("latch-"),
            ("recipe", "kazoo") => self.set_prefix("__lock__"),
            ("node-prefix", prefix) if is_prefix(prefix) => self.set_prefix(prefix),
            ("acl", "creator") => self.access.replace(Access::Creator).is_some(),
            ("acl", "creator-and-readers") => {
                self.access.replace(Access::CreatorAndReaders).is_some()
            }
            ("acl", "open") => self.access.replace(Access::Open).is_some(),
            ("reconnect", "forever") => self.reconnect.replace(Reconnect::Forever).is_some(),
            ("reconnect", "never") => self.reconnect.replace(Reconnect::Never).is_some(),
            ("reconnect", span) => {
                self.reconnect.replace(Reconnect::For(duration(span)?)).is_some()
            }
            (_, _) => return None,
        })
    }

    fn set_prefix(&mut self, prefix: &str) -> bool {
        self.node_prefix.replace(prefix.to_owned()).is_some()
    }

    fn shown(&self) -> impl Iterator<Item = (&'static str, String)> {
        let access = self.access.map(|access| match access {
            Access::Creator => "creator",
            Access::CreatorAndReaders => "creator-and-readers",
            Access::Open => "open",
        });
        let reconnect = self.reconnect.map(|reconnect| match reconnect {
            Reconnect::Forever => "forever".to_owned(),
            Reconnect::For(span) => milliseconds(span),
            Reconnect::Never => "never".to_owned(),
        });
        let shown = [
            ("protocol", self.lease.then(|| "lease".to_owned())),
            ("ttl", self.ttl.map(milliseconds)),
            ("node-prefix", self.node_prefix.clone()),
            ("acl", access.map(str::to_owned)),
            ("reconnect", reconnect),
        ];
        shown.into_iter().filter_map(|(key, value)| Some((key, value?)))
    }
}

/// Returns true if names of nodes may begin with this text.
///
/// All its characters are safe for ZooKeeper, for a shell and beside our own marks.
fn is_prefix(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:@+,".contains(&byte);
    (1..=64).contains(&text.len()) && text.bytes().all(good)
}

/// Parses a duration such as `15s`, `500ms` or `2m`, from 100 ms to a day.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|character: char| !character.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let span = match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.checked_mul(60)?),
        _ => return None,
    };
    let day = Duration::from_secs(24 * 60 * 60);
    (Duration::from_millis(100)..=day).contains(&span).then_some(span)
}

fn milliseconds(span: Duration) -> String {
    format!("{}ms", span.as_millis())
}

/// Parses a user and an optional password.
pub(crate) fn parse_login(login: &str) -> Result<(Option<String>, Option<Secret>), UrlError> {
    let (user, password) = login.split_once(':').map_or((login, None), |(u, p)| (u, Some(p)));
    let text = |encoded| String::from_utf8(decode(encoded)?).map_err(|_| UrlError::NotUtf8);
    let user = Some(text(user)?).filter(|user| !user.is_empty());
    if user.is_none() {
        return Err(UrlError::NoUser);
    }
    Ok((user, password.map(text).transpose()?.map(Secret)))
}

pub(crate) fn parse_hosts(text: &str, port: u16) -> Result<Vec<String>, UrlError> {
    if text.is_empty() {
        return Err(UrlError::NoHost);
    }
    let hosts: Vec<String> =
        text.split(',').map(|host| parse_host(host, port)).collect::<Result<_, _>>()?;
    if hosts.len() > MOST_HOSTS { Err(UrlError::BadHost) } else { Ok(hosts) }
}

fn parse_host(text: &str, default_port: u16) -> Result<String, UrlError> {
    // The text may be a password that was not escaped: never show it.
    let (host, port) = match text.rfind(']') {
        Some(end) => {
            let (host, port) = text.split_at(end + 1);
            let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            let address = address.ok_or(UrlError::BadHost)?;
            address.parse::<std::net::Ipv6Addr>().map_err(|_| UrlError::BadHost)?;
            (
                host,
                port.strip_prefix(':')
                    .or(port.is_empty().then_some(""))
                    .ok_or(UrlError::BadHost)?,
            )
        }
        None => text.split_once(':').unwrap_or((text, "")),
    };
    let named = |host: &str| {
        !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
    };
    if !host.starts_with('[') && !named(host) {
        return Err(UrlError::BadHost);
    }
    let port = match port {
        "" if text.ends_with(':') => return Err(UrlError::BadHost),
        "" => default_port,
        port if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            port.parse().map_err(|_| UrlError::BadHost)?
        }
        _ => return Err(UrlError::BadHost),
    };
    if port == 0 { Err(UrlError::BadHost) } else { Ok(format!("{host}:{port}")) }
}

/// Parses a path without empty parts and dots.
///
/// It may begin with one more slash (`//a` for `/a`).
fn parse_path(text: &str) -> Result<String, UrlError> {
    if text.contains('@') {
        // Most likely a password with a slash in it, which would be shown.
        return Err(UrlError::BadPath);
    }
    let decoded = String::from_utf8(decode(text)?).map_err(|_| UrlError::NotUtf8)?;
    if decoded.chars().any(char::is_control) {
        return Err(UrlError::BadPath);
    }
    let path = decoded.strip_suffix('/').unwrap_or(&decoded);
    let relative = path.strip_prefix('/').unwrap_or(path);
    let odd = |part: &str| part.is_empty() || part == "." || part == "..";
    if !relative.is_empty() && relative.split('/').any(odd) {
        return Err(UrlError::BadPath);
    }
    Ok(if relative.is_empty() { String::new() } else { path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Dialect =
        Dialect { port: 2379, tls: false, settings: &["ca", "cert", "key", "password-file"] };

    fn servers(rest: &str) -> Servers {
        Servers::parse(rest, &PLAIN).expect(rest)
    }

    #[test]
    fn hosts_may_be_many_and_have_default_ports() {
        let read = servers("//a:1,b,127.0.0.1:2,[::1]:3,[::1]/x/y");
        assert_eq!(read.hosts, ["a:1", "b:2379", "127.0.0.1:2", "[::1]:3", "[::1]:2379"]);
        assert_eq!((read.path.as_str(), read.user, read.tls), ("x/y", None, None));
    }

    #[test]
    fn a_user_and_a_password_may_be_escaped() {
        let read = servers("//r%40t:p%3Ass@a/x");
        assert_eq!(read.user.as_deref(), Some("r@t"));
        assert_eq!(read.password.as_ref().map(Secret::reveal), Some("p:ss"));
        assert!(!format!("{read:?}").contains("p:ss"));
    }

    #[test]
    fn keys_for_tls_switch_it_on() {
        let read = servers("//a/x?ca=/ca.pem&cert=/c.pem&key=/k.pem");
        let tls = read.tls.expect("TLS");
        assert_eq!(tls.ca, Some("/ca.pem".into()));
        assert_eq!((tls.cert, tls.key), (Some("/c.pem".into()), Some("/k.pem".into())));
    }

    #[test]
    fn settings_are_read_and_shown_again() {
        const FULL: Dialect = Dialect {
            port: 2181,
            tls: false,
            settings: &["protocol", "ttl", "recipe", "node-prefix", "acl", "reconnect"],
        };
        let settings = |rest: &str| Servers::parse(rest, &FULL).map(|servers| servers.settings);
        let read = settings("//a?protocol=lease&ttl=15s&recipe=kazoo&acl=open&reconnect=2m");
        let read = read.expect("good settings");
        assert!(read.lease);
        assert_eq!(read.ttl, Some(Duration::from_secs(15)));
        assert_eq!(read.node_prefix.as_deref(), Some("__lock__"));
        assert_eq!(read.access, Some(Access::Open));
        assert_eq!(read.reconnect, Some(Reconnect::For(Duration::from_secs(120))));
        let shown: Vec<String> =
            read.shown().map(|(key, value)| format!("{key}={value}")).collect();
        let again = settings(&format!("//a?{}", shown.join("&"))).expect("what is shown is good");
        assert_eq!(again, read);
        for (rest, says) in [
            ("//a?ttl=15", "`ttl`"),
            ("//a?ttl=0s", "`ttl`"),
            ("//a?ttl=99999999999999999999s", "`ttl`"),
            ("//a?protocol=queue", "`protocol`"),
            ("//a?recipe=curator", "`recipe`"),
            ("//a?node-prefix=a/b", "`node-prefix`"),
            ("//a?recipe=kazoo&node-prefix=x", "`node-prefix` twice"),
        ] {
            let error = settings(rest).expect_err(rest);
            assert!(error.to_string().contains(says), "{rest}: {error}");
        }
    }

    #[test]
    fn paths_are_relative_unless_they_begin_with_two_slashes() {
        for (rest, path) in
            [("//a", ""), ("//a/", ""), ("//a//", ""), ("//a/x/", "x"), ("//a//x/y", "/x/y")]
        {
            assert_eq!(servers(rest).path, path, "{rest}");
        }
    }

    #[test]
    fn each_bad_url_says_what_is_wrong_and_shows_no_secret() {
        for (rest, says) in [
            ("a", "names no host"),
            ("//", "names no host"),
            ("///x", "names no host"),
            ("//a,,b", "host and port"),
            ("//a:0", "host and port"),
            ("//a:", "host and port"),
            ("//a:canary", "host and port"),
            ("//a:99999", "host and port"),
            ("//[::1", "host and port"),
            ("//u:canary@b:canary@", "names no host"),
            ("//:canary@a", "no user"),
            ("//a/x//y", "its path"),
            ("//a/../y", "its path"),
            ("//root:1/canary@a", "its path"),
            ("//a/%0A", "control character"),
            ("//a?canary=canary", "unknown setting"),
            ("//a?ca=", "no value"),
            ("//a?ca=x&ca=y", "twice"),
            ("//a?cert=x", "both"),
            ("//a?password-file=x", "password file"),
            ("//a#x", "fragment"),
        ] {
            let error = Servers::parse(rest, &PLAIN).expect_err(rest);
            assert!(error.to_string().contains(says), "{rest}: {error}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
    }
}
