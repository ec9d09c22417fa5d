//! Rules of the cluster that tests can break on purpose.
//!
//! A checker that has never failed proves nothing. Each of these rules can be switched off, and the
//! suite fails unless its tests and simulations notice. The switch exists only with the feature
//! `mutants`; without it the check is a constant that the compiler removes. Each *thread* has its
//! own switch: a simulation runs on one thread, and tests on other threads stay sound.

/// A rule of the cluster that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClusterMutant {
    /// The cursor moves on without waiting until its intents are seen in the slots.
    CursorFirst,
    /// Slots are written before the cursor records their contents.
    SlotsFirst,
    /// A slot is not made vacant after its task is counted.
    CountsTwice,
    /// A weak read shows a task as ended, and it is counted without a confirming write.
    WeakCounts,
    /// A weak read shows a slot as free, and it is filled without a confirming write.
    WeakFills,
    /// A new leader does not finish the intents that its predecessor recorded.
    ForgetsRecordedIntents,
    /// A page of the inbox is freed before the cursor says that it is taken.
    PageFreedEarly,
    /// The planner counts by facts of writes that were sent before it held the cursor.
    OldWritesCount,
    /// The planner counts by a fact although it knows a newer content of the slot.
    WritesGoBack,
    /// A dead letter stays a dead letter after it is brought back.
    RetryKeepsLetter,
    /// Slots grow when tasks fill them, although workers hold few of them.
    BacklogMakesSlots,
    /// A slot is claimed after its ttl even if its version changed: renewals are not noticed.
    ClaimWithoutVersion,
    /// A slot is claimed before it stood still for its ttl.
    ClaimEarly,
    /// A completion counts although the task was claimed again.
    LateCompletionWins,
    /// The window of a claim is counted from the answer.
    WindowFromAnswer,
    /// An answer that comes after its deadline is taken all the same.
    LateAnswerRevives,
    /// A node leaves although claims of its own are on their way to the store.
    LeavesWithClaimsUnderWay,
}

impl ClusterMutant {
    /// All mutants.
    pub const ALL: [ClusterMutant; 17] = [
        ClusterMutant::CursorFirst,
        ClusterMutant::SlotsFirst,
        ClusterMutant::CountsTwice,
        ClusterMutant::WeakCounts,
        ClusterMutant::WeakFills,
        ClusterMutant::ForgetsRecordedIntents,
        ClusterMutant::PageFreedEarly,
        ClusterMutant::OldWritesCount,
        ClusterMutant::WritesGoBack,
        ClusterMutant::RetryKeepsLetter,
        ClusterMutant::BacklogMakesSlots,
        ClusterMutant::ClaimWithoutVersion,
        ClusterMutant::ClaimEarly,
        ClusterMutant::LateCompletionWins,
        ClusterMutant::WindowFromAnswer,
        ClusterMutant::LateAnswerRevives,
        ClusterMutant::LeavesWithClaimsUnderWay,
    ];

    /// Returns true if this rule is broken on this thread.
    pub(super) fn is_on(self) -> bool {
        #[cfg(feature = "mutants")]
        return BROKEN.get() == Some(self);
        #[cfg(not(feature = "mutants"))]
        {
            let _ = self;
            false
        }
    }
}

#[cfg(feature = "mutants")]
thread_local! {
    static BROKEN: std::cell::Cell<Option<ClusterMutant>> = const { std::cell::Cell::new(None) };
}

/// Breaks this rule on this thread from now on, or no rule.
#[cfg(feature = "mutants")]
pub fn break_rule(mutant: Option<ClusterMutant>) {
    BROKEN.set(mutant);
}
