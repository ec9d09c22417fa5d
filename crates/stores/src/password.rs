//! Where a user's password comes from.

use std::path::Path;

use crate::PASSWORD_VARIABLE;
use crate::servers::Secret;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
use crate::servers::Servers;

/// The password of the URL's user.
///
/// # Errors
/// What is missing, in words; never the password.
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
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
        let text = std::fs::read_to_string(file)
            .map_err(|error| format!("reading {}: {error}", file.display()))?;
        return match text.lines().next() {
            Some(line) if !line.is_empty() => Ok(Secret::new(line)),
            _ => Err(format!("the first line of {} is empty", file.display())),
        };
    }
    std::env::var(PASSWORD_VARIABLE).map(Secret::new).map_err(|_| {
        format!(
            "the URL has a user, but neither it, nor `password-file`, nor {PASSWORD_VARIABLE} a password"
        )
    })
}
