//! Exit codes, told once.

pub(crate) const OK: u8 = 0;
pub(crate) const NOT_LED: u8 = 1;
pub(crate) const USAGE: u8 = 2;
pub(crate) const UNKNOWN: u8 = 4;
pub(crate) const UNREACHABLE: u8 = 69;
pub(crate) const LOST: u8 = 75;
pub(crate) const DENIED: u8 = 77;
pub(crate) const REFUSED: u8 = 78;
pub(crate) const FAILURE: u8 = 125;
pub(crate) const NOT_EXECUTABLE: u8 = 126;
pub(crate) const NOT_FOUND: u8 = 127;
