//! An input that takes tasks by POST.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{ALLOW, HeaderValue, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::admission::Admission;
use crate::documents::MAX_TASK_BYTES;
use crate::input::{Emitter, InputError, Local, Template};
use crate::inputs::accept::{Limits, accept, bind};

/// How long the store may take before the client is told to try again.
const STORE_WITHIN: Duration = Duration::from_secs(10);
/// The most bytes of a request's head.
const MOST_HEAD_BYTES: usize = 32 * 1024;

/// Listens on a TCP port for HTTP/1; the body of each `POST /` is a task.
///
/// `202` means that the task is in the store; the body has its id. `503` means that it may not be,
/// and to send it again: at worst the task is done twice. Bodies of more than 16 KiB are refused
/// with `413`. There is no TLS and no login: put a proxy with both in front of it, or use a
/// loopback address.
///
/// Web pages must not send tasks through a browser. So the `Host` of a request must be the address
/// that the request arrived at (or `localhost`, on a loopback address) or one that was
/// [configured](HttpListener::host); others are answered with `421`. Requests with an `Origin` are
/// answered with `403`, unless that origin was [configured](HttpListener::origin). Idle and slow
/// connections are closed, and a peer has a limited number of them: [`Limits`].
#[derive(Debug)]
pub struct HttpListener {
    listener: std::net::TcpListener,
    template: Template,
    limits: Limits,
    admission: Arc<Admission>,
}

impl HttpListener {
    /// Listens on this address from now on. Each body is a task of this template.
    ///
    /// # Errors
    /// When the port cannot be bound.
    pub fn bind(address: impl ToSocketAddrs, template: Template) -> io::Result<HttpListener> {
        let (limits, admission) = (Limits::default(), Arc::default());
        Ok(HttpListener { listener: bind(address)?, template, limits, admission })
    }

    /// Also accepts requests for this host.
    ///
    /// It is `tasks.example.org` for any port, or `tasks.example.org:8443`. This is needed behind a
    /// proxy that passes on the `Host` of its own requests.
    #[must_use]
    pub fn host(mut self, host: &str) -> HttpListener {
        Arc::make_mut(&mut self.admission).hosts.push(host.to_ascii_lowercase());
        self
    }

    /// Also accepts tasks from pages of an origin such as `https://app.example.org`.
    #[must_use]
    pub fn origin(mut self, origin: &str) -> HttpListener {
        Arc::make_mut(&mut self.admission).origins.push(origin.to_ascii_lowercase());
        self
    }

    /// Sets the limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> HttpListener {
        self.limits = limits;
        self
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// When the system does not report it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

#[async_trait]
impl Local for HttpListener {
    async fn run(&self, emitter: &Emitter) -> Result<(), InputError> {
        let limits = self.limits;
        accept(&self.listener, limits, |stream, peer| {
            let (emitter, template) = (emitter.clone(), self.template.clone());
            let admission = Arc::clone(&self.admission);
            async move {
                let served = match stream.local_addr() {
                    Ok(at) => {
                        let desk = Desk { emitter, template, admission, at, slow: limits.slow };
                        serve(stream, &desk, limits).await
                    }
                    Err(error) => Err(error.into()),
                };
                if let Err(error) = served {
                    tracing::debug!(%peer, %error, "a connection ended");
                }
            }
        })
        .await
    }
}

/// Serves one connection until it ends, or its time is over.
async fn serve(
    stream: TcpStream,
    desk: &Desk,
    limits: Limits,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let service = service_fn(|request| desk.respond(request));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.slow.min(limits.idle))
        .max_buf_size(MOST_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(served);
    tokio::select! {
        ended = served.as_mut() => return Ok(ended?),
        () = tokio::time::sleep(limits.lasting) => served.as_mut().graceful_shutdown(),
    }
    // The last request may need time, but a client that does not read its answers is cut off.
    match timeout(limits.slow.saturating_mul(2).saturating_add(STORE_WITHIN), served).await {
        Ok(ended) => Ok(ended?),
        Err(late) => Err(late.into()),
    }
}

/// The state that answers a connection's requests.
struct Desk {
    emitter: Emitter,
    template: Template,
    admission: Arc<Admission>,
    /// The address that the requests arrived at.
    at: SocketAddr,
    slow: Duration,
}

type Answer = Response<Full<Bytes>>;

impl Desk {
    async fn respond(&self, request: Request<Incoming>) -> Result<Answer, Infallible> {
        if let Err((status, says)) = self.admission.check(&request, self.at) {
            return Ok(answer(status, says));
        }
        if request.uri().path() != "/" {
            return Ok(answer(StatusCode::NOT_FOUND, "tasks are posted to /"));
        }
        if request.method() != Method::POST {
            let mut refused = answer(StatusCode::METHOD_NOT_ALLOWED, "tasks are posted");
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            return Ok(refused);
        }
        Ok(match read(request.into_body(), self.slow).await {
            Ok(item) => store(item, &self.emitter, &self.template).await,
            Err(refused) => refused,
        })
    }
}

/// Reads a body, up to the size of a task.
async fn read(body: Incoming, within: Duration) -> Result<Bytes, Answer> {
    let too_large = || {
        let says = format!("a task has at most {MAX_TASK_BYTES} bytes");
        answer(StatusCode::PAYLOAD_TOO_LARGE, &says)
    };
    // Sent before the body is read, for clients that ask first.
    if body.size_hint().lower() > MAX_TASK_BYTES as u64 {
        return Err(too_large());
    }
    match timeout(within, Limited::new(body, MAX_TASK_BYTES).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(answer(StatusCode::BAD_REQUEST, "the body ended early")),
        Err(_) => Err(answer(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
    }
}

async fn store(item: Bytes, emitter: &Emitter, template: &Template) -> Answer {
    let id = format!("http-{:016x}", rand::random::<u64>());
    let order = template.order(&*id, item);
    if let Err(error) = order.check() {
        return answer(StatusCode::BAD_REQUEST, &error.to_string());
    }
    match timeout(STORE_WITHIN, emitter.emit(vec![order])).await {
        Ok(Ok(())) => answer(StatusCode::ACCEPTED, &id),
        Ok(Err(error)) => {
            tracing::warn!(%error, "a task could not be stored");
            unavailable()
        }
        Err(_) => unavailable(),
    }
}

/// The store's error is in our log; the client does not see it.
fn unavailable() -> Answer {
    let says = "the task may not have been accepted; send it again";
    let mut refused = answer(StatusCode::SERVICE_UNAVAILABLE, says);
    refused.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    refused
}

fn answer(status: StatusCode, says: &str) -> Answer {
    let mut answer = Response::new(Full::from(format!("{says}\n")));
    *answer.status_mut() = status;
    answer
}
