use crate::directory::Directory;
use crate::network::Network;
use crate::process::Limit;
use crate::recipe::{Member, Recipe};
use crate::server::PAUSE;
use crate::version::program;
use crate::{Failure, Port, Server, Skipped};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// How long an ensemble may take to agree on a leader. With a stopped leader ZooKeeper takes four
/// seconds, OpenSearch 33.
const LEADER_WITHIN: Duration = Duration::from_secs(60);
/// How many times to try if another program takes a port between claim and start.
const ATTEMPTS: usize = 3;

/// Servers of one kind that belong together. One server is a cluster too.
///
/// All of them end when this is dropped.
#[derive(Debug)]
pub struct Cluster {
    // Before the directory, so that the servers are gone when it is removed.
    servers: Vec<Server>,
    network: Option<Network>,
    _directory: Directory,
}

impl Cluster {
    /// Starts `size` servers, and waits until each is ready.
    ///
    /// With `partitions` each server has a network of its own.
    pub(crate) async fn start(
        recipe: Arc<dyn Recipe>,
        size: usize,
        partitions: bool,
    ) -> Result<Cluster, Failure> {
        // The kernel must end the servers when we end. Without unsafe code, only a program can
        // request that.
        if program("setpriv").is_none() {
            let reason = "setpriv (util-linux) is not on this machine".to_owned();
            return Err(Skipped { server: recipe.title().to_owned(), reason }.into());
        }
        let mut attempt = 1;
        loop {
            match Cluster::attempt(&recipe, size, partitions).await {
                Err(Failure::Ended { log, .. }) if attempt < ATTEMPTS && port_was_taken(&log) => {
                    attempt += 1;
                }
                started => return started,
            }
        }
    }

    async fn attempt(
        recipe: &Arc<dyn Recipe>,
        size: usize,
        partitions: bool,
    ) -> Result<Cluster, Failure> {
        let directory = Directory::create(recipe.title())?;
        let network = partitions.then(|| Network::create(size)).transpose();
        let network = network.map_err(|reason| Skipped {
            server: recipe.title().to_owned(),
            reason: format!("a network of its own: {reason}"),
        })?;
        let members = (0..size)
            .map(|index| Member::new(&directory, network.as_ref(), recipe.ports(), index))
            .collect::<Result<Vec<_>, _>>()?;
        let processes = (0..size)
            .map(|index| Server::prepare(recipe, &members, index))
            .collect::<Result<Vec<_>, _>>()?;
        let servers: Vec<Server> = members
            .into_iter()
            .zip(processes)
            .enumerate()
            .map(|(index, (member, process))| {
                Server::new(Arc::clone(recipe), member, process, index)
            })
            .collect();
        let cluster = Cluster { servers, network, _directory: directory };
        for server in &cluster.servers {
            server.start()?;
        }
        cluster.ready().await?;
        Ok(cluster)
    }

    /// Waits until each of its servers is ready.
    ///
    /// Fails as [`Server::ready`] does.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn ready(&self) -> Result<(), Failure> {
        for server in &self.servers {
            server.ready().await?;
        }
        Ok(())
    }

    /// The addresses for clients, one for each server.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(Server::address).collect()
    }

    /// The index of the leader; none if no server, or more than one, claims to lead.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn leader(&self) -> Option<usize> {
        let mut leader = None;
        for (index, server) in self.servers.iter().enumerate() {
            if server.leads().await && leader.replace(index).is_some() {
                return None;
            }
        }
        leader
    }

    /// Waits for a leader other than `former`.
    ///
    /// Fails with [`Failure::Late`] if there is none within a minute.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn settled(&self, former: Option<usize>) -> Result<usize, Failure> {
        let limit = Limit::within(LEADER_WITHIN);
        loop {
            match self.leader().await {
                Some(leader) if Some(leader) != former => return Ok(leader),
                Some(_) | None if limit.reached() => {
                    let witness = usize::from(former == Some(0) && self.servers.len() > 1);
                    return Err(self.servers[witness].late("a leader"));
                }
                Some(_) | None => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

impl Cluster {
    /// Cuts a server off from the others, both ways and silently. Clients still reach all of them.
    ///
    /// Fails with [`Failure::System`] if the system refuses.
    ///
    /// # Panics
    /// Unless the servers' options have `partitions`.
    pub fn isolate(&self, index: usize) -> Result<(), Failure> {
        let isolated = self.network().isolate(index);
        isolated.map_err(|reason| Failure::system("isolating a server")(io::Error::other(reason)))
    }

    /// Undoes [`isolate`](Cluster::isolate). Packets sent meanwhile arrive when TCP retries.
    ///
    /// Fails with [`Failure::System`] if the system refuses.
    ///
    /// # Panics
    /// Unless the servers' options have `partitions`.
    pub fn rejoin(&self, index: usize) -> Result<(), Failure> {
        let rejoined = self.network().rejoin(index);
        rejoined.map_err(|reason| Failure::system("rejoining a server")(io::Error::other(reason)))
    }

    fn network(&self) -> &Network {
        self.network
            .as_ref()
            .expect("only servers with `partitions` can be cut off from each other")
    }
}

impl Deref for Cluster {
    type Target = [Server];

    fn deref(&self) -> &[Server] {
        &self.servers
    }
}

impl Member {
    fn new(
        directory: &Directory,
        network: Option<&Network>,
        ports: usize,
        index: usize,
    ) -> Result<Member, Failure> {
        let ports = (0..ports).map(|_| Port::claim()).collect::<Result<Vec<_>, _>>();
        Ok(Member {
            directory: directory.member(index)?,
            host: network.map_or(Ipv4Addr::LOCALHOST, |network| network.host(index)),
            namespace: network.map(|network| network.namespace(index)),
            ports: ports.map_err(Failure::system("claiming a port"))?,
        })
    }
}

/// Both Java and Go include the system's message in theirs.
fn port_was_taken(log: &str) -> bool {
    log.to_lowercase().contains("address already in use")
}
