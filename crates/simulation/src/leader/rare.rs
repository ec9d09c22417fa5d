//! Rare paths that a run of many seeds must have taken at least once.

crate::listed! {
    /// The rare paths of leaders.
    pub enum Rare {
        /// A leader was deposed by a later one.
        Deposed,
        /// A leader was cut off with a request under way.
        CutOff,
        /// A request did not arrive.
        Refused,
        /// A write took effect, and its answer was lost.
        Unanswered,
        /// A write took effect after it was given up.
        Late,
        /// A batch of writes was carried out in parts.
        Parted,
        /// A weak read showed an earlier state.
        Stale,
        /// A weak read showed a write that never lasted.
        Phantom,
        /// A leader heard of a write of the node in its process.
        Heard,
        /// A dead letter was brought back.
        Retried,
        /// A task was cancelled in the inbox.
        Cancelled,
        /// A task was cancelled in its slot.
        CancelledInSlot,
        /// The source failed.
        SourceFailed,
        /// A leader was held up, or reported a failure.
        Warned,
        /// A member was taken from the node list.
        Removed,
        /// The number of slots grew.
        MoreSlots,
        /// The cluster was paused.
        Paused,
    }
}
