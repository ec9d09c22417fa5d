//! etcd's window.
//!
//! A KeepAlive is answered by the member that believes it is the leader, and a deposed one believes so for a
//! while. `until = sending of a KeepAlive + granted TTL / R`, and it counts only once a linearizable get of one
//! of our keys, sent *after* its answer, shows the key ours and the same `raft_term`: then no other leader had
//! begun, with leases of its own, when the KeepAlive was taken.
//!
//! Answers carry no id. One KeepAlive is under way at a time, and a time-out abandons the stream
//! ([`EtcdWindow::abandoned`]).

use std::time::Duration;

use crate::clock::Moment;
use crate::queue::Proof;
#[cfg(feature = "mutants")]
use crate::queue::mutant::Mutant;
use crate::timing::window_of;

/// What an etcd lease has proven.
#[derive(Clone, Debug)]
pub struct EtcdWindow {
    ttl: Duration,
    stage: Stage,
    last_sent: Option<Moment>,
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
    },
    /// It was answered, and is to be confirmed by a get.
    Answered {
        sent: Moment,
        term: u64,
        ttl: Duration,
    },
    /// The get is under way.
    Confirming {
        sent: Moment,
        term: u64,
        ttl: Duration,
    },
}

impl EtcdWindow {
    /// A lease of which nothing is proven yet, with the TTL that was granted.
    #[must_use]
    pub fn new(ttl: Duration) -> EtcdWindow {
        EtcdWindow {
            ttl,
            stage: Stage::Idle,
            last_sent: None,
            proof: None,
            #[cfg(feature = "mutants")]
            broken: None,
        }
    }

    /// Breaks one rule, for the suite that must notice.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn broken(mut self, mutant: Option<Mutant>) -> EtcdWindow {
        self.broken = mutant;
        self
    }

    /// Q: what is not answered within this time is abandoned.
    #[must_use]
    pub fn request(&self) -> Duration {
        self.ttl / 10
    }

    /// A KeepAlive leaves so long after the last.
    #[must_use]
    pub fn heartbeat(&self) -> Duration {
        self.ttl / 6
    }

    /// How long until the next KeepAlive should leave; `None` while one is under way or unconfirmed.
    ///
    /// A next one would take the place of the last before it was confirmed, and where both round trips take
    /// longer than a heartbeat nothing would ever be proven.
    #[must_use]
    pub fn until_heartbeat(&self, now: Moment) -> Option<Duration> {
        let since = self.last_sent.map_or(Duration::MAX, |last| now.at_most_since(last));
        (self.stage == Stage::Idle).then(|| self.heartbeat().saturating_sub(since))
    }

    /// A KeepAlive leaves after this moment. Whatever was under way is abandoned.
    pub fn keep_alive_sent(&mut self, now: Moment) {
        self.last_sent = Some(now);
        self.stage = Stage::KeepingAlive { sent: now };
    }

    /// The KeepAlive was answered, in this term, with this TTL.
    pub fn keep_alive_answered(&mut self, term: u64, ttl: Duration) {
        let Stage::KeepingAlive { sent } = self.stage else { return };
        self.stage = Stage::Answered { sent, term, ttl };
        #[cfg(feature = "mutants")]
        if self.broken == Some(Mutant::DeposedKeepAliveCounts) {
            self.raise(Proof { from: sent, window: window_of(ttl) });
        }
    }

    /// A linearizable get of one of our keys leaves now.
    pub fn get_sent(&mut self) {
        if let Stage::Answered { sent, term, ttl } = self.stage {
            self.stage = Stage::Confirming { sent, term, ttl };
        }
    }

    /// The get was answered, in this term; `ours` says whether it showed the key with our lease.
    pub fn get_answered(&mut self, term: u64, ours: bool) {
        let Stage::Confirming { sent, term: kept, ttl } = self.stage else { return };
        self.stage = Stage::Idle;
        if ours && term == kept {
            self.raise(Proof { from: sent, window: window_of(ttl.min(self.ttl)) });
        }
    }

    /// What was under way was given up: none of its answers counts.
    pub fn abandoned(&mut self) {
        self.stage = Stage::Idle;
    }

    /// What is proven.
    #[must_use]
    pub fn proof(&self) -> Option<Proof> {
        self.proof
    }

    fn raise(&mut self, proof: Proof) {
        // An earlier KeepAlive may have been answered with a longer TTL; the newest says what holds now.
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

    fn confirmed(kept: u64, shown: u64, ours: bool) -> Option<Moment> {
        let mut window = EtcdWindow::new(TTL);
        window.keep_alive_sent(at(1));
        window.keep_alive_answered(kept, TTL);
        window.get_sent();
        window.get_answered(shown, ours);
        window.proof().map(|proof| proof.from)
    }

    #[test]
    fn a_keep_alive_counts_from_its_sending_once_a_get_shows_the_same_term_and_our_key() {
        assert_eq!(confirmed(4, 4, true), Some(at(1)));
        assert_eq!(confirmed(4, 5, true), None, "a deposed leader answered it");
        assert_eq!(confirmed(4, 4, false), None, "the key is not ours any more");
    }

    #[test]
    fn a_get_that_was_sent_before_the_answer_proves_nothing() {
        let mut window = EtcdWindow::new(TTL);
        window.keep_alive_sent(at(1));
        window.get_sent();
        window.keep_alive_answered(4, TTL);
        window.get_answered(4, true);
        assert_eq!(window.proof(), None);
    }

    #[test]
    fn the_next_keep_alive_waits_until_the_last_is_confirmed() {
        let mut window = EtcdWindow::new(TTL);
        assert_eq!(window.until_heartbeat(at(1)), Some(Duration::ZERO));
        window.keep_alive_sent(at(1));
        window.keep_alive_answered(4, TTL);
        window.get_sent();
        assert_eq!(window.until_heartbeat(at(9)), None);
        window.get_answered(4, true);
        assert_eq!(window.until_heartbeat(at(2)), Some(TTL / 6 - Duration::from_secs(1)));
    }

    #[test]
    fn the_server_may_grant_less_than_was_asked_for() {
        let mut window = EtcdWindow::new(TTL);
        window.keep_alive_sent(at(1));
        window.keep_alive_answered(4, Duration::from_secs(5));
        window.get_sent();
        window.get_answered(4, true);
        assert_eq!(window.proof(), Some(Proof { from: at(1), window: Duration::from_secs(4) }));
    }

    #[test]
    fn the_answer_of_an_abandoned_stream_is_not_taken_for_the_next_ones() {
        let mut window = EtcdWindow::new(TTL);
        window.keep_alive_sent(at(1));
        window.abandoned();
        window.keep_alive_answered(4, TTL);
        window.get_sent();
        window.get_answered(4, true);
        assert_eq!(window.proof(), None);
    }
}
