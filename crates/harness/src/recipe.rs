use crate::launch::Launch;
use crate::{Failure, Port};
use async_trait::async_trait;
use std::fmt::Debug;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// What differs between one kind of server and another.
#[async_trait]
pub(crate) trait Recipe: Debug + Send + Sync + 'static {
    /// The server and its version, for messages.
    fn title(&self) -> &str;

    /// How many ports a member needs; its clients use the first.
    fn ports(&self) -> usize;

    /// How long it may take until it is ready.
    fn ready_within(&self) -> Duration;

    /// Writes what the member at `index` needs and says how it is started.
    fn prepare(&self, members: &[Member], index: usize) -> Result<Launch, Failure>;

    /// Whether clients are served, which a port that accepts them does not prove. Has a time limit
    /// of its own.
    async fn ready(&self, member: &Member) -> bool;

    /// Whether the member takes itself for the leader. Has a time limit of its own.
    async fn leads(&self, member: &Member) -> bool;
}

/// What one server of a cluster keeps over its lives.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) directory: PathBuf,
    pub(crate) host: Ipv4Addr,
    /// The network namespace it runs in, if not in ours.
    pub(crate) namespace: Option<String>,
    pub(crate) ports: Vec<Port>,
}

impl Member {
    /// Where it listens for what the recipe numbers so.
    pub(crate) fn address(&self, port: usize) -> SocketAddr {
        (self.host, self.ports[port].number()).into()
    }
}
