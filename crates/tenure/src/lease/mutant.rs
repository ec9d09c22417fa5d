//! Broken twins of the protocol's rules.
//!
//! A checker that has never failed proves nothing. Each rule of the lease can be switched off, and
//! the suite fails unless its simulations notice every one of these. The switch exists only with
//! the feature `mutants`; without it the check is a constant the compiler removes.

/// A rule of the lease protocol that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mutant {
    /// The holder's window is counted from the answer, not from before the request.
    WindowFromAnswer,
    /// The observer's timer is dated at the read's sending, not at its answer.
    ObservedAtSend,
    /// A retry carries the op of the write it repeats.
    OpReused,
    /// An answer that comes after its deadline is taken all the same.
    LateAnswerRevives,
    /// The holder's window is the whole ttl, without the margin for clocks that run unevenly.
    NoDriftMargin,
    /// A renewal overwrites any record, without comparing versions.
    UnconditionalRenewal,
    /// The lease is released before its work has ended.
    ReleaseBeforeStop,
    /// The holder still leads while its release is on the way.
    LeaseKeptWhileFreeing,
    /// The holder still leads while its own end of the election is on the way.
    LeaseKeptWhileEnding,
    /// A read of a weak store grants a lease.
    GrantOnWeakRead,
    /// A read of a weak store ends a candidacy.
    TerminalOnWeakRead,
    /// A read sent before the newest view was taken ends a candidacy.
    TerminalOnEarlyRead,
    /// Re-creating an ended election hands it out although its holder was kept.
    RecreateHandsOut,
    /// Re-creating an ended election shortens the ttl of the holder that was kept.
    RecreateShortensTtl,
    /// Re-creating an ended election applies a new lock delay while the old one runs.
    RecreateCutsDelay,
    /// A step takes its input first and expires afterwards.
    InputBeforeExpiry,
    /// A renewal that comes through takes "must stop" back.
    MustStopNotLatched,
    /// A lease is taken when the wall clock says it has expired.
    WallClock,
    /// After a lapse the holder goes on under its old token.
    TokenReusedAfterLapse,
    /// A ttl in a record is shortened to the reader's own ttl.
    TtlClampedDown,
    /// A token that was lost may be granted again.
    LostTokenReturns,
    /// A candidate believes a record with a lower token than before.
    RegressionBelieved,
    /// A holder that is only hung counts as dead.
    HungMeansGone,
    /// A proven death also cuts the lock delay short.
    GoneSkipsDelay,
    /// A candidate claims over a renewed version without waiting a whole ttl for it.
    TimerSurvivesRenewal,
    /// A follower sets no alarm for the end of the lease it waits for.
    SleepsThroughExpiry,
    /// An alarm that has nothing to do is set again at once.
    NeverRests,
    /// A lease that is not renewed is respected for ten times its ttl.
    WaitsTooLong,
    /// A candidate leaves although a claim of its own may still arrive.
    LeavesUnfenced,
    /// A candidate leaves because a weak read shows no record, although it held one.
    WeakAbsenceBelieved,
    /// A claim exceeds the floor, which was laid once and is never raised.
    FloorNotRaised,
    /// A claim with a longer ttl or lock delay than the floor's does not raise it.
    FloorKeepsFirstTerms,
    /// A read of a weak store shows how high the floor is.
    FloorBelievedOnWeakRead,
    /// After a record was deleted, tokens begin at 1 again.
    DeletedTokenForgotten,
    /// After a record was deleted, the next is claimed at once.
    DeletedTenureNotWaitedFor,
    /// On a weak store the floor names a record by its creation, which servers may carry out again.
    CreationNamed,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Mutant; 36] = [
        Mutant::WindowFromAnswer,
        Mutant::ObservedAtSend,
        Mutant::OpReused,
        Mutant::LateAnswerRevives,
        Mutant::NoDriftMargin,
        Mutant::UnconditionalRenewal,
        Mutant::ReleaseBeforeStop,
        Mutant::LeaseKeptWhileFreeing,
        Mutant::LeaseKeptWhileEnding,
        Mutant::GrantOnWeakRead,
        Mutant::TerminalOnWeakRead,
        Mutant::TerminalOnEarlyRead,
        Mutant::RecreateHandsOut,
        Mutant::RecreateShortensTtl,
        Mutant::RecreateCutsDelay,
        Mutant::InputBeforeExpiry,
        Mutant::MustStopNotLatched,
        Mutant::WallClock,
        Mutant::TokenReusedAfterLapse,
        Mutant::TtlClampedDown,
        Mutant::LostTokenReturns,
        Mutant::RegressionBelieved,
        Mutant::HungMeansGone,
        Mutant::GoneSkipsDelay,
        Mutant::TimerSurvivesRenewal,
        Mutant::SleepsThroughExpiry,
        Mutant::NeverRests,
        Mutant::WaitsTooLong,
        Mutant::LeavesUnfenced,
        Mutant::WeakAbsenceBelieved,
        Mutant::FloorNotRaised,
        Mutant::FloorKeepsFirstTerms,
        Mutant::FloorBelievedOnWeakRead,
        Mutant::DeletedTokenForgotten,
        Mutant::DeletedTenureNotWaitedFor,
        Mutant::CreationNamed,
    ];
}
