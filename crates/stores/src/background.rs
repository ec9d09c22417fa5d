//! A task in the background of a store.

use std::future::Future;
use std::sync::{Mutex, PoisonError};

use tokio::task::JoinHandle;

/// A task that is started when it is first needed, and ends with its store.
#[derive(Debug, Default)]
pub(crate) struct Background(Mutex<Option<JoinHandle<()>>>);

impl Background {
    /// Starts the task, or starts it again if its runtime is gone.
    pub(crate) fn ensure<F>(&self, task: impl FnOnce() -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if running.as_ref().is_none_or(JoinHandle::is_finished) {
            *running = Some(tokio::spawn(task()));
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(task) = self.0.get_mut().unwrap_or_else(PoisonError::into_inner) {
            task.abort();
        }
    }
}
