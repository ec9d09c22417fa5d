//! Broken twins of the cluster's rules.
//!
//! A checker that has never failed proves nothing. Each of these rules can be switched off, and the suite fails unless its
//! tests and simulations notice. The switch exists only with the feature `mutants`; without it the check is a constant the
//! compiler removes. It is one of the *thread*: a simulation runs on one, and tests beside it stay sound.

/// A rule of the cluster that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClusterMutant {
    /// The cursor moves on without waiting until its intents are seen in the slots.
    CursorFirst,
    /// Slots are written before the cursor says what goes into them.
    SlotsFirst,
    /// A slot whose task is counted is not made vacant.
    CountsTwice,
    /// What a weak read shows is counted without a write that confirms it.
    WeakCounts,
    /// A slot that a weak read shows free is filled without a write that confirms it.
    WeakFills,
    /// A new leader does not finish what its predecessor had recorded.
    ForgetsRecordedIntents,
    /// A page of the inbox is freed before the cursor says that it is taken.
    PageFreedEarly,
    /// The planner counts what was written beside it before it held the cursor.
    OldNewsCount,
    /// The planner counts what was written beside it although it knows something newer of the slot.
    NewsGoBack,
    /// A dead letter that is brought back stays a dead letter, too.
    RetryKeepsLetter,
    /// Slots grow when tasks fill them, although workers hold few of them.
    BacklogMakesSlots,
    /// A slot is claimed whatever its version.
    ClaimWithoutVersion,
    /// A slot is claimed before it stood still for its ttl.
    ClaimEarly,
    /// A completion counts although the task was claimed again.
    LateCompletionWins,
    /// The window of a claim is counted from the answer.
    WindowFromAnswer,
    /// An answer that comes after its deadline is taken all the same.
    LateAnswerRevives,
}

impl ClusterMutant {
    /// All of them.
    pub const ALL: [ClusterMutant; 16] = [
        ClusterMutant::CursorFirst,
        ClusterMutant::SlotsFirst,
        ClusterMutant::CountsTwice,
        ClusterMutant::WeakCounts,
        ClusterMutant::WeakFills,
        ClusterMutant::ForgetsRecordedIntents,
        ClusterMutant::PageFreedEarly,
        ClusterMutant::OldNewsCount,
        ClusterMutant::NewsGoBack,
        ClusterMutant::RetryKeepsLetter,
        ClusterMutant::BacklogMakesSlots,
        ClusterMutant::ClaimWithoutVersion,
        ClusterMutant::ClaimEarly,
        ClusterMutant::LateCompletionWins,
        ClusterMutant::WindowFromAnswer,
        ClusterMutant::LateAnswerRevives,
    ];

    /// Whether this rule is broken on this thread.
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

/// Breaks one rule for whatever runs on this thread from now on, or none.
#[cfg(feature = "mutants")]
pub fn break_rule(mutant: Option<ClusterMutant>) {
    BROKEN.set(mutant);
}
