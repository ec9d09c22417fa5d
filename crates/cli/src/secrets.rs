//! Environment variables that CMD and handlers must not see.

use std::env::{self, VarError};

use crate::systemd;

/// Variables that may hold a password.
const ADDRESSES: [&str; 3] = ["TENURE_STORE", "TENURE_ETCD_MEMBERS", "ELECTOR_ETCD_MEMBERS"];

/// Names the descriptor of the file with the passwords of the environment.
pub(crate) const HANDED_OVER: &str = "TENURE_HANDED_OVER";

/// The variables to take out of the environment.
///
/// These are passwords, and the variables that let a process speak to systemd for this one.
pub(crate) fn secrets() -> Vec<&'static str> {
    passwords().into_iter().chain(systemd::VARIABLES).chain([HANDED_OVER]).collect()
}

/// The variables that hold a store's password, or a URL with one in it.
pub(crate) fn passwords() -> Vec<&'static str> {
    let secret = |name: &&str| match env::var(name) {
        // Members may be plain `host:port`, without a URL.
        Ok(value) => {
            value.contains('@') && !value.starts_with("file:")
                || name.ends_with("STORE") && tenure_stores::holds_credentials(&value)
        }
        Err(VarError::NotPresent) => false,
        Err(VarError::NotUnicode(_)) => true,
    };
    ADDRESSES
        .into_iter()
        .filter(secret)
        .chain([tenure_stores::PASSWORD_VARIABLE, tenure_stores::API_KEY_VARIABLE])
        .collect()
}
