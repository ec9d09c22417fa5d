//! The window of a lease that proves life only in the term it was granted in, as in etcd.
//!
//! The member that believes it is the leader answers a KeepAlive, and a deposed leader believes so
//! for a while. `until = sending of a KeepAlive + granted TTL / R`. It counts only once a
//! linearizable get of one of our keys, sent *after* its answer, shows that the key is ours and
//! shows the same `raft_term`. That proves that no other leader had begun, with leases of its own,
//! when the KeepAlive was taken.
//!
//! The term in an answer is the term of the connected member at the time of its answer. But that
//! member may have passed the KeepAlive on to a leader that was deposed long ago, just before the
//! member heard of the new one. So a KeepAlive counts only if the member was in that term *before*,
//! too: an earlier KeepAlive on the same stream was answered in it. A member that is in a term
//! passes nothing on to leaders of earlier terms. The first KeepAlive on a stream proves nothing,
//! and another follows at once.
//!
//! A leader that was deposed while it stood still goes on counting when it wakes up. It revokes
//! every lease that was not prolonged at *this leader* for the TTL, no matter how often its
//! successor prolonged it (etcd issue 15247; a member that has just ticked skips the check added in
//! 3.5.13, and 3.7.3 was seen to do it). A leader can only revoke leases that it knows. So a
//! KeepAlive counts only in the term in which the lease was granted ([`LeaseTermWindow::leased`]).
//! The leaders of earlier terms have never heard of that lease. The leader of this term counts at
//! least as long as we do. Leaders of later terms begin anew. In any other term,
//! [`LeaseTermWindow::outdated`] says that everything has to move to another lease first.
//!
//! Answers carry no id. One KeepAlive is under way at a time, and a time-out abandons the stream
//! ([`LeaseTermWindow::abandoned`]).

use std::time::Duration;

use crate::clock::Moment;
use crate::queue::Proof;
use crate::queue::mutant::Mutant;
use crate::timing::window_of;

/// The life that an etcd lease has proven.
#[derive(Clone, Debug)]
pub struct LeaseTermWindow {
    ttl: Duration,
    stage: Stage,
    last_sent: Option<Moment>,
    /// The term of the newest answered KeepAlive on this stream.
    known: Option<u64>,
    /// The last KeepAlive proved nothing, because no term was known before it.
    again: bool,
    /// The term of an answer that had come before the lease was asked for.
    leased: Option<u64>,
    /// A newer term, in which the lease proves nothing.
    outdated: Option<u64>,
    proof: Option<Proof>,
    #[cfg(feature = "mutants")]
    broken: Option<Mutant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    /// A KeepAlive is under way.
    KeepingAlive {
        sent: Moment,
        known: Option<u64>,
    },
    /// The KeepAlive was answered, and must be confirmed by a get.
    Answered(Answered),
    /// The get is under way.
    Confirming(Answered),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answered {
    sent: Moment,
    /// The term that was known before the KeepAlive was sent.
    known: Option<u64>,
    term: u64,
    ttl: Duration,
}

impl LeaseTermWindow {
    /// Creates a lease with the granted TTL, and nothing proven yet.
    #[must_use]
    pub fn new(ttl: Duration) -> LeaseTermWindow {
        LeaseTermWindow {
            ttl,
            stage: Stage::Idle,
            last_sent: None,
            known: None,
            again: false,
            leased: None,
            outdated: None,
            proof: None,
            #[cfg(feature = "mutants")]
            broken: None,
        }
    }

    /// Breaks one rule, to test that the suite notices.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn broken(mut self, mutant: Option<Mutant>) -> LeaseTermWindow {
        self.broken = mutant;
        self
    }

    /// Notes that all keys stand under a lease that was asked for after an answer in this term.
    ///
    /// The term in an answer is that of the newest entry its member has applied, so a quorum has
    /// agreed in that term. From then on, no leader of an earlier term can have a new lease
    /// granted.
    pub fn leased(&mut self, term: u64) {
        self.leased = Some(term);
        // The proof of the former lease stays valid: all keys were under that lease until just now.
        self.outdated = None;
        self.again = true;
    }

    /// The term that has begun in which this lease proves nothing.
    ///
    /// Another lease has to be asked for, and all keys moved to it.
    #[must_use]
    pub fn outdated(&self) -> Option<u64> {
        self.outdated
    }

    /// Q: a request that is not answered within this time is abandoned.
    #[must_use]
    pub fn request(&self) -> Duration {
        self.ttl / 10
    }

    /// The time between two KeepAlives.
    #[must_use]
    pub fn heartbeat(&self) -> Duration {
        self.ttl / 6
    }

    /// How long until the next KeepAlive should leave.
    ///
    /// `None` while a KeepAlive is under way or unconfirmed.
    ///
    /// Another KeepAlive would replace the last one before it was confirmed. If both round trips
    /// take longer than a heartbeat, nothing would ever be proven.
    #[must_use]
    pub fn until_heartbeat(&self, now: Moment) -> Option<Duration> {
        let since = self.last_sent.map_or(Duration::MAX, |last| now.at_most_since(last));
        let span = if self.again { Duration::ZERO } else { self.heartbeat() };
        (self.stage == Stage::Idle).then(|| span.saturating_sub(since))
    }

    /// Notes that a KeepAlive leaves after this moment. Any request under way is abandoned.
    pub fn keep_alive_sent(&mut self, now: Moment) {
        self.last_sent = Some(now);
        self.again = false;
        self.stage = Stage::KeepingAlive { sent: now, known: self.known };
    }

    /// Notes that the KeepAlive was answered, in this term, with this TTL.
    pub fn keep_alive_answered(&mut self, term: u64, ttl: Duration) {
        let Stage::KeepingAlive { sent, known } = self.stage else { return };
        self.known = Some(term);
        self.stage = Stage::Answered(Answered { sent, known, term, ttl });
        if self.is(Mutant::DeposedKeepAliveCounts) {
            self.raise(Proof { from: sent, window: window_of(ttl) });
        }
    }

    /// Notes that a linearizable get of one of our keys leaves now.
    pub fn get_sent(&mut self) {
        if let Stage::Answered(answered) = self.stage {
            self.stage = Stage::Confirming(answered);
        }
    }

    /// Notes that the get was answered in this term.
    ///
    /// `ours` is true if it showed the key with our lease.
    pub fn get_answered(&mut self, term: u64, ours: bool) {
        let Stage::Confirming(Answered { sent, known, term: kept, ttl }) = self.stage else {
            return;
        };
        self.stage = Stage::Idle;
        self.again = known != Some(kept);
        let same = term == kept || self.is(Mutant::LaterTermConfirms);
        if !(ours && same && known == Some(kept)) {
            return;
        }
        if self.counts_in(kept) {
            self.raise(Proof { from: sent, window: window_of(ttl.min(self.ttl)) });
        } else {
            self.outdated = Some(kept);
        }
    }

    /// Returns true if no leader of an earlier term knows the lease.
    fn counts_in(&self, term: u64) -> bool {
        self.leased == Some(term) || self.is(Mutant::LeaseOfEarlierTermCounts)
    }

    fn is(&self, mutant: Mutant) -> bool {
        #[cfg(feature = "mutants")]
        return self.broken == Some(mutant);
        #[cfg(not(feature = "mutants"))]
        {
            let _ = mutant;
            false
        }
    }

    /// Notes that the requests under way were given up: none of their answers counts.
    pub fn abandoned(&mut self) {
        self.stage = Stage::Idle;
        // The next stream may lead to another member.
        self.known = None;
        self.again = false;
    }

    /// The newest proof.
    #[must_use]
    pub fn proof(&self) -> Option<Proof> {
        self.proof
    }

    fn raise(&mut self, proof: Proof) {
        // An earlier KeepAlive may have been answered with a longer TTL; the newest answer is valid
        // now.
        self.proof = Some(proof);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Moment {
        Moment::default() + Duration::from_secs(seconds)
    }

    /// A window of a lease that was granted in this term, on a stream to a member in this term.
    fn in_term(term: u64) -> LeaseTermWindow {
        let mut window = LeaseTermWindow::new(TTL);
        window.leased(term);
        window.keep_alive_sent(at(0));
        window.keep_alive_answered(term, TTL);
        window.get_sent();
        window.get_answered(term, true);
        assert_eq!(window.proof(), None, "nothing was known before");
        assert_eq!(window.until_heartbeat(at(0)), Some(Duration::ZERO), "another at once");
        window
    }

    fn confirmed(before: u64, kept: u64, shown: u64, ours: bool) -> Option<Moment> {
        let mut window = in_term(before);
        window.keep_alive_sent(at(1));
        window.keep_alive_answered(kept, TTL);
        window.get_sent();
        window.get_answered(shown, ours);
        window.proof().map(|proof| proof.from)
    }

    #[test]
    fn a_keep_alive_counts_from_its_sending_once_a_get_shows_the_same_term_and_our_key() {
        assert_eq!(confirmed(4, 4, 4, true), Some(at(1)));
        assert_eq!(confirmed(4, 4, 5, true), None, "a deposed leader answered it");
        assert_eq!(confirmed(4, 4, 4, false), None, "the key is not ours any more");
    }

    #[test]
    fn a_keep_alive_during_which_the_term_changed_may_have_gone_to_the_deposed_leader() {
        assert_eq!(confirmed(3, 4, 4, true), None);
    }

    /// One complete round in this term, after this many seconds.
    fn round(window: &mut LeaseTermWindow, seconds: u64, term: u64) {
        window.keep_alive_sent(at(seconds));
        window.keep_alive_answered(term, TTL);
        window.get_sent();
        window.get_answered(term, true);
    }

    #[test]
    fn a_lease_that_an_earlier_leader_knows_proves_nothing_until_everything_moved_to_another() {
        let mut window = in_term(4);
        round(&mut window, 1, 4);
        let proven = Some(Proof { from: at(1), window: TTL * 4 / 5 });
        assert_eq!((window.proof(), window.outdated()), (proven, None));
        round(&mut window, 2, 5);
        assert_eq!(window.outdated(), None, "the member may just have heard of that term");
        round(&mut window, 3, 5);
        assert_eq!((window.proof(), window.outdated()), (proven, Some(5)));
        window.leased(5);
        assert_eq!((window.proof(), window.outdated()), (proven, None));
        assert_eq!(window.until_heartbeat(at(3)), Some(Duration::ZERO), "proven as soon as can be");
        round(&mut window, 4, 5);
        assert_eq!(window.proof().map(|proof| proof.from), Some(at(4)));
    }

    #[test]
    fn a_lease_of_which_nobody_knows_when_it_was_granted_proves_nothing() {
        let mut window = LeaseTermWindow::new(TTL);
        round(&mut window, 1, 4);
        round(&mut window, 2, 4);
        assert_eq!((window.proof(), window.outdated()), (None, Some(4)));
    }

    #[test]
    fn a_get_that_was_sent_before_the_answer_proves_nothing() {
        let mut window = in_term(4);
        window.keep_alive_sent(at(1));
        window.get_sent();
        window.keep_alive_answered(4, TTL);
        window.get_answered(4, true);
        assert_eq!(window.proof(), None);
    }

    #[test]
    fn the_next_keep_alive_waits_until_the_last_is_confirmed() {
        let mut window = LeaseTermWindow::new(TTL);
        assert_eq!(window.until_heartbeat(at(1)), Some(Duration::ZERO));
        window = in_term(4);
        window.keep_alive_sent(at(1));
        window.keep_alive_answered(4, TTL);
        window.get_sent();
        assert_eq!(window.until_heartbeat(at(9)), None);
        window.get_answered(4, true);
        assert_eq!(window.until_heartbeat(at(2)), Some(TTL / 6 - Duration::from_secs(1)));
    }

    #[test]
    fn the_server_may_grant_less_than_was_asked_for() {
        let mut window = in_term(4);
        window.keep_alive_sent(at(1));
        window.keep_alive_answered(4, Duration::from_secs(5));
        window.get_sent();
        window.get_answered(4, true);
        assert_eq!(window.proof(), Some(Proof { from: at(1), window: Duration::from_secs(4) }));
    }

    /// The next stream may lead to a member that has not heard of the term.
    ///
    /// That member passes requests on to the deposed leader.
    #[test]
    fn the_first_keep_alive_of_another_stream_proves_nothing_although_the_term_was_known() {
        let mut window = in_term(4);
        round(&mut window, 1, 4);
        window.abandoned();
        round(&mut window, 2, 4);
        assert_eq!(window.proof().map(|proof| proof.from), Some(at(1)));
        assert_eq!(window.until_heartbeat(at(2)), Some(Duration::ZERO), "another at once");
        round(&mut window, 3, 4);
        assert_eq!(window.proof().map(|proof| proof.from), Some(at(3)));
    }

    #[test]
    fn the_answer_of_an_abandoned_stream_is_not_taken_for_the_next_ones() {
        let mut window = in_term(4);
        window.keep_alive_sent(at(1));
        window.abandoned();
        assert_eq!(window.until_heartbeat(at(9)), Some(Duration::ZERO));
        window.keep_alive_answered(4, TTL);
        window.get_sent();
        window.get_answered(4, true);
        assert_eq!(window.proof(), None);
    }
}
