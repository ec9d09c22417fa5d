//! Settings of the cluster: versioned JSON that any node can write and read.

use serde::{Deserialize, Serialize};
use tenure::lease::record::Op;
use tenure::store::MAX_DOCUMENT_BYTES;

use super::{DocumentError, Format, check_number};

/// The settings that the nodes of a cluster share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Rises by one whenever the settings are put.
    pub version: u64,
    /// The settings themselves.
    pub settings: serde_json::Map<String, serde_json::Value>,
    /// The write that made this version.
    pub op: Op,
}

impl Format for Settings {
    const WHAT: &'static str = "settings document";

    fn check(&self) -> Result<(), DocumentError> {
        check_number::<Settings>("version", self.version)?;
        // A number may take more bytes written than read, and settings that were read must be
        // writable.
        match self.encode().len() {
            bytes if bytes > MAX_DOCUMENT_BYTES => {
                Err(DocumentError::TooLong { document: Settings::WHAT, bytes })
            }
            _ => Ok(()),
        }
    }
}
