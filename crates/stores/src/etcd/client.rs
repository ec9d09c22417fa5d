//! Sends requests to etcd, with time-outs, tokens, and failover to another server.

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

use super::endpoint::{Chosen, Endpoints};
use super::fault::{Failure, Kind};
use super::proto::auth_client::AuthClient;
use super::proto::{AuthenticateRequest, AuthenticateResponse};
use crate::servers::Secret;

/// A user of etcd.
#[derive(Clone, Debug)]
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: Secret,
}

/// The proof of our identity.
#[derive(Clone, Debug, Default)]
enum Pass {
    /// No token yet, or the last one was refused.
    #[default]
    Missing,
    /// The servers require no authentication.
    NotNeeded,
    Token(MetadataValue<Ascii>),
}

/// A client of one cluster.
#[derive(Debug)]
pub(super) struct Client {
    endpoints: Endpoints,
    request: Duration,
    login: Option<Login>,
    pass: Mutex<Pass>,
}

impl Client {
    pub(super) fn new(endpoints: Endpoints, request: Duration, login: Option<Login>) -> Client {
        Client { endpoints, request, login, pass: Mutex::default() }
    }

    pub(super) fn request(&self) -> Duration {
        self.request
    }

    /// Sends a request. Sends it again only if it is a read, or certainly had no effect.
    pub(super) async fn call<Q, A, F, R>(&self, kind: Kind, body: Q, send: F) -> Result<A, Failure>
    where
        Q: Clone,
        F: Fn(Channel, Request<Q>) -> R,
        R: Future<Output = Result<Response<A>, Status>>,
    {
        self.call_within(self.request, kind, body, send).await
    }

    /// Sends a request like `call`, with its own time limit.
    pub(super) async fn call_within<Q, A, F, R>(
        &self,
        within: Duration,
        kind: Kind,
        body: Q,
        send: F,
    ) -> Result<A, Failure>
    where
        Q: Clone,
        F: Fn(Channel, Request<Q>) -> R,
        R: Future<Output = Result<Response<A>, Status>>,
    {
        let end = Instant::now() + within;
        let mut others = self.endpoints.count() - 1;
        let mut tokens = 1;
        loop {
            let chosen = self.endpoints.choose();
            let left = end.saturating_duration_since(Instant::now());
            // A read leaves time for another server. A write cannot be sent twice, so it may take
            // all the time left.
            let limit = if kind == Kind::Read && others > 0 { left / 2 } else { left };
            let failure = match timeout(limit, self.attempt(&chosen, kind, &body, &send)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(failure)) => failure,
                Err(_) => Failure::late(kind, limit),
            };
            let failure = failure.at(chosen.host.as_deref());
            self.note(&chosen, &failure);
            let harmless = kind == Kind::Read || failure.fault == tenure::store::Fault::Unavailable;
            if failure.token && self.login.is_some() && tokens > 0 {
                tokens -= 1;
            } else if failure.elsewhere && harmless && others > 0 && Instant::now() < end {
                others -= 1;
            } else {
                return Err(failure);
            }
        }
    }

    /// Opens a stream. Once open, it has no time limit.
    pub(super) async fn stream<Q, A, F, R>(
        &self,
        within: Duration,
        body: Q,
        send: F,
    ) -> Result<(A, Chosen), Failure>
    where
        F: FnOnce(Channel, Request<Q>) -> R,
        R: Future<Output = Result<Response<A>, Status>>,
    {
        let chosen = self.endpoints.choose();
        let opening = async {
            let request = self.prepare(&chosen, body).await?;
            let answer = send(chosen.channel.clone(), request).await;
            answer.map(Response::into_inner).map_err(|status| Failure::of(status, Kind::Read))
        };
        let opened = timeout(within, opening).await;
        let opened = opened.unwrap_or_else(|_| Err(Failure::late(Kind::Read, within)));
        match opened {
            Ok(stream) => Ok((stream, chosen)),
            Err(failure) => {
                let failure = failure.at(chosen.host.as_deref());
                self.note(&chosen, &failure);
                Err(failure)
            }
        }
    }

    /// Reports that a stream over this channel broke or fell silent.
    pub(super) fn gave_up(&self, chosen: &Chosen, failure: &Failure) {
        self.note(chosen, failure);
    }

    async fn attempt<Q, A, F, R>(
        &self,
        chosen: &Chosen,
        kind: Kind,
        body: &Q,
        send: &F,
    ) -> Result<A, Failure>
    where
        Q: Clone,
        F: Fn(Channel, Request<Q>) -> R,
        R: Future<Output = Result<Response<A>, Status>>,
    {
        let request = self.prepare(chosen, body.clone()).await?;
        let answer = send(chosen.channel.clone(), request).await;
        answer.map(Response::into_inner).map_err(|status| Failure::of(status, kind))
    }

    /// Adds the metadata that all our requests carry.
    async fn prepare<Q>(&self, chosen: &Chosen, body: Q) -> Result<Request<Q>, Failure> {
        let mut request = Request::new(body);
        // Makes a server without a leader refuse at once, before it does anything.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        if let Some(token) = self.token(chosen).await? {
            request.metadata_mut().insert("token", token);
        }
        Ok(request)
    }

    async fn token(&self, chosen: &Chosen) -> Result<Option<MetadataValue<Ascii>>, Failure> {
        let Some(login) = &self.login else { return Ok(None) };
        let pass = self.pass().clone();
        match pass {
            Pass::NotNeeded => Ok(None),
            Pass::Token(token) => Ok(Some(token)),
            Pass::Missing => {
                // Several callers may authenticate at once: each gets a good token, and one of them
                // is kept.
                let pass = authenticate(chosen.channel.clone(), login).await?;
                *self.pass() = pass.clone();
                Ok(match pass {
                    Pass::Token(token) => Some(token),
                    Pass::NotNeeded | Pass::Missing => None,
                })
            }
        }
    }

    fn note(&self, chosen: &Chosen, failure: &Failure) {
        if failure.token {
            *self.pass() = Pass::Missing;
        }
        if failure.silent {
            self.endpoints.replace(chosen);
        }
        if failure.elsewhere {
            tracing::debug!(error = %failure.source, "etcd: this server fails us, trying the next");
            self.endpoints.avoid(chosen);
        }
    }

    fn pass(&self) -> MutexGuard<'_, Pass> {
        // The pass is replaced as a whole, so a panic leaves nothing half done.
        self.pass.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks for a token.
///
/// The request itself was not sent yet, so a failure here counts as that of a read.
async fn authenticate(channel: Channel, login: &Login) -> Result<Pass, Failure> {
    let name = login.user.clone();
    let password = login.password.reveal().to_owned();
    let answer =
        AuthClient::new(channel).authenticate(AuthenticateRequest { name, password }).await;
    match answer.map(Response::into_inner) {
        Ok(AuthenticateResponse { token, .. }) => {
            let token = MetadataValue::try_from(token).map_err(|_| {
                Failure::of(Status::unknown("the server's token is not text"), Kind::Read)
            })?;
            Ok(Pass::Token(token))
        }
        Err(status)
            if status.code() == Code::FailedPrecondition
                && status.message().contains("authentication is not enabled") =>
        {
            Ok(Pass::NotNeeded)
        }
        Err(status) => Err(Failure { token: false, ..Failure::of(status, Kind::Read) }),
    }
}
