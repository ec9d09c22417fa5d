//! A bell: a document that changes so that whoever waits on it looks.

use serde::{Deserialize, Serialize};

use super::{DocumentError, Format, check_number};
use crate::lease::record::Op;

/// How often it was rung, and by which write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bell {
    /// Rises by one.
    pub rung: u64,
    /// Which write made this.
    pub op: Op,
}

impl Format for Bell {
    const WHAT: &'static str = "bell";

    fn check(&self) -> Result<(), DocumentError> {
        check_number::<Bell>("rung", self.rung)
    }
}
