//! Inputs of a tenure cluster that need a network.
//!
//! | Input | Kind | Feature |
//! |---|---|---|
//! | `TcpLines`, `UdpDatagrams` | local: runs where it is configured | `net` (default) |
//! | `HttpListener` | local | `http-listener` |
//! | `HttpPoller` | supervised: its URLs are shared out among the members | `http-poller` |
//! | `ObjectsSource` | windowed: the leader lists it | `objects`, and `aws`, `azure`, `gcp` |
//!
//! The files of a directory and the lines of a file need no network: `tenure::cluster::inputs` has
//! them. All of these accept a task by writing it into the store of the cluster, so that it is done
//! at least once from then on. A task that a client sends twice is two tasks.
//!
//! ```
//! # #[cfg(feature = "net")] fn main() -> std::io::Result<()> {
//! use tenure::cluster::input::{Inputs, Template};
//! use tenure_inputs::TcpLines;
//!
//! let lines = TcpLines::bind("127.0.0.1:0", Template::new("line"))?;
//! let inputs = Inputs::new().local("lines", lines);
//! # let _ = inputs; Ok(()) }
//! # #[cfg(not(feature = "net"))] fn main() {}
//! ```

#[cfg(any(feature = "net", feature = "http-listener"))]
mod accept;
#[cfg(feature = "net")]
mod delivery;
#[cfg(any(feature = "http-listener", feature = "http-poller"))]
mod http;
#[cfg(feature = "objects")]
mod objects;
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

#[cfg(any(feature = "net", feature = "http-listener"))]
pub use accept::Limits;
#[cfg(feature = "http-listener")]
pub use http::HttpListener;
#[cfg(feature = "http-poller")]
pub use http::{HttpPoller, Redirects};
#[cfg(feature = "objects")]
pub use objects::{CopyRoom, ObjectCopy, Objects, ObjectsSource};
#[cfg(feature = "net")]
pub use tcp::TcpLines;
#[cfg(feature = "net")]
pub use udp::UdpDatagrams;
