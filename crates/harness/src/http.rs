//! Just enough HTTP to ask a server for its state, and to write to etcd's gateway.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The default time-out of an answer.
pub const WITHIN: Duration = Duration::from_secs(2);
/// The most bytes of an answer that are read.
const LIMIT: u64 = 4 << 20;

/// An answer: its status and its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code, such as 200.
    pub status: u16,
    /// The whole body.
    pub body: String,
}

/// Sends GET over a connection of its own.
///
/// Fails when nothing listens, the connection is lost before the answer is whole, or the answer
/// takes longer than two seconds: a stopped server accepts connections and never answers.
///
/// # Cancel safety
/// It is then unknown whether the server acts on it.
pub async fn get(server: SocketAddr, path: &str) -> io::Result<Answer> {
    exchange(server, &format!("GET {path} HTTP/1.0\r\nHost: {server}\r\n\r\n")).await
}

/// Sends POST with a JSON body over a connection of its own.
///
/// Fails as [`get`] does; the write may have happened even then.
///
/// # Cancel safety
/// It is then unknown whether the server acts on it.
pub async fn post(server: SocketAddr, path: &str, json: &str) -> io::Result<Answer> {
    let length = json.len();
    let head = format!("POST {path} HTTP/1.0\r\nHost: {server}\r\n");
    let kind = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
    exchange(server, &[&head, &kind, json].concat()).await
}

async fn exchange(server: SocketAddr, request: &str) -> io::Result<Answer> {
    let answer = converse(server, request.as_bytes(), WITHIN).await?;
    // Version 1.0, so the body is not chunked and no other answer follows.
    parse(&answer).ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "no whole answer"))
}

/// Sends `request` on a new connection and reads until the server closes it.
pub(crate) async fn converse(
    server: SocketAddr,
    request: &[u8],
    within: Duration,
) -> io::Result<Vec<u8>> {
    let conversation = async {
        let mut stream = TcpStream::connect(server).await?;
        stream.write_all(request).await?;
        let mut answer = Vec::new();
        stream.take(LIMIT).read_to_end(&mut answer).await?;
        Ok(answer)
    };
    tokio::time::timeout(within, conversation).await?
}

fn parse(answer: &[u8]) -> Option<Answer> {
    let (head, body) = std::str::from_utf8(answer).ok()?.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()?;
    let announced = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    // A body that was cut off is not an answer.
    let whole = announced.is_none_or(|length| length == body.len());
    whole.then(|| Answer { status, body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_status_and_a_body() {
        let answer = parse(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}");
        assert_eq!(answer, Some(Answer { status: 200, body: "{}".to_owned() }));
    }

    #[test]
    fn half_an_answer_is_none() {
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"HTTP/1.0 200 OK\r\nContent-Le"), None);
        assert_eq!(parse(b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\n{}"), None);
    }
}
