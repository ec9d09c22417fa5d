//! A stream of KeepAlives.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::try_join;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::super::super::client::Client;
use super::super::super::endpoint::Chosen;
use super::super::super::fault::{Failure, Kind};
use super::super::super::proto::lease_client::LeaseClient;
use super::super::super::proto::{LeaseKeepAliveRequest, LeaseKeepAliveResponse};
use super::super::Shared;
use super::leases::duration;

/// The maximum number of KeepAlives that wait to be sent.
const QUEUE: usize = 256;

/// The result of one KeepAlive for each lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// All were answered in this term, with at least this TTL.
    Answered { term: u64, ttl: Duration },
    /// The answers were of different terms.
    Torn,
    /// One lease is gone.
    Gone,
}

/// A stream of KeepAlives.
pub(super) struct Stream {
    pub(super) chosen: Chosen,
    requests: mpsc::Sender<LeaseKeepAliveRequest>,
    pub(super) answers: Streaming<LeaseKeepAliveResponse>,
    /// The leases to ask for. The requests are sent while answers are read.
    pub(super) unsent: Vec<i64>,
}

impl Stream {
    /// Opens a stream and asks for every lease: the server sends nothing before it is asked.
    pub(super) async fn open(
        shared: &Shared,
        leases: &[i64],
        within: Duration,
    ) -> Result<Stream, Failure> {
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

    /// Waits for the answers of one round. Each names its lease, so they may come in any order.
    pub(super) async fn answers(&mut self, leases: &[i64]) -> Result<Kept, Failure> {
        let unsent = std::mem::take(&mut self.unsent);
        let sending = async {
            for id in unsent {
                let sent = self.requests.send(LeaseKeepAliveRequest { id }).await;
                sent.map_err(|_| ended("the server ended the stream"))?;
            }
            Ok(())
        };
        let receiving = async {
            let mut open: HashSet<i64> = leases.iter().copied().collect();
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

pub(super) fn late(client: &Client, stream: &Stream, limit: Duration) -> Failure {
    let failure = Failure::late(Kind::Read, limit);
    client.gave_up(&stream.chosen, &failure);
    failure
}

pub(super) fn ended(why: &str) -> Failure {
    Failure::of(Status::unavailable(why), Kind::Read)
}
