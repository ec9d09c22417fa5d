//! Tasks as programs see them: registered types with payloads, never code from the store.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::context::Context;
use super::documents::{DocumentError, Order};

/// A task: stored data, and the work to do with it on the node that takes it.
///
/// A task may be begun more than once: a node that dies or is cut off loses its tasks to others.
/// Its changes elsewhere should be fenced by the token of [`Context::mandate`].
#[async_trait]
pub trait Task: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Names the type in the store. Never reuse one for another type.
    const KIND: &'static str;

    /// Runs the task. The result is kept with the cluster's records, shortened to its last 4 KiB.
    ///
    /// # Errors
    /// The reason why this attempt failed. The task is tried again, on another node if there is
    /// one, until its attempts are used up.
    async fn run(self, context: &Context) -> Result<Option<String>, TaskError>;
}

impl Order {
    /// Creates a task of a registered type.
    ///
    /// # Errors
    /// [`DocumentError::Shape`] if it does not encode as JSON.
    pub fn of<T: Task>(id: impl Into<String>, task: &T) -> Result<Order, DocumentError> {
        let payload = serde_json::to_vec(task).map_err(|error| DocumentError::Shape {
            document: "task",
            says: error.to_string().chars().take(200).collect(),
        })?;
        Ok(Order::new(id, T::KIND, payload))
    }
}

/// The reason why an attempt failed, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskError(String);

impl TaskError {
    /// Creates an error with this text.
    pub fn new(says: impl Into<String>) -> TaskError {
        TaskError(says.into())
    }

    /// The text of the error.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Any error fails an attempt, with its own text and the texts of its causes.
impl<E: std::error::Error> From<E> for TaskError {
    fn from(error: E) -> TaskError {
        let mut says = error.to_string();
        let mut cause = error.source();
        while let Some(next) = cause {
            says = format!("{says}: {next}");
            cause = next.source();
        }
        TaskError(says)
    }
}

/// Runs the tasks of one kind from their bytes. [`Tasks::with`] makes a handler of a [`Task`].
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Runs one task.
    ///
    /// # Errors
    /// The reason why this attempt failed.
    async fn handle(&self, payload: Bytes, context: &Context) -> Result<Option<String>, TaskError>;
}

/// The kinds of tasks that a node can run. It leaves other kinds to other nodes.
#[derive(Clone, Default)]
pub struct Tasks {
    handlers: BTreeMap<String, Arc<dyn Handler>>,
}

impl Tasks {
    /// Creates an empty set of kinds.
    #[must_use]
    pub fn new() -> Tasks {
        Tasks::default()
    }

    /// Adds tasks of this type.
    #[must_use]
    pub fn with<T: Task>(self) -> Tasks {
        self.handling(T::KIND, Arc::new(Typed::<T>(std::marker::PhantomData)))
    }

    /// Adds tasks of this kind, which the handler decodes itself.
    #[must_use]
    pub fn handling(mut self, kind: &str, handler: Arc<dyn Handler>) -> Tasks {
        self.handlers.insert(kind.into(), handler);
        self
    }

    pub(super) fn kinds(&self) -> BTreeSet<String> {
        self.handlers.keys().cloned().collect()
    }

    pub(super) fn handler(&self, kind: &str) -> Option<Arc<dyn Handler>> {
        self.handlers.get(kind).cloned()
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.handlers.keys()).finish()
    }
}

struct Typed<T>(std::marker::PhantomData<fn() -> T>);

#[async_trait]
impl<T: Task> Handler for Typed<T> {
    async fn handle(&self, payload: Bytes, context: &Context) -> Result<Option<String>, TaskError> {
        let task: T = serde_json::from_slice(&payload)
            .map_err(|error| TaskError::new(format!("this is no {}: {error}", T::KIND)))?;
        tokio::select! {
            biased;
            // Checked before every step of the work, so that paused work takes no step too many.
            _ = context.stopped() => Err(TaskError::new("it was stopped")),
            outcome = context.mandate().scope(task.run(context)) => match outcome {
                Ok(outcome) => outcome,
                Err(lost) => Err(TaskError::new(lost.to_string())),
            },
        }
    }
}
