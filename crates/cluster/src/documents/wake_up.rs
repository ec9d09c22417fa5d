//! A wake-up: a document that is rewritten to wake the processes that watch it.

use serde::{Deserialize, Serialize};
use tenure::lease::record::Op;

use super::{DocumentError, Format, check_number};

/// How often it was rewritten, and by which write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeUp {
    /// Rises by one at every ring.
    pub rung: u64,
    /// The write that made this version.
    pub op: Op,
}

impl Format for WakeUp {
    const WHAT: &'static str = "bell";

    fn check(&self) -> Result<(), DocumentError> {
        check_number::<WakeUp>("rung", self.rung)
    }
}
