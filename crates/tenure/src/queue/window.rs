//! How long a session is proven to live: the arithmetic that backends share with the simulator.
//!
//! Both calculators take the requests and answers in the order in which they happened, and say
//! until when the server keeps the session. They are pure; the backend reads the clock, *before* it
//! sends.
//!
//! Only etcd uses the one and only ZooKeeper the other, but they do not live beside those clients:
//! the queue simulator runs both, and must build without a network client. So each is named after
//! its mechanism.

mod lease_term;
mod stream_order;

pub use lease_term::LeaseTermWindow;
pub use stream_order::{Kind, StreamOrderWindow, Voice};
