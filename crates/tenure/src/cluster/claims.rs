//! What one node takes, keeps and finishes, as a pure machine.

/// One claim of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Claim {
    /// Which slot.
    pub slot: usize,
    /// At which token.
    pub token: u64,
}
