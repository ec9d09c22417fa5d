//! ZooKeeper's window.
//!
//! The leader expires sessions, and hears of those on other servers only with their replies to its pings, every
//! half tick (at most T/4, as long as `minSessionTimeout` is at least two ticks). An answer alone therefore proves
//! little. `until = S + T/R`, where S is the later of
//!
//! - the moment before the handshake that began this connection, once a write sent on it has been answered: the
//!   leader begins or revalidates the session in the handshake, and the write shows that it was the leader;
//! - the sending of the newest request that was answered at least T/4 before the sending of a write that has
//!   been answered, if everything on this connection was answered within Q = T/10, and the sendings in between
//!   were at most T/8 apart: a ping and its reply went by in the same streams as those writes.
//!
//! A request that is not answered within Q ends the connection ([`ZookeeperWindow::is_overdue`]), and no answer
//! of it counts afterwards.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Moment;
use crate::queue::Proof;
#[cfg(feature = "mutants")]
use crate::queue::mutant::Mutant;
use crate::timing::window_of;

/// What was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Answered by the server it was sent to.
    Read,
    /// Answered only once a quorum has taken it.
    Write,
}

/// What a ZooKeeper session has proven.
#[derive(Clone, Debug)]
pub struct ZookeeperWindow {
    ttl: Duration,
    /// The moment before this connection's handshake.
    began: Option<Moment>,
    /// Sent on this connection and not answered yet, in order: answers come in order too.
    sent: VecDeque<Sent>,
    /// Answered on this connection without a gap, oldest first, as far as a write may still prove them.
    answered: VecDeque<Answered>,
    last_sent: Option<Moment>,
    from: Option<Moment>,
    #[cfg(feature = "mutants")]
    broken: Option<Mutant>,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Moment,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
struct Answered {
    sent: Moment,
    answered: Moment,
}

impl ZookeeperWindow {
    /// A session of which nothing is proven yet, with the time-out that the server granted.
    #[must_use]
    pub fn new(ttl: Duration) -> ZookeeperWindow {
        ZookeeperWindow {
            ttl,
            began: None,
            sent: VecDeque::new(),
            answered: VecDeque::new(),
            last_sent: None,
            from: None,
            #[cfg(feature = "mutants")]
            broken: None,
        }
    }

    /// Breaks one rule, for the suite that must notice.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn broken(mut self, mutant: Option<Mutant>) -> ZookeeperWindow {
        self.broken = mutant;
        self
    }

    /// Q: a request that is not answered within this time ends the connection.
    #[must_use]
    pub fn request(&self) -> Duration {
        self.ttl / 10
    }

    /// A request, a write if anybody leads, leaves so long after the last.
    #[must_use]
    pub fn heartbeat(&self) -> Duration {
        self.ttl / 8
    }

    /// Bytes of a handshake that resumes or begins the session leave after this moment.
    pub fn connecting(&mut self, now: Moment) {
        self.disconnected();
        self.began = Some(now);
    }

    /// The connection is over. What it has proven stays proven; its answers count no more.
    pub fn disconnected(&mut self) {
        self.began = None;
        self.sent.clear();
        self.answered.clear();
        self.last_sent = None;
    }

    /// A request leaves after this moment.
    pub fn sent(&mut self, now: Moment, kind: Kind) {
        // A silence breaks the chain: pings may have stood still in it.
        let silent = self.last_sent.is_some_and(|last| now.at_most_since(last) > self.silence());
        if silent && !self.counts_silence() {
            self.answered.clear();
        }
        self.last_sent = Some(now);
        self.sent.push_back(Sent { at: now, kind });
    }

    /// The oldest request that was not answered has been, at this moment.
    pub fn answered(&mut self, now: Moment) {
        let Some(Sent { at, kind }) = self.sent.pop_front() else { return };
        if now.at_most_since(at) > self.request() && !self.counts_silence() {
            // Late: the owner ends this connection, and nothing of it counts.
            return self.disconnected();
        }
        match kind {
            Kind::Read => {}
            Kind::Write => self.proves(at),
        }
        self.answered.push_back(Answered { sent: at, answered: now });
    }

    /// Whether a request has waited too long, and the connection must end.
    #[must_use]
    pub fn is_overdue(&self, now: Moment) -> bool {
        self.until_overdue(now).is_some_and(|left| left.is_zero())
    }

    /// How long until the oldest request has waited too long.
    #[must_use]
    pub fn until_overdue(&self, now: Moment) -> Option<Duration> {
        let oldest = self.sent.front()?;
        let waited = now.at_most_since(oldest.at);
        Some((self.request() + Duration::from_nanos(1)).saturating_sub(waited))
    }

    /// How long until the next request should leave.
    #[must_use]
    pub fn until_heartbeat(&self, now: Moment) -> Duration {
        let since = self.last_sent.map_or(Duration::MAX, |last| now.at_most_since(last));
        self.heartbeat().saturating_sub(since)
    }

    /// What is proven.
    #[must_use]
    pub fn proof(&self) -> Option<Proof> {
        self.from.map(|from| Proof { from, window: window_of(self.ttl) })
    }

    /// A write sent at this moment was answered.
    fn proves(&mut self, written: Moment) {
        if self.counts_silence() {
            return self.raise(written);
        }
        if let Some(began) = self.began {
            self.raise(began);
        }
        let reported = self.reported();
        let due = |answered: &Answered| written.at_most_since(answered.answered) >= reported;
        let mut newest = None;
        while self.answered.front().is_some_and(due) {
            newest = self.answered.pop_front();
        }
        if let Some(newest) = newest {
            self.raise(newest.sent);
        }
    }

    /// Within this time a server reports to the leader what it heard: half a tick.
    fn reported(&self) -> Duration {
        #[cfg(feature = "mutants")]
        if self.broken == Some(Mutant::NewestAnswerCounts) {
            return Duration::ZERO;
        }
        self.ttl / 4
    }

    fn raise(&mut self, from: Moment) {
        self.from = Some(self.from.map_or(from, |known| known.max(from)));
    }

    /// Heartbeats are T/8 apart; a timer that fires a little late breaks no chain.
    fn silence(&self) -> Duration {
        self.ttl / 8 + self.ttl / 40
    }

    fn counts_silence(&self) -> bool {
        #[cfg(feature = "mutants")]
        return self.broken == Some(Mutant::SilentConnectionCounts);
        #[cfg(not(feature = "mutants"))]
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(8);

    fn at(millis: u64) -> Moment {
        Moment::default() + Duration::from_millis(millis)
    }

    fn from(window: &ZookeeperWindow) -> Option<Moment> {
        window.proof().map(|proof| proof.from)
    }

    /// A connection on which everything is answered 10 ms after it was sent, one a second.
    fn steady(kind: Kind, seconds: u64) -> ZookeeperWindow {
        let mut window = ZookeeperWindow::new(TTL);
        window.connecting(at(0));
        for second in 1..=seconds {
            window.sent(at(second * 1000), kind);
            window.answered(at(second * 1000 + 10));
        }
        window
    }

    #[test]
    fn a_handshake_counts_from_before_it_once_a_write_was_answered() {
        let mut window = steady(Kind::Read, 1);
        assert_eq!(from(&window), None, "reads prove nothing");
        window.sent(at(2000), Kind::Write);
        assert_eq!(from(&window), None, "nor does a write that is not answered");
        window.answered(at(2010));
        assert_eq!(from(&window), Some(at(0)));
        let proof = window.proof().expect("just proven");
        assert_eq!(proof.window, TTL * 4 / 5);
    }

    #[test]
    fn a_request_counts_once_a_write_sent_a_quarter_later_was_answered() {
        // Sent at 7 s, it proves what was answered by 5 s: the request of 4 s, not the one of 5.
        assert_eq!(from(&steady(Kind::Write, 7)), Some(at(4000)));
    }

    #[test]
    fn one_write_proves_the_reads_of_a_waiter() {
        let mut window = steady(Kind::Read, 20);
        assert_eq!(from(&window), None);
        window.sent(at(20_500), Kind::Write);
        window.answered(at(20_510));
        assert_eq!(from(&window), Some(at(18_000)));
    }

    #[test]
    fn a_silence_breaks_the_chain() {
        let mut window = steady(Kind::Write, 7);
        window.sent(at(12_000), Kind::Write);
        window.answered(at(12_010));
        assert_eq!(from(&window), Some(at(4000)), "pings may have stood still in between");
    }

    #[test]
    fn an_answer_that_is_late_proves_nothing_and_ends_the_connection() {
        let mut window = steady(Kind::Write, 7);
        window.sent(at(8000), Kind::Write);
        assert!(!window.is_overdue(at(8800)));
        assert!(window.is_overdue(at(8801)));
        window.answered(at(8900));
        assert_eq!(from(&window), Some(at(4000)));
    }

    #[test]
    fn answers_of_an_earlier_connection_prove_nothing_on_this_one() {
        let mut window = steady(Kind::Write, 7);
        window.sent(at(7500), Kind::Write);
        window.connecting(at(7600));
        window.answered(at(7610));
        assert_eq!(from(&window), Some(at(4000)));
        window.sent(at(7700), Kind::Write);
        window.answered(at(7710));
        assert_eq!(from(&window), Some(at(7600)), "the new handshake does");
    }
}
