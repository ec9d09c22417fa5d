//! URLs that are asked again and again.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use reqwest::header::{
    ETAG, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Response, StatusCode, Url};
use serde_json::json;
use tenure::cluster::documents::{MAX_TASK_BYTES, NodeEntry};
use tenure::cluster::input::{
    Emitter, InputError, Partition, PartitionContext, Supervised, Template,
};

use crate::shown::shown;
use crate::tls;

/// How long an answer may take, body and all.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// How many redirects are followed, one after the other, where any are.
const MOST_REDIRECTS: usize = 10;
/// The most bytes of a URL in the ids of its tasks.
const MOST_URL_BYTES: usize = 900;

/// Asks URLs again and again; the body of each answer is a task.
///
/// The URLs are shared out among the members, each asked by one of them at a time. An answer that
/// has not changed (by `ETag` or `Last-Modified`, of the last answer that this member has seen) is
/// no task. Bodies of more than 16 KiB are reported and left out, as are answers other than `200`.
///
/// Only these URLs are ever asked: a plan in the store that names another one is refused. Redirects
/// are answers other than `200`, unless [`Redirects::SameOrigin`] is asked for.
///
/// The URLs stand in the store for everyone to read; secrets belong into the headers of a
/// [client](HttpPoller::with_client).
#[derive(Debug)]
pub struct HttpPoller {
    urls: Vec<String>,
    interval: Duration,
    template: Template,
    client: Client,
}

impl HttpPoller {
    /// Asks these URLs, each once in an interval; each answer is a task like this.
    ///
    /// # Errors
    /// When a URL is none, or has a password; when the client cannot be built: TLS finds no
    /// authorities, for example.
    pub fn new(
        urls: impl IntoIterator<Item = impl Into<String>>,
        interval: Duration,
        template: Template,
    ) -> Result<HttpPoller, InputError> {
        let client = Client::builder().timeout(ANSWER_WITHIN);
        HttpPoller::with_client(urls, interval, template, Redirects::Refused, client)
    }

    /// The same with a client of one's own: with other headers, authorities, proxies and limits of
    /// time.
    ///
    /// Its headers, and so its credentials, go to these URLs and nowhere else: its policy for
    /// redirects is replaced by this one.
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

    /// Asks once. What comes back is what to say of this answer the next time.
    async fn ask(
        &self,
        url: &str,
        seen: &Seen,
        emitter: &Emitter,
    ) -> Result<Option<Seen>, InputError> {
        // It quotes the URL, with its query.
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
            // Asking for the same again would not make it shorter.
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
        // One each: a URL then has one name for its lease, whoever asks it and however many there
        // are.
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

/// What a poller does with a redirect. None leads to another origin (scheme, host and port), since
/// headers with credentials would go there, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redirects {
    /// It is an answer other than `200`: reported, and no task.
    #[default]
    Refused,
    /// It is followed within the origin of the URL, at most 10 times; elsewhere it is refused.
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
                    // The redirect itself is the answer then.
                    attempt.stop()
                }
            }),
        }
    }
}

/// Refuses what could never be asked, and what would put a password into the store and the log.
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

/// What tells one answer from another.
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

/// The body, unless it is longer than a task can be.
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

/// The URL, and when it was asked.
fn id_of(url: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    format!("{}@{now}", &url[..url.floor_char_boundary(MOST_URL_BYTES)])
}
