//! A server for tests that behaves as RethinkDB does where reqlite does not.
//!
//! It speaks V1_0, tells its version, and evaluates the terms that this crate sends. Its
//! `tableCreate` checks the name and creates the table in two steps, as the real server does, so it
//! can hold two tables of one name.

mod parts;
mod reql;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use ring::{hmac, pbkdf2};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use self::parts::Asked;
use self::reql::Outcome;
pub(super) use self::reql::World;
use super::frame;
use crate::servers::Servers;

/// The server. It runs until it is dropped.
pub(super) struct Scripted {
    pub(super) address: SocketAddr,
    world: Arc<Mutex<World>>,
    _serving: JoinSet<()>,
}

impl Scripted {
    pub(super) async fn start() -> Scripted {
        Scripted::beside(&Arc::default()).await
    }

    /// Starts another server in the cluster of `other`.
    pub(super) async fn joining(other: &Scripted) -> Scripted {
        Scripted::beside(&other.world).await
    }

    async fn beside(world: &Arc<Mutex<World>>) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let mut serving = JoinSet::new();
        let shared = world.clone();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                lock(&shared).connections += 1;
                connections.spawn(serve(stream, shared.clone()));
            }
        });
        Scripted { address, world: world.clone(), _serving: serving }
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }

    /// The servers of a URL that names these servers.
    pub(super) fn servers(of: &[&Scripted], path: &str) -> Servers {
        let hosts: Vec<String> = of.iter().map(|server| server.address.to_string()).collect();
        let url = format!("rethinkdb://{}/{path}", hosts.join(","));
        match crate::parse(&url) {
            Ok(crate::Location::Rethinkdb(servers)) => servers,
            other => panic!("{url}: {other:?}"),
        }
    }
}

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().expect("nobody panics with it")
}

async fn serve(mut stream: TcpStream, world: Arc<Mutex<World>>) {
    let mut buffer = BytesMut::new();
    // A client may go away in the middle.
    if greet(&mut stream, &mut buffer).await.is_none() {
        return;
    }
    let severing = lock(&world).severing.clone();
    let mut severed = pin!(severing.notified());
    severed.as_mut().enable();
    let (mut reader, mut writer) = stream.into_split();
    let (answers, mut queue) = mpsc::unbounded_channel::<(u64, Value)>();
    let mut asking = JoinSet::new();
    asking.spawn(async move {
        while let Some((token, answer)) = queue.recv().await {
            let message = frame::encode(token, answer.to_string().as_bytes()).expect("small");
            if writer.write_all(&message).await.is_err() {
                return;
            }
        }
    });
    loop {
        while let Ok(Some((token, text))) = frame::decode(&mut buffer) {
            let question: Value = serde_json::from_slice(&text).expect("a question is JSON");
            let (world, answers) = (world.clone(), answers.clone());
            asking.spawn(async move { answer(&world, token, &question, &answers).await });
        }
        tokio::select! {
            () = &mut severed => return,
            read = reader.read_buf(&mut buffer) => match read {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }
}

async fn answer(
    world: &Mutex<World>,
    token: u64,
    question: &Value,
    answers: &mpsc::UnboundedSender<(u64, Value)>,
) {
    let term = question[1][0].as_u64().unwrap_or_default();
    let delay = lock(world).delays.get(&term).copied();
    tokio::time::sleep(delay.unwrap_or_default()).await;
    let outcome = match question[0].as_u64() {
        Some(1) => create_slowly(world, &question[1]).await.unwrap_or_else(|| {
            let asked = Asked { token, answers: answers.clone() };
            lock(world).start(&question[1], asked)
        }),
        Some(2) => lock(world).go_on(token, answers),
        Some(3) => lock(world).stop(token, answers),
        Some(5) => Outcome::Answer(json!({ "t": 5, "r": [{ "id": "x", "name": "scripted" }] })),
        other => panic!("no question has the kind {other:?}"),
    };
    if let Outcome::Answer(answer) = outcome {
        // The client may have gone away.
        let _ = answers.send((token, answer));
    }
}

/// Carries out `tableCreate` slowly.
///
/// There is time between the check of the name and the creation, and before the answer.
async fn create_slowly(world: &Mutex<World>, term: &Value) -> Option<Outcome> {
    let (checked, slow) = {
        let mut world = lock(world);
        (world.check_creation(term)?, world.slow)
    };
    if let Err(refused) = checked {
        return Some(Outcome::Answer(refused));
    }
    let all_found_it_free = || {
        let world = lock(world);
        world.found_free >= world.together
    };
    until("all of them found the name free", all_found_it_free).await;
    let created = lock(world).create(term);
    tokio::time::sleep(slow).await;
    Some(Outcome::Answer(created))
}

/// The server's side of the handshake. It accepts any password.
async fn greet(stream: &mut TcpStream, buffer: &mut BytesMut) -> Option<()> {
    stream.write_all(b"{\"success\":true,\"server_version\":\"2.4.4\"}\0").await.ok()?;
    let first = word(stream, buffer).await?;
    let first: Value = serde_json::from_slice(&first[4..]).ok()?;
    let bare = first["authentication"].as_str()?.strip_prefix("n,,")?.to_owned();
    let nonce = format!("{}server", bare.rsplit_once("r=")?.1);
    let challenge = format!("r={nonce},s={},i=1", STANDARD.encode("salt"));
    let words = json!({ "success": true, "authentication": challenge });
    stream.write_all(format!("{words}\0").as_bytes()).await.ok()?;
    word(stream, buffer).await?;
    let mut salted = [0; 32];
    let rounds = std::num::NonZeroU32::MIN;
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, b"salt", b"", &mut salted);
    let key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &salted), b"Server Key");
    let message = format!("{bare},{challenge},c=biws,r={nonce}");
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_ref());
    let proof = STANDARD.encode(hmac::sign(&key, message.as_bytes()));
    let words = json!({ "success": true, "authentication": format!("v={proof}") });
    stream.write_all(format!("{words}\0").as_bytes()).await.ok()
}

/// The client's next message, up to its NUL. The first one begins with four bytes of version.
async fn word(stream: &mut TcpStream, buffer: &mut BytesMut) -> Option<BytesMut> {
    loop {
        if let Some(end) = buffer.iter().position(|byte| *byte == 0) {
            let words = buffer.split_to(end);
            let _nul = buffer.split_to(1);
            return Some(words);
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

/// Waits for a condition, up to a minute for a busy machine.
pub(super) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = tokio::time::Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(tokio::time::Instant::now() < end, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
