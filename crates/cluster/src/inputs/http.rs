//! Inputs over HTTP: a listener and a poller.

#[cfg(feature = "http-listener")]
mod admission;
#[cfg(feature = "http-listener")]
mod listener;
#[cfg(feature = "http-poller")]
mod poller;

#[cfg(feature = "http-listener")]
pub use listener::HttpListener;
#[cfg(feature = "http-poller")]
pub use poller::{HttpPoller, Redirects};
