//! The two ways to elect.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The protocol that decides an election.
///
/// Using both on one election would make two leaders, so the first opener's choice is recorded with
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Protocol {
    /// By compare-and-set on one document ([`crate::lease`]); every store offers it.
    #[default]
    Lease,
    /// By a line of entries that vanish with their owners' sessions ([`crate::queue`]).
    Queue,
}

impl Protocol {
    pub(crate) fn is_lease(&self) -> bool {
        *self == Protocol::Lease
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Lease => "lease",
            Protocol::Queue => "queue",
        })
    }
}
