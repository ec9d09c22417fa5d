//! Settings of the cluster: any JSON, put and read by any node, versioned.

use serde::{Deserialize, Serialize};

use super::{DocumentError, Format, check_number};
use crate::lease::record::Op;
use crate::store::MAX_DOCUMENT_BYTES;

/// What the nodes of a cluster share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Rises by one whenever they are put.
    pub version: u64,
    /// What they say.
    pub settings: serde_json::Map<String, serde_json::Value>,
    /// Which write made this.
    pub op: Op,
}

impl Format for Settings {
    const WHAT: &'static str = "settings document";

    fn check(&self) -> Result<(), DocumentError> {
        check_number::<Settings>("version", self.version)?;
        // Numbers may be written longer than they were read, and what was read must be writable.
        match self.encode().len() {
            bytes if bytes > MAX_DOCUMENT_BYTES => {
                Err(DocumentError::TooLong { document: Settings::WHAT, bytes })
            }
            _ => Ok(()),
        }
    }
}
