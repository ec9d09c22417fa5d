//! Rare paths that a run of many seeds must have taken at least once.

/// A path that is worth counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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

impl Rare {
    /// All of them.
    pub const ALL: [Rare; 27] = [
        Rare::LateApply,
        Rare::GrantByRead,
        Rare::FalseConflict,
        Rare::ReclaimedAfterLapse,
        Rare::ConfirmWrite,
        Rare::FenceWrite,
        Rare::ClaimAfterDeath,
        Rare::DelayWaited,
        Rare::ResumedAfterMustStop,
        Rare::RecreatedWithHolder,
        Rare::RolledBack,
        Rare::BranchLasted,
        Rare::PausedBeyondWindow,
        Rare::SuspendedLeader,
        Rare::Released,
        Rare::ReleaseUnknown,
        Rare::Deposed,
        Rare::Ended,
        Rare::WorkOutlivedLease,
        Rare::TookOver,
        Rare::Regressed,
        Rare::Vanished,
        Rare::HealedEnded,
        Rare::HealedLed,
        Rare::FloorRaised,
        Rare::Deleted,
        Rare::CreatedAgain,
    ];
}

/// How often each rare path was taken.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Sometimes([u64; Rare::ALL.len()]);

impl Sometimes {
    /// Counts one path.
    pub fn saw(&mut self, rare: Rare) {
        self.0[rare as usize] += 1;
    }

    /// How often this path was taken.
    #[must_use]
    pub fn count(&self, rare: Rare) -> u64 {
        self.0[rare as usize]
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Sometimes) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    /// The paths never taken.
    pub fn never(&self) -> impl Iterator<Item = Rare> {
        Rare::ALL.into_iter().filter(|rare| self.count(*rare) == 0)
    }
}
