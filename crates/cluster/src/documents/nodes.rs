//! The node list.

use serde::{Deserialize, Serialize};
use tenure::MAX_SEGMENT_BYTES;
use tenure::lease::record::Op;

use super::{DocumentError, Format, MemberId, check_number, check_text, is_false, refuse};

/// The most nodes of a cluster. The list is one document, so it is bounded.
pub const MOST_NODES: usize = 256;

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEntry {
    /// The member's id.
    pub token: MemberId,
    /// How many tasks it works on at once.
    pub workers: u32,
    /// Its name for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// It was asked to finish its tasks, to take no more and to leave.
    #[serde(default, skip_serializing_if = "is_false")]
    pub draining: bool,
}

/// All nodes, in the order in which they joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nodes {
    /// The nodes that take part.
    pub nodes: Vec<NodeEntry>,
    /// Members that were declared dead, the newest last. They take no tasks and cannot come back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dead: Vec<MemberId>,
    /// Rises by one at every write.
    pub revision: u64,
    /// The write that made this version.
    pub op: Op,
}

impl Nodes {
    /// The member's position in the list.
    #[must_use]
    pub fn position(&self, member: &MemberId) -> Option<usize> {
        self.nodes.iter().position(|node| node.token == *member)
    }
}

impl Format for Nodes {
    const WHAT: &'static str = "node list";

    fn check(&self) -> Result<(), DocumentError> {
        check_number::<Nodes>("revision", self.revision)?;
        if self.nodes.len() > MOST_NODES || self.dead.len() > MOST_NODES {
            return Err(refuse::<Nodes>("nodes", "too many"));
        }
        self.nodes
            .iter()
            .try_for_each(|node| check_text::<Nodes>("name", &node.name, MAX_SEGMENT_BYTES))
    }
}
