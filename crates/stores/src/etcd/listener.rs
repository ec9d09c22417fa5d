//! The single stream that delivers all changes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::client::Client;
use super::fault::{Failure, Kind};
use super::message::at;
use super::proto::event::EventType;
use super::proto::watch_client::WatchClient;
use super::proto::watch_request::RequestUnion;
use super::proto::{
    WatchCancelRequest, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
};
use super::waits::{News, Topic, Waits};

/// How often the server is asked whether it still listens.
///
/// After twice this time without an answer, the stream counts as dead.
const ASK: Duration = Duration::from_secs(5);
/// The pause after a stream that failed; it doubles up to `LONGEST_PAUSE`.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The capacity for requests that wait to be sent.
const QUEUE: usize = 256;

/// Serves all waits, for as long as it is polled.
pub(super) async fn listen(client: Arc<Client>, waits: Arc<Waits>) {
    let mut pause = SHORTEST_PAUSE;
    loop {
        waits.somebody().await;
        waits.begin_again();
        let mut stream = match Conversation::open(&client, &waits).await {
            Ok(Some(stream)) => stream,
            Ok(None) => continue,
            Err(failure) => {
                tracing::debug!(error = %failure.source, "etcd: listening for changes failed");
                waits.fell_silent(false);
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                continue;
            }
        };
        let Err(failure) = stream.run().await else { continue };
        tracing::debug!(error = %failure.source, "etcd: the stream of changes ended");
        waits.fell_silent(stream.served);
        client.gave_up(&stream.chosen, &failure);
        pause = if stream.served { SHORTEST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        sleep(pause).await;
    }
}

struct Conversation<'a> {
    waits: &'a Waits,
    chosen: super::endpoint::Chosen,
    answers: Streaming<WatchResponse>,
    requests: mpsc::Sender<WatchRequest>,
    patience: Duration,
    watches: Watches,
    heard: Instant,
    served: bool,
}

/// The watches of one stream, by numbers that we choose.
#[derive(Default)]
struct Watches {
    topics: HashMap<i64, Topic>,
    last: i64,
}

impl Watches {
    fn create(&mut self, waits: &Waits) -> Vec<WatchRequest> {
        let Watches { topics, last } = self;
        let number = || {
            *last += 1;
            *last
        };
        let create = |(watch_id, topic, start_revision): (i64, Topic, i64)| {
            let create = WatchCreateRequest {
                key: topic.key.clone(),
                range_end: topic.end.clone(),
                start_revision,
                watch_id,
                ..WatchCreateRequest::default()
            };
            topics.insert(watch_id, topic);
            request(RequestUnion::CreateRequest(create))
        };
        waits.unasked(number).into_iter().map(create).collect()
    }
}

impl<'a> Conversation<'a> {
    async fn open(client: &Client, waits: &'a Waits) -> Result<Option<Conversation<'a>>, Failure> {
        let (requests, queue) = mpsc::channel(QUEUE);
        let mut watches = Watches::default();
        // The server sends nothing, not even an acceptance, before it has a watch to confirm.
        let first = watches.create(waits);
        if first.is_empty() {
            // The callers have stopped waiting.
            return Ok(None);
        }
        let stream = futures_util::stream::iter(first).chain(ReceiverStream::new(queue));
        let opened = client.stream(client.request(), stream, |channel, request| async move {
            WatchClient::new(channel).watch(request).await
        });
        let (answers, chosen) = opened.await?;
        let (patience, heard) = (client.request(), Instant::now());
        Ok(Some(Conversation {
            waits,
            chosen,
            answers,
            requests,
            patience,
            watches,
            heard,
            served: false,
        }))
    }

    /// Serves the stream until it fails. Returns `Ok` when no watch is left.
    async fn run(&mut self) -> Result<(), Failure> {
        let mut tick = interval(ASK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let waits = self.waits;
            tokio::select! {
                answer = self.answers.message() => match answer {
                    Ok(Some(answer)) => self.take(answer)?,
                    // A clean end counts as a failure too.
                    Ok(None) => return Err(ended("the server ended the stream")),
                    Err(status) => return Err(Failure::of(status, Kind::Read)),
                },
                () = waits.wanted.notified() => self.ask_for_watches().await?,
                _ = tick.tick() => {
                    if self.heard.elapsed() > 2 * ASK + self.patience {
                        return Err(Failure::late(Kind::Read, self.heard.elapsed()));
                    }
                    self.drop_watches().await?;
                    if self.waits.is_empty() {
                        return Ok(());
                    }
                    self.send(progress()).await?;
                }
            }
        }
    }

    async fn ask_for_watches(&mut self) -> Result<(), Failure> {
        for request in self.watches.create(self.waits) {
            self.send(request).await?;
        }
        Ok(())
    }

    async fn drop_watches(&mut self) -> Result<(), Failure> {
        for watch_id in self.waits.expired() {
            if self.watches.topics.remove(&watch_id).is_some() {
                let cancel = WatchCancelRequest { watch_id };
                self.send(request(RequestUnion::CancelRequest(cancel))).await?;
            }
        }
        Ok(())
    }

    async fn send(&self, request: WatchRequest) -> Result<(), Failure> {
        match timeout(self.patience, self.requests.send(request)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(ended("the server ended the stream")),
            Err(_) => Err(Failure::late(Kind::Read, self.patience)),
        }
    }

    fn take(&mut self, answer: WatchResponse) -> Result<(), Failure> {
        self.heard = Instant::now();
        let Some(topic) = self.watches.topics.get(&answer.watch_id).cloned() else {
            // This answers a progress request, or is about a watch that was given up.
            return if answer.canceled && answer.created {
                Err(ended(&format!("a watch was refused: {}", answer.cancel_reason)))
            } else {
                Ok(())
            };
        };
        if answer.canceled {
            self.watches.topics.remove(&answer.watch_id);
            self.waits.ended(&topic);
            // A compaction has dropped changes since that revision, so the caller has to look. Any
            // other reason is our fault.
            return if answer.compact_revision > 0 {
                Ok(())
            } else {
                Err(ended(&format!("a watch was cancelled: {}", answer.cancel_reason)))
            };
        }
        if answer.created {
            self.served = true;
            self.waits.begun(&topic, at(answer.header.as_ref()));
        }
        for event in answer.events {
            let absent = event.r#type() == EventType::Delete;
            if let Some(found) = event.kv {
                let created = if absent { 0 } else { found.create_revision };
                self.waits.event(&topic, News { revision: found.mod_revision, created });
            }
        }
        Ok(())
    }
}

fn ended(why: &str) -> Failure {
    Failure::of(Status::unavailable(why), Kind::Read)
}

fn progress() -> WatchRequest {
    request(RequestUnion::ProgressRequest(WatchProgressRequest {}))
}

fn request(union: RequestUnion) -> WatchRequest {
    WatchRequest { request_union: Some(union) }
}
