//! One connection: many questions and feeds share its socket, told apart by their tokens.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::frame;
use super::handshake::Greeting;
use super::response::Response;
use super::term::{CONTINUE, STOP};

/// Questions that wait to be written to the socket.
const QUEUE: usize = 256;
/// The server carries out 1,024 questions of a connection at once; so many may be under way, feeds included.
const MOST_PENDING: usize = 1000;
/// A server answers each question, and each request for more, once.
const UNREAD: usize = 4;
/// What is read, and what is written, at once.
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
    /// No new questions are asked here.
    retired: watch::Sender<bool>,
}

/// A message on its way to the socket.
#[derive(Debug)]
struct Outgoing {
    /// Who must still wait for its answer when it is written; nobody for a last word.
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
    /// The question never left.
    #[error("{0}")]
    Unsent(String),
    /// It may have arrived.
    #[error("{0}")]
    Broken(String),
}

impl Link {
    /// Takes over a stream behind its handshake.
    pub(super) fn new(stream: impl Stream, buffer: BytesMut, greeting: Greeting) -> Arc<Link> {
        let shared = Arc::<Shared>::default();
        let (outgoing, queue) = mpsc::channel(QUEUE);
        let task = tokio::spawn(serve(stream, buffer, queue, shared.clone()));
        let (last, retired) = (AtomicU64::new(0), watch::Sender::new(false));
        let slots = Arc::new(Semaphore::new(MOST_PENDING));
        Arc::new(Link { greeting, shared, outgoing, slots, last, task, retired })
    }

    /// Asks, and waits for the one answer.
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

    /// Asks for a sequence, which comes in parts.
    ///
    /// # Cancel safety
    /// As for [`Link::ask`].
    pub(super) async fn follow(self: &Arc<Link>, question: &[u8]) -> Result<Cursor, Lost> {
        let (reply, parts) = mpsc::channel(UNREAD);
        let (token, slot) = self.send(question, Reply::Many(reply)).await?.keep();
        Ok(Cursor { link: self.clone(), token, parts, unfinished: true, asked: true, _slot: slot })
    }

    /// No new questions; those under way may end.
    pub(super) fn retire(&self) {
        self.retired.send_replace(true);
    }

    pub(super) fn is_usable(&self) -> bool {
        // The task may have ended with its runtime, without a word.
        let alive = !self.outgoing.is_closed() && self.shared.lock().over.is_none();
        alive && !*self.retired.borrow()
    }

    /// Resolves when no new questions are asked here.
    pub(super) async fn retirement(&self) {
        let mut retired = self.retired.subscribe();
        // It ends with this link, which we hold.
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

/// A question under way; dropping it takes it back, if it was not yet written.
struct Asked<'a> {
    shared: &'a Shared,
    token: u64,
    /// Gone only when somebody else looks after the question.
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

/// A sequence that comes in parts; dropping it ends it.
#[derive(Debug)]
pub(super) struct Cursor {
    link: Arc<Link>,
    token: u64,
    parts: mpsc::Receiver<Response>,
    unfinished: bool,
    /// Whether the server owes us a part.
    asked: bool,
    _slot: Option<OwnedSemaphorePermit>,
}

impl Cursor {
    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Whether a part is on its way.
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
        self.unfinished = matches!(part, Response::Partial(_));
        self.asked = false;
        Ok(part)
    }

    /// Asks for more, after a part that was not the last.
    ///
    /// # Cancel safety
    /// Nothing was asked if it is dropped before it ends.
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
            // A queue that is full means a connection that is about to end.
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

    /// Hands an answer to whoever asked; nobody may wait any more.
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

/// Reads and writes until either fails, and tells everybody.
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
    loop {
        loop {
            let (token, text) = match frame::decode(&mut buffer) {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(error) => return error.to_string(),
            };
            let delivered = match Response::parse(&text) {
                Ok(response) => shared.deliver(token, response),
                Err(error) => Err(error.to_string()),
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

/// Writes what is queued, several messages at once where they wait.
async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<Outgoing>,
    shared: &Shared,
) -> io::Result<()> {
    let mut batch = Vec::new();
    let mut piece = BytesMut::new();
    while queue.recv_many(&mut batch, QUEUE).await > 0 {
        for outgoing in batch.drain(..) {
            // Whoever gave up before this moment has asked nothing.
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
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use serde_json::json;
    use tokio::io::DuplexStream;

    /// A link, and the server's end of its stream.
    fn pair() -> (Arc<Link>, DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        (Link::new(ours, BytesMut::new(), Greeting { version: None }), theirs)
    }

    /// The next question that the server sees.
    async fn heard(server: &mut DuplexStream) -> (u64, String) {
        let mut head = [0; 12];
        server.read_exact(&mut head).await.expect("a question");
        let mut buffer = BytesMut::from(&head[..]);
        let length = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        let mut text = vec![0; length];
        server.read_exact(&mut text).await.expect("all of it");
        buffer.extend_from_slice(&text);
        let (token, text) = frame::decode(&mut buffer).expect("small").expect("whole");
        (token, String::from_utf8(text.to_vec()).expect("text"))
    }

    async fn say(server: &mut DuplexStream, token: u64, text: &str) {
        let message = frame::encode(token, text.as_bytes()).expect("small");
        server.write_all(&message).await.expect("it is read");
    }

    #[tokio::test]
    async fn answers_reach_whoever_asked_in_any_order() {
        let (link, mut server) = pair();
        let serving = async {
            let (one, other) = (heard(&mut server).await, heard(&mut server).await);
            assert_eq!((one.1.as_str(), other.1.as_str()), ("a", "b"));
            say(&mut server, 77, r#"{"t":1,"r":["nobody's"]}"#).await;
            say(&mut server, other.0, r#"{"t":1,"r":["to b"]}"#).await;
            say(&mut server, one.0, r#"{"t":1,"r":["to a"]}"#).await;
        };
        let (a, b, ()) = tokio::join!(link.ask(b"a"), link.ask(b"b"), serving);
        assert_eq!(a, Ok(Response::Atom(json!("to a").into())));
        assert_eq!(b, Ok(Response::Atom(json!("to b").into())));
    }

    #[tokio::test]
    async fn a_question_that_was_given_up_before_it_was_written_is_never_written() {
        let (link, mut server) = pair();
        // The task that writes has not run yet.
        assert_eq!(link.ask(b"given up").now_or_never(), None);
        let serving = async {
            let (token, text) = heard(&mut server).await;
            assert_eq!(text, "kept");
            say(&mut server, token, r#"{"t":1,"r":[1]}"#).await;
        };
        let (kept, ()) = tokio::join!(link.ask(b"kept"), serving);
        assert_eq!(kept, Ok(Response::Atom(json!(1).into())));
    }

    #[tokio::test]
    async fn a_sequence_comes_in_parts_and_is_ended_when_it_is_dropped() {
        let (link, mut server) = pair();
        let mut cursor = link.follow(b"feed").await.expect("asked");
        let (token, _) = heard(&mut server).await;
        for number in 0..2 {
            say(&mut server, token, &format!(r#"{{"t":3,"r":[{number}]}}"#)).await;
            assert_eq!(cursor.next().await, Ok(Response::Partial(vec![json!(number).into()])));
            assert!(!cursor.is_asked());
            cursor.more().await.expect("asked");
            assert_eq!(heard(&mut server).await, (token, "[2]".to_owned()));
        }
        drop(cursor);
        assert_eq!(heard(&mut server).await, (token, "[3]".to_owned()));
        assert!(link.is_usable());
    }

    #[tokio::test]
    async fn a_sequence_that_is_over_needs_no_end() {
        let (link, mut server) = pair();
        let mut cursor = link.follow(b"list").await.expect("asked");
        let (token, _) = heard(&mut server).await;
        say(&mut server, token, r#"{"t":2,"r":[]}"#).await;
        assert_eq!(cursor.next().await, Ok(Response::Sequence(vec![])));
        drop(cursor);
        let asking = link.ask(b"next");
        let serving = async { heard(&mut server).await.1 };
        let text = tokio::select! { _ = asking => panic!("unanswered"), text = serving => text };
        assert_eq!(text, "next");
    }

    #[tokio::test]
    async fn a_server_that_sends_what_makes_no_sense_is_left() {
        for wrong in [&b"\x01\0\0\0\0\0\0\0\xff\xff\xff\xff"[..], b"\x01\0\0\0\0\0\0\0\x01\0\0\0{"]
        {
            let (link, mut server) = pair();
            let serving = async {
                heard(&mut server).await;
                server.write_all(wrong).await.expect("it is read");
            };
            let (answer, ()) = tokio::join!(link.ask(b"a"), serving);
            assert!(matches!(answer, Err(Lost::Broken(_))), "{answer:?}");
            assert!(!link.is_usable());
            assert!(matches!(link.ask(b"b").await, Err(Lost::Unsent(_))), "nothing more is sent");
        }
    }

    #[tokio::test]
    async fn a_server_that_sends_more_than_was_asked_for_is_left() {
        let (link, mut server) = pair();
        let mut cursor = link.follow(b"feed").await.expect("asked");
        let (token, _) = heard(&mut server).await;
        for _ in 0..=UNREAD {
            say(&mut server, token, r#"{"t":3,"r":[]}"#).await;
        }
        let over = async { while cursor.next().await.is_ok() {} };
        over.await;
        assert!(!link.is_usable());
    }

    #[tokio::test]
    async fn a_connection_that_ends_is_told_to_everybody() {
        let (link, server) = pair();
        let mut cursor = link.follow(b"feed").await.expect("asked");
        let ending = async {
            tokio::task::yield_now().await;
            drop(server);
        };
        let (answer, part, ()) = tokio::join!(link.ask(b"a"), cursor.next(), ending);
        assert!(answer.is_err(), "{answer:?}");
        assert!(matches!(part, Err(Lost::Broken(_))), "{part:?}");
    }
}
