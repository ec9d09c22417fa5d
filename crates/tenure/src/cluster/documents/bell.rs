//! A bell: a document that is rewritten to wake the processes that watch it.

use serde::{Deserialize, Serialize};

use super::{DocumentError, Format, check_number};
use crate::lease::record::Op;

/// How often the bell was rung, and by which write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bell {
    /// Rises by one at every ring.
    pub rung: u64,
    /// The write that made this version.
    pub op: Op,
}

impl Format for Bell {
    const WHAT: &'static str = "bell";

    fn check(&self) -> Result<(), DocumentError> {
        check_number::<Bell>("rung", self.rung)
    }
}
