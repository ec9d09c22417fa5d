//! The part of ZooKeeper's protocol that a test of the proxy needs.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const EXISTS: i32 = 3;
const ANY_VERSION: i32 = -1;

/// A session that sends one request at a time.
pub(crate) struct Session {
    stream: TcpStream,
    number: i32,
}

/// An answer: the number of its request, and its error, 0 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) number: i32,
    pub(crate) error: i32,
}

impl Session {
    pub(crate) async fn open(server: SocketAddr) -> io::Result<Session> {
        let mut session = Session { stream: TcpStream::connect(server).await?, number: 0 };
        let timeout = 4_000i32.to_be_bytes();
        // Version, last transaction seen, timeout, session, password.
        let hello = [&[0; 12][..], &timeout, &[0; 8], &16i32.to_be_bytes(), &[0; 16]].concat();
        session.send(&hello).await?;
        session.receive().await?;
        Ok(session)
    }

    pub(crate) async fn create(&mut self, path: &str) -> io::Result<Answer> {
        let everyone =
            [&1i32.to_be_bytes()[..], &31i32.to_be_bytes(), &buffer(b"world"), &buffer(b"anyone")];
        let persistent = 0i32.to_be_bytes();
        let body =
            [&buffer(path.as_bytes()), &buffer(b"data"), &everyone.concat(), &persistent[..]];
        self.request(CREATE, &body.concat()).await
    }

    pub(crate) async fn delete(&mut self, path: &str) -> io::Result<Answer> {
        let body = [&buffer(path.as_bytes())[..], &ANY_VERSION.to_be_bytes()].concat();
        self.request(DELETE, &body).await
    }

    pub(crate) async fn exists(&mut self, path: &str, watch: bool) -> io::Result<Answer> {
        let body = [&buffer(path.as_bytes())[..], &[u8::from(watch)]].concat();
        self.request(EXISTS, &body).await
    }

    /// The server's next message that is not an answer.
    pub(crate) async fn next(&mut self) -> io::Result<Answer> {
        let message = self.receive().await?;
        let field = |at: usize| {
            let bytes = message.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(i32::from_be_bytes).ok_or(io::ErrorKind::InvalidData)
        };
        Ok(Answer { number: field(0)?, error: field(12)? })
    }

    async fn request(&mut self, kind: i32, body: &[u8]) -> io::Result<Answer> {
        self.number += 1;
        let head = [self.number.to_be_bytes(), kind.to_be_bytes()].concat();
        self.send(&[&head, body].concat()).await?;
        self.next().await
    }

    async fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.stream.write_all(&buffer(message)).await
    }

    async fn receive(&mut self) -> io::Result<Vec<u8>> {
        let receiving = async {
            let length = self.stream.read_u32().await? as usize;
            let mut message = vec![0; length];
            self.stream.read_exact(&mut message).await?;
            Ok(message)
        };
        tokio::time::timeout(Duration::from_secs(5), receiving).await?
    }
}

/// Bytes with their length in front.
fn buffer(bytes: &[u8]) -> Vec<u8> {
    let length = i32::try_from(bytes.len()).expect("short");
    [&length.to_be_bytes(), bytes].concat()
}

/// Returns true if a request, as the proxy shows it, creates a node.
pub(crate) fn creates(request: &[u8]) -> bool {
    request.get(8..12) == Some(&CREATE.to_be_bytes())
}
