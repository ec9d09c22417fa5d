//! Tasks by POST.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
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
use tenure::cluster::documents::MAX_TASK_BYTES;
use tenure::cluster::input::{Emitter, InputError, Local, Template};
use tokio::time::timeout;

use crate::accept::{accept, bind};

/// How long a client may take for the head of a request, and for its body.
const READ_WITHIN: Duration = Duration::from_secs(30);
/// How long the store may take before the client is told to come again.
const STORE_WITHIN: Duration = Duration::from_secs(10);
/// The most bytes of a request's head.
const MOST_HEAD_BYTES: usize = 32 * 1024;

/// Listens on a TCP port for HTTP/1; the body of each `POST /` is a task.
///
/// `202` says that the task is in the store, with its id in the body. `503` says that it may not be, and to send it again:
/// at worst it is done twice. Bodies of more than 16 KiB are refused with `413`. There is no TLS and no login; put
/// it behind something that has both, or on a loopback address.
#[derive(Debug)]
pub struct HttpListener {
    listener: std::net::TcpListener,
    template: Template,
}

impl HttpListener {
    /// Listens here, from now on; each body is a task like this.
    ///
    /// # Errors
    /// When the port cannot be had.
    pub fn bind(address: impl ToSocketAddrs, template: Template) -> io::Result<HttpListener> {
        Ok(HttpListener { listener: bind(address)?, template })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

#[async_trait]
impl Local for HttpListener {
    async fn run(&self, emitter: &Emitter) -> Result<(), InputError> {
        accept(&self.listener, |stream, peer| {
            let (emitter, template) = (emitter.clone(), self.template.clone());
            async move {
                let service = service_fn(|request| respond(request, &emitter, &template));
                let served = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(READ_WITHIN)
                    .max_buf_size(MOST_HEAD_BYTES)
                    .serve_connection(TokioIo::new(stream), service);
                if let Err(error) = served.await {
                    tracing::debug!(%peer, %error, "a connection ended");
                }
            }
        })
        .await
    }
}

type Answer = Response<Full<Bytes>>;

async fn respond(
    request: Request<Incoming>,
    emitter: &Emitter,
    template: &Template,
) -> Result<Answer, Infallible> {
    if request.uri().path() != "/" {
        return Ok(answer(StatusCode::NOT_FOUND, "tasks are posted to /"));
    }
    if request.method() != Method::POST {
        let mut refused = answer(StatusCode::METHOD_NOT_ALLOWED, "tasks are posted");
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return Ok(refused);
    }
    Ok(match read(request.into_body()).await {
        Ok(item) => store(item, emitter, template).await,
        Err(refused) => refused,
    })
}

/// Reads a body, of which no more is kept than a task can have.
async fn read(body: Incoming) -> Result<Bytes, Answer> {
    let too_large = || {
        let says = format!("a task has at most {MAX_TASK_BYTES} bytes");
        answer(StatusCode::PAYLOAD_TOO_LARGE, &says)
    };
    // Said before anything was read, to clients that ask first.
    if body.size_hint().lower() > MAX_TASK_BYTES as u64 {
        return Err(too_large());
    }
    match timeout(READ_WITHIN, Limited::new(body, MAX_TASK_BYTES).collect()).await {
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

/// What the store said is in our log, and no business of the client.
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
