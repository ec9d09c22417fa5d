//! Rare paths that a run of many seeds must have taken at least once.

crate::listed! {
    /// A path that is worth counting.
    pub enum Rare {
        /// A write was applied after its sender had given it up.
        LateApply,
        /// A read found a write after its answer was lost, and granted it.
        GrantByRead,
        /// A write was applied and reported as a conflict.
        FalseConflict,
        /// A holder lapsed and claimed its own record again.
        ReclaimedAfterLapse,
        /// A weak read was confirmed by rewriting it.
        ConfirmWrite,
        /// A leaving candidate rewrote a record to keep its own claim from arriving.
        FenceWrite,
        /// A claim was made because the holder was proven dead.
        ClaimAfterDeath,
        /// A successor was elected after a lock delay.
        DelayWaited,
        /// A leader was told to stop because its store did not answer. Then the store answered.
        ResumedAfterMustStop,
        /// An ended election was created again with the holder it had kept.
        RecreatedWithHolder,
        /// An isolated primary's writes were rolled back.
        RolledBack,
        /// An isolated primary's writes lasted.
        BranchLasted,
        /// A process was paused beyond its window.
        PausedBeyondWindow,
        /// A suspend was seen by one clock only, while leading.
        SuspendedLeader,
        /// A release was answered.
        Released,
        /// A release was never answered.
        ReleaseUnknown,
        /// A holder found that it no longer holds a lease that it believed valid.
        Deposed,
        /// A candidacy ended because the election did.
        Ended,
        /// Work outlived its lease.
        WorkOutlivedLease,
        /// A candidate took an election over from another.
        TookOver,
        /// A record that went back was noticed.
        Regressed,
        /// A record that vanished was noticed.
        Vanished,
        /// The election was still ended when the faults stopped, and all candidates left.
        HealedEnded,
        /// A candidate led after the faults had stopped.
        HealedLed,
        /// A floor was laid or raised.
        FloorRaised,
        /// An operator deleted the record.
        Deleted,
        /// What an isolated primary had deleted and created was carried out again elsewhere.
        CreatedAgain,
    }
}
