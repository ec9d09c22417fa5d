//! Where a user's password comes from.

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
/// What is missing, in words; never the password.
#[cfg(any(feature = "elastic", feature = "etcd", feature = "rethinkdb", feature = "zookeeper"))]
pub(crate) fn of(servers: &Servers) -> Result<Secret, String> {
    find(servers.password.as_ref(), servers.password_file.as_deref())
}

/// The password that the URL has, or the file that it names, or the environment.
///
/// # Errors
/// What is missing, in words; never the password.
pub(crate) fn find(password: Option<&Secret>, file: Option<&Path>) -> Result<Secret, String> {
    if let Some(password) = password {
        return Ok(password.clone());
    }
    if let Some(file) = file {
        return first_line(file);
    }
    std::env::var(PASSWORD_VARIABLE).map(Secret::new).map_err(|_| {
        format!(
            "the URL has a user, but neither it, nor `password-file`, nor {PASSWORD_VARIABLE} a password"
        )
    })
}

/// The API key of the URL's file, or of the environment; none when there is neither.
///
/// # Errors
/// What is missing, in words; never the key.
#[cfg(feature = "elastic")]
pub(crate) fn api_key(servers: &Servers) -> Result<Option<Secret>, String> {
    if let Some(file) = &servers.api_key_file {
        return first_line(file).map(Some);
    }
    let key = std::env::var(crate::API_KEY_VARIABLE).ok();
    Ok(key.filter(|key| !key.is_empty()).map(Secret::new))
}

fn first_line(file: &Path) -> Result<Secret, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("reading {}: {error}", file.display()))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(Secret::new(line)),
        _ => Err(format!("the first line of {} is empty", file.display())),
    }
}
