//! What all tasks of an input have in common.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::cluster::documents::{MAX_TASK_BYTES, Order};

/// How often a task may be begun unless somebody says otherwise.
const USUAL_ATTEMPTS: u32 = 3;

/// What all tasks of an input have in common: their kind, how often and how long each is tried.
///
/// ```
/// use std::time::Duration;
/// use tenure::cluster::input::Template;
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
    /// Tasks of this kind, each tried three times for as long as it takes.
    #[must_use]
    pub fn new(kind: &str) -> Template {
        Template { kind: kind.into(), attempts: USUAL_ATTEMPTS, timeout: None, payload: None }
    }

    /// The same, each begun this often at most.
    #[must_use]
    pub fn attempts(self, attempts: u32) -> Template {
        Template { attempts, ..self }
    }

    /// The same, each attempt given this long.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Template {
        Template { timeout: Some(timeout), ..self }
    }

    /// The same, with payloads made of the items: of the path of a file, of a line, of the body of
    /// a request. Without this the item is the payload.
    #[must_use]
    pub fn payload(self, wrap: impl Fn(&[u8]) -> Bytes + Send + Sync + 'static) -> Template {
        Template { payload: Some(Arc::new(wrap)), ..self }
    }

    /// The task for one item.
    ///
    /// An item that is longer than a payload can be stays as it is, so that the cluster refuses it
    /// and says so.
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
