//! Elasticsearch and OpenSearch, one server or a cluster.

use crate::launch::Launch;
use crate::recipe::{Member, Recipe};
use crate::version::{downloads, program};
use crate::{Cluster, Failure, Skipped, directory, http};
use async_trait::async_trait;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

// The order of a member's ports.
const CLIENT: usize = 0;
const TRANSPORT: usize = 1;

/// One of the two servers. Both have the same wire protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// Elasticsearch.
    Elasticsearch,
    /// OpenSearch.
    Opensearch,
}

impl Product {
    /// The name in its files.
    fn name(self) -> &'static str {
        match self {
            Product::Elasticsearch => "elasticsearch",
            Product::Opensearch => "opensearch",
        }
    }

    /// The name of an environment variable, with the product's prefix.
    fn variable(self, name: &str) -> String {
        match self {
            Product::Elasticsearch => format!("ES_{name}"),
            Product::Opensearch => format!("OPENSEARCH_{name}"),
        }
    }

    /// The version that `scripts/servers` installs.
    ///
    /// `TENURE_ELASTICSEARCH` and `TENURE_OPENSEARCH` name another.
    pub fn version(self) -> String {
        let (variable, usual) = match self {
            Product::Elasticsearch => ("TENURE_ELASTICSEARCH", "8.7.1"),
            Product::Opensearch => ("TENURE_OPENSEARCH", "2.19.6"),
        };
        std::env::var(variable).unwrap_or_else(|_| usual.to_owned())
    }
}

/// A user of the server, for tests with logins.
#[derive(Clone, Debug)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Its password.
    pub password: String,
    /// Its role, such as `superuser`.
    pub role: String,
}

/// Options of the servers.
#[derive(Clone, Debug)]
pub struct Options {
    /// The product.
    pub product: Product,
    /// Its version.
    pub version: String,
    /// More settings, such as `("xpack.security.http.ssl.enabled", "true")`.
    pub settings: Vec<(String, String)>,
    /// The users of Elasticsearch. Without any, it accepts all clients.
    pub users: Vec<User>,
    /// Files to copy into its configuration directory. It may read keys only from there, and
    /// settings name the files without a path.
    pub files: Vec<PathBuf>,
    /// Lines of roles.yml, for users with custom roles.
    pub roles: String,
    /// The Java installation to run on; the one on the search path if absent.
    pub java_home: Option<PathBuf>,
    /// True if servers can be [isolated](Cluster::isolate) from each other. Needs root, and `ip` of
    /// iproute2.
    pub partitions: bool,
    /// True to run the servers as in production, for benchmarks. They have more memory and full
    /// compilation; otherwise they start quickly.
    pub tuned: bool,
    /// How long the servers may take to be ready.
    pub ready_within: Duration,
}

impl Options {
    /// The default options, with the product's default version.
    pub fn new(product: Product) -> Options {
        Options {
            product,
            version: product.version(),
            settings: Vec::new(),
            users: Vec::new(),
            files: Vec::new(),
            roles: String::new(),
            java_home: None,
            partitions: false,
            tuned: false,
            // Ten times the longest time seen, because a test machine can be busy.
            ready_within: Duration::from_secs(120),
        }
    }

    /// Options for a server as in production, to measure its speed.
    pub fn for_benchmarks(product: Product) -> Options {
        Options { tuned: true, ..Options::new(product) }
    }
}

/// Servers of Elasticsearch or OpenSearch, with the functions of a [`Cluster`].
#[derive(Debug)]
pub struct Elastic {
    cluster: Cluster,
}

impl Elastic {
    /// Starts one server, on its own.
    ///
    /// Fails with [`Failure::Skipped`] if the server is not installed, and also if it does not get
    /// ready.
    ///
    /// # Cancel safety
    /// A server that was started is ended.
    pub async fn single(options: Options) -> Result<Elastic, Failure> {
        Elastic::cluster(1, options).await
    }

    /// Starts a cluster; with three servers, one may fail.
    ///
    /// Fails as [`single`](Elastic::single) does.
    ///
    /// # Cancel safety
    /// Servers that were started are ended.
    pub async fn cluster(size: usize, options: Options) -> Result<Elastic, Failure> {
        let partitions = options.partitions;
        let recipe = Arc::new(ElasticRecipe::find(options)?);
        Ok(Elastic { cluster: Cluster::start(recipe, size, partitions).await? })
    }
}

impl Deref for Elastic {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

#[derive(Debug)]
struct ElasticRecipe {
    title: String,
    options: Options,
    home: PathBuf,
    java_home: PathBuf,
}

impl ElasticRecipe {
    fn find(options: Options) -> Result<ElasticRecipe, Skipped> {
        let name = options.product.name();
        let installation = format!("{name}-{}", options.version);
        let skipped = |reason: String| Skipped { server: installation.clone(), reason };
        let home = downloads().join(&installation);
        if !home.join("bin").join(name).exists() {
            let reason = format!("not installed; scripts/servers {installation} does it");
            return Err(skipped(reason));
        }
        for tool in ["unshare", "env"] {
            if program(tool).is_none() {
                return Err(skipped(format!("{tool} is not on this machine")));
            }
        }
        let java_home = options.java_home.clone().or_else(java_home);
        let java_home = java_home.ok_or_else(|| {
            skipped("java is not on this machine; scripts/servers zookeeper brings one".to_owned())
        })?;
        // The scripts change their directory before they read these variables.
        let home = std::path::absolute(&home).map_err(|error| skipped(error.to_string()))?;
        let title = format!("{name} {}", options.version);
        Ok(ElasticRecipe { title, options, home, java_home })
    }

    /// Copies the configuration, without memory sizes and paths that servers would share.
    fn configure(&self, own: &Member) -> io::Result<()> {
        let from = self.home.join("config");
        let to = config(own);
        std::fs::create_dir_all(&to)?;
        for directory in ["tmp", "logs"] {
            std::fs::create_dir_all(own.directory.join(directory))?;
        }
        for entry in std::fs::read_dir(&from)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                std::fs::create_dir_all(to.join(entry.file_name()))?;
            } else {
                std::fs::copy(entry.path(), to.join(entry.file_name()))?;
            }
        }
        let options = std::fs::read_to_string(from.join("jvm.options"))?;
        let shared = ["gc.log", "HeapDump", "ErrorFile", "-Xms", "-Xmx", "PrintGC", "GCLogFile"];
        let kept = options.lines().filter(|line| !shared.iter().any(|part| line.contains(part)));
        let kept: Vec<&str> = kept.collect();
        std::fs::write(to.join("jvm.options"), kept.join("\n") + "\n")?;
        for file in &self.options.files {
            std::fs::copy(file, to.join(file.file_name().unwrap_or_default()))?;
        }
        if !self.options.roles.is_empty() {
            std::fs::write(to.join("roles.yml"), &self.options.roles)?;
        }
        self.options.users.iter().try_for_each(|user| self.add_user(own, user))
    }

    /// Adds a user with the server's own tool, before the server starts.
    fn add_user(&self, own: &Member, user: &User) -> io::Result<()> {
        let arguments = ["useradd", &user.name, "-p", &user.password, "-r", &user.role];
        let launch = self.launch(own, "elasticsearch-users", arguments.map(str::to_owned).into());
        let output = Command::new(&launch.program).args(&launch.arguments).output()?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        Err(io::Error::other(said + &String::from_utf8_lossy(&output.stderr)))
    }

    /// The launch of one of the server's programs, with its environment. The programs refuse to run
    /// as root.
    fn launch(&self, own: &Member, name: &str, arguments: Vec<String>) -> Launch {
        let product = self.options.product;
        let variable = |name: &str, value: String| format!("{}={value}", product.variable(name));
        let path = |path: &Path| path.display().to_string();
        let machine = match self.options.tuned {
            true => "-Xms1g -Xmx1g",
            // Small and quick to start.
            false => "-Xms256m -Xmx256m -XX:TieredStopAtLevel=1",
        };
        let mut words = vec![
            variable("PATH_CONF", path(&config(own))),
            variable("JAVA_OPTS", machine.to_owned()),
            // The same for Elasticsearch's launcher and its tool for users: it halves their time.
            "CLI_JAVA_OPTS=-XX:TieredStopAtLevel=1".to_owned(),
            variable("TMPDIR", path(&own.directory.join("tmp"))),
            variable("JAVA_HOME", path(&self.java_home)),
        ];
        words.extend(["unshare", "--map-user=1000", "--map-group=1000", "--"].map(str::to_owned));
        words.push(path(&self.home.join("bin").join(name)));
        words.extend(arguments);
        // Elasticsearch is a launcher with the server as its child.
        Launch { program: "env".into(), arguments: words, family: true }
    }

    fn secured(&self) -> bool {
        !self.options.users.is_empty()
    }
}

#[async_trait]
impl Recipe for ElasticRecipe {
    fn title(&self) -> &str {
        &self.title
    }

    fn ports(&self) -> usize {
        TRANSPORT + 1
    }

    fn ready_within(&self) -> Duration {
        self.options.ready_within
    }

    fn prepare(&self, members: &[Member], index: usize) -> Result<Launch, Failure> {
        let own = &members[index];
        let doing = format!("writing the configuration of {}", self.title);
        self.configure(own).map_err(Failure::system(doing))?;
        let mut settings: Vec<(String, String)> = [
            ("cluster.name", "tenure-test".to_owned()),
            ("node.name", format!("n{index}")),
            ("path.data", directory::data(&own.directory).display().to_string()),
            ("path.logs", own.directory.join("logs").display().to_string()),
            ("network.host", own.host.to_string()),
            ("http.port", own.ports[CLIENT].number().to_string()),
            ("transport.port", own.ports[TRANSPORT].number().to_string()),
            ("cluster.routing.allocation.disk.threshold_enabled", "false".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let mut set = |name: &str, value: String| settings.push((name.to_owned(), value));
        if members.len() == 1 {
            set("discovery.type", "single-node".to_owned());
        } else {
            let seeds: Vec<String> =
                members.iter().map(|member| member.address(TRANSPORT).to_string()).collect();
            set("discovery.seed_hosts", seeds.join(","));
            let nodes: Vec<String> = (0..members.len()).map(|index| format!("n{index}")).collect();
            let initial = match self.options.product {
                Product::Elasticsearch => "cluster.initial_master_nodes",
                Product::Opensearch => "cluster.initial_cluster_manager_nodes",
            };
            set(initial, nodes.join(","));
            // A server that stands still, or is cut off, is given up after seconds, not after half
            // a minute.
            for check in ["follower_check", "leader_check"] {
                set(&format!("cluster.fault_detection.{check}.timeout"), "5s".to_owned());
                set(&format!("cluster.fault_detection.{check}.retry_count"), "2".to_owned());
            }
        }
        if own.namespace.is_some() {
            // On an address other than loopback it insists on a setting that only the machine's
            // administrator can change.
            set("node.store.allow_mmap", "false".to_owned());
        }
        if self.options.product == Product::Elasticsearch {
            set("xpack.security.enabled", self.secured().to_string());
        }
        settings.extend(self.options.settings.iter().cloned());
        let arguments = settings
            .into_iter()
            .flat_map(|(name, value)| ["-E".to_owned(), format!("{name}={value}")]);
        Ok(self.launch(own, self.options.product.name(), arguments.collect()))
    }

    async fn ready(&self, member: &Member) -> bool {
        let address = member.address(CLIENT);
        if self.secured() {
            // It may speak TLS, which we do not: check its port and its log instead.
            let log = std::fs::read(directory::log(&member.directory)).unwrap_or_default();
            return String::from_utf8_lossy(&log).contains(" started {")
                && tokio::net::TcpStream::connect(address).await.is_ok();
        }
        // Yellow: every document can be read and written, regardless of the copies.
        let path = "/_cluster/health?wait_for_status=yellow&timeout=1s";
        http::get(address, path).await.is_ok_and(|answer| answer.status == 200)
    }

    /// Returns true if the elected master's state says that the member holds primaries.
    ///
    /// For documents that is the leading server. All other copies must be in step, so that one of
    /// them can take over. A server that is cut off finds no primary copies.
    async fn leads(&self, member: &Member) -> bool {
        let path = "/_cluster/state/nodes,routing_nodes?filter_path=nodes.*.name,routing_nodes";
        let Ok(state) = http::get(member.address(CLIENT), path).await else { return false };
        let number = member.directory.file_name().and_then(|name| name.to_str());
        number.is_some_and(|number| holds_a_primary(&state.body, &format!("n{number}")))
    }
}

/// Returns true if this node holds a primary copy, and no copy is still to come.
fn holds_a_primary(state: &str, name: &str) -> bool {
    let coming = ["UNASSIGNED", "INITIALIZING", "RELOCATING"];
    if coming.iter().any(|coming| state.contains(&format!("\"state\":\"{coming}\""))) {
        return false;
    }
    let named = format!("\":{{\"name\":\"{name}\"");
    let id = state.split_once(&named).and_then(|(before, _)| before.rsplit('"').next());
    id.is_some_and(|id| {
        state.contains(&format!("\"state\":\"STARTED\",\"primary\":true,\"node\":\"{id}\""))
    })
}

fn config(own: &Member) -> PathBuf {
    own.directory.join("config")
}

/// The installation directory of the Java on the search path.
fn java_home() -> Option<PathBuf> {
    let java = std::fs::canonicalize(program("java")?).ok()?;
    Some(java.parent()?.parent()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_primary_is_known_by_its_name() {
        let state = r#"{"nodes":{"A":{"name":"n0"},"B":{"name":"n1"}},"routing_nodes":{"nodes":{
            "A":[{"state":"STARTED","primary":false,"node":"A"}],
            "B":[{"state":"STARTED","primary":true,"node":"B"}]}}}"#;
        assert!(holds_a_primary(state, "n1"));
        assert!(!holds_a_primary(state, "n0") && !holds_a_primary(state, "n2"));
    }

    /// A server that is killed before that takes the only copy with it: seen on a busy machine.
    #[test]
    fn nobody_leads_while_a_copy_is_still_being_made() {
        let state = |copy: &str| {
            r#"{"nodes":{"A":{"name":"n0"},"B":{"name":"n1"}},"routing_nodes":{"unassigned":[],
                "nodes":{"A":[{"state":"COPY","primary":false,"node":"A"}],
                "B":[{"state":"STARTED","primary":true,"node":"B"}]}}}"#
                .replace("COPY", copy)
        };
        assert!(holds_a_primary(&state("STARTED"), "n1"));
        for copy in ["UNASSIGNED", "INITIALIZING", "RELOCATING"] {
            assert!(!holds_a_primary(&state(copy), "n1"), "{copy}");
        }
    }
}
