//! An input that polls URLs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use reqwest::header::{
    ETAG, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Response, StatusCode, Url};
use serde_json::json;

use crate::documents::{MAX_TASK_BYTES, NodeEntry};
use crate::input::{Emitter, InputError, Partition, PartitionContext, Supervised, Template};
use crate::inputs::shown::shown;
use crate::inputs::tls;

/// How long a whole answer may take, including its body.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// How many redirects are followed in a row, if any are.
const MOST_REDIRECTS: usize = 10;
/// The most bytes of a URL in the ids of its tasks.
const MOST_URL_BYTES: usize = 900;

/// Polls URLs; the body of each answer is a task.
///
/// The URLs are shared out among the members, and one member at a time polls each URL. An answer
/// that has not changed since the last one that this member has seen (by `ETag` or `Last-Modified`)
/// is no task. Bodies of more than 16 KiB are reported and left out, as are answers other than
/// `200`.
///
/// Only these URLs are ever polled: a plan in the store that names another one is refused.
/// Redirects are answers other than `200`, unless [`Redirects::SameOrigin`] is set.
///
/// The URLs are in the store for everyone to read; secrets belong in the headers of a
/// [client](HttpPoller::with_client).
#[derive(Debug)]
pub struct HttpPoller {
    urls: Vec<String>,
    interval: Duration,
    template: Template,
    client: Client,
}

impl HttpPoller {
    /// Polls each of these URLs once in an interval. Each answer is a task of this template.
    ///
    /// # Errors
    /// When a URL is invalid, or has a login; when the client cannot be built, for example because
    /// TLS finds no authorities.
    pub fn new(
        urls: impl IntoIterator<Item = impl Into<String>>,
        interval: Duration,
        template: Template,
    ) -> Result<HttpPoller, InputError> {
        let client = Client::builder().timeout(ANSWER_WITHIN);
        HttpPoller::with_client(urls, interval, template, Redirects::Refused, client)
    }

    /// Polls with the caller's client.
    ///
    /// It may have other headers, authorities, proxies and time-outs.
    ///
    /// Its headers, and so its credentials, go to these URLs and nowhere else: `redirects` replaces
    /// the client's own policy.
    ///
    /// # Errors
    /// As for [`HttpPoller::new`].
    pub fn with_client(
        urls: impl IntoIterator<Item = impl Into<String>>,
        interval: Duration,
        template: Template,
        redirects: Redirects,
        client: ClientBuilder,
    ) -> Result<HttpPoller, InputError> {
        tls::install();
        let urls: Vec<String> = urls.into_iter().map(Into::into).collect();
        urls.iter().try_for_each(|url| check(url))?;
        let client = client.redirect(redirects.policy()).build();
        let client = client.map_err(|error| InputError::new("making an HTTP client", &error))?;
        Ok(HttpPoller { urls, interval, template, client })
    }

    /// Polls once. Returns the validators for the next request; none if nothing changed.
    async fn ask(
        &self,
        url: &str,
        seen: &Seen,
        emitter: &Emitter,
    ) -> Result<Option<Seen>, InputError> {
        // The error quotes the URL, with its query.
        let says = |error: reqwest::Error| InputError::new("polling", &error.without_url());
        let request = self.client.get(url).headers(seen.conditions());
        let mut response = request.send().await.map_err(says)?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_MODIFIED => return Ok(None),
            other => return Err(InputError(format!("the answer is {other}"))),
        }
        let now = Seen::of(&response);
        let Some(body) = body_of(&mut response).await.map_err(says)? else {
            // Another request would not make it shorter.
            let url = shown(url);
            tracing::warn!(url, "an answer of more than {MAX_TASK_BYTES} bytes is left out");
            return Ok(Some(now));
        };
        let order = self.template.order(id_of(url), body);
        order.check().map_err(|error| InputError::new("polling", &error))?;
        let emitted = emitter.emit(vec![order]).await;
        emitted.map_err(|error| InputError::new("storing an answer", &error))?;
        Ok(Some(now))
    }
}

#[async_trait]
impl Supervised for HttpPoller {
    async fn partitions(&self, _members: &[NodeEntry]) -> Result<Vec<Partition>, InputError> {
        // One URL each: its lease then has the same name regardless of the members and their
        // number.
        Ok(self.urls.iter().map(|url| Partition(json!({ "url": url }))).collect())
    }

    async fn run(
        &self,
        partition: &Partition,
        context: &PartitionContext,
    ) -> Result<(), InputError> {
        let Some(url) = partition.0.get("url").and_then(serde_json::Value::as_str) else {
            return Err(InputError("the plan in the store has no URL for this poller".to_owned()));
        };
        // The plan comes from the store, and the client has credentials.
        if !self.urls.iter().any(|own| own == url) {
            return Err(InputError(format!(
                "the plan in the store names a URL that is not configured here, and it is not asked: {}",
                shown(url)
            )));
        }
        let mut seen = Seen::default();
        let mut ticks = tokio::time::interval(self.interval.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match self.ask(url, &seen, &context.emitter).await {
                Ok(Some(now)) => seen = now,
                Ok(None) => {}
                Err(error) => tracing::warn!(url = shown(url), %error, "a poll failed"),
            }
        }
    }
}

/// How a poller handles redirects.
///
/// None leads to another origin (scheme, host and port), since headers with credentials would go
/// there, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redirects {
    /// A redirect is an answer other than `200`: it is reported, and is no task.
    #[default]
    Refused,
    /// Redirects within the origin of the URL are followed, at most 10 times. Others are refused.
    SameOrigin,
}

impl Redirects {
    fn policy(self) -> Policy {
        match self {
            Redirects::Refused => Policy::none(),
            Redirects::SameOrigin => Policy::custom(|attempt| {
                let first = attempt.previous().first().map(Url::origin);
                let is_near = first.is_some_and(|origin| origin == attempt.url().origin());
                if is_near && attempt.previous().len() <= MOST_REDIRECTS {
                    attempt.follow()
                } else {
                    // Then the redirect itself is the answer.
                    attempt.stop()
                }
            }),
        }
    }
}

/// Refuses URLs that cannot be polled, and URLs with a login. The URL is in the store and the log.
fn check(url: &str) -> Result<(), InputError> {
    let refused = |what: &str| Err(InputError(format!("polling {}: {what}", shown(url))));
    match Url::parse(url) {
        Ok(parsed) if !parsed.username().is_empty() || parsed.password().is_some() => {
            refused("a login belongs into the headers of a client, not into the URL")
        }
        Ok(parsed) if matches!(parsed.scheme(), "http" | "https") => Ok(()),
        Ok(_) => refused("only http and https can be polled"),
        Err(error) => refused(&error.to_string()),
    }
}

/// The validators that tell one answer from another.
#[derive(Debug, Default)]
struct Seen {
    etag: Option<HeaderValue>,
    modified: Option<HeaderValue>,
}

impl Seen {
    fn of(response: &Response) -> Seen {
        let header = |name: HeaderName| response.headers().get(name).cloned();
        Seen { etag: header(ETAG), modified: header(LAST_MODIFIED) }
    }

    fn conditions(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(etag) = &self.etag {
            headers.insert(IF_NONE_MATCH, etag.clone());
        } else if let Some(modified) = &self.modified {
            headers.insert(IF_MODIFIED_SINCE, modified.clone());
        }
        headers
    }
}

/// The body; none if it is longer than a task can be.
async fn body_of(response: &mut Response) -> Result<Option<Bytes>, reqwest::Error> {
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > MAX_TASK_BYTES {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body.freeze()))
}

/// The id of a task: the URL, and the time of the request.
fn id_of(url: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    format!("{}@{now}", &url[..url.floor_char_boundary(MOST_URL_BYTES)])
}
