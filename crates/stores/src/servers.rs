//! URLs of stores on servers: `scheme://user:password@host:port,host:port/path?setting=value`.

use std::fmt::{self, Write as _};
use std::path::PathBuf;

use crate::location::{UrlError, decode, encode};

/// More hosts are a mistake.
const MOST_HOSTS: usize = 32;

/// A store on servers, as its URL names it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Servers {
    /// Each `host:port`; an IPv6 address is in brackets.
    pub hosts: Vec<String>,
    /// What follows the hosts, without the slash between; empty when there is nothing.
    pub path: String,
    /// Who we are, when the URL says so.
    pub user: Option<String>,
    /// The user's password, when the URL says so.
    pub password: Option<Secret>,
    /// A file whose first line is the password.
    pub password_file: Option<PathBuf>,
    /// A file whose first line is an API key, where servers have those.
    pub api_key_file: Option<PathBuf>,
    /// Whether to speak TLS, and with which keys.
    pub tls: Option<Tls>,
}

/// How TLS is spoken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tls {
    /// The authorities to trust, a PEM file; the system's when absent.
    pub ca: Option<PathBuf>,
    /// Our certificate, a PEM file.
    pub cert: Option<PathBuf>,
    /// Its key, a PEM file.
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

    /// The text, for whoever must send it.
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

/// What the URLs of one kind of server may have.
pub(crate) struct Dialect {
    pub(crate) port: u16,
    pub(crate) tls: bool,
    pub(crate) settings: &'static [&'static str],
}

impl Servers {
    /// Reads what follows the scheme's colon.
    pub(crate) fn parse(rest: &str, dialect: &Dialect) -> Result<Servers, UrlError> {
        if rest.contains('#') {
            return Err(UrlError::Fragment);
        }
        let rest = rest.strip_prefix("//").ok_or(UrlError::NoHost)?;
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, q)| (rest, Some(q)));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = authority
            .rsplit_once('@')
            .map_or((None, authority), |(login, hosts)| (Some(login), hosts));
        let mut servers = Servers {
            hosts: parse_hosts(hosts, dialect.port)?,
            path: parse_path(path)?,
            user: None,
            password: None,
            password_file: None,
            api_key_file: None,
            tls: dialect.tls.then(Tls::default),
        };
        if let Some(login) = login {
            let (user, password) =
                login.split_once(':').map_or((login, None), |(u, p)| (u, Some(p)));
            let text = |encoded| String::from_utf8(decode(encoded)?).map_err(|_| UrlError::NotUtf8);
            servers.user = Some(text(user)?).filter(|user| !user.is_empty());
            if servers.user.is_none() {
                return Err(UrlError::NoUser);
            }
            servers.password = password.map(text).transpose()?.map(Secret);
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
                // Whatever is long is no setting, and might be a secret.
                let key = key.chars().take(32).collect();
                return Err(UrlError::UnknownSetting { key, known: dialect.settings.join(", ") });
            }
            let value = String::from_utf8(decode(value)?).map_err(|_| UrlError::NotUtf8)?;
            if value.is_empty() {
                return Err(UrlError::NoValue { key: key.into() });
            }
            let place = match key {
                "password-file" => &mut self.password_file,
                "api-key-file" => &mut self.api_key_file,
                "ca" => &mut self.tls.get_or_insert_default().ca,
                "cert" => &mut self.tls.get_or_insert_default().cert,
                _ => &mut self.tls.get_or_insert_default().key,
            };
            if place.replace(value.into()).is_some() {
                return Err(UrlError::Twice { key: key.into() });
            }
        }
        Ok(())
    }

    /// The URL again, without who we are.
    pub(crate) fn show(&self, f: &mut fmt::Formatter<'_>, scheme: &str) -> fmt::Result {
        write!(f, "{scheme}://{}", self.hosts.join(","))?;
        if !self.path.is_empty() {
            write!(f, "/{}", encode(self.path.as_bytes()))?;
        }
        let tls = self.tls.clone().unwrap_or_default();
        let files = [("ca", &tls.ca), ("cert", &tls.cert), ("key", &tls.key)];
        let mut between = '?';
        for (key, file) in files {
            if let Some(file) = file {
                f.write_char(between)?;
                let file = encode(file.to_string_lossy().as_bytes()).replace('&', "%26");
                write!(f, "{key}={file}")?;
                between = '&';
            }
        }
        Ok(())
    }
}

fn parse_hosts(text: &str, port: u16) -> Result<Vec<String>, UrlError> {
    if text.is_empty() {
        return Err(UrlError::NoHost);
    }
    let hosts: Vec<String> =
        text.split(',').map(|host| parse_host(host, port)).collect::<Result<_, _>>()?;
    if hosts.len() > MOST_HOSTS { Err(UrlError::BadHost) } else { Ok(hosts) }
}

fn parse_host(text: &str, default_port: u16) -> Result<String, UrlError> {
    // What stands here may be a password that was not escaped: never show it.
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

/// A path may begin with one more slash (`//a` for `/a`); it has no empty parts besides, and no dots.
fn parse_path(text: &str) -> Result<String, UrlError> {
    if text.contains('@') {
        // Most likely a password with a slash in it: it would be shown.
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
            assert!(!error.to_string().replace("`canary`", "").contains("canary"), "{error}");
        }
    }
}
