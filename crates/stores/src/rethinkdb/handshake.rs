//! The handshake of a connection: version V1_0, with a login by SCRAM-SHA-256.

use std::io;

use bytes::{Buf as _, BytesMut};
use rand::RngExt as _;
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::scram::{Distrust, Login, Proven};
use crate::servers::Secret;

const VERSION_1_0: u32 = 0x34c2_bdc3;
/// The longest message of the handshake.
const LONGEST: usize = 4096;
/// The codes of login errors (wrong password, unknown user, and the like).
const LOGIN_ERRORS: std::ops::RangeInclusive<u64> = 10..=20;

/// A user of the server.
#[derive(Clone, Debug)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) password: Secret,
}

/// The server's greeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    /// The server's version. Every server of this protocol tells it, an emulator does not.
    pub(super) version: Option<String>,
}

/// Why connecting failed. No question was sent yet.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the server does not let us in: {0}")]
    Login(String),
    #[error("the server does not speak RethinkDB's protocol V1_0: {0}")]
    Stranger(String),
    #[error(transparent)]
    Distrust(#[from] Distrust),
}

#[derive(Deserialize)]
struct Words {
    success: bool,
    #[serde(default)]
    server_version: Option<String>,
    #[serde(default)]
    authentication: String,
    #[serde(default)]
    error: String,
    #[serde(default)]
    error_code: u64,
}

/// Shakes hands with the server. Bytes after the handshake stay in the buffer.
pub(super) async fn shake<S>(
    stream: &mut S,
    buffer: &mut BytesMut,
    user: &User,
) -> Result<Greeting, Refused>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let nonce: String = {
        let mut random = rand::rng();
        (0..24).map(|_| char::from(random.sample(rand::distr::Alphanumeric))).collect()
    };
    let login = Login::new(&user.name, nonce);
    let mut first = VERSION_1_0.to_le_bytes().to_vec();
    let method = "SCRAM-SHA-256";
    let words = json!({
        "protocol_version": 0, "authentication_method": method, "authentication": login.first()
    });
    first.extend_from_slice(words.to_string().as_bytes());
    first.push(0);
    stream.write_all(&first).await?;
    stream.flush().await?;
    let greeting = Greeting { version: hear(stream, buffer).await?.server_version };
    let challenge = hear(stream, buffer).await?.authentication;
    let (proof, proven) = prove(login, user.password.clone(), challenge).await?;
    let mut last = json!({ "authentication": proof }).to_string().into_bytes();
    last.push(0);
    stream.write_all(&last).await?;
    stream.flush().await?;
    proven.check(&hear(stream, buffer).await?.authentication)?;
    Ok(greeting)
}

/// Proves our password. It hashes many times, so it runs on a thread for blocking work.
async fn prove(
    login: Login,
    password: Secret,
    challenge: String,
) -> Result<(String, Proven), Refused> {
    let proving = move || login.prove(password.reveal(), &challenge);
    let proven = tokio::task::spawn_blocking(proving).await;
    Ok(proven.map_err(|error| io::Error::other(error.to_string()))??)
}

/// Receives the server's next message.
async fn hear<S>(stream: &mut S, buffer: &mut BytesMut) -> Result<Words, Refused>
where
    S: AsyncRead + Unpin,
{
    loop {
        if let Some(words) = take(buffer)? {
            return understand(&words);
        }
        if stream.read_buf(buffer).await? == 0 {
            let what = "the server ended the connection during the handshake";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what).into());
        }
    }
}

/// Takes the bytes before the first NUL.
fn take(buffer: &mut BytesMut) -> Result<Option<BytesMut>, Refused> {
    match buffer.iter().position(|byte| *byte == 0) {
        Some(end) if end <= LONGEST => {
            let words = buffer.split_to(end);
            buffer.advance(1);
            Ok(Some(words))
        }
        None if buffer.len() <= LONGEST => Ok(None),
        Some(_) | None => Err(Refused::Stranger("its first words have no end".into())),
    }
}

fn understand(words: &[u8]) -> Result<Words, Refused> {
    // A server refuses a handshake that it does not understand in plain text.
    let words: Words =
        serde_json::from_slice(words).map_err(|_| Refused::Stranger(shown(words)))?;
    if words.success {
        Ok(words)
    } else if LOGIN_ERRORS.contains(&words.error_code) {
        Err(Refused::Login(shown(words.error.as_bytes())))
    } else {
        Err(Refused::Stranger(shown(words.error.as_bytes())))
    }
}

/// Text of an unknown server, short and in one line.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    text.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> User {
        User { name: "user".to_owned(), password: Secret::new("canary") }
    }

    /// Shakes hands with a server that always says this.
    async fn with(said: &'static [u8]) -> Result<Greeting, Refused> {
        let (mut ours, mut theirs) = tokio::io::duplex(64 * 1024);
        let server = async move {
            theirs.write_all(said).await.expect("it is read");
            theirs.flush().await.expect("it is read");
            // Ends the connection after the last word.
            theirs.shutdown().await.expect("it is open");
            let mut heard = Vec::new();
            let _ = theirs.read_to_end(&mut heard).await;
            heard
        };
        let client = async move {
            let shaken = shake(&mut ours, &mut BytesMut::new(), &user()).await;
            drop(ours);
            shaken
        };
        let (shaken, heard) = tokio::join!(client, server);
        assert!(heard.starts_with(&[0xc3, 0xbd, 0xc2, 0x34]), "the version comes first");
        assert!(!heard.windows(6).any(|part| part == b"canary"), "a password is never sent");
        shaken
    }

    #[tokio::test]
    async fn a_wrong_password_is_told_apart_from_a_stranger() {
        let hello = br#"{"success":true,"server_version":"2.4.4"}"#;
        let denied = br#"{"success":false,"error":"Wrong password","error_code":12}"#;
        let said = [&hello[..], b"\0", &denied[..], b"\0"].concat().leak();
        assert!(matches!(with(said).await, Err(Refused::Login(says)) if says == "Wrong password"));
        let said = b"ERROR: Received an unsupported protocol version.\n\0";
        assert!(matches!(with(said).await, Err(Refused::Stranger(_))));
        assert!(matches!(with(b"HTTP/1.1 400 Bad Request").await, Err(Refused::Io(_))));
        assert!(matches!(with(b"").await, Err(Refused::Io(_))));
    }

    #[tokio::test]
    async fn words_without_an_end_are_not_listened_to() {
        let said = vec![b'x'; 3 * LONGEST].leak();
        assert!(matches!(with(said).await, Err(Refused::Stranger(_))));
    }

    #[tokio::test]
    async fn a_server_that_answers_another_login_is_not_believed() {
        let hello = br#"{"success":true}"#;
        let challenge = br#"{"success":true,"authentication":"r=another,s=W22Z,i=1"}"#;
        let said = [&hello[..], b"\0", &challenge[..], b"\0"].concat().leak();
        assert!(matches!(with(said).await, Err(Refused::Distrust(Distrust::Nonce))));
    }
}
