//! Finds the place of the election, from `--store` or from the options of elector.

use std::fmt::Write as _;
use std::path::Path;

use super::wanted::wins;
use crate::args::{ElectorBackend, ElectorOptions, Settings};
use crate::config::Origins;
use crate::exit::{Failure, USAGE};

/// The default address of etcd.
const ETCD: &str = "127.0.0.1:2379";
/// The default name of the console's election.
const CONSOLE: &str = "console";

/// The source of events.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A user types them.
    Console { election: String },
    /// The store of the settings.
    Store { election: String },
}

/// Finds the place, and stores the URL of an etcd cluster in the settings.
///
/// # Errors
/// When the command line contradicts itself, or names no election.
pub(super) fn place(
    options: &ElectorOptions,
    settings: &mut Settings,
    election: Option<String>,
    origins: &Origins,
) -> Result<Place, Failure> {
    let usage = |text: &str| Failure::new(USAGE, anyhow::anyhow!("{text}"));
    let nameless = || usage("which election? write `tenure run ELECTION …`");
    let keyspace = options.etcd_keyspace.as_deref().map(|key| key.trim_matches('/').to_owned());
    let beats_stores = |names: &[&str]| {
        let stores = [
            settings.store.as_ref().map(|_| origins.of("store")),
            settings.store_file.as_ref().map(|_| origins.of("store-file")),
        ];
        let mut stores = stores.into_iter().flatten();
        stores.all(|store| names.iter().any(|name| origins.of(name).beats(&store)))
    };
    // The etcd options alone select etcd, but `--store` from an equally strong origin wins.
    let etcd_names = options.etcd_keyspace.is_some() || !options.etcd_members.is_empty();
    let by_names = etcd_names && beats_stores(&["etcd-keyspace", "etcd-members"]);
    let by_backend = match options.backend {
        Some(_) if !by_names => {
            wins(origins, "backend", "store", settings.store.is_some())?
                && wins(origins, "backend", "store-file", settings.store_file.is_some())?
        }
        Some(_) | None => by_names,
    };
    let etcd = match options.backend {
        Some(ElectorBackend::Console) if by_backend => {
            return Ok(Place::Console { election: election.unwrap_or_else(|| CONSOLE.to_owned()) });
        }
        Some(ElectorBackend::Console) => false,
        Some(ElectorBackend::EtcdLock) | None => by_backend,
    };
    if !etcd {
        let election = election.or(keyspace).ok_or_else(nameless)?;
        return Ok(Place::Store { election });
    }
    let (below, election) = match (election, keyspace) {
        (Some(election), keyspace) => (keyspace, election),
        (None, Some(keyspace)) => (None, keyspace),
        (None, None) => return Err(nameless()),
    };
    settings.store = Some(url(options, below.as_deref()));
    settings.store_file = None;
    Ok(Place::Store { election })
}

/// Builds `etcd://member,member/below?ca=…`.
///
/// It is encrypted if any member is, or if a certificate is named.
fn url(options: &ElectorOptions, below: Option<&str>) -> String {
    let mut encrypted = false;
    let mut members = Vec::new();
    for member in options.etcd_members.iter().map(|member| member.trim()) {
        encrypted |= member.starts_with("https://");
        let bare = member.strip_prefix("https://").or_else(|| member.strip_prefix("http://"));
        members.push(bare.unwrap_or(member).trim_end_matches('/'));
    }
    members.retain(|member| !member.is_empty());
    if members.is_empty() {
        members.push(ETCD);
    }
    let files =
        [("ca", &options.ca_file), ("cert", &options.cert_file), ("key", &options.key_file)];
    let files: Vec<String> = files
        .into_iter()
        .filter_map(|(key, file)| Some(format!("{key}={}", encoded(file.as_deref()?))))
        .collect();
    let scheme = if encrypted || !files.is_empty() { "etcd+https" } else { "etcd" };
    let mut url = format!("{scheme}://{}", members.join(","));
    // Writing to a string cannot fail.
    if let Some(below) = below {
        let _ = write!(url, "/{}", encoded(Path::new(below)));
    }
    if !files.is_empty() {
        let _ = write!(url, "?{}", files.join("&"));
    }
    url
}

/// Encodes a path for a URL.
fn encoded(path: &Path) -> String {
    let mut text = String::new();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => {
                text.push(char::from(*byte));
            }
            _ => drop(write!(text, "%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn electors_names_make_a_url() {
        let options = |members: &[&str], ca: Option<&str>| ElectorOptions {
            backend: Some(ElectorBackend::EtcdLock),
            etcd_keyspace: None,
            etcd_members: members.iter().map(|member| (*member).to_owned()).collect(),
            ca_file: ca.map(Into::into),
            cert_file: None,
            key_file: None,
        };
        assert_eq!(url(&options(&[], None), None), "etcd://127.0.0.1:2379");
        let two = options(&["http://a:2379/", " b:2379"], None);
        assert_eq!(url(&two, Some("jobs/x")), "etcd://a:2379,b:2379/jobs/x");
        let encrypted = options(&["https://a:2379"], Some("/etc/my ca.pem"));
        assert_eq!(url(&encrypted, None), "etcd+https://a:2379?ca=/etc/my%20ca.pem");
    }
}
