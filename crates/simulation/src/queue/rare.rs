//! Rare paths that a run of many seeds must have taken at least once.

crate::listed! {
    /// A path that is worth counting.
    pub enum Rare {
        /// A predecessor's deletion made a leader without another look.
        LedAtOnce,
        /// A leader followed another in the same election.
        TookOver,
        /// A session expired at the server.
        SessionExpired,
        /// A leader's session expired after its window had ended.
        LeaderExpired,
        /// A leader went on after it had lost its connection.
        Resumed,
        /// A leader was told to stop, and life was proven afterwards.
        ExtendedAfterMustStop,
        /// A window ended while the session lived.
        LostWhileSessionLives,
        /// A join was applied, and its answer lost.
        JoinAnswerLost,
        /// Such a join was found again by its ticket.
        JoinFound,
        /// A deletion was applied, and its answer lost.
        LeaveAnswerLost,
        /// A caller was told that the outcome of its release is unknown.
        ReleaseUnknown,
        /// A candidacy that was over for its caller deleted its entry later.
        ZombieReaped,
        /// An etcd join arrived after it was given up, and the backend deleted its entry.
        LateJoinReaped,
        /// A new leader of the servers was elected.
        ServerElection,
        /// An old leader answered a keep-alive or a handshake.
        DeposedAnswered,
        /// A server that was cut off refused a request by itself.
        RefusedAlone,
        /// An old leader revoked a lease that was kept alive at its successor.
        DeposedRevoked,
        /// A leader went on under another lease after the servers had elected.
        LeaseReplaced,
        /// A notification was lost.
        NotificationLost,
        /// An operator deleted an entry of a leader.
        OperatorDeletedLeader,
        /// A leader's work was left behind by its caller.
        Abandoned,
        /// The publication of a value was applied, and the answer lost.
        PublishAnswerLost,
        /// Work outlived its lease.
        WorkOutlivedLease,
        /// Work that would not end lost its entry.
        StuckWorkLostEntry,
        /// A candidacy ended because the election did.
        Ended,
        /// A candidacy ended because the election was made anew.
        OtherGeneration,
        /// A process was paused beyond its window.
        PausedBeyondWindow,
        /// A candidate was told of a deletion that came after the end.
        DeletedAfterEnd,
        /// A candidate waited because the last tenure had not ended cleanly.
        WaitedTheDelay,
        /// The beginning of a tenure was recorded, and the answer lost.
        BeginAnswerLost,
        /// The owner deleted its entry after the tenure's work had gone on for too long.
        LeftUncleanly,
        /// A candidacy ended because the store's numbers had fallen.
        Regressed,
        /// A process gave up its session by itself, after a long silence of the servers.
        GaveUpSession,
        /// The election was still over when the faults stopped, and all candidates left.
        HealedEnded,
        /// A candidate led after the faults had stopped.
        HealedLed,
        /// A leader died after that, and the next in line led in time.
        FailedOver,
    }
}
