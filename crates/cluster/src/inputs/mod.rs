//! The sources and inputs that come with the crate.
//!
//! | Input | Kind | Feature |
//! |---|---|---|
//! | [`DirectorySource`], [`LinesSource`] | windowed: the leader lists it | always there |
//! | `ObjectsSource` | windowed | `objects`, and `aws`, `azure`, `gcp` |
//! | `TcpLines`, `UdpDatagrams` | local: runs where it is configured | `net` |
//! | `HttpListener` | local | `http-listener` |
//! | `HttpPoller` | supervised: its URLs are shared out among the members | `http-poller` |
//!
//! All of these accept a task by writing it into the store of the cluster, so that it is done at
//! least once from then on. A task that a client sends twice is two tasks.
//!
//! ```
//! # #[cfg(feature = "net")] fn main() -> std::io::Result<()> {
//! use tenure_cluster::input::{Inputs, Template};
//! use tenure_cluster::inputs::TcpLines;
//!
//! let lines = TcpLines::bind("127.0.0.1:0", Template::new("line"))?;
//! let inputs = Inputs::new().local("lines", lines);
//! # let _ = inputs; Ok(()) }
//! # #[cfg(not(feature = "net"))] fn main() {}
//! ```

#[cfg(any(feature = "net", feature = "http-listener"))]
mod accept;
mod confined;
#[cfg(feature = "net")]
mod delivery;
mod directory;
#[cfg(any(feature = "http-listener", feature = "http-poller"))]
mod http;
mod lines;
#[cfg(feature = "objects")]
mod objects;
mod recent;
#[cfg(any(feature = "http-poller", feature = "objects"))]
mod shown;
#[cfg(feature = "net")]
mod splitter;
#[cfg(feature = "net")]
mod tcp;
#[cfg(any(feature = "http-poller", feature = "cloud"))]
mod tls;
#[cfg(feature = "net")]
mod udp;

use std::time::Duration;

use super::input::InputError;

#[cfg(any(feature = "net", feature = "http-listener"))]
pub use accept::Limits;
pub use confined::{check_below, open_below};
pub use directory::DirectorySource;
#[cfg(feature = "http-listener")]
pub use http::HttpListener;
#[cfg(feature = "http-poller")]
pub use http::{HttpPoller, Redirects};
pub use lines::LinesSource;
#[cfg(feature = "objects")]
pub use objects::{CopyRoom, ObjectCopy, Objects, ObjectsSource};
pub use recent::Recent;
#[cfg(feature = "net")]
pub use tcp::TcpLines;
#[cfg(feature = "net")]
pub use udp::UdpDatagrams;

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
