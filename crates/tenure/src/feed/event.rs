//! The events of a feed: as a stream, as callbacks and as lines of JSON.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::Stream;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::broadcast;
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;

use crate::Error;

/// How many events a slow reader may be behind before it misses some, and is told so.
const MOST_WAITING: usize = 1024;

/// An event of a feed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A document of the table's users changed. Contains the database's own change object.
    Change(Value),
    /// This feed has become a follower, or the leader.
    NewState(State),
    /// There is a new leader, or a leader under a new token. Includes the first leader, and this
    /// feed.
    NewLeader {
        /// The id of its feed.
        leader: String,
        /// Its fencing token.
        token: u64,
    },
    /// Changes are being followed, from the start or again.
    SubscribeStarted,
    /// Changes cannot be followed, either any more or still. Until they can, this feed does not
    /// lead.
    SubscribeError(Error),
    /// The leader's document could not be read or written.
    HeartbeatError(Error),
    /// This reader was too slow, and has lost this many events.
    Missed(u64),
}

/// The state of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Another feed leads, or none does.
    Follower,
    /// This feed leads.
    Leader,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Follower => "follower",
            State::Leader => "leader",
        })
    }
}

impl Event {
    /// The event as one line of JSON; see docs/json.md. An error includes its causes.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(&Line::of(self)).expect("text, numbers and JSON always encode")
    }
}

#[derive(Serialize)]
struct Line<'a> {
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<State>,
    #[serde(skip_serializing_if = "Option::is_none")]
    leader: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
}

impl Line<'_> {
    fn of(event: &Event) -> Line<'_> {
        let named = |event| Line {
            event,
            state: None,
            leader: None,
            token: None,
            change: None,
            error: None,
            count: None,
        };
        match event {
            Event::Change(change) => Line { change: Some(change), ..named("change") },
            Event::NewState(state) => Line { state: Some(*state), ..named("new state") },
            Event::NewLeader { leader, token } => {
                Line { leader: Some(leader), token: Some(*token), ..named("new leader") }
            }
            Event::SubscribeStarted => named("subscribe started"),
            Event::SubscribeError(error) => {
                Line { error: Some(causes(error)), ..named("subscribe error") }
            }
            Event::HeartbeatError(error) => {
                Line { error: Some(causes(error)), ..named("heartbeat error") }
            }
            Event::Missed(count) => Line { count: Some(*count), ..named("missed") },
        }
    }
}

/// An error and its causes, as one text.
fn causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let says = error.to_string();
        if !text.ends_with(&says) {
            text = format!("{text}: {says}");
        }
        cause = error.source();
    }
    text
}

/// Every event from now on. Past events are not repeated.
///
/// It goes on from one start of the feed to the next, and ends when the feed is dropped.
#[derive(Debug)]
pub struct Events {
    events: BroadcastStream<Event>,
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let next = Pin::new(&mut self.get_mut().events).poll_next(context);
        next.map(|event| {
            event.map(|event| match event {
                Ok(event) => event,
                Err(BroadcastStreamRecvError::Lagged(count)) => Event::Missed(count),
            })
        })
    }
}

/// A callback that is called with every event.
pub(super) type Callback = Arc<dyn Fn(&Event) + Send + Sync>;

/// Distributes events to callbacks and streams.
pub(super) struct Teller {
    events: broadcast::Sender<Event>,
    callbacks: Vec<Callback>,
}

impl Teller {
    pub(super) fn new(callbacks: Vec<Callback>) -> Teller {
        Teller { events: broadcast::Sender::new(MOST_WAITING), callbacks }
    }

    pub(super) fn events(&self) -> Events {
        Events { events: BroadcastStream::new(self.events.subscribe()) }
    }

    pub(super) fn tell(&self, event: Event) {
        for callback in &self.callbacks {
            // A panic of a callback must not break the leadership's bookkeeping.
            if std::panic::catch_unwind(AssertUnwindSafe(|| callback(&event))).is_err() {
                tracing::error!("a callback of the feed panicked");
            }
        }
        // An error means that the stream has no reader.
        let _ = self.events.send(event);
    }
}

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Teller").field("callbacks", &self.callbacks.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Fault, StoreError};

    #[test]
    fn the_lines_are_fixed() {
        let error = || {
            let says = "connection refused";
            Error::Store(StoreError::new(Fault::Unavailable, "mongodb", "following t", says))
        };
        let told = "the store does not serve: mongodb: following t: connection refused";
        for (event, line) in [
            (
                Event::NewState(State::Leader),
                r#"{"event":"new state","state":"leader"}"#.to_owned(),
            ),
            (
                Event::NewState(State::Follower),
                r#"{"event":"new state","state":"follower"}"#.into(),
            ),
            (
                Event::NewLeader { leader: "host-a".into(), token: 3 },
                r#"{"event":"new leader","leader":"host-a","token":3}"#.into(),
            ),
            (
                Event::Change(serde_json::json!({ "new_val": { "id": 1 }, "old_val": null })),
                r#"{"event":"change","change":{"new_val":{"id":1},"old_val":null}}"#.into(),
            ),
            (Event::SubscribeStarted, r#"{"event":"subscribe started"}"#.into()),
            (
                Event::SubscribeError(error()),
                format!(r#"{{"event":"subscribe error","error":"{told}"}}"#),
            ),
            (
                Event::HeartbeatError(error()),
                format!(r#"{{"event":"heartbeat error","error":"{told}"}}"#),
            ),
            (Event::Missed(7), r#"{"event":"missed","count":7}"#.into()),
        ] {
            assert_eq!(event.to_json(), line);
        }
    }
}
