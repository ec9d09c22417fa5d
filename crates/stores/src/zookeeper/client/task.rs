//! The task that keeps a session: connects, sends, receives, and connects again.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use rand::seq::SliceRandom;
use tenure::queue::{Life, Session};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::super::wire::{Accepted, LONGEST_FRAME};
use super::Shared;
use super::error::Error;
use super::options::ClientOptions;
use super::state::End;
use super::stream::{Greeted, Stream, greet};
use crate::servers::Reconnect;

/// The pause after all servers failed; it doubles up to `LONGEST_PAUSE`.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How much is read at once, and how much buffer space is kept.
const CHUNK: usize = 16 << 10;
const MOST_KEPT: usize = 64 << 10;
/// A timer needs a limit.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

pub(super) async fn run(shared: Arc<Shared>, options: ClientOptions) {
    let mut trouble = Trouble::new(&options);
    let mut hosts = options.hosts.clone();
    hosts.shuffle(&mut rand::rng());
    let mut next = 0;
    while !shared.lock().closing && !trouble.is_enough() {
        let host = hosts.get(next).map_or("", String::as_str);
        shared.forget();
        tokio::select! {
            biased;
            () = shared.closing() => {}
            reached = reach(&shared, &options, host) => match reached {
                Ok(Some(stream)) => {
                    trouble.is_over();
                    let end = serve(&shared, stream).await;
                    tracing::debug!(host, ?end, "zookeeper: the connection has ended");
                    shared.conclude(end);
                    trouble.begins();
                    // Try another server first: this one may be cut off from the others.
                    next = (next + 1) % hosts.len().max(1);
                }
                // The session is over, but this server answers.
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(host, %error, "zookeeper: no connection");
                    shared.lock().trouble = Some(error);
                    next = (next + 1) % hosts.len().max(1);
                    if next == 0 {
                        trouble.round();
                        tokio::select! {
                            () = shared.closing() => {}
                            () = sleep(trouble.pause()) => {}
                        }
                    }
                }
            }
        }
    }
    let mut state = shared.lock();
    state.ended();
    let closed = state.session(|_| Life::Closed);
    state.trouble.get_or_insert(Error::Closed);
    drop(state);
    shared.session.send_replace(closed);
}

/// How long there has been no connection, and the policy for it.
struct Trouble {
    reconnect: Reconnect,
    since: Instant,
    rounds: u32,
    had_connection: bool,
}

impl Trouble {
    fn new(options: &ClientOptions) -> Trouble {
        let reconnect = options.reconnect;
        Trouble { reconnect, since: Instant::now(), rounds: 0, had_connection: false }
    }

    fn is_over(&mut self) {
        self.rounds = 0;
    }

    fn begins(&mut self) {
        self.since = Instant::now();
        self.had_connection = true;
    }

    fn round(&mut self) {
        self.rounds += 1;
    }

    fn is_enough(&self) -> bool {
        match self.reconnect {
            Reconnect::Forever => false,
            Reconnect::For(span) => self.since.elapsed() > span,
            Reconnect::Never => self.had_connection || self.rounds > 0,
        }
    }

    fn pause(&self) -> Duration {
        let pause = SHORTEST_PAUSE * 2u32.saturating_pow(self.rounds.min(10));
        // Spread out the clients that lost the same server, so that they do not reconnect all at
        // once.
        pause.min(LONGEST_PAUSE).mul_f64(rand::random_range(0.5..1.0))
    }
}

/// Connects to this server with the current session; `None` if the session is over.
async fn reach(
    shared: &Shared,
    options: &ClientOptions,
    host: &str,
) -> Result<Option<Box<dyn Stream>>, Error> {
    let (mut greeting, patience) = (Vec::new(), shared.lock().patience());
    shared.lock().greet(&mut greeting);
    let greeted = timeout(patience, greet(host, options, &*shared.clock, &greeting)).await;
    let late = |_| Error::Unreachable(format!("{host}: no answer within {patience:?}"));
    let Greeted { stream, before, accepted } = greeted.map_err(late)??;
    match accepted {
        Accepted::Expired => {
            shared.conclude(End::Expired);
            Ok(None)
        }
        Accepted::Session { id, secret, ttl } => {
            let mut state = shared.lock();
            state.accepted(id, secret, ttl, before);
            let live = state.session(|proof| Life::Live { proof });
            drop(state);
            shared.session.send_replace(live);
            Ok(Some(stream))
        }
    }
}

/// Sends and receives until the connection ends.
async fn serve(shared: &Shared, stream: Box<dyn Stream>) -> End {
    let mut parting = None;
    let end = match exchange(shared, stream, &mut parting).await {
        Ok(never) => match never {},
        Err(end) => end,
    };
    // The server was asked to close the session, so it counts as closed, however the connection
    // ended.
    if parting.is_some() { End::Closed } else { end }
}

async fn exchange(
    shared: &Shared,
    stream: Box<dyn Stream>,
    parting: &mut Option<Instant>,
) -> Result<std::convert::Infallible, End> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut incoming = BytesMut::with_capacity(CHUNK);
    let (mut outgoing, mut written) = (Vec::new(), 0);
    let mut alarm = pin!(sleep_until(Instant::now()));
    loop {
        if written == outgoing.len() {
            outgoing.clear();
            written = 0;
            if outgoing.capacity() > MOST_KEPT {
                outgoing = Vec::new();
            }
        }
        let wait = shared.turn(&mut outgoing, parting)?;
        let deadline = Instant::now() + wait.min(LONGEST_WAIT);
        if alarm.deadline() != deadline {
            alarm.as_mut().reset(deadline);
        }
        tokio::select! {
            biased;
            read = reader.read_buf(&mut incoming) => {
                match read {
                    Ok(0) => return Err(End::Lost("the server closed it".to_owned())),
                    Ok(_) => shared.receive(&mut incoming)?,
                    Err(error) => return Err(End::Lost(error.to_string())),
                }
                if incoming.capacity() < CHUNK / 4 || incoming.is_empty() && incoming.capacity() > MOST_KEPT {
                    let mut fresh = BytesMut::with_capacity(CHUNK);
                    fresh.extend_from_slice(&incoming);
                    incoming = fresh;
                }
            }
            sent = writer.write(&outgoing[written..]), if written < outgoing.len() => {
                written += sent.map_err(|error| End::Lost(error.to_string()))?;
                if written == outgoing.len() {
                    // TLS may hold back a partial record until it is flushed.
                    let request = shared.lock().request();
                    let flushed = timeout(request, writer.flush()).await;
                    let flushed = flushed.map_err(|_| End::Overdue)?;
                    flushed.map_err(|error| End::Lost(error.to_string()))?;
                }
            }
            // After the read, because all data that has arrived counts. Before the notification,
            // because that may never pause.
            () = alarm.as_mut() => shared.lock().check_overdue(shared.clock.now())?,
            () = shared.work.notified() => {}
        }
    }
}

impl Shared {
    /// Writes the requests that are due, and returns how long until more are.
    fn turn(&self, out: &mut Vec<u8>, parting: &mut Option<Instant>) -> Result<Duration, End> {
        let now = self.clock.now();
        let mut state = self.lock();
        state.check_given_up()?;
        state.send(now, out);
        if state.closing && parting.is_none() {
            if state.abandoned && state.has_entries() {
                return Err(End::Closed);
            }
            *parting = Some(Instant::now() + state.request());
            state.say_goodbye(now, out);
        }
        if parting.is_some_and(|until| until <= Instant::now()) {
            return Err(End::Closed);
        }
        state.beat(now, out);
        let news = state.has_news().then(|| state.session(|proof| Life::Live { proof }));
        let wait = state.until_next(now);
        drop(state);
        self.tell(news);
        Ok(wait)
    }

    fn receive(&self, incoming: &mut BytesMut) -> Result<(), End> {
        let now = self.clock.now();
        let mut state = self.lock();
        while let Some(length) = incoming.first_chunk().map(|length| u32::from_be_bytes(*length)) {
            let length = length as usize;
            if length > LONGEST_FRAME {
                return Err(End::Malformed);
            }
            if incoming.len() < 4 + length {
                incoming.reserve(4 + length - incoming.len());
                break;
            }
            state.receive(now, &incoming[4..4 + length])?;
            incoming.advance(4 + length);
        }
        Ok(())
    }

    /// Publishes that the connection, or the session, is over.
    fn conclude(&self, end: End) {
        let mut state = self.lock();
        state.ended();
        let session = match &end {
            End::Expired => {
                state.expired();
                state.session(|_| Life::Over)
            }
            End::Lost(_) | End::Overdue | End::Malformed | End::GivenUp | End::Closed => {
                state.session(|proof| Life::Suspended { proof })
            }
        };
        state.trouble = Some(match end {
            End::Lost(why) => Error::Unreachable(why),
            End::Overdue => Error::Unreachable("a request was not answered in time".to_owned()),
            End::Expired => Error::Unreachable("the session had expired".to_owned()),
            End::Malformed => Error::Malformed,
            End::GivenUp | End::Closed => Error::Unsent,
        });
        drop(state);
        self.session.send_replace(session);
    }

    /// Gives up a session that no server can still keep.
    fn forget(&self) {
        let mut state = self.lock();
        if !state.is_forgotten(self.clock.now()) {
            return;
        }
        state.forget();
        let over = state.session(|_| Life::Over);
        drop(state);
        tracing::warn!("zookeeper: no server was heard of for so long that the session is over");
        self.session.send_replace(over);
    }

    fn tell(&self, news: Option<Session>) {
        if let Some(session) = news {
            self.session.send_replace(session);
        }
    }

    /// Waits until the task must end.
    async fn closing(&self) {
        loop {
            if self.lock().closing {
                return;
            }
            self.work.notified().await;
        }
    }
}
