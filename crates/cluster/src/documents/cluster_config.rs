//! The cluster document: settings that all nodes must agree on.

use serde::{Deserialize, Serialize};
use tenure::lease::record::Op;

use super::{DocumentError, Format, check_number, is_false, refuse};

/// The fewest slots a cluster has.
pub const LEAST_SLOTS: usize = 256;
/// The most slots a cluster has: one request must be able to read all of them.
pub const MOST_SLOTS: usize = 16 * 1024;

/// How many slots there are, and whether the leader fills them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterConfig {
    /// How many slots nodes look at.
    pub slots: usize,
    /// The leader takes no more tasks in. Tasks in slots are finished, the rest waits.
    #[serde(default, skip_serializing_if = "is_false")]
    pub paused: bool,
    /// Rises by one at every write.
    pub revision: u64,
    /// The write that made this version.
    pub op: Op,
}

impl Format for ClusterConfig {
    const WHAT: &'static str = "cluster document";

    fn check(&self) -> Result<(), DocumentError> {
        check_number::<ClusterConfig>("revision", self.revision)?;
        if self.slots == 0 || self.slots > MOST_SLOTS {
            return Err(refuse::<ClusterConfig>("slots", "out of range"));
        }
        Ok(())
    }
}
