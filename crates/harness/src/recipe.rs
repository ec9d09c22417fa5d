use crate::launch::Launch;
use crate::{Failure, Port};
use async_trait::async_trait;
use std::fmt::Debug;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// The differences between kinds of servers.
#[async_trait]
pub(crate) trait Recipe: Debug + Send + Sync + 'static {
    /// The server and its version, for messages.
    fn title(&self) -> &str;

    /// How many ports a member needs; its clients use the first.
    fn ports(&self) -> usize;

    /// The time to get ready.
    fn ready_within(&self) -> Duration;

    /// Writes the files of the member at `index`, and returns its launch.
    fn prepare(&self, members: &[Member], index: usize) -> Result<Launch, Failure>;

    /// Returns true if the member serves clients. An open port does not prove it. Has a time limit
    /// of its own.
    async fn ready(&self, member: &Member) -> bool;

    /// Returns true if the member believes that it leads. Has a time limit of its own.
    async fn leads(&self, member: &Member) -> bool;
}

/// The parts of a cluster's server that it keeps over restarts.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) directory: PathBuf,
    pub(crate) host: Ipv4Addr,
    /// The network namespace it runs in; none for ours.
    pub(crate) namespace: Option<String>,
    pub(crate) ports: Vec<Port>,
}

impl Member {
    /// Its address for the port that the recipe numbers `port`.
    pub(crate) fn address(&self, port: usize) -> SocketAddr {
        (self.host, self.ports[port].number()).into()
    }
}
