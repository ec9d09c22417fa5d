//! The environment variables that users of elector have set.

use super::{Layer, Origin};
use crate::conceal::Concealed;

/// Each variable, the id of its argument, and the tenure variable to use instead.
const VARIABLES: [(&str, &str, &str); 7] = [
    ("ELECTOR_BACKEND", "backend", "TENURE_BACKEND"),
    ("ELECTOR_INSTANCE_ID", "id", "TENURE_ID"),
    ("ELECTOR_START_COMMAND", "leader_begin_command", "TENURE_LEADER_BEGIN_COMMAND"),
    ("ELECTOR_STOP_COMMAND", "leader_end_command", "TENURE_LEADER_END_COMMAND"),
    ("ELECTOR_KEY", "etcd_keyspace", "TENURE_ETCD_KEYSPACE"),
    ("ELECTOR_ETCD_MEMBERS", "etcd_members", "TENURE_ETCD_MEMBERS"),
    ("ELECTOR_ERROR_TIMEOUT", "error_timeout", "TENURE_ERROR_TIMEOUT"),
];

/// The settings from these variables, and a hint for each.
pub(super) fn layers(concealed: &Concealed) -> (Vec<Layer>, Vec<String>) {
    let mut layers = Vec::new();
    let mut hints = Vec::new();
    for (variable, id, ours) in VARIABLES {
        let taken_out = concealed.get(variable).map(str::to_owned);
        let Some(value) = taken_out.or_else(|| std::env::var(variable).ok()) else { continue };
        layers.push(Layer { id: id.to_owned(), value, origin: Origin::Elector(variable) });
        hints.push(format!("{variable} is honoured; here it is called {ours}"));
    }
    (layers, hints)
}
