//! One connection. Its questions and feeds share a socket, and tokens tell them apart.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::frame;
use super::handshake::Greeting;
use super::response::{Refusal, Refused, Response};
use super::term::{CONTINUE, STOP};

/// The most questions that wait to be written to the socket.
const QUEUE: usize = 256;
/// The most questions under way, feeds included. The server carries out 1,024 questions of a
/// connection at once.
const MOST_PENDING: usize = 1000;
/// The most unread parts. A server answers each question, and each request for more, once.
const UNREAD: usize = 4;
/// The largest answer that is skipped as too large. A server that announces a larger one is broken.
const LARGEST_PASSED_OVER: usize = 1024 * 1024 * 1024;
/// How many bytes are read, and written, at once.
const PIECE: usize = 64 * 1024;

/// A stream of bytes both ways, plain or secured.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {}

/// One connection; its socket is closed when this is dropped.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) greeting: Greeting,
    shared: Arc<Shared>,
    outgoing: mpsc::Sender<Outgoing>,
    /// Questions wait here when too many are under way.
    slots: Arc<Semaphore>,
    last: AtomicU64,
    task: JoinHandle<()>,
    /// True if no new questions are asked here.
    retired: watch::Sender<bool>,
}

/// A message on its way to the socket.
#[derive(Debug)]
struct Outgoing {
    /// The question, which must still be pending when this is written; none for a `STOP`.
    token: Option<u64>,
    message: Bytes,
}

#[derive(Debug, Default)]
struct Shared {
    pending: Mutex<Pending>,
}

#[derive(Debug, Default)]
struct Pending {
    questions: HashMap<u64, Reply>,
    /// Why the connection is over.
    over: Option<String>,
}

#[derive(Debug)]
enum Reply {
    Once(oneshot::Sender<Response>),
    Many(mpsc::Sender<Response>),
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Lost {
    /// The question was never sent.
    #[error("{0}")]
    Unsent(String),
    /// The question may have arrived.
    #[error("{0}")]
    Broken(String),
}

impl Link {
    /// Takes over a stream after its handshake.
    pub(super) fn new(stream: impl Stream, buffer: BytesMut, greeting: Greeting) -> Arc<Link> {
        let shared = Arc::<Shared>::default();
        let (outgoing, queue) = mpsc::channel(QUEUE);
        let task = tokio::spawn(serve(stream, buffer, queue, shared.clone()));
        let (last, retired) = (AtomicU64::new(0), watch::Sender::new(false));
        let slots = Arc::new(Semaphore::new(MOST_PENDING));
        Arc::new(Link { greeting, shared, outgoing, slots, last, task, retired })
    }

    /// Asks a question, and waits for its only answer.
    ///
    /// # Cancel safety
    /// A question that still waits to be written is taken back.
    pub(super) async fn ask(&self, question: &[u8]) -> Result<Response, Lost> {
        let (reply, answer) = oneshot::channel();
        let asked = self.send(question, Reply::Once(reply)).await?;
        let answered = answer.await;
        drop(asked);
        answered.map_err(|_| Lost::Broken(self.why()))
    }

    /// Asks for a sequence, which arrives in parts.
    ///
    /// # Cancel safety
    /// As for [`Link::ask`].
    pub(super) async fn follow(self: &Arc<Link>, question: &[u8]) -> Result<Cursor, Lost> {
        let (reply, parts) = mpsc::channel(UNREAD);
        let (token, slot) = self.send(question, Reply::Many(reply)).await?.keep();
        Ok(Cursor { link: self.clone(), token, parts, unfinished: true, asked: true, _slot: slot })
    }

    /// Stops new questions. Questions under way may end.
    pub(super) fn retire(&self) {
        self.retired.send_replace(true);
    }

    pub(super) fn is_usable(&self) -> bool {
        // The task may have ended with its runtime, without setting `over`.
        let alive = !self.outgoing.is_closed() && self.shared.lock().over.is_none();
        alive && !*self.retired.borrow()
    }

    /// Resolves when no new questions are asked here.
    pub(super) async fn retirement(&self) {
        let mut retired = self.retired.subscribe();
        // The wait fails only if this link is dropped, and we hold it.
        let _ = retired.wait_for(|retired| *retired).await;
    }

    async fn send(&self, question: &[u8], reply: Reply) -> Result<Asked<'_>, Lost> {
        let slot = self.slots.clone().acquire_owned().await;
        let slot = slot.map_err(|error| Lost::Unsent(error.to_string()))?;
        let token = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let message = frame::encode(token, question);
        let message = message.map_err(|error| Lost::Unsent(error.to_string()))?;
        self.shared.register(token, reply)?;
        let asked = Asked { shared: &self.shared, token, slot: Some(slot) };
        match self.outgoing.send(Outgoing { token: Some(token), message }).await {
            Ok(()) => Ok(asked),
            Err(_) => Err(Lost::Unsent(self.why())),
        }
    }

    fn why(&self) -> String {
        let over = self.shared.lock().over.clone();
        over.unwrap_or_else(|| "the connection ended".to_owned())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A question under way. Dropping it withdraws the question if it was not written yet.
struct Asked<'a> {
    shared: &'a Shared,
    token: u64,
    /// Taken by [`Asked::keep`]: the cursor then looks after the question.
    slot: Option<OwnedSemaphorePermit>,
}

impl Asked<'_> {
    fn keep(mut self) -> (u64, Option<OwnedSemaphorePermit>) {
        (self.token, self.slot.take())
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if self.slot.is_some() {
            self.shared.lock().questions.remove(&self.token);
        }
    }
}

/// A sequence that arrives in parts. Dropping it ends the sequence.
#[derive(Debug)]
pub(super) struct Cursor {
    link: Arc<Link>,
    token: u64,
    parts: mpsc::Receiver<Response>,
    unfinished: bool,
    /// True if the server owes us a part.
    asked: bool,
    _slot: Option<OwnedSemaphorePermit>,
}

impl Cursor {
    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Returns true if a part was requested and has not arrived.
    pub(super) fn is_asked(&self) -> bool {
        self.asked
    }

    /// The next part.
    ///
    /// # Cancel safety
    /// No part is lost.
    pub(super) async fn next(&mut self) -> Result<Response, Lost> {
        let part = self.parts.recv().await;
        let part = part.ok_or_else(|| Lost::Broken(self.link.why()))?;
        self.unfinished = match &part {
            Response::Partial(_) => true,
            // The refused answer may have been one of many parts.
            Response::Refused(refusal) => refusal.kind == Refused::TooLarge,
            Response::Atom(_) | Response::Sequence(_) => false,
        };
        self.asked = false;
        Ok(part)
    }

    /// Requests the next part, after a part that was not the last.
    ///
    /// # Cancel safety
    /// Dropped before it ends, it has requested nothing.
    pub(super) async fn more(&mut self) -> Result<(), Lost> {
        let message = frame::encode(self.token, CONTINUE);
        let message = message.map_err(|error| Lost::Unsent(error.to_string()))?;
        let sent = self.link.outgoing.send(Outgoing { token: Some(self.token), message }).await;
        sent.map_err(|_| Lost::Unsent(self.link.why()))?;
        self.asked = true;
        Ok(())
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.link.shared.lock().questions.remove(&self.token);
        if self.unfinished
            && let Ok(message) = frame::encode(self.token, STOP)
        {
            // A full queue means that the connection is about to end.
            let _ = self.link.outgoing.try_send(Outgoing { token: None, message });
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        // Every change is complete before the next can panic.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(&self, token: u64, reply: Reply) -> Result<(), Lost> {
        let mut pending = self.lock();
        if let Some(why) = &pending.over {
            return Err(Lost::Unsent(why.clone()));
        }
        pending.questions.insert(token, reply);
        Ok(())
    }

    /// Delivers an answer to its question, if it is still pending.
    fn deliver(&self, token: u64, response: Response) -> Result<(), String> {
        let mut pending = self.lock();
        match pending.questions.remove(&token) {
            None => Ok(()),
            Some(Reply::Once(reply)) => {
                let _ = reply.send(response);
                Ok(())
            }
            Some(Reply::Many(reply)) => match reply.try_send(response) {
                Ok(()) => {
                    pending.questions.insert(token, Reply::Many(reply));
                    Ok(())
                }
                Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
                Err(mpsc::error::TrySendError::Full(_)) => {
                    Err("the server sent more than was asked for".to_owned())
                }
            },
        }
    }

    fn is_wanted(&self, outgoing: &Outgoing) -> bool {
        outgoing.token.is_none_or(|token| self.lock().questions.contains_key(&token))
    }

    fn end(&self, why: String) {
        let mut pending = self.lock();
        pending.over.get_or_insert(why);
        pending.questions.clear();
    }
}

/// Reads and writes until either fails, and then ends all questions.
async fn serve(
    stream: impl Stream,
    buffer: BytesMut,
    queue: mpsc::Receiver<Outgoing>,
    shared: Arc<Shared>,
) {
    let (reader, writer) = tokio::io::split(stream);
    let why = tokio::select! {
        why = read(reader, buffer, &shared) => why,
        error = write(writer, queue, &shared) => error.map_or_else(|error| error.to_string(), |()| {
            "the connection was closed".to_owned()
        }),
    };
    tracing::debug!(%why, "rethinkdb: a connection ended");
    shared.end(why);
}

async fn read(mut reader: impl AsyncRead + Unpin, mut buffer: BytesMut, shared: &Shared) -> String {
    // How many bytes of a message that is too large are still to come.
    let mut passed_over = 0;
    loop {
        loop {
            let here = buffer.len().min(passed_over);
            buffer.advance(here);
            passed_over -= here;
            if passed_over > 0 {
                break;
            }
            let delivered = match frame::decode(&mut buffer) {
                Ok(None) => break,
                Ok(Some((token, text))) => match Response::parse(&text) {
                    Ok(response) => shared.deliver(token, response),
                    Err(error) => Err(error.to_string()),
                },
                Err(large) if large.length > LARGEST_PASSED_OVER => {
                    Err(format!("the server announced {large}"))
                }
                Err(large) => {
                    passed_over = frame::HEAD + large.length;
                    shared.deliver(large.token, Response::Refused(Refusal::too_large(large)))
                }
            };
            if let Err(why) = delivered {
                return why;
            }
        }
        buffer.reserve(PIECE);
        match reader.read_buf(&mut buffer).await {
            Ok(0) => return "the server ended the connection".to_owned(),
            Ok(_) => {}
            Err(error) => return error.to_string(),
        }
    }
}

/// Writes queued messages, and several at once if they wait.
async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<Outgoing>,
    shared: &Shared,
) -> io::Result<()> {
    let mut batch = Vec::new();
    let mut piece = BytesMut::new();
    while queue.recv_many(&mut batch, QUEUE).await > 0 {
        for outgoing in batch.drain(..) {
            // A question withdrawn before this moment is never sent.
            if shared.is_wanted(&outgoing) {
                piece.extend_from_slice(&outgoing.message);
            }
            if piece.len() >= PIECE {
                writer.write_all(&piece).await?;
                piece.clear();
            }
        }
        writer.write_all(&piece).await?;
        writer.flush().await?;
        piece.clear();
    }
    Ok(())
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
