//! The session: leases that are kept alive, and the proof of it.
//!
//! One KeepAlive a lease is under way at a time. A round is one of each lease and then, after all were answered, a
//! linearizable read of what stands for the leases; [`EtcdWindow`] says what that proves. Whatever goes wrong ends
//! the stream, and another server is tried.
//!
//! When etcd has changed its leader, everything moves to other leases ([`moving`]), since the former leader may revoke
//! those that it knows.

mod moving;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::{join_all, try_join, try_join_all};
use tenure::queue::window::EtcdWindow;
use tenure::queue::{Life, Pace, Session};
use tenure::{Clock as _, Fault, Key, SystemClock};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::super::endpoint::Chosen;
use super::super::fault::{Failure, Kind, LeaseTrouble};
use super::super::kv;
use super::super::proto::lease_client::LeaseClient;
use super::super::proto::response_op::Response;
use super::super::proto::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
    LeaseRevokeRequest, LeaseRevokeResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
    TxnResponse,
};
use super::claims::Seat;
use super::{Shared, requests, version};

/// The pause after a failure; it doubles up to a twentieth of the ttl.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
/// Leases that are asked for, or written about, at once.
const MOST_AT_ONCE: usize = 60;
/// KeepAlives that wait to be sent.
const QUEUE: usize = 256;

/// Keeps a session, and begins another when it is over.
pub(super) async fn run(shared: Arc<Shared>) {
    let clock = SystemClock::default();
    let mut closing = shared.closing.subscribe();
    let closed = async {
        // The sender lives as long as what is shared.
        let _ = closing.wait_for(|closing| *closing).await;
    };
    let number = shared.session.borrow().number;
    let connection = shared.session.borrow().connection;
    let mut keeper =
        Keeper { shared: &shared, clock, number, connection, term: 0, held: Vec::new() };
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
    /// The newest term of etcd's in which the leases were asked for.
    term: u64,
    /// The seats there are; the first is every election's.
    held: Vec<Held>,
}

/// A seat, and what is known of its leases.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    seat: Seat,
    /// The term of an answer that was there before its lease was asked for.
    term: u64,
    /// Where it is about to move, and the same of that.
    next: Option<(i64, u64)>,
    /// The elections in which something of it may still be under its former lease.
    behind: Vec<Key>,
}

impl Held {
    fn new(lease: i64, term: u64) -> Held {
        Held { seat: Seat::new(lease), term, next: None, behind: Vec::new() }
    }

    /// The leases under which something of it is, or may be.
    fn leases(&self) -> impl Iterator<Item = i64> {
        let next = self.next.map(|(next, _)| next);
        std::iter::once(self.seat.lease).chain(self.seat.former).chain(next)
    }

    /// Whether what stands for it may be under this lease.
    fn may_be_under(&self, lease: i64) -> bool {
        self.seat.lease == lease || self.next.is_some_and(|(next, _)| next == lease)
    }
}

/// What a round showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// Every lease lives.
    Proven,
    /// etcd has changed its leader in between: the next round tells.
    Undecided,
    /// It had changed it before, and since this term these leases prove nothing.
    Outdated { term: u64 },
    /// A lease is gone.
    Gone,
}

/// Why a session did not begin, or ended.
enum End {
    /// It is over; another may follow.
    Over,
    /// We are not let.
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
            // A lease that still lives is left to lapse: work that was led under it may take that long to end.
            self.held.clear();
            if matches!(end, End::Refused) {
                return;
            }
        }
    }

    /// Begins a session: a lease, and a key that stands for it. Tries until it is there, or refused for good.
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
                    self.publish(Some(ttl), Life::Live { proof: None });
                    version::warn(&self.shared.core.client).await;
                    return Ok(ttl);
                }
                Err(failure) => failure,
            };
            tracing::debug!(error = %failure.source, "etcd: no session yet");
            if matches!(failure.fault, Fault::Denied | Fault::Permanent) {
                tracing::warn!(error = %failure.source, "etcd: a session is refused");
                return Err(());
            }
            sleep(pause).await;
            pause = (pause * 2).min(self.longest_pause());
        }
    }

    /// A lease of this number, and the key that stands for it; its TTL, and the term that was known before it was asked
    /// for, which is the first that was ever heard of: an attempt that failed may have been the one that was taken.
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

    /// Lives until a lease is gone.
    async fn live(&mut self, ttl: Duration) -> End {
        let mut window = EtcdWindow::new(ttl);
        window.leased(self.term);
        let mut stream: Option<Stream> = None;
        let mut connected = true;
        let mut pause = SHORTEST_PAUSE;
        // Seats beyond these have not been proven yet.
        let mut usable = 1;
        loop {
            match self.round(&mut stream, &mut window).await {
                Ok(Round::Proven) => {
                    pause = SHORTEST_PAUSE;
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
                    match self.move_on(term).await {
                        Ok(()) => {
                            self.term =
                                self.held.iter().map(|held| held.term).min().unwrap_or(term);
                            window.leased(self.term);
                        }
                        Err(failure) => {
                            tracing::debug!(error = %failure.source, "etcd: not all has moved yet");
                            sleep(SHORTEST_PAUSE).await;
                        }
                    }
                    continue;
                }
                Ok(Round::Gone) => return End::Over,
                Err(failure) => {
                    tracing::debug!(error = %failure.source, "etcd: the session is suspended");
                    connected = false;
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

    /// The connection is lost: at once nothing is certain but what was proven.
    async fn suspend(
        &mut self,
        ttl: Duration,
        window: &mut EtcdWindow,
        pause: Duration,
    ) -> (Option<Stream>, Duration) {
        window.abandoned();
        self.publish(Some(ttl), Life::Suspended { proof: window.proof() });
        sleep(pause).await;
        (None, (pause * 2).min(self.longest_pause()))
    }

    /// One KeepAlive of each lease, and a look at what stands for them.
    async fn round(
        &self,
        stream: &mut Option<Stream>,
        window: &mut EtcdWindow,
    ) -> Result<Round, Failure> {
        let limit = window.request();
        window.keep_alive_sent(self.clock.now());
        let kept = self.keep_alive(stream, limit).await?;
        let Kept::Answered { term, ttl } = kept else {
            return Ok(if kept == Kept::Gone { Round::Gone } else { Round::Undecided });
        };
        window.keep_alive_answered(term, ttl);
        window.get_sent();
        let (shown, ours) = self.confirm(limit).await?;
        if !ours {
            return Ok(Round::Gone);
        }
        // Zero is the term of no answer.
        let before = window.proof();
        window.get_answered(shown.unwrap_or(0), ours);
        Ok(match window.outdated() {
            Some(term) => Round::Outdated { term },
            None if window.proof() == before => Round::Undecided,
            None => Round::Proven,
        })
    }

    /// Everything that is to be kept alive.
    fn leases(&self) -> Vec<i64> {
        self.held.iter().flat_map(Held::leases).collect()
    }

    async fn keep_alive(
        &self,
        stream: &mut Option<Stream>,
        limit: Duration,
    ) -> Result<Kept, Failure> {
        let client = &self.shared.core.client;
        let leases = self.leases();
        let mut open = match stream.take() {
            Some(mut open) => {
                open.unsent = leases.clone();
                open
            }
            None => Stream::open(self.shared, &leases, limit).await?,
        };
        match timeout(limit, open.answers(&leases)).await {
            Ok(Ok(kept)) => {
                *stream = Some(open);
                Ok(kept)
            }
            Ok(Err(failure)) => {
                client.gave_up(&open.chosen, &failure);
                Err(failure)
            }
            Err(_) => Err(late(client, &open, limit)),
        }
    }

    /// Reads what stands for the leases: the term it was read in, if it was one, and whether all of it is ours.
    async fn confirm(&self, limit: Duration) -> Result<(Option<u64>, bool), Failure> {
        let read = |held: &[Held]| {
            let keys = held.iter().map(|held| held.seat.name);
            let keys = keys.map(|seat| requests::one(self.shared.keys.session(seat)));
            let txn = requests::reads(keys);
            let send = |channel, request| async move { kv(channel).txn(request).await };
            self.shared.core.client.call_within(limit, Kind::Read, txn, send)
        };
        let answers: Vec<TxnResponse> =
            try_join_all(self.held.chunks(MOST_AT_ONCE).map(read)).await?;
        let mut terms = answers.iter().map(|answer| answer.header.map(|header| header.raft_term));
        let first = terms.next().flatten();
        let term = first.filter(|first| terms.all(|term| term == Some(*first)));
        let found = answers.into_iter().flat_map(|answer| answer.responses).map(|part| match part
            .response
        {
            Some(Response::ResponseRange(range)) => {
                range.kvs.into_iter().next().map_or(0, |found| found.lease)
            }
            Some(
                Response::ResponsePut(_)
                | Response::ResponseDeleteRange(_)
                | Response::ResponseTxn(_),
            )
            | None => 0,
        });
        let found: Vec<i64> = found.collect();
        let mut both = self.held.iter().zip(&found);
        let ours = found.len() == self.held.len() && both.all(|(held, at)| held.may_be_under(*at));
        Ok((term, ours))
    }

    /// Waits for the time of the next round, or a reason for one now. Fails when the stream does.
    async fn rest(&self, stream: &mut Stream, window: &EtcdWindow) -> Result<(), Failure> {
        let mut pace = self.shared.pace.subscribe();
        loop {
            let span = window.until_heartbeat(self.clock.now()).unwrap_or_default();
            let span = match *pace.borrow_and_update() {
                Pace::Leading => span,
                // As etcd's own clients do: the server keeps it, though less is proven at any moment.
                Pace::Waiting => span + window.heartbeat(),
            };
            let wanted = pin!(self.shared.claims.wanted.notified());
            tokio::select! {
                () = sleep(span) => return Ok(()),
                // Nothing was asked: whatever comes is the end, or belongs to nobody.
                unasked = stream.answers.message() => return Err(match unasked {
                    Ok(_) => ended("the server ended the stream, or answers what nobody asked"),
                    Err(status) => Failure::of(status, Kind::Read),
                }),
                () = wanted => {
                    let claims = &self.shared.claims;
                    if claims.trouble() || claims.leases_wanted() > self.held.len() {
                        return Ok(());
                    }
                }
                _ = pace.changed() => {}
            }
        }
    }

    /// Asks for the leases that candidates of one election need beside each other.
    async fn grant_more(&mut self) {
        let missing = self.shared.claims.leases_wanted().saturating_sub(self.held.len());
        let fresh: Vec<i64> = (0..missing.min(MOST_AT_ONCE)).map(|_| fresh()).collect();
        let granted = join_all(fresh.iter().map(|id| self.grant(*id))).await;
        let granted: Vec<i64> =
            fresh.iter().zip(granted).filter(|(_, it)| it.is_ok()).map(|(id, _)| *id).collect();
        if granted.is_empty() {
            return;
        }
        match self.mark(&granted).await {
            // That term was known before.
            Ok(()) => self.held.extend(granted.iter().map(|id| Held::new(*id, self.term))),
            // They lapse by themselves.
            Err(failure) => tracing::debug!(error = %failure.source, "etcd: no further lease"),
        }
    }

    async fn grant(&self, id: i64) -> Result<Duration, Failure> {
        let client = &self.shared.core.client;
        let request = LeaseGrantRequest { ttl: seconds(self.shared.ttl), id };
        let send =
            |channel, request| async move { LeaseClient::new(channel).lease_grant(request).await };
        let granted: Result<LeaseGrantResponse, Failure> =
            client.call(Kind::Write, request, send).await;
        match granted {
            Ok(granted) => duration(granted.ttl),
            // The number is random and ours: an earlier request was taken, and its answer lost.
            Err(failure) if failure.lease == Some(LeaseTrouble::Exists) => {
                let request = LeaseTimeToLiveRequest { id, keys: false };
                let send = |channel, request| async move {
                    LeaseClient::new(channel).lease_time_to_live(request).await
                };
                let lease: LeaseTimeToLiveResponse = client.call(Kind::Read, request, send).await?;
                duration(lease.granted_ttl)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Writes the keys that stand for leases.
    async fn mark(&self, leases: &[i64]) -> Result<(), Failure> {
        let says = Bytes::from(format!(r#"{{"pid":{}}}"#, std::process::id()));
        let txn = requests::sessions(&self.shared.keys, leases, &says);
        let send = |channel, request| async move { kv(channel).txn(request).await };
        let _: TxnResponse = self.shared.core.client.call(Kind::Write, txn, send).await?;
        Ok(())
    }

    async fn revoke(&self, leases: Vec<i64>) {
        for some in leases.chunks(MOST_AT_ONCE) {
            let revoke = |id: &i64| {
                let send = |channel, request| async move {
                    LeaseClient::new(channel).lease_revoke(request).await
                };
                self.shared.core.client.call(Kind::Write, LeaseRevokeRequest { id: *id }, send)
            };
            let revoked: Vec<Result<LeaseRevokeResponse, Failure>> =
                join_all(some.iter().map(revoke)).await;
            let failed = revoked.iter().filter_map(|it| it.as_ref().err());
            // What is gone already is no failure; the rest lapses by itself.
            if let Some(failure) = failed.into_iter().find(|failure| failure.lease.is_none()) {
                tracing::debug!(error = %failure.source, "etcd: a lease was not given back");
            }
        }
    }

    /// The queue is dropped. Leases that nothing stands under are given back; others lapse, as work may go on.
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

/// What a KeepAlive of each lease came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// Each was answered in this term, with this TTL at least.
    Answered { term: u64, ttl: Duration },
    /// They were answered in different terms.
    Torn,
    /// One is gone.
    Gone,
}

/// A stream of KeepAlives.
struct Stream {
    chosen: Chosen,
    requests: mpsc::Sender<LeaseKeepAliveRequest>,
    answers: Streaming<LeaseKeepAliveResponse>,
    /// What is to be asked for; it leaves while answers are read.
    unsent: Vec<i64>,
}

impl Stream {
    /// Opens one and asks for every lease: the server says nothing before it is asked.
    async fn open(shared: &Shared, leases: &[i64], within: Duration) -> Result<Stream, Failure> {
        let (requests, queue) = mpsc::channel(QUEUE);
        let (first, unsent) = leases.split_at(leases.len().min(QUEUE));
        let first: Vec<_> = first.iter().map(|id| LeaseKeepAliveRequest { id: *id }).collect();
        let body = futures_util::stream::iter(first).chain(ReceiverStream::new(queue));
        let opened = shared.core.client.stream(within, body, |channel, request| async move {
            LeaseClient::new(channel).lease_keep_alive(request).await
        });
        let (answers, chosen) = opened.await?;
        Ok(Stream { chosen, requests, answers, unsent: unsent.to_vec() })
    }

    /// The answers of one round; in which order they come does not matter, as each names its lease.
    async fn answers(&mut self, leases: &[i64]) -> Result<Kept, Failure> {
        let unsent = std::mem::take(&mut self.unsent);
        let sending = async {
            for id in unsent {
                let sent = self.requests.send(LeaseKeepAliveRequest { id }).await;
                sent.map_err(|_| ended("the server ended the stream"))?;
            }
            Ok(())
        };
        let receiving = async {
            let mut open: std::collections::HashSet<i64> = leases.iter().copied().collect();
            let (mut kept, mut gone) = (None, false);
            while !open.is_empty() {
                let answer = match self.answers.message().await {
                    Ok(Some(answer)) => answer,
                    Ok(None) => return Err(ended("the server ended the stream")),
                    Err(status) => return Err(Failure::of(status, Kind::Read)),
                };
                if !open.remove(&answer.id) {
                    return Err(ended("the server answers what nobody asked"));
                }
                gone |= answer.ttl <= 0;
                let term = answer.header.map_or(0, |header| header.raft_term);
                let ttl = duration(answer.ttl.max(1))?;
                kept = Some(match kept {
                    None => Kept::Answered { term, ttl },
                    Some(Kept::Answered { term: before, ttl: least }) if before == term => {
                        Kept::Answered { term, ttl: ttl.min(least) }
                    }
                    Some(Kept::Answered { .. } | Kept::Torn | Kept::Gone) => Kept::Torn,
                });
            }
            Ok(if gone { Kept::Gone } else { kept.unwrap_or(Kept::Torn) })
        };
        let ((), kept) = try_join(sending, receiving).await?;
        Ok(kept)
    }
}

/// A number for a lease. It is part of a key, which etcd's clients write without a sign.
fn fresh() -> i64 {
    (rand::random::<i64>() & i64::MAX).max(1)
}

fn seconds(ttl: Duration) -> i64 {
    let up = u64::from(ttl.subsec_nanos() > 0);
    i64::try_from(ttl.as_secs() + up).unwrap_or(i64::MAX).max(1)
}

fn duration(ttl: i64) -> Result<Duration, Failure> {
    let seconds = u64::try_from(ttl).ok().filter(|seconds| *seconds > 0);
    seconds.map(Duration::from_secs).ok_or_else(|| ended("the server grants a lease of no time"))
}

fn late(client: &super::super::client::Client, stream: &Stream, limit: Duration) -> Failure {
    let failure = Failure::late(Kind::Read, limit);
    client.gave_up(&stream.chosen, &failure);
    failure
}

fn ended(why: &str) -> Failure {
    Failure::of(Status::unavailable(why), Kind::Read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_have_positive_numbers_and_whole_seconds() {
        assert!((0..1000).all(|_| fresh() > 0));
        assert_eq!(seconds(Duration::from_millis(2500)), 3);
        assert_eq!(seconds(Duration::from_secs(15)), 15);
        assert_eq!(seconds(Duration::ZERO), 1);
        assert!(duration(0).is_err() && duration(-1).is_err());
    }
}
