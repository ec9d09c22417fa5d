//! ZooKeeper, one server or an ensemble.

use crate::launch::Launch;
use crate::recipe::{Member, Recipe};
use crate::version::{Installed, downloads, program};
use crate::{Cluster, Failure, Skipped, Version, directory, http};
use async_trait::async_trait;
use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const DEBIAN: [&str; 3] = [
    "/usr/share/java/zookeeper.jar",
    "/usr/share/java/slf4j-simple.jar",
    "/usr/share/java/servlet-api.jar",
];
const CURRENT: &str = "zookeeper-3.9.4";

// The order of a member's ports.
const CLIENT: usize = 0;
const PEER: usize = 1;
const VOTE: usize = 2;
const SECURE: usize = 3;

/// The time-out of a probe. A server that is just starting may accept one and never answer it, but
/// answers the next.
const PROBE_WITHIN: Duration = Duration::from_millis(400);

/// The longest session that the servers grant. Much shorter ones expire by themselves on a busy
/// machine.
pub const LONGEST_SESSION: Duration = Duration::from_secs(4);

/// Options of the servers.
#[derive(Clone, Debug)]
pub struct Options {
    /// The version of ZooKeeper.
    pub version: Version,
    /// More lines of zoo.cfg, such as `("ssl.clientAuth", "none")`.
    pub settings: Vec<(String, String)>,
    /// More lines of one server's zoo.cfg, by its index; they overrule `settings`.
    pub own_settings: Vec<(usize, String, String)>,
    /// Java's system properties, such as `("zookeeper.DigestAuthenticationProvider.superDigest",
    /// …)`.
    pub properties: Vec<(String, String)>,
    /// True to open a port for TLS too, at [`Zookeeper::secure_address`]. Its keys are among the
    /// settings.
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
            settings: Vec::new(),
            own_settings: Vec::new(),
            properties: Vec::new(),
            secure: false,
            partitions: false,
            // Ten times the longest time seen, because a test machine can be busy.
            ready_within: Duration::from_secs(60),
        }
    }
}

/// ZooKeeper servers, with the functions of a [`Cluster`].
#[derive(Debug)]
pub struct Zookeeper {
    cluster: Cluster,
}

impl Zookeeper {
    /// Starts one server, on its own.
    ///
    /// Fails with [`Failure::Skipped`] if ZooKeeper is not installed, and also if the server does
    /// not get ready.
    ///
    /// # Cancel safety
    /// A server that was started is ended.
    pub async fn single(options: Options) -> Result<Zookeeper, Failure> {
        Zookeeper::start(options, 1, false).await
    }

    /// Starts an ensemble; with three servers, one may fail.
    ///
    /// Fails as [`single`](Zookeeper::single) does.
    ///
    /// # Cancel safety
    /// Servers that were started are ended.
    pub async fn ensemble(size: usize, options: Options) -> Result<Zookeeper, Failure> {
        Zookeeper::start(options, size, true).await
    }

    /// The address for TLS of the server at `index`, if the options enable it.
    pub fn secure_address(&self, index: usize) -> Option<SocketAddr> {
        self.cluster[index].port(SECURE)
    }

    async fn start(options: Options, size: usize, ensemble: bool) -> Result<Zookeeper, Failure> {
        let partitions = options.partitions;
        let recipe = Arc::new(ZookeeperRecipe::find(options, ensemble)?);
        Ok(Zookeeper { cluster: Cluster::start(recipe, size, partitions).await? })
    }
}

impl Deref for Zookeeper {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

/// Asks a server with one of its four-letter words.
///
/// Examples are `srvr`, `mntr`, `cons` and `wchs`.
///
/// Fails when it does not answer within two seconds.
///
/// # Cancel safety
/// Nothing is lost.
pub async fn ask(server: SocketAddr, word: &str) -> io::Result<String> {
    let answer = http::converse(server, word.as_bytes(), http::WITHIN).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The number of the request that a server's message answers.
///
/// It is -1 for a notification, and -2 for a ping. The message is one that a proxy with
/// [`Framing::Zookeeper`](crate::Framing::Zookeeper) shows, and not the first of its connection,
/// which has no number.
pub fn number(message: &[u8]) -> Option<i32> {
    let number = message.get(4..8)?.try_into().ok()?;
    Some(i32::from_be_bytes(number))
}

#[derive(Debug)]
struct ZookeeperRecipe {
    title: String,
    options: Options,
    ensemble: bool,
    java: std::path::PathBuf,
    classes: String,
}

impl ZookeeperRecipe {
    fn find(options: Options, ensemble: bool) -> Result<ZookeeperRecipe, Skipped> {
        let current = downloads().join(CURRENT).join("lib");
        let debian = DEBIAN.iter().all(|jar| Path::new(jar).exists());
        let has_current = current.join(format!("{CURRENT}.jar")).exists();
        let installed = options.version.settle("ZooKeeper", has_current, debian)?;
        let java = program("java").ok_or_else(|| Skipped {
            server: "ZooKeeper".to_owned(),
            reason: "java is not on this machine; scripts/servers zookeeper brings one".to_owned(),
        })?;
        let (title, classes) = match installed {
            Installed::Debian => ("ZooKeeper Debian", DEBIAN.join(":")),
            Installed::Current => ("ZooKeeper 3.9.4", format!("{}/*", current.display())),
        };
        Ok(ZookeeperRecipe { title: title.to_owned(), options, ensemble, java, classes })
    }

    fn configuration(&self, members: &[Member], index: usize) -> String {
        let own = &members[index];
        // Sessions of 0.4 to 4 s. The admin server is off because a clash of its port ends the JVM.
        let mut text = format!(
            "tickTime=200\ninitLimit=25\nsyncLimit=10\ndataDir={}\nclientPort={}\n\
             clientPortAddress={}\nadmin.enableServer=false\n4lw.commands.whitelist=*\n\
             maxClientCnxns=0\n",
            directory::data(&own.directory).display(),
            own.ports[CLIENT].number(),
            own.host,
        );
        let mut line = |key: &str, value: &str| {
            writeln!(text, "{key}={value}").expect("writing to a string does not fail");
        };
        if self.options.secure {
            line("secureClientPort", &own.ports[SECURE].number().to_string());
            line("secureClientPortAddress", &own.host.to_string());
        }
        if self.ensemble {
            line("standaloneEnabled", "false");
            for (number, member) in (1..).zip(members) {
                let (peer, vote) = (member.ports[PEER].number(), member.ports[VOTE].number());
                line(&format!("server.{number}"), &format!("{}:{peer}:{vote}", member.host));
            }
        }
        for (key, value) in &self.options.settings {
            line(key, value);
        }
        for (_, key, value) in self.options.own_settings.iter().filter(|own| own.0 == index) {
            line(key, value);
        }
        text
    }
}

#[async_trait]
impl Recipe for ZookeeperRecipe {
    fn title(&self) -> &str {
        &self.title
    }

    fn ports(&self) -> usize {
        if self.options.secure { SECURE + 1 } else { VOTE + 1 }
    }

    fn ready_within(&self) -> Duration {
        self.options.ready_within
    }

    fn prepare(&self, members: &[Member], index: usize) -> Result<Launch, Failure> {
        let own = &members[index].directory;
        let file = own.join("zoo.cfg");
        std::fs::write(&file, self.configuration(members, index))
            .and_then(|()| {
                std::fs::write(directory::data(own).join("myid"), (index + 1).to_string())
            })
            .map_err(Failure::system("writing the configuration of ZooKeeper"))?;

        // Small and quick to start. It runs without fsync: only a crash of the machine would show
        // that.
        let mut arguments: Vec<String> = [
            "-Xms32m",
            "-Xmx128m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:ActiveProcessorCount=1",
            "-XX:-UsePerfData",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Djava.net.preferIPv4Stack=true",
            "-Dzookeeper.forceSync=no",
            "-Dzookeeper.cnxTimeout=500",
        ]
        .map(str::to_owned)
        .into();
        arguments
            .extend(self.options.properties.iter().map(|(key, value)| format!("-D{key}={value}")));
        arguments.extend(["-cp".to_owned(), self.classes.clone()]);
        arguments.push("org.apache.zookeeper.server.quorum.QuorumPeerMain".to_owned());
        arguments.push(file.display().to_string());
        Ok(Launch { program: self.java.clone(), arguments, family: false })
    }

    async fn ready(&self, member: &Member) -> bool {
        // A server answers `ruok` without a quorum, but it reports its mode only with one.
        mode(member).await.is_some()
    }

    async fn leads(&self, member: &Member) -> bool {
        mode(member).await.is_some_and(|mode| mode == "leader" || mode == "standalone")
    }
}

async fn mode(member: &Member) -> Option<String> {
    let server = member.address(CLIENT);
    let answer = http::converse(server, b"srvr", PROBE_WITHIN).await.ok()?;
    let answer = String::from_utf8_lossy(&answer);
    let mode = answer.lines().find_map(|line| line.strip_prefix("Mode: "))?;
    Some(mode.to_owned())
}
