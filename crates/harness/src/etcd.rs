//! etcd, one server or a cluster.

use crate::launch::Launch;
use crate::recipe::{Member, Recipe};
use crate::version::{Installed, downloads};
use crate::{Cluster, Failure, GrpcProxy, Skipped, Version, directory, http};
use async_trait::async_trait;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const DEBIAN: &str = "/usr/bin/etcd";
const CURRENT: &str = "etcd-3.7.3";

// The order of a member's ports. The last one speaks plain HTTP even if clients must use TLS.
const CLIENT: usize = 0;
const PEER: usize = 1;
const HEALTH: usize = 2;

/// Options of the servers.
#[derive(Clone, Debug)]
pub struct Options {
    /// The version of etcd.
    pub version: Version,
    /// More arguments, such as `--cert-file` and `--key-file`; a later one overrides.
    pub arguments: Vec<String>,
    /// True if clients speak TLS. Its keys are among the arguments.
    pub secure: bool,
    /// True if servers can be [isolated](Cluster::isolate) from each other. Needs root, and `ip` of
    /// iproute2.
    pub partitions: bool,
    /// How long the servers may take to be ready.
    pub ready_within: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            version: Version::default(),
            arguments: Vec::new(),
            secure: false,
            partitions: false,
            // Ten times the longest time seen, because a test machine can be busy.
            ready_within: Duration::from_secs(60),
        }
    }
}

/// etcd servers, with the functions of a [`Cluster`].
#[derive(Debug)]
pub struct Etcd {
    cluster: Cluster,
    program: PathBuf,
}

impl Etcd {
    /// Starts one server.
    ///
    /// Fails with [`Failure::Skipped`] if etcd is not installed, and also if the server does not
    /// get ready.
    ///
    /// # Cancel safety
    /// A server that was started is ended.
    pub async fn single(options: Options) -> Result<Etcd, Failure> {
        Etcd::cluster(1, options).await
    }

    /// Starts a cluster; with three servers, one may fail.
    ///
    /// Fails as [`single`](Etcd::single) does.
    ///
    /// # Cancel safety
    /// Servers that were started are ended.
    pub async fn cluster(size: usize, options: Options) -> Result<Etcd, Failure> {
        let partitions = options.partitions;
        let recipe = Arc::new(EtcdRecipe::find(options)?);
        let program = recipe.program.clone();
        Ok(Etcd { cluster: Cluster::start(recipe, size, partitions).await?, program })
    }

    /// Starts etcd's own gRPC proxy in front of its first server.
    ///
    /// # Cancel safety
    /// A proxy that was started is ended.
    pub async fn grpc_proxy(&self) -> Result<GrpcProxy, Failure> {
        GrpcProxy::start(&self.program, self.cluster[0].address()).await
    }
}

impl Deref for Etcd {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

#[derive(Debug)]
struct EtcdRecipe {
    title: String,
    options: Options,
    program: PathBuf,
    installed: Installed,
}

impl EtcdRecipe {
    fn find(options: Options) -> Result<EtcdRecipe, Skipped> {
        let current = downloads().join(CURRENT).join("etcd");
        let debian = Path::new(DEBIAN);
        let installed = options.version.settle("etcd", current.exists(), debian.exists())?;
        let (title, program) = match installed {
            Installed::Debian => ("etcd Debian", debian.to_owned()),
            Installed::Current => ("etcd 3.7.3", current),
        };
        Ok(EtcdRecipe { title: title.to_owned(), options, program, installed })
    }
}

#[async_trait]
impl Recipe for EtcdRecipe {
    fn title(&self) -> &str {
        &self.title
    }

    fn ports(&self) -> usize {
        HEALTH + 1
    }

    fn ready_within(&self) -> Duration {
        self.options.ready_within
    }

    fn prepare(&self, members: &[Member], index: usize) -> Result<Launch, Failure> {
        let own = &members[index];
        let scheme = if self.options.secure { "https" } else { "http" };
        let clients = format!("{scheme}://{}", own.address(CLIENT));
        let peers = |member: &Member| format!("http://{}", member.address(PEER));
        let cluster: Vec<String> = members
            .iter()
            .enumerate()
            .map(|(index, member)| format!("n{index}={}", peers(member)))
            .collect();
        // An election timeout of 0.5 s allows leases of one second; the default makes them two
        // seconds.
        let mut arguments: Vec<String> = [
            ("--name", format!("n{index}")),
            ("--data-dir", directory::data(&own.directory).join("etcd").display().to_string()),
            ("--listen-client-urls", clients.clone()),
            ("--advertise-client-urls", clients),
            ("--listen-peer-urls", peers(own)),
            ("--initial-advertise-peer-urls", peers(own)),
            ("--listen-metrics-urls", format!("http://{}", own.address(HEALTH))),
            ("--initial-cluster", cluster.join(",")),
            ("--initial-cluster-state", "new".to_owned()),
            ("--heartbeat-interval", "50".to_owned()),
            ("--election-timeout", "500".to_owned()),
            ("--log-level", "warn".to_owned()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect();
        arguments.push("--unsafe-no-fsync".to_owned());
        if self.installed == Installed::Debian {
            // The only logger of current versions. Debian's version has another one as its default.
            arguments.extend(["--logger".to_owned(), "zap".to_owned()]);
        }
        arguments.extend(self.options.arguments.iter().cloned());
        Ok(Launch { program: self.program.clone(), arguments, family: false })
    }

    async fn ready(&self, member: &Member) -> bool {
        // Healthy means that a read went through the quorum.
        let health = http::get(member.address(HEALTH), "/health").await;
        health.is_ok_and(|answer| answer.body.contains(r#""health":"true""#))
    }

    async fn leads(&self, member: &Member) -> bool {
        let metrics = http::get(member.address(HEALTH), "/metrics").await;
        metrics
            .is_ok_and(|answer| answer.body.lines().any(|line| line == "etcd_server_is_leader 1"))
    }
}
