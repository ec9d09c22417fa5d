//! How long a session is proven to live: the arithmetic that backends share with the simulator.
//!
//! Both calculators take the requests and answers in the order in which they happened, and say
//! until when the server keeps the session. They are pure; the backend reads the clock, *before* it
//! sends.

mod etcd;
mod zookeeper;

pub use etcd::EtcdWindow;
pub use zookeeper::{Kind, Voice, ZookeeperWindow};
