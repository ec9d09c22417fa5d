//! Real servers for tenure's tests, and a proxy that breaks their connections.
//!
//! ```no_run
//! use tenure_harness::{Direction, Framing, Proxy, Zookeeper, require, zookeeper};
//!
//! # async fn example() {
//! let servers = require!(Zookeeper::ensemble(3, zookeeper::Options::default()).await);
//! let proxy = Proxy::start(servers[0].address(), Framing::Zookeeper).expect("a free port");
//! proxy.blackhole(Direction::ToClient); // half open: requests arrive, answers do not
//!
//! let leader = servers.settled(None).await.expect("an ensemble that is ready has a leader");
//! servers[leader].kill().await.expect("it was running");
//! # }
//! ```
//!
//! Every server has a directory and ports of its own, so that parallel tests do not disturb each
//! other. All servers end with the test: on drop, or killed by the kernel if the test's process is
//! killed. Time must not be paused in these tests, because servers run in real time.

mod available;
mod cluster;
mod directory;
pub mod elastic;
mod error;
pub mod etcd;
mod family;
mod grpc_proxy;
pub mod http;
mod launch;
pub mod mongodb;
mod network;
mod port;
mod process;
mod proxy;
mod recipe;
pub mod rethinkdb;
pub mod s3;
mod server;
mod version;
pub mod zookeeper;

pub use available::available;
pub use cluster::Cluster;
pub use elastic::Elastic;
pub use error::{Failure, Skipped};
pub use etcd::Etcd;
pub use grpc_proxy::GrpcProxy;
pub use mongodb::Mongodb;
pub use port::Port;
pub use proxy::{Connection, Count, Direction, Framing, Message, Proxy};
pub use rethinkdb::Rethinkdb;
pub use s3::S3;
pub use server::Server;
pub use version::{Version, downloads};
pub use zookeeper::Zookeeper;
