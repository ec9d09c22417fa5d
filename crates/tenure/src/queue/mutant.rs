//! Broken twins of the queue's rules, for the suite that must notice each of them.

/// A rule of the queue protocol that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mutant {
    /// Any predecessor's deletion makes a leader, though it was not first in line.
    LeadWhenAnyPredecessorLeaves,
    /// An entry that an earlier candidacy of this process left behind is taken over.
    AdoptOldEntry,
    /// A keep-alive counts without a read that shows the same term (etcd).
    DeposedKeepAliveCounts,
    /// A keep-alive counts although a leader of an earlier term knows the lease and may revoke it (etcd).
    LeaseOfEarlierTermCounts,
    /// Any write that is answered proves life from its sending, however silent the connection was (ZooKeeper).
    SilentConnectionCounts,
    /// After a loss the same entry leads again.
    LostTokenReturns,
    /// The entry is deleted before the work has ended.
    ReleaseBeforeStop,
    /// A proof that comes late takes "must stop" back.
    MustStopNotLatched,
    /// A step takes its input first and expires afterwards.
    InputBeforeExpiry,
    /// The window is counted from when its proof arrived.
    WindowFromAnswer,
    /// The window is the whole ttl, without the margin for clocks that run unevenly.
    NoDriftMargin,
    /// The candidate still leads while the deletion of its entry is on the way.
    LeaderWhileLeaving,
    /// Ending an election deletes everybody's entries.
    EndDeletesOthers,
    /// Back after a lost connection, it goes on without looking for its own entry.
    ResumedUnverified,
    /// A join whose answer was lost is forgotten.
    LostJoinForgotten,
    /// The entry of a join whose answer was lost is looked for in a line that may be older than the join.
    DoubtWithoutBarrier,
    /// A candidate that leaves does not look for the entry of a join whose answer was lost.
    LeavesInDoubt,
    /// A deletion whose answer was lost is not tried again.
    LostLeaveForgotten,
    /// A line that is older than the deletion of a leader's entry gives that entry up while work goes on.
    OldLineGivesUpEntry,
    /// The entry of a lost tenure stays in line while its session lives.
    LostEntryStays,
    /// Work that never ends keeps its entry for ever.
    StuckWorkKeepsEntry,
    /// Lost notifications are never made good.
    NoSecondLook,
    /// Everybody watches the first in line.
    Herd,
    /// An election of another generation is taken for one's own.
    GenerationIgnored,
    /// The leader's answer proves whatever was answered before it, however shortly (ZooKeeper).
    NewestAnswerCounts,
    /// The leader's ping is waited for by one's own clock, as if that could not run faster (ZooKeeper).
    PingByOwnClock,
    /// The leader's first answer after its ping proves a request, whose report may be stuck (ZooKeeper).
    OneAnswerCounts,
    /// A write that one server refused by itself counts as a quorum's word (ZooKeeper).
    RefusalCounts,
    /// A line that was read behind a barrier which one server refused counts as fresh (ZooKeeper).
    RefusedBarrierCounts,
    /// A request that was under way with the one before it proves that the reply between them arrived (ZooKeeper).
    RequestUnderWayCounts,
    /// A reply that arrived proves life though no write shows that a leader read it (ZooKeeper).
    ArrivalNeedsNoWrite,
    /// A sync shows that its leader was one (ZooKeeper).
    SyncCountsAsWrite,
    /// A read is answered by the leader (ZooKeeper).
    ReadCountsAsSync,
    /// A keep-alive is confirmed by a get of a later term (etcd).
    LaterTermConfirms,
    /// Nobody waits after a tenure that did not end cleanly.
    DelayIgnored,
    /// How the last tenure ended is taken from a line that is older than its end.
    EarlierMarkCounts,
    /// A tenure is announced while the record of its beginning is still on the way.
    BeginNotAwaited,
    /// The entry of a tenure whose work went on for too long is left as if that had ended in time.
    OutlivedCountsAsClean,
    /// A clean release does not take back the record of a beginning whose answer was lost (ZooKeeper).
    LostBeginForgotten,
    /// An entry leads although a tenure with its token, or a higher one, is known of.
    RegressionIgnored,
    /// A predecessor's deletion makes a leader although the election ended before it.
    DeletionAfterEndCounts,
    /// The deletion of an entry of the same session makes a leader although the election ended before it.
    OwnDeletionAfterEndCounts,
    /// A new lease counts although entries are still under the former one, which may be revoked (etcd).
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
        Mutant::OldLineGivesUpEntry,
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
