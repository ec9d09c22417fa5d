//! The settings that all tasks of an input share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::documents::{MAX_TASK_BYTES, Order};

/// How often a task may be begun by default.
const USUAL_ATTEMPTS: u32 = 3;

/// The settings that all tasks of an input share: their kind, attempts and timeout.
///
/// ```
/// use std::time::Duration;
/// use tenure_cluster::input::Template;
/// let template = Template::new("resize").attempts(5).timeout(Duration::from_secs(60));
/// let order = template.order("photos/1.jpg", b"photos/1.jpg".as_slice());
/// assert_eq!((order.kind.as_str(), order.attempts), ("resize", 5));
/// ```
#[derive(Clone)]
pub struct Template {
    kind: String,
    attempts: u32,
    timeout: Option<Duration>,
    payload: Option<Arc<Wrap>>,
}

type Wrap = dyn Fn(&[u8]) -> Bytes + Send + Sync;

impl Template {
    /// Creates a template for tasks of this kind.
    ///
    /// Each task is tried three times, without a timeout.
    #[must_use]
    pub fn new(kind: &str) -> Template {
        Template { kind: kind.into(), attempts: USUAL_ATTEMPTS, timeout: None, payload: None }
    }

    /// Sets how often each task may be begun.
    #[must_use]
    pub fn attempts(self, attempts: u32) -> Template {
        Template { attempts, ..self }
    }

    /// Sets how long each attempt may take.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Template {
        Template { timeout: Some(timeout), ..self }
    }

    /// Sets how to make a payload from an item.
    ///
    /// An item is the path of a file, a line, or the body of a request. Without this the item is
    /// the payload.
    #[must_use]
    pub fn payload(self, wrap: impl Fn(&[u8]) -> Bytes + Send + Sync + 'static) -> Template {
        Template { payload: Some(Arc::new(wrap)), ..self }
    }

    /// The task for one item.
    ///
    /// An item that is too long for a payload stays as it is, so that the cluster refuses it and
    /// reports it.
    pub fn order(&self, id: impl Into<String>, item: impl Into<Bytes>) -> Order {
        let item = item.into();
        let payload = match &self.payload {
            Some(wrap) if item.len() <= MAX_TASK_BYTES => wrap(&item),
            Some(_) | None => item,
        };
        Order {
            id: id.into(),
            kind: self.kind.clone(),
            payload,
            attempts: self.attempts,
            timeout: self.timeout,
            to: None,
            receipt: None,
        }
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template")
            .field("kind", &self.kind)
            .field("attempts", &self.attempts)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
