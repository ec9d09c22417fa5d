//! ZooKeeper's window.
//!
//! The leader of the servers expires sessions. Of those on other servers it hears only with their
//! replies to its pings, every half tick (at most T/4, as long as `minSessionTimeout` is at least
//! two ticks), so an answer alone proves little: the reply that would report it may be stuck. But
//! the streams between servers keep their order. `until = S + T/R`, where S is the later of
//!
//! - the moment before the handshake that began this connection, once a write sent on it has been
//!   answered: the leader begins or revalidates the session in the handshake, and the write shows
//!   that it was the leader;
//! - the sending of the newest request that is *known to be reported*, once a write sent since was
//!   answered.
//!
//! A request is known to be reported when something sent at least R·T/4 after its answer, which the
//! leader itself must answer (a sync or a write), was answered, and then another such request, sent
//! after that answer, was too.
//!
//! # Why
//! Call the request A, the second X and the third Y; all are of one connection, so of one server,
//! and of one leader: a server that changes its leader closes its connections.
//! 1. Between A's answer and X's sending R·T/4 of our clock passed, which is at least T/4 of the
//!    leader's: it sent a ping to our server in between.
//! 2. X reached the leader after that ping had left, so X's answer follows the ping on the stream
//!    to our server, which has taken the ping when it takes the answer. It replied to the ping
//!    then, and A, which it had answered before, was in that reply or in an earlier one.
//! 3. Y was sent after X's answer had reached us, so it follows that reply on the stream to the
//!    leader. When Y is answered, the leader has read the reply: it heard of the session, later
//!    than A was sent, and counts T from there.
//! 4. A write that was sent after A was answered, so this leader still had a quorum after A was
//!    sent. If another was elected since, that one gave every session its whole time when it began,
//!    which is later than A's sending too. If none was, only this one can expire the session.
//!
//! No bound on delays is needed, nor one on how fast answers come. (PROTOCOL.md's first rule took
//! one answered write T/4 after the request, with no third: the reply could still be stuck behind
//! it, and the simulation found a session that expired in its window. It also let T/4 pass by our
//! own clock, which may be the faster one. Both are mutants now: `OneAnswerCounts` and
//! `PingByOwnClock`.)
//!
//! # What is relied on
//! The leader sends its pings on time, by a clock within R of ours. Sessions are global: with
//! `localSessionsEnabled` the leader hears of a session only once it has made an entry.
//!
//! # What a backend feeds it
//! *Every* request of the connection that is answered in order, its own pings included, as it
//! leaves ([`ZookeeperWindow::sent`], with the clock read before the first byte) and as its answer
//! is read ([`ZookeeperWindow::answered`], in the order of the answers, which is that of the
//! requests):
//! - reads, watches that are set by reads, and the client's pings are [`Kind::Read`];
//! - `sync` is [`Kind::Sync`];
//! - `create`, `delete`, `setData` and `multi` are [`Kind::Write`].
//!
//! Each answer has a [`Voice`]. A write that succeeded, and one that was refused for what the
//! leader found (no node, node exists, bad version, not empty), is [`Voice::Ensemble`]: the leader
//! proposes such a refusal as an error, and a quorum takes it. So is a `multi` whose header carries
//! no error, and a `sync` that succeeded. Any other refusal is [`Voice::OneServer`]: a server that
//! is cut off throttles requests and, with `enableEagerACLCheck`, refuses writes for want of
//! permission, all by itself. It counts as a read. A server that refuses a write before its turn is
//! told apart by [`ZookeeperWindow::overtaken`].
//!
//! Notifications are no answers. "Session expired" and "session moved" are none either: they end
//! the connection. In doubt it is a read, which proves nothing by itself.
//!
//! A request that is not answered within Q ends the connection ([`ZookeeperWindow::is_overdue`]),
//! and no answer of it counts afterwards.
//!
//! # How long a window is
//! A leading session sends something every T/16, so A's proof comes about 0.44 T and two round
//! trips after its sending, the next one T/16 later. Of W = 0.8 T that leaves 0.3 T at any moment;
//! B is T/10 of it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Moment;
#[cfg(feature = "mutants")]
use crate::queue::mutant::Mutant;
use crate::queue::{Pace, Proof};
use crate::timing::{RATE_DENOMINATOR, RATE_NUMERATOR, window_of};

/// What was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Answered by the server it was sent to: any read, and the client's own ping.
    Read,
    /// Answered by the leader, in the order of the streams; it need not be written (`sync`).
    Sync,
    /// Answered only once a quorum has taken it, be it as an error: create, delete, set, multi.
    Write,
}

/// Whose word an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Voice {
    /// It proves what its kind can prove: the leader answered a sync, a quorum took a write.
    Ensemble,
    /// A server may have refused it without asking the others: it proves no more than a read.
    OneServer,
}

/// What a ZooKeeper session has proven.
#[derive(Clone, Debug)]
pub struct ZookeeperWindow {
    ttl: Duration,
    /// The moment before this connection's handshake.
    began: Option<Moment>,
    /// Sent on this connection and not answered yet, in order: answers come in order too.
    sent: VecDeque<Sent>,
    /// Answered on this connection, oldest first, as far as a write may still prove them.
    answered: VecDeque<Answered>,
    /// A request in a reply to a ping that was sent, and after which of ours.
    reported: Option<Reported>,
    /// The newest request in a reply that has arrived.
    arrived: Option<Moment>,
    /// When the newest write that was answered was sent.
    written: Option<Moment>,
    last_sent: Option<Moment>,
    last_write: Option<Moment>,
    /// When the last heartbeat that writes was asked for.
    last_try: Option<Moment>,
    /// One server refused a write, and no quorum has taken one since.
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
    /// How many had been sent when that was known: what follows the reply is sent later.
    after: u64,
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

    /// How long after the last request the next leaves, at this pace.
    #[must_use]
    pub fn heartbeat(&self, pace: Pace) -> Duration {
        match pace {
            Pace::Waiting => self.ttl / 8,
            Pace::Leading => self.ttl / 16,
        }
    }

    /// What the heartbeat is to be that leaves now: a leading session writes every T/8, and syncs
    /// in between.
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

    /// Bytes of a handshake that resumes or begins the session leave after this moment.
    pub fn connecting(&mut self, now: Moment) {
        self.disconnected();
        self.began = Some(now);
    }

    /// The connection is over. What it has proven stays proven; its answers count no more.
    pub fn disconnected(&mut self) {
        self.began = None;
        self.sent.clear();
        // The next handshake is later than all of it, so none of it could prove more than that
        // does. It goes all the same: no reader has to see that first.
        self.answered.clear();
        self.reported = None;
        self.arrived = None;
        self.written = None;
        self.last_sent = None;
        self.last_write = None;
        self.last_try = None;
        self.is_refused = false;
    }

    /// A request leaves after this moment.
    pub fn sent(&mut self, now: Moment, kind: Kind) {
        self.last_sent = Some(now);
        self.count += 1;
        if kind == Kind::Write {
            self.last_write = Some(now);
        }
        self.sent.push_back(Sent { at: now, kind, number: self.count });
    }

    /// The oldest request that was not answered has been, at this moment and by this voice.
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

    /// One server refused the request at this place among those that were not answered, before its
    /// turn.
    ///
    /// The others keep their order; this one counts for nothing.
    pub fn overtaken(&mut self, place: usize) {
        if let Some(Sent { kind, .. }) = self.sent.remove(place) {
            self.is_refused |= kind == Kind::Write;
        }
    }

    /// Whether a request has waited too long, and the connection must end.
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
    /// For a session of which nothing has to be proven at the moment: it may wait for longer than
    /// Q, as long as enough of the session's time is left to go on elsewhere.
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
    /// A write that one server refuses does not count: neither it nor others that are under way put
    /// off the next heartbeat. But the server may have refused it for having too much to do, so
    /// that T/16 pass between two heartbeats that write.
    #[must_use]
    pub fn until_write(&self, now: Moment) -> Duration {
        let left = |span: Duration, last: Option<Moment>| {
            span.saturating_sub(last.map_or(Duration::MAX, |last| now.at_most_since(last)))
        };
        let last = if self.is_refused { self.written } else { self.last_write };
        left(self.ttl / 8, last).max(left(self.ttl / 16, self.last_try))
    }

    /// What is proven.
    #[must_use]
    pub fn proof(&self) -> Option<Proof> {
        self.from.map(|from| Proof { from, window: window_of(self.ttl) })
    }

    /// A write sent at this moment was answered: then its leader was one.
    fn writes(&mut self, sent: Moment) {
        self.written = Some(sent);
        self.is_refused = false;
        if self.is_broken(Broken::Silence) {
            self.raise(sent);
        } else if let Some(began) = self.began {
            self.raise(began);
        }
    }

    /// The leader answered something sent at this moment: what it sent us before has arrived, and
    /// what our server sent it before, too.
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

    /// Within this time of our clock the leader sends a ping: half a tick of its own.
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
