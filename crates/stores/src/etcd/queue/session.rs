//! The session: leases that are kept alive, and the proof of it.
//!
//! Each lease has one KeepAlive under way at a time. A round is one KeepAlive of each lease and
//! then, after all were answered, a linearizable read of the keys that stand for the leases.
//! [`LeaseTermWindow`] documents the proof that this gives. Any failure ends the stream, and
//! another server is tried.
//!
//! When etcd has changed its leader, everything moves to other leases ([`moving`]), since the
//! former leader may revoke those that it knows.

mod leases;
mod moving;
mod round;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use tenure::queue::window::LeaseTermWindow;
use tenure::queue::{Life, Session};
use tenure::store::{Fault, StoreError};
use tenure::{Key, SystemClock};
use tokio::time::sleep;

use self::leases::fresh;
use self::round::Round;
use self::stream::Stream;
use super::super::fault::{Failure, Kind};
use super::super::proto::TxnResponse;
use super::super::{failed, kv};
use super::claims::Seat;
use super::{Shared, requests, unavailable, version};

/// The pause after a failure; it doubles up to a twentieth of the ttl.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);

/// The number of unanswered KeepAlives that is no accident.
const REPEATEDLY: u32 = 3;

/// Keeps a session, and begins another when it is over.
pub(super) async fn run(shared: Arc<Shared>) {
    let clock = SystemClock::default();
    let mut closing = shared.closing.subscribe();
    let closed = async {
        // The sender is part of the shared state, so this cannot fail.
        let _ = closing.wait_for(|closing| *closing).await;
    };
    let number = shared.session.borrow().number;
    let connection = shared.session.borrow().connection;
    let mut keeper = Keeper {
        shared: &shared,
        clock,
        number,
        connection,
        term: 0,
        held: Vec::new(),
        unanswered: 0,
    };
    tokio::select! {
        () = closed => keeper.close().await,
        () = keeper.keep() => {}
    }
}

struct Keeper<'a> {
    shared: &'a Shared,
    clock: SystemClock,
    number: u64,
    connection: u64,
    /// The etcd term that was known before any of the leases was asked for.
    term: u64,
    /// The seats. The first one serves every election.
    held: Vec<Held>,
    /// How often KeepAlives were not answered since the last proof.
    unanswered: u32,
}

/// A seat, and the state of its leases.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    seat: Seat,
    /// A term that was known before its lease was asked for.
    term: u64,
    /// The lease that it is about to move to, and its term, as in `term`.
    next: Option<(i64, u64)>,
    /// The elections in which a key of it may still be under its former lease.
    behind: Vec<Key>,
}

impl Held {
    fn new(lease: i64, term: u64) -> Held {
        Held { seat: Seat::new(lease), term, next: None, behind: Vec::new() }
    }

    /// The leases that its keys are, or may be, under.
    fn leases(&self) -> impl Iterator<Item = i64> {
        let next = self.next.map(|(next, _)| next);
        std::iter::once(self.seat.lease).chain(self.seat.former).chain(next)
    }

    /// Returns true if it is not moving: all its keys are under its own lease.
    fn has_moved(&self) -> bool {
        self.next.is_none() && self.seat.former.is_none() && self.behind.is_empty()
    }

    /// Returns true if the key that stands for it may be under this lease.
    fn may_be_under(&self, lease: i64) -> bool {
        self.seat.lease == lease || self.next.is_some_and(|(next, _)| next == lease)
    }
}

/// The term that was known before any of the leases was asked for.
///
/// `None` while a key is under an earlier lease.
fn leased(held: &[Held]) -> Option<u64> {
    held.iter().all(Held::has_moved).then(|| held.iter().map(|held| held.term).min()).flatten()
}

/// The reason why a session did not begin, or ended.
enum End {
    /// The session is over. Another may follow.
    Over,
    /// We have no permission.
    Refused,
}

impl Keeper<'_> {
    async fn keep(&mut self) {
        loop {
            let end = match self.begin().await {
                Ok(ttl) => self.live(ttl).await,
                Err(()) => End::Refused,
            };
            let life = match end {
                End::Over => Life::Over,
                End::Refused => Life::Closed,
            };
            self.publish(None, life);
            self.shared.claims.over();
            // A lease that still lives is left to lapse: work that was led under it may take that
            // long to end.
            self.held.clear();
            if matches!(end, End::Refused) {
                return;
            }
        }
    }

    /// Begins a session: a lease, and a key that stands for it.
    ///
    /// Tries until the session is there, or refused for good.
    async fn begin(&mut self) -> Result<Duration, ()> {
        let mut pause = SHORTEST_PAUSE;
        let id = fresh();
        let mut term = None;
        loop {
            let failure = match self.grant_first(id, &mut term).await {
                Ok((ttl, term)) => {
                    (self.held, self.term) = (vec![Held::new(id, term)], term);
                    self.number += 1;
                    self.connection += 1;
                    self.shared.claims.begin(self.number, Seat::new(id));
                    *self.shared.trouble() = None;
                    self.publish(Some(ttl), Life::Live { proof: None });
                    version::warn(&self.shared.core.client).await;
                    return Ok(ttl);
                }
                Err(failure) => failure,
            };
            tracing::debug!(error = %failure.source, "etcd: no session yet");
            self.tell_trouble(failed(failure.copy(), "beginning a session"));
            self.publish(None, Life::Suspended { proof: None });
            if matches!(failure.fault, Fault::Denied | Fault::Permanent) {
                tracing::warn!(error = %failure.source, "etcd: a session is refused");
                return Err(());
            }
            sleep(pause).await;
            pause = (pause * 2).min(self.longest_pause());
        }
    }

    /// Asks for a lease with this number, and writes the key that stands for it.
    ///
    /// Returns its TTL, and the term that was known before the lease was asked for. This is the
    /// first term that was ever heard of, because an attempt that seemed to fail may have been the
    /// one that was taken.
    async fn grant_first(
        &self,
        id: i64,
        term: &mut Option<u64>,
    ) -> Result<(Duration, u64), Failure> {
        let known = match *term {
            Some(known) => known,
            None => *term.insert(self.read_term(id).await?),
        };
        let ttl = self.grant(id).await?;
        self.mark(&[id]).await?;
        Ok((ttl, known))
    }

    /// The newest term in which a quorum is known to have agreed on anything.
    async fn read_term(&self, id: i64) -> Result<u64, Failure> {
        let key = requests::one(self.shared.keys.session(id));
        let txn = requests::reads(std::iter::once(key));
        let send = |channel, request| async move { kv(channel).txn(request).await };
        let answer: TxnResponse = self.shared.core.client.call(Kind::Read, txn, send).await?;
        let term = answer.header.map(|header| header.raft_term).filter(|term| *term > 0);
        term.ok_or_else(|| Failure::garbled(Kind::Read))
    }

    /// Keeps the session alive until a lease is gone.
    async fn live(&mut self, ttl: Duration) -> End {
        let mut window = LeaseTermWindow::new(ttl);
        window.leased(self.term);
        let mut stream: Option<Stream> = None;
        let mut connected = true;
        let mut pause = SHORTEST_PAUSE;
        // The seats from this index on have not been proven yet.
        let mut usable = 1;
        loop {
            match self.round(&mut stream, &mut window).await {
                Ok(Round::Proven) => {
                    pause = SHORTEST_PAUSE;
                    self.unanswered = 0;
                    *self.shared.trouble() = None;
                    if !std::mem::replace(&mut connected, true) {
                        self.connection += 1;
                    }
                    self.publish(Some(ttl), Life::Live { proof: window.proof() });
                    let added: Vec<Seat> =
                        self.held[usable..].iter().map(|held| held.seat).collect();
                    self.shared.claims.add(self.number, &added);
                    usable = self.held.len();
                }
                Ok(Round::Undecided) => {
                    sleep(SHORTEST_PAUSE).await;
                    continue;
                }
                Ok(Round::Outdated { term }) => {
                    if let Err(failure) = self.move_on(term).await {
                        tracing::debug!(error = %failure.source, "etcd: not all has moved yet");
                        sleep(SHORTEST_PAUSE).await;
                    }
                    if let Some(term) = leased(&self.held) {
                        self.term = term;
                        window.leased(term);
                    }
                    continue;
                }
                Ok(Round::Gone) => return End::Over,
                Err(failure) => {
                    tracing::debug!(error = %failure.source, "etcd: the session is suspended");
                    connected = false;
                    self.note_trouble(failure).await;
                    (stream, pause) = self.suspend(ttl, &mut window, pause).await;
                    continue;
                }
            }
            if let Some(open) = &mut stream
                && let Err(failure) = self.rest(open, &window).await
            {
                self.shared.core.client.gave_up(&open.chosen, &failure);
                tracing::debug!(error = %failure.source, "etcd: the session is suspended");
                connected = false;
                self.note_trouble(failure).await;
                (stream, pause) = self.suspend(ttl, &mut window, SHORTEST_PAUSE).await;
                continue;
            }
            let spare = self.shared.claims.spare();
            let spare = self.held.extract_if(.., |held| spare.contains(&held.seat.name));
            let spare: Vec<i64> =
                spare.flat_map(|held| held.leases().collect::<Vec<_>>()).collect();
            usable = self.held.len();
            self.revoke(spare).await;
            self.grant_more().await;
        }
    }

    /// Keeps the reason for people to read.
    ///
    /// If KeepAlives stay unanswered while requests are answered, that has its own cause, and no
    /// candidate would ever lead.
    async fn note_trouble(&mut self, failure: Failure) {
        let id = self.held.first().map_or(0, |held| held.seat.name);
        let trouble = if self.unanswered >= REPEATEDLY && self.read_term(id).await.is_ok() {
            let says = "requests are answered, and KeepAlives of leases are not within ttl/10: a gRPC \
                        proxy between us and etcd passes them on when it likes (`etcd grpc-proxy` \
                        does), or the server is too slow for this ttl; name etcd's own members in \
                        the URL, choose a longer ttl, or hold elections by leases \
                        (`?protocol=lease`)";
            unavailable("keeping a session alive".into(), says)
        } else {
            failed(failure, "keeping a session alive")
        };
        self.tell_trouble(trouble);
    }

    /// Publishes the trouble.
    ///
    /// A new reason counts as another lost connection, so that every candidate hears of it.
    fn tell_trouble(&mut self, trouble: StoreError) {
        let text = |trouble: &StoreError| format!("{trouble}: {}", trouble.source);
        let known = self.shared.trouble().replace(trouble.clone());
        let same = known.is_some_and(|known| text(&known) == text(&trouble));
        self.connection += u64::from(!same);
    }

    /// Handles a lost connection: from now on only the last proof is certain.
    async fn suspend(
        &mut self,
        ttl: Duration,
        window: &mut LeaseTermWindow,
        pause: Duration,
    ) -> (Option<Stream>, Duration) {
        window.abandoned();
        self.publish(Some(ttl), Life::Suspended { proof: window.proof() });
        sleep(pause).await;
        (None, (pause * 2).min(self.longest_pause()))
    }

    /// All leases to be kept alive.
    fn leases(&self) -> Vec<i64> {
        self.held.iter().flat_map(Held::leases).collect()
    }

    /// Closes the session, because the queue is dropped.
    ///
    /// Leases without entries are given back. Otherwise all lapse, as work may go on.
    async fn close(&mut self) {
        let nothing_stands = self.shared.claims.is_empty();
        self.publish(None, Life::Closed);
        self.shared.claims.over();
        let leases = self.leases();
        self.held.clear();
        if nothing_stands {
            self.revoke(leases).await;
        }
    }

    fn publish(&self, ttl: Option<Duration>, life: Life) {
        self.shared.session.send_if_modified(|session| {
            let ttl = ttl.unwrap_or(session.ttl);
            let now = Session { number: self.number, connection: self.connection, ttl, life };
            std::mem::replace(session, now) != now
        });
    }

    fn longest_pause(&self) -> Duration {
        (self.shared.ttl / 20).max(SHORTEST_PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key under the former lease goes with that lease.
    ///
    /// A deposed leader of etcd may revoke it.
    #[test]
    fn leases_count_once_nothing_is_under_a_former_one() {
        let moved = |term| Held::new(10, term);
        let election = Key::parse("elections/a").expect("a good key");
        let seat = Seat { name: 10, lease: 20, former: Some(10) };
        assert_eq!(leased(&[moved(4), moved(3)]), Some(3), "the oldest counts");
        for lagging in [
            Held { behind: vec![election], ..moved(4) },
            Held { seat, ..moved(4) },
            Held { next: Some((30, 5)), ..moved(4) },
        ] {
            assert_eq!(leased(&[moved(4), lagging]), None);
        }
        assert_eq!(leased(&[]), None);
    }
}
