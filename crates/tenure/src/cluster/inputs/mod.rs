//! Inputs that need only a file system.

mod confined;
mod directory;
mod lines;
mod recent;

use std::time::Duration;

pub use confined::{check_below, open_below};
pub use directory::DirectorySource;
pub use lines::LinesSource;
pub use recent::Recent;

use super::input::InputError;

/// The default poll interval of a source that is followed.
const USUAL_POLL: Duration = Duration::from_secs(1);
/// The most items of one window, even if more are requested.
const MOST_ITEMS: usize = 4096;

/// Runs blocking work on a thread for such work.
async fn blocking<T: Send + 'static>(
    doing: &str,
    work: impl FnOnce() -> Result<T, InputError> + Send + 'static,
) -> Result<T, InputError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(InputError::new(doing, &error)),
    }
}
