//! Passwords that the program took out of its environment.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::servers::Secret;
use crate::{API_KEY_VARIABLE, PASSWORD_VARIABLE};

static PROVIDED: OnceLock<BTreeMap<&'static str, Secret>> = OnceLock::new();

/// Sets the values of the two password variables for this process.
///
/// They are [`PASSWORD_VARIABLE`] and [`API_KEY_VARIABLE`]. A program that took them out of its
/// environment calls this. Only the first call counts.
pub fn provide_passwords(password: Option<&str>, api_key: Option<&str>) {
    let said = [(PASSWORD_VARIABLE, password), (API_KEY_VARIABLE, api_key)];
    let said = said.into_iter().filter_map(|(name, value)| Some((name, Secret::new(value?))));
    PROVIDED.get_or_init(|| said.collect());
}

/// Returns true if [`API_KEY_VARIABLE`] has a value.
pub(crate) fn has_api_key() -> bool {
    variable(API_KEY_VARIABLE).is_some_and(|key| !key.reveal().is_empty())
}

/// The value of a variable: as it was provided, or from the environment.
pub(crate) fn variable(name: &str) -> Option<Secret> {
    let provided = PROVIDED.get().and_then(|provided| provided.get(name).cloned());
    provided.or_else(|| std::env::var(name).ok().map(Secret::new))
}
