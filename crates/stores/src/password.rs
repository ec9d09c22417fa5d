//! Where a user's password comes from.

use crate::PASSWORD_VARIABLE;
use crate::servers::{Secret, Servers};

/// The password of the URL's user.
///
/// # Errors
/// What is missing, in words; never the password.
pub(crate) fn of(servers: &Servers) -> Result<Secret, String> {
    if let Some(password) = &servers.password {
        return Ok(password.clone());
    }
    if let Some(file) = &servers.password_file {
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
