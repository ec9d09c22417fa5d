//! Helpers for all commands about groups.

use tenure::Backend;
use tenure_cluster::ClusterError;
use tenure_cluster::{ClusterClient, Garbled, Totals};

use crate::exit::{Failure, NOT_LED, USAGE};
use crate::session::Session;
use crate::show;

/// The client of a group. The group need not exist.
///
/// # Errors
/// When the name is refused.
pub(super) fn client(
    session: &Session,
    backend: &Backend,
    group: &str,
) -> Result<ClusterClient, Failure> {
    match ClusterClient::open(backend, group) {
        Ok(client) => Ok(client.with_timing(session.timing)),
        Err(ClusterError::Name(why)) => {
            Err(Failure::new(USAGE, anyhow::anyhow!("the group's name is refused: {why}")))
        }
        Err(error) => Err(error.into()),
    }
}

/// The client of a group that has members, or that has been given tasks.
///
/// # Errors
/// When there is none, or the store does not serve.
///
/// # Cancel safety
/// Cancel safe.
pub(super) async fn existing(
    session: &Session,
    backend: &Backend,
    group: &str,
) -> Result<(ClusterClient, Totals), Failure> {
    let client = client(session, backend, group)?;
    let totals = client.totals().await?;
    if totals == Totals::default() && client.members().await?.items.is_empty() {
        let says = format!("there is no group {}: nobody has shared work in it", client.name());
        return Err(Failure::new(NOT_LED, anyhow::anyhow!(says)));
    }
    Ok((client, totals))
}

/// Reports documents that make no sense.
pub(super) fn mention(garbled: &[Garbled]) {
    for (key, error) in garbled {
        show::say(&format!("skipping {key}: {error}"));
    }
}

/// The first line of a text, for people.
pub(super) fn first_line(text: &str) -> String {
    show::value(text.lines().next().unwrap_or_default().as_bytes())
}

/// A number with its noun, in the singular or the plural.
pub(super) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
