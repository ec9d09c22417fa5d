//! A connection to one server, up to the point where it accepts us.

use std::sync::Arc;

use tenure::{Clock, Moment};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::super::wire::{self, AUTHENTICATION, Accepted, Head, LONGEST_FRAME, Reader};
use super::error::Error;
use super::options::ClientOptions;

/// A stream of bytes in both directions.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// The result of a handshake.
pub(super) struct Greeted {
    pub(super) stream: Box<dyn Stream>,
    /// A moment before the handshake was sent.
    pub(super) before: Moment,
    pub(super) accepted: Accepted,
}

/// Connects to a server, sends `greeting` and authenticates.
pub(super) async fn greet(
    host: &str,
    options: &ClientOptions,
    clock: &dyn Clock,
    greeting: &[u8],
) -> Result<Greeted, Error> {
    let unreachable = |error: std::io::Error| Error::Unreachable(format!("{host}: {error}"));
    let tcp = TcpStream::connect(host).await.map_err(unreachable)?;
    // Send each request at once, without waiting for the acknowledgement of the one before.
    tcp.set_nodelay(true).map_err(unreachable)?;
    let mut stream: Box<dyn Stream> = match &options.tls {
        None => Box::new(tcp),
        Some(tls) => Box::new(secure(host, tls, tcp).await?),
    };
    let before = clock.now();
    stream.write_all(greeting).await.map_err(unreachable)?;
    stream.flush().await.map_err(unreachable)?;
    let accepted = wire::accepted(&frame(&mut stream).await.map_err(unreachable)?)?;
    if let (Accepted::Session { .. }, Some(digest)) = (&accepted, &options.digest) {
        let mut out = Vec::new();
        wire::authenticate(&mut out, "digest", digest.reveal().as_bytes());
        stream.write_all(&out).await.map_err(unreachable)?;
        stream.flush().await.map_err(unreachable)?;
        let answer = frame(&mut stream).await.map_err(unreachable)?;
        let head = Head::read(&mut Reader::new(&answer))?;
        if head.number != AUTHENTICATION || head.refused.is_some() {
            return Err(Error::Denied);
        }
    }
    Ok(Greeted { stream, before, accepted })
}

async fn secure(
    host: &str,
    tls: &Arc<ClientConfig>,
    tcp: TcpStream,
) -> Result<impl Stream + use<>, Error> {
    let name = host.rsplit_once(':').map_or(host, |(name, _port)| name);
    let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(name)
        .map_err(|_| Error::Unreachable(format!("{host} is no name that TLS knows")))?;
    let connected = TlsConnector::from(tls.clone()).connect(name, tcp).await;
    connected.map_err(|error| Error::Unreachable(format!("{host}: {error}")))
}

/// Reads one frame, and not a byte more.
async fn frame(stream: &mut Box<dyn Stream>) -> std::io::Result<Vec<u8>> {
    let length = usize::try_from(stream.read_i32().await?).unwrap_or(usize::MAX);
    if length > LONGEST_FRAME {
        return Err(std::io::Error::other("that is no ZooKeeper"));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(body)
}
