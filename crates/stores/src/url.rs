//! The text of a URL: why it is refused, and its percent codes.

use std::fmt::Write as _;

/// The longest URL. A longer one is a mistake.
pub(crate) const MOST_BYTES: usize = 4096;

/// The schemes of store URLs, each with its colon.
pub const SCHEMES: [&str; 14] = [
    "elasticsearch+http:",
    "elasticsearch+https:",
    "etcd:",
    "etcd+https:",
    "file:",
    "memory:",
    "mongodb:",
    "mongodb+srv:",
    "opensearch+http:",
    "opensearch+https:",
    "rethinkdb:",
    "rethinkdb+tls:",
    "zookeeper:",
    "zookeeper+tls:",
];

/// Why a URL is refused. Shows known schemes and settings, never a part of the URL itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// The URL is empty.
    #[error("it is empty; write for example file:///var/lib/tenure")]
    Empty,
    /// The URL is too long.
    #[error("it has {bytes} bytes; at most {MOST_BYTES} are allowed")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The URL does not begin with a scheme.
    #[error("it does not begin with a scheme; write for example file:///var/lib/tenure")]
    NoScheme,
    /// A scheme that is not in [`SCHEMES`]. It is not shown: it may be a password.
    #[error("it begins with an unknown scheme; known are {}", SCHEMES.join(", "))]
    UnknownScheme,
    /// A control character, NUL included.
    #[error("it has a control character at byte {at}")]
    Control {
        /// Its position, in bytes.
        at: usize,
    },
    /// A percent sign that is not followed by two hexadecimal digits.
    #[error("the `%` at byte {at} of its path is not followed by two hexadecimal digits")]
    Percent {
        /// Its position in the path, in bytes.
        at: usize,
    },
    /// The decoded text is not UTF-8.
    #[error("its path is not UTF-8")]
    NotUtf8,
    /// The path of a directory is not absolute.
    #[error("its path is not absolute; write three slashes, file:///var/lib/tenure")]
    Relative,
    /// A directory on another machine.
    #[error("it names a host, but a directory is on this machine; write file:///var/lib/tenure")]
    Host,
    /// A user or a password where there can be none.
    #[error("it has a user or a password, but a directory needs none")]
    Credentials,
    /// No directory.
    #[error("it names no directory; write for example file:///var/lib/tenure")]
    NoDirectory,
    /// A `#`.
    #[error("it has a fragment; write `%23` for a `#` in a path")]
    Fragment,
    /// Text after `memory:`.
    #[error("nothing may follow `memory:`")]
    MemoryTail,
    /// A setting that this store does not have. It is not shown: it may be a part of a password.
    #[error("its query has an unknown setting; known: {known}")]
    UnknownSetting {
        /// The settings of this store.
        known: String,
    },
    /// An `@` in the query. Most likely a password has a `?` in it, and would be shown.
    #[error(
        "its query has an `@`; in a password write `%3F` for a `?`, elsewhere `%40` for an `@`"
    )]
    BadQuery,
    /// A setting that is given twice.
    #[error("it has the setting `{key}` twice")]
    Twice {
        /// The key.
        key: String,
    },
    /// A setting without a value.
    #[error("its setting `{key}` has no value")]
    NoValue {
        /// The key.
        key: String,
    },
    /// No server.
    #[error("it names no host; write for example etcd://10.0.0.1:2379,10.0.0.2:2379/tenure")]
    NoHost,
    /// A host that is not a valid host and port, or too many hosts.
    #[error("each of its hosts must be a host and port, such as 10.0.0.1:2379; at most 32 of them")]
    BadHost,
    /// Several hosts, or a port, where one DNS name stands for all servers.
    #[error("with `mongodb+srv:` it names one host, without a port")]
    OneHost,
    /// A name that is not valid for a database.
    #[error(
        "its path is no name of a database: one part, without `.`, `$`, quotes or spaces, not the servers' own"
    )]
    BadDatabase,
    /// A name that is not valid for a collection.
    #[error(
        "its setting `collection` is no name of a collection: no `$`, no `system.`, at most 120 bytes"
    )]
    BadCollection,
    /// A password without a user.
    #[error("it has a password, but no user")]
    NoUser,
    /// A path with empty parts or dots.
    #[error(
        "its path has an empty part, `.`, `..`, an `@` that is not written `%40`, or a control character"
    )]
    BadPath,
    /// A password file beside a password, or without a user.
    #[error("a password file needs a user and no other password")]
    PasswordFile,
    /// An API key beside a user.
    #[error("an API key and a user are two answers to one question; give one of them")]
    ApiKeyFile,
    /// A certificate without its key, or the other way round.
    #[error("a client's certificate needs both `cert` and `key`")]
    HalfACertificate,
    /// A setting with a value that it cannot have.
    #[error("its setting `{key}` has a value that it cannot have")]
    BadValue {
        /// The key.
        key: String,
    },
    /// A name of a database or table that the server would refuse.
    #[error("its database and its table may have letters, digits, `_` and `-` only")]
    BadTable,
    /// A setting that is neither true nor false.
    #[error("its setting `{key}` is neither `true` nor `false`")]
    NotBoolean {
        /// The key.
        key: String,
    },
}

/// The parts of a server's URL after its scheme, with their percent codes.
pub(crate) struct Parts<'a> {
    pub(crate) login: Option<&'a str>,
    pub(crate) hosts: &'a str,
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
}

impl Parts<'_> {
    /// Splits the part of a URL after the scheme's colon.
    pub(crate) fn of(rest: &str) -> Result<Parts<'_>, UrlError> {
        if rest.contains('#') {
            return Err(UrlError::Fragment);
        }
        let rest = rest.strip_prefix("//").ok_or(UrlError::NoHost)?;
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, q)| (rest, Some(q)));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let login = authority.rsplit_once('@');
        let (login, hosts) = login.map_or((None, authority), |(login, hosts)| (Some(login), hosts));
        Ok(Parts { login, hosts, path, query })
    }
}

/// The value of a setting, without percent codes.
pub(crate) fn value_of(key: &str, value: &str) -> Result<String, UrlError> {
    let value = String::from_utf8(decode(value)?).map_err(|_| UrlError::NotUtf8)?;
    if value.is_empty() { Err(UrlError::NoValue { key: key.into() }) } else { Ok(value) }
}

/// Replaces percent codes by their bytes.
pub(crate) fn decode(path: &str) -> Result<Vec<u8>, UrlError> {
    let bytes = path.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if *byte != b'%' {
            decoded.push(*byte);
            at += 1;
            continue;
        }
        let digit =
            |offset: usize| bytes.get(at + offset).and_then(|byte| (*byte as char).to_digit(16));
        let (Some(high), Some(low)) = (digit(1), digit(2)) else {
            return Err(UrlError::Percent { at });
        };
        let byte = u8::try_from(high * 16 + low).map_err(|_| UrlError::Percent { at })?;
        if byte.is_ascii_control() {
            return Err(UrlError::Control { at });
        }
        decoded.push(byte);
        at += 3;
    }
    Ok(decoded)
}

/// Escapes the bytes that may not be in a path as they are.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_graphic() && !b"%?#@".contains(byte) {
            text.push(*byte as char);
        } else {
            // Writing to a string does not fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}
