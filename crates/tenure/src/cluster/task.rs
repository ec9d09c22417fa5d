//! What tasks are to programs: registered types with payloads, never code from the store.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::context::Context;

/// A task: data that is stored, and what to do with it on whichever node takes it.
///
/// It may be begun more than once: a node that dies or is cut off loses its tasks to others. What
/// it changes elsewhere should be fenced by the token of [`Context::mandate`].
#[async_trait]
pub trait Task: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Names the type in the store. Never reuse one for another type.
    const KIND: &'static str;

    /// Does it. What comes back is kept with the books, shortened to 4 KiB.
    ///
    /// # Errors
    /// Whatever makes this attempt fail: it is tried again, on another node if there is one, until
    /// its attempts are used up.
    async fn run(self, context: &Context) -> Result<Option<String>, TaskError>;
}

/// Why an attempt failed, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskError(String);

impl TaskError {
    /// Says why.
    pub fn new(says: impl Into<String>) -> TaskError {
        TaskError(says.into())
    }

    /// Why, in words.
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

/// Any error fails an attempt, with what it says and what its causes say.
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

/// Runs the tasks of one kind from their bytes. [`Tasks::with`] makes one of a [`Task`].
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Does one task.
    ///
    /// # Errors
    /// Whatever makes this attempt fail.
    async fn handle(&self, payload: Bytes, context: &Context) -> Result<Option<String>, TaskError>;
}

/// Which kinds of tasks a node can do. It leaves others to others.
#[derive(Clone, Default)]
pub struct Tasks {
    handlers: BTreeMap<String, Arc<dyn Handler>>,
}

impl Tasks {
    /// None yet.
    #[must_use]
    pub fn new() -> Tasks {
        Tasks::default()
    }

    /// The same, and tasks of this type.
    #[must_use]
    pub fn with<T: Task>(self) -> Tasks {
        self.handling(T::KIND, Arc::new(Typed::<T>(std::marker::PhantomData)))
    }

    /// The same, and tasks of this kind, which the handler decodes itself.
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
            // Looked at before every step of the work, so that what was paused takes none too many.
            _ = context.stopped() => Err(TaskError::new("it was stopped")),
            outcome = context.mandate().scope(task.run(context)) => match outcome {
                Ok(outcome) => outcome,
                Err(lost) => Err(TaskError::new(lost.to_string())),
            },
        }
    }
}
