//! Broken twins of the queue's rules. The suite must notice each of them.

/// A rule of the queue protocol that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mutant {
    /// Any predecessor's deletion makes a leader, not only that of the first in the queue.
    LeadWhenAnyPredecessorLeaves,
    /// A candidate takes over an entry that an earlier candidacy of this process left behind.
    AdoptOldEntry,
    /// A keep-alive counts without a read that shows the same term (etcd).
    DeposedKeepAliveCounts,
    /// A keep-alive counts although an earlier term's leader knows the lease (etcd).
    ///
    /// That leader may revoke it.
    LeaseOfEarlierTermCounts,
    /// Any answered write proves life, even after a silent connection (ZooKeeper).
    ///
    /// It counts from its sending.
    SilentConnectionCounts,
    /// After a loss the same entry leads again.
    LostTokenReturns,
    /// The entry is deleted before the work has ended.
    ReleaseBeforeStop,
    /// A late proof takes "must stop" back.
    MustStopNotLatched,
    /// A step takes its input first and expires afterwards.
    InputBeforeExpiry,
    /// The window is counted from the arrival of its proof.
    WindowFromAnswer,
    /// The window is the whole ttl, without the margin for clocks that run unevenly.
    NoDriftMargin,
    /// The candidate still leads while the deletion of its entry is on the way.
    LeaderWhileLeaving,
    /// Ending an election deletes the entries of all candidates.
    EndDeletesOthers,
    /// After a lost connection, the candidate goes on without looking for its own entry.
    ResumedUnverified,
    /// A join with a lost answer is forgotten.
    LostJoinForgotten,
    /// The entry of a join whose answer was lost is looked for in a queue that may be older than
    /// the join.
    DoubtWithoutBarrier,
    /// A candidate that leaves does not look for the entry of a join whose answer was lost.
    LeavesInDoubt,
    /// A deletion whose answer was lost is not tried again.
    LostLeaveForgotten,
    /// A queue that is older than the deletion of a leader's entry gives that entry up while work
    /// goes on.
    OldReadGivesUpEntry,
    /// The entry of a lost tenure stays in the queue while its session lives.
    LostEntryStays,
    /// Work that never ends keeps its entry for ever.
    StuckWorkKeepsEntry,
    /// Lost notifications are never made good.
    NoSecondLook,
    /// Every candidate watches the first entry in the queue.
    Herd,
    /// A candidate takes an election of another generation for its own.
    GenerationIgnored,
    /// The leader's answer proves every earlier answer, no matter how recent (ZooKeeper).
    NewestAnswerCounts,
    /// The wait for the leader's ping uses our own clock without margin (ZooKeeper).
    ///
    /// The clock may run faster than the leader's.
    PingByOwnClock,
    /// The leader's first answer after its ping proves a request (ZooKeeper).
    ///
    /// But the report of that request may be stuck.
    OneAnswerCounts,
    /// A write that one server refused by itself counts as a quorum's answer (ZooKeeper).
    RefusalCounts,
    /// A queue counts as fresh although one server refused the barrier before it (ZooKeeper).
    RefusedBarrierCounts,
    /// A request sent before the last answer proves that a reply arrived (ZooKeeper).
    ///
    /// It was under way together with the request before it, so it does not follow the reply.
    RequestUnderWayCounts,
    /// A reply that arrived proves life, even if no write shows that a leader read it (ZooKeeper).
    ArrivalNeedsNoWrite,
    /// A sync proves that the server that answered it was the leader (ZooKeeper).
    SyncCountsAsWrite,
    /// A read counts as if the leader had answered it (ZooKeeper).
    ReadCountsAsSync,
    /// A keep-alive is confirmed by a get of a later term (etcd).
    LaterTermConfirms,
    /// No candidate waits after a tenure that did not end cleanly.
    DelayIgnored,
    /// A candidate judges the end of the last tenure by a queue that is older than that end.
    EarlierMarkCounts,
    /// A tenure is announced while the record of its beginning is still on the way.
    BeginNotAwaited,
    /// A tenure with work that went on too long is left as if the work had ended in time.
    OutlivedCountsAsClean,
    /// A clean release leaves the record of a beginning with a lost answer (ZooKeeper).
    LostBeginForgotten,
    /// An entry leads although a tenure with its token, or a higher one, is known.
    RegressionIgnored,
    /// A predecessor's deletion makes a leader although the election ended before it.
    DeletionAfterEndCounts,
    /// A same-session entry's deletion makes a leader although the election had ended.
    OwnDeletionAfterEndCounts,
    /// A new lease counts while entries are still under the former one (etcd).
    ///
    /// The former lease may be revoked.
    LeasedBeforeMoved,
    /// A new lease counts once the first of several entries is under it (etcd).
    LeasedAfterFirstMoved,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Mutant; 44] = [
        Mutant::LeadWhenAnyPredecessorLeaves,
        Mutant::AdoptOldEntry,
        Mutant::DeposedKeepAliveCounts,
        Mutant::LeaseOfEarlierTermCounts,
        Mutant::SilentConnectionCounts,
        Mutant::LostTokenReturns,
        Mutant::ReleaseBeforeStop,
        Mutant::MustStopNotLatched,
        Mutant::InputBeforeExpiry,
        Mutant::WindowFromAnswer,
        Mutant::NoDriftMargin,
        Mutant::LeaderWhileLeaving,
        Mutant::EndDeletesOthers,
        Mutant::ResumedUnverified,
        Mutant::LostJoinForgotten,
        Mutant::DoubtWithoutBarrier,
        Mutant::LeavesInDoubt,
        Mutant::LostLeaveForgotten,
        Mutant::OldReadGivesUpEntry,
        Mutant::LostEntryStays,
        Mutant::StuckWorkKeepsEntry,
        Mutant::NoSecondLook,
        Mutant::Herd,
        Mutant::GenerationIgnored,
        Mutant::NewestAnswerCounts,
        Mutant::PingByOwnClock,
        Mutant::OneAnswerCounts,
        Mutant::RefusalCounts,
        Mutant::RefusedBarrierCounts,
        Mutant::RequestUnderWayCounts,
        Mutant::ArrivalNeedsNoWrite,
        Mutant::SyncCountsAsWrite,
        Mutant::ReadCountsAsSync,
        Mutant::LaterTermConfirms,
        Mutant::DelayIgnored,
        Mutant::EarlierMarkCounts,
        Mutant::BeginNotAwaited,
        Mutant::OutlivedCountsAsClean,
        Mutant::LostBeginForgotten,
        Mutant::RegressionIgnored,
        Mutant::DeletionAfterEndCounts,
        Mutant::OwnDeletionAfterEndCounts,
        Mutant::LeasedBeforeMoved,
        Mutant::LeasedAfterFirstMoved,
    ];
}
