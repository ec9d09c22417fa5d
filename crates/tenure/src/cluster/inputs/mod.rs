//! Inputs that need nothing but a file system.

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

/// How often a source that is followed is looked at, unless somebody says otherwise.
const USUAL_POLL: Duration = Duration::from_secs(1);
/// The most items of one window, however many are asked for.
const MOST_ITEMS: usize = 4096;

/// Runs what blocks on a thread where it may.
async fn blocking<T: Send + 'static>(
    doing: &str,
    work: impl FnOnce() -> Result<T, InputError> + Send + 'static,
) -> Result<T, InputError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(InputError::new(doing, &error)),
    }
}
