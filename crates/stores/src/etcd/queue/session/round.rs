//! One round: a KeepAlive of each lease, and a read of the keys that stand for them.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::try_join_all;
use tenure::Clock as _;
use tenure::queue::Pace;
use tenure::queue::window::LeaseTermWindow;
use tokio::time::{sleep, timeout};

use super::super::super::fault::{Failure, Kind};
use super::super::super::kv;
use super::super::super::proto::TxnResponse;
use super::super::super::proto::response_op::Response;
use super::super::requests;
use super::leases::MOST_AT_ONCE;
use super::stream::{Kept, Stream, ended, late};
use super::{Held, Keeper};

/// The result of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// Every lease lives.
    Proven,
    /// etcd has changed its leader during the round. The next round tells.
    Undecided,
    /// etcd had changed its leader before. Since this term these leases prove nothing.
    Outdated { term: u64 },
    /// A lease is gone.
    Gone,
}

impl Keeper<'_> {
    /// Sends one KeepAlive for each lease, and reads the keys that stand for them.
    pub(super) async fn round(
        &mut self,
        stream: &mut Option<Stream>,
        window: &mut LeaseTermWindow,
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
        // Zero stands for no term.
        let before = window.proof();
        window.get_answered(shown.unwrap_or(0), ours);
        Ok(match window.outdated() {
            Some(term) => Round::Outdated { term },
            None if window.proof() == before => Round::Undecided,
            None => Round::Proven,
        })
    }

    async fn keep_alive(
        &mut self,
        stream: &mut Option<Stream>,
        limit: Duration,
    ) -> Result<Kept, Failure> {
        let shared = self.shared;
        let client = &shared.core.client;
        let leases = self.leases();
        let mut open = match stream.take() {
            Some(mut open) => {
                open.unsent = leases.clone();
                open
            }
            None => {
                let opened = Stream::open(shared, &leases, limit).await;
                // A server accepts the stream only with its first answer.
                let silent = opened.as_ref().is_err_and(|failure| failure.silent);
                self.unanswered += u32::from(silent);
                opened?
            }
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
            Err(_) => {
                self.unanswered += 1;
                Err(late(client, &open, limit))
            }
        }
    }

    /// Reads the keys that stand for the leases.
    ///
    /// Returns the term of the read, if it was a single one, and true if all keys are under our
    /// leases.
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

    /// Waits until the next round is due, or wanted now. Fails if the stream fails.
    pub(super) async fn rest(
        &self,
        stream: &mut Stream,
        window: &LeaseTermWindow,
    ) -> Result<(), Failure> {
        let mut pace = self.shared.pace.subscribe();
        loop {
            let span = window.until_heartbeat(self.clock.now()).unwrap_or_default();
            let span = match *pace.borrow_and_update() {
                Pace::Leading => span,
                // As etcd's own clients do: the server keeps the lease, though less is proven at
                // any moment.
                Pace::Waiting => span + window.heartbeat(),
            };
            let wanted = pin!(self.shared.claims.wanted.notified());
            tokio::select! {
                () = sleep(span) => return Ok(()),
                // No request is open, so a message means that the stream has ended or broken.
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
}
