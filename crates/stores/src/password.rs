//! The password of a store's user, from the URL, a file or the environment.

use std::path::Path;

use crate::PASSWORD_VARIABLE;
use crate::servers::Secret;
#[cfg(any(
    feature = "elastic",
    feature = "etcd",
    feature = "rethinkdb",
    feature = "zookeeper"
))]
use crate::servers::Servers;

/// The password of the URL's user.
///
/// # Errors
/// A message that says why there is no password. It never shows the password.
#[cfg(any(feature = "elastic", feature = "etcd", feature = "rethinkdb", feature = "zookeeper"))]
pub(crate) fn of(servers: &Servers) -> Result<Secret, String> {
    find(servers.password.as_ref(), servers.password_file.as_deref())
}

/// Finds the password in the URL, in the URL's password file, or in the environment.
///
/// # Errors
/// A message that says why there is no password. It never shows the password.
pub(crate) fn find(password: Option<&Secret>, file: Option<&Path>) -> Result<Secret, String> {
    if let Some(password) = password {
        return Ok(password.clone());
    }
    if let Some(file) = file {
        return first_line(file);
    }
    crate::provided::variable(PASSWORD_VARIABLE).ok_or_else(|| {
        format!(
            "the URL has a user, but neither it, nor `password-file`, nor {PASSWORD_VARIABLE} a password"
        )
    })
}

/// The API key from the URL's file or the environment; none if there is neither.
///
/// # Errors
/// A message that says why the file gives no key. It never shows the key.
#[cfg(feature = "elastic")]
pub(crate) fn api_key(servers: &Servers) -> Result<Option<Secret>, String> {
    if let Some(file) = &servers.api_key_file {
        return first_line(file).map(Some);
    }
    let key = crate::provided::variable(crate::API_KEY_VARIABLE);
    Ok(key.filter(|key| !key.reveal().is_empty()))
}

fn first_line(file: &Path) -> Result<Secret, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("reading {}: {error}", file.display()))?;
    warn_of_readers(file);
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(Secret::new(line)),
        _ => Err(format!("the first line of {} is empty", file.display())),
    }
}

/// Warns, once for each file, that other users can read it. Root may share it with a group.
#[cfg(unix)]
fn warn_of_readers(file: &Path) {
    use std::collections::BTreeSet;
    use std::os::unix::fs::MetadataExt;
    use std::path::PathBuf;
    use std::sync::{Mutex, PoisonError};
    /// The files warned of. A store that does not answer yet is opened again and again.
    static TOLD: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    // A failure is unlikely: the file was read just now.
    let Ok(found) = file.metadata() else { return };
    let group = found.mode() & 0o040 != 0 && found.uid() != 0;
    let first = || TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(file.to_owned());
    if found.is_file() && (found.mode() & 0o004 != 0 || group) && first() {
        let mode = format!("{:04o}", found.mode() & 0o7777);
        let file = file.display();
        tracing::warn!(%file, mode, "other users can read the file with the secret; chmod 600 it");
    }
}

#[cfg(not(unix))]
fn warn_of_readers(_: &Path) {}
