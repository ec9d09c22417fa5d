//! The window of a session that the order of streams between servers proves, as in ZooKeeper.
//!
//! The leader of the servers expires sessions. It hears of sessions on other servers only through
//! their replies to its pings. It pings every half tick (at most T/4, as long as
//! `minSessionTimeout` is at least two ticks). So an answer alone proves little: the reply that
//! reports the session may be stuck. But the streams between servers keep their order. The session
//! is proven until S + T/R, where S is the later of
//!
//! - the moment before the handshake that began this connection, once a write sent on it has been
//!   answered: the leader begins or revalidates the session in the handshake, and the write shows
//!   that it was the leader;
//! - the sending of the newest request that is *known to be reported*, once a write sent since then
//!   was answered.
//!
//! A request is known to be reported after two more requests that the leader itself must answer (a
//! sync or a write). The first is sent at least R·T/4 after the request's answer, and the second
//! after the first one's answer. Both must have been answered.
//!
//! # Why
//! Call the request A, the second X and the third Y. All belong to one connection, so to one
//! server, and to one leader: a server that changes its leader closes its connections.
//! 1. Between A's answer and X's sending, R·T/4 of our clock passed. That is at least T/4 of the
//!    leader's clock, so the leader sent a ping to our server in between.
//! 2. X reached the leader after that ping had left. So X's answer follows the ping on the stream
//!    to our server, and the server has taken the ping when it takes the answer. It replied to the
//!    ping then. It had answered A before, so A was in that reply or in an earlier one.
//! 3. Y was sent after X's answer had reached us, so it follows that reply on the stream to the
//!    leader. When Y is answered, the leader has read the reply: it heard of the session later than
//!    A was sent, and counts T from there.
//! 4. A write sent after A was answered, so this leader still had a quorum after A was sent. If
//!    another leader was elected since, it gave every session its whole time when it began, which
//!    is later than A's sending too. If not, only this leader can expire the session.
//!
//! The proof needs no bound on delays, nor on how fast answers come. (PROTOCOL.md's first rule took
//! one answered write T/4 after the request, without a third request: the reply could still be
//! stuck behind it, and the simulation found a session that expired in its window. It also measured
//! T/4 by our own clock, which may be the faster one. Both are mutants now: `OneAnswerCounts` and
//! `PingByOwnClock`.)
//!
//! # Assumptions
//! The leader sends its pings on time, by a clock within R of ours. Sessions are global: with
//! `localSessionsEnabled` the leader hears of a session only once the session has made an entry.
//!
//! # Inputs from the backend
//! *Every* request of the connection that is answered in order, the backend's own pings included.
//! Each is noted as it leaves ([`StreamOrderWindow::sent`], with the clock read before the first
//! byte) and as its answer is read ([`StreamOrderWindow::answered`], in the order of the answers,
//! which is that of the requests):
//! - reads, watches that are set by reads, and the client's pings are [`Kind::Read`];
//! - `sync` is [`Kind::Sync`];
//! - `create`, `delete`, `setData` and `multi` are [`Kind::Write`].
//!
//! Each answer has a [`Voice`]. The voice is [`Voice::Ensemble`] for a write that succeeded, and
//! for a write that the leader refused for its findings (no node, node exists, bad version, not
//! empty): the leader proposes such a refusal as an error, and a quorum takes it. The same holds
//! for a `multi` without an error in its header, and for a `sync` that succeeded. Any other refusal
//! is [`Voice::OneServer`], and counts as a read. A server that is cut off refuses by itself: it
//! throttles requests and, with `enableEagerACLCheck`, refuses writes for lack of permission. If a
//! server refuses a write before its turn, the backend reports it with
//! [`StreamOrderWindow::overtaken`].
//!
//! Notifications are not answers. "Session expired" and "session moved" are not answers either:
//! they end the connection. In doubt, report a read, which proves nothing by itself.
//!
//! A request that is not answered within Q ends the connection ([`StreamOrderWindow::is_overdue`]),
//! and no answer of that connection counts afterwards.
//!
//! # How long a window is
//! A leading session sends a request every T/16. So A's proof comes about 0.44 T and two round
//! trips after its sending, and the next proof T/16 later. Of W = 0.8 T that leaves 0.3 T at any
//! moment; B is T/10 of it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Moment;
#[cfg(feature = "mutants")]
use crate::queue::mutant::Mutant;
use crate::queue::{Pace, Proof};
use crate::timing::{RATE_DENOMINATOR, RATE_NUMERATOR, window_of};

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Answered by the server that received it: any read, and the client's own ping.
    Read,
    /// Answered by the leader, in the order of the streams (`sync`).
    ///
    /// It need not be written.
    Sync,
    /// Answered only once a quorum has taken it, even as an error: create, delete, set, multi.
    Write,
}

/// The origin of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Voice {
    /// The answer proves all that its kind can prove.
    ///
    /// The leader answered a sync, or a quorum took a write.
    Ensemble,
    /// One server may have refused by itself: the answer proves no more than a read.
    OneServer,
}

/// The life that a ZooKeeper session has proven.
#[derive(Clone, Debug)]
pub struct StreamOrderWindow {
    ttl: Duration,
    /// The moment before this connection's handshake.
    began: Option<Moment>,
    /// Requests sent on this connection and not answered yet, in order. Answers come in the same
    /// order.
    sent: VecDeque<Sent>,
    /// Requests answered on this connection that a write may still prove, oldest first.
    answered: VecDeque<Answered>,
    /// A request known to be in our server's reply to a ping, until that reply has arrived.
    reported: Option<Reported>,
    /// The newest request in a reply that has arrived at the leader.
    arrived: Option<Moment>,
    /// When the newest answered write was sent.
    written: Option<Moment>,
    last_sent: Option<Moment>,
    last_write: Option<Moment>,
    /// When the last heartbeat that writes was asked for.
    last_try: Option<Moment>,
    /// One server refused a write, and no quorum has taken a write since.
    is_refused: bool,
    count: u64,
    from: Option<Moment>,
    #[cfg(feature = "mutants")]
    broken: Option<Mutant>,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Moment,
    kind: Kind,
    number: u64,
}

#[derive(Clone, Copy, Debug)]
struct Answered {
    sent: Moment,
    answered: Moment,
}

#[derive(Clone, Copy, Debug)]
struct Reported {
    from: Moment,
    /// How many requests had been sent when that was known. Later requests follow the reply.
    after: u64,
}

impl StreamOrderWindow {
    /// Creates a session with the time-out that the server granted, and nothing proven yet.
    #[must_use]
    pub fn new(ttl: Duration) -> StreamOrderWindow {
        StreamOrderWindow {
            ttl,
            began: None,
            sent: VecDeque::new(),
            answered: VecDeque::new(),
            reported: None,
            arrived: None,
            written: None,
            last_sent: None,
            last_write: None,
            last_try: None,
            is_refused: false,
            count: 0,
            from: None,
            #[cfg(feature = "mutants")]
            broken: None,
        }
    }

    /// Breaks one rule, to test that the suite notices.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn broken(mut self, mutant: Option<Mutant>) -> StreamOrderWindow {
        self.broken = mutant;
        self
    }

    /// Q: a request that is not answered within this time ends the connection.
    #[must_use]
    pub fn request(&self) -> Duration {
        self.ttl / 10
    }

    /// How long after the last request the next one leaves, at this pace.
    #[must_use]
    pub fn heartbeat(&self, pace: Pace) -> Duration {
        match pace {
            Pace::Waiting => self.ttl / 8,
            Pace::Leading => self.ttl / 16,
        }
    }

    /// The kind of the heartbeat that leaves now.
    ///
    /// A leading session writes every T/8, and syncs in between.
    #[must_use]
    pub fn beat(&mut self, now: Moment, pace: Pace) -> Kind {
        match pace {
            Pace::Waiting => Kind::Read,
            Pace::Leading if self.until_write(now).is_zero() => {
                self.last_try = Some(now);
                Kind::Write
            }
            Pace::Leading => Kind::Sync,
        }
    }

    /// Notes that a handshake that resumes or begins the session leaves after this moment.
    pub fn connecting(&mut self, now: Moment) {
        self.disconnected();
        self.began = Some(now);
    }

    /// Notes that the connection is over.
    ///
    /// Its proofs stay valid; its outstanding answers count no more.
    pub fn disconnected(&mut self) {
        self.began = None;
        self.sent.clear();
        // The next handshake is later than all of these, so none of them could prove more than it
        // does. They are cleared all the same, so that a reader need not work that out.
        self.answered.clear();
        self.reported = None;
        self.arrived = None;
        self.written = None;
        self.last_sent = None;
        self.last_write = None;
        self.last_try = None;
        self.is_refused = false;
    }

    /// Notes that a request leaves after this moment.
    pub fn sent(&mut self, now: Moment, kind: Kind) {
        self.last_sent = Some(now);
        self.count += 1;
        if kind == Kind::Write {
            self.last_write = Some(now);
        }
        self.sent.push_back(Sent { at: now, kind, number: self.count });
    }

    /// Notes that the oldest unanswered request was answered at this moment by this voice.
    pub fn answered(&mut self, now: Moment, voice: Voice) {
        let Some(Sent { at, kind, number }) = self.sent.pop_front() else { return };
        let kind = match voice {
            Voice::OneServer if !self.is_broken(Broken::Refusal) => {
                self.is_refused |= kind == Kind::Write;
                Kind::Read
            }
            Voice::OneServer | Voice::Ensemble => kind,
        };
        match kind {
            Kind::Read if self.is_broken(Broken::Read) => self.follows(at, number),
            Kind::Read => {}
            Kind::Sync if self.is_broken(Broken::Sync) => {
                self.follows(at, number);
                self.writes(at);
            }
            Kind::Sync => self.follows(at, number),
            Kind::Write => {
                self.follows(at, number);
                self.writes(at);
            }
        }
        self.answered.push_back(Answered { sent: at, answered: now });
        if let Some(arrived) = self.arrived
            && (self.written.is_some_and(|written| written >= arrived)
                || self.is_broken(Broken::Unwritten))
        {
            self.raise(arrived);
        }
    }

    /// Notes that one server refused a request before its turn.
    ///
    /// `place` is its place among the unanswered requests.
    ///
    /// The other requests keep their order; this one counts for nothing.
    pub fn overtaken(&mut self, place: usize) {
        if let Some(Sent { kind, .. }) = self.sent.remove(place) {
            self.is_refused |= kind == Kind::Write;
        }
    }

    /// Returns true if a request has waited too long, so that the connection must end.
    #[must_use]
    pub fn is_overdue(&self, now: Moment) -> bool {
        self.until_overdue(now).is_some_and(|left| left.is_zero())
    }

    /// How long until the oldest request has waited too long.
    #[must_use]
    pub fn until_overdue(&self, now: Moment) -> Option<Duration> {
        let waited = self.waited(now)?;
        Some((self.request() + Duration::from_nanos(1)).saturating_sub(waited))
    }

    /// How long the oldest request has waited.
    ///
    /// For a session that needs no proof at the moment: it may wait for longer than Q, as long as
    /// enough of the session's time is left to go on elsewhere.
    #[must_use]
    pub fn waited(&self, now: Moment) -> Option<Duration> {
        self.sent.front().map(|oldest| now.at_most_since(oldest.at))
    }

    /// How long until the next request should leave.
    #[must_use]
    pub fn until_heartbeat(&self, now: Moment, pace: Pace) -> Duration {
        let since = self.last_sent.map_or(Duration::MAX, |last| now.at_most_since(last));
        self.heartbeat(pace).saturating_sub(since)
    }

    /// How long until a leading session writes again: T/8 after the last write.
    ///
    /// A write that one server refuses does not count: neither it nor other writes under way put
    /// off the next heartbeat. But the server may have refused it because of overload, so at least
    /// T/16 passes between two heartbeats that write.
    #[must_use]
    pub fn until_write(&self, now: Moment) -> Duration {
        let left = |span: Duration, last: Option<Moment>| {
            span.saturating_sub(last.map_or(Duration::MAX, |last| now.at_most_since(last)))
        };
        let last = if self.is_refused { self.written } else { self.last_write };
        left(self.ttl / 8, last).max(left(self.ttl / 16, self.last_try))
    }

    /// The newest proof.
    #[must_use]
    pub fn proof(&self) -> Option<Proof> {
        self.from.map(|from| Proof { from, window: window_of(self.ttl) })
    }

    /// Notes that a write sent at this moment was answered: its leader really was the leader.
    fn writes(&mut self, sent: Moment) {
        self.written = Some(sent);
        self.is_refused = false;
        if self.is_broken(Broken::Silence) {
            self.raise(sent);
        } else if let Some(began) = self.began {
            self.raise(began);
        }
    }

    /// Notes that the leader answered a request sent at this moment.
    ///
    /// Everything that the leader sent us before has arrived, and so has everything that our server
    /// sent to the leader before.
    fn follows(&mut self, sent: Moment, number: u64) {
        let under_way = self.is_broken(Broken::UnderWay);
        let follows = |reported: &mut Reported| number > reported.after || under_way;
        if let Some(reported) = self.reported.take_if(follows) {
            self.arrived = Some(reported.from);
        }
        let ping = self.ping();
        let due = |answered: &Answered| sent.at_least_since(answered.answered) >= ping;
        let mut newest = None;
        while self.answered.front().is_some_and(due) {
            newest = self.answered.pop_front();
        }
        let Some(newest) = newest else { return };
        if self.is_broken(Broken::Third) {
            self.arrived = Some(newest.sent);
        }
        self.reported.get_or_insert(Reported { from: newest.sent, after: self.count });
    }

    /// The time of our clock within which the leader sends a ping: half a tick of its own.
    fn ping(&self) -> Duration {
        if self.is_broken(Broken::Quarter) {
            Duration::ZERO
        } else if self.is_broken(Broken::Rate) {
            self.ttl / 4
        } else {
            self.ttl / 4 * RATE_NUMERATOR / RATE_DENOMINATOR
        }
    }

    fn raise(&mut self, from: Moment) {
        self.from = Some(self.from.map_or(from, |known| known.max(from)));
    }

    fn is_broken(&self, broken: Broken) -> bool {
        #[cfg(feature = "mutants")]
        {
            self.broken
                == Some(match broken {
                    Broken::Silence => Mutant::SilentConnectionCounts,
                    Broken::Quarter => Mutant::NewestAnswerCounts,
                    Broken::Rate => Mutant::PingByOwnClock,
                    Broken::Third => Mutant::OneAnswerCounts,
                    Broken::Refusal => Mutant::RefusalCounts,
                    Broken::UnderWay => Mutant::RequestUnderWayCounts,
                    Broken::Unwritten => Mutant::ArrivalNeedsNoWrite,
                    Broken::Sync => Mutant::SyncCountsAsWrite,
                    Broken::Read => Mutant::ReadCountsAsSync,
                })
        }
        #[cfg(not(feature = "mutants"))]
        {
            let _ = broken;
            false
        }
    }
}

/// A rule that the suite may break.
#[derive(Clone, Copy, Debug)]
enum Broken {
    Silence,
    Quarter,
    Rate,
    Third,
    Refusal,
    UnderWay,
    Unwritten,
    Sync,
    Read,
}

#[cfg(test)]
mod tests;
