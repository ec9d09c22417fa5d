//! RethinkDB, one server.
//!
//! It is a real one if `rethinkdb` is on the search path, else the emulator reqlite.

use crate::launch::Launch;
use crate::recipe::{Member, Recipe};
use crate::version::{downloads, program};
use crate::{Cluster, Failure, Skipped, directory};
use async_trait::async_trait;
use std::io::Write as _;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The variable with the URL of an external server. The tests then use that one.
pub const URL_VARIABLE: &str = "TENURE_RETHINKDB_URL";

// The order of a member's ports; the emulator has only the first.
const DRIVER: usize = 0;
const CLUSTER: usize = 1;

/// The time to get ready. It is ten times the longest time seen, because a test machine can be
/// busy.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// A client's first message, and the time for the answer.
const VERSION_1_0: [u8; 4] = [0xc3, 0xbd, 0xc2, 0x34];
const HELLO_WITHIN: Duration = Duration::from_secs(1);

/// A server of RethinkDB's protocol, with the functions of a [`Cluster`].
#[derive(Debug)]
pub struct Rethinkdb {
    cluster: Cluster,
    kind: Kind,
}

/// The kind of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// RethinkDB itself.
    Real,
    /// reqlite, which keeps its data in memory and loses it in a restart.
    Emulator,
}

impl Rethinkdb {
    /// Starts one server.
    ///
    /// Fails with [`Failure::Skipped`] if neither is installed, and also if the server does not get
    /// ready.
    ///
    /// # Cancel safety
    /// A server that was started is ended.
    pub async fn single() -> Result<Rethinkdb, Failure> {
        let recipe = RethinkRecipe::find()?;
        let kind = recipe.kind();
        let cluster = Cluster::start(Arc::new(recipe), 1, false).await?;
        Ok(Rethinkdb { cluster, kind })
    }

    /// The kind of this server.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

impl Deref for Rethinkdb {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

#[derive(Debug)]
enum RethinkRecipe {
    Real { program: PathBuf },
    Emulator { node: PathBuf, modules: PathBuf },
}

impl RethinkRecipe {
    fn find() -> Result<RethinkRecipe, Skipped> {
        if let Some(program) = program("rethinkdb") {
            let _ = writeln!(std::io::stderr(), "rethinkdb: {}", program.display());
            return Ok(RethinkRecipe::Real { program });
        }
        let modules = downloads().join("reqlite/node_modules");
        match program("node").filter(|_| modules.join("reqlite").exists()) {
            Some(node) => {
                // Not eprintln!, which the test runner would hide: the tested server is always
                // named.
                let _ = writeln!(
                    std::io::stderr(),
                    "rethinkdb: the emulator reqlite 2.3.0, because no rethinkdb is on PATH"
                );
                Ok(RethinkRecipe::Emulator { node, modules })
            }
            None => Err(Skipped {
                server: "rethinkdb".to_owned(),
                reason: "neither rethinkdb nor its emulator is installed; scripts/servers does the latter"
                    .to_owned(),
            }),
        }
    }

    fn kind(&self) -> Kind {
        match self {
            RethinkRecipe::Real { .. } => Kind::Real,
            RethinkRecipe::Emulator { .. } => Kind::Emulator,
        }
    }
}

#[async_trait]
impl Recipe for RethinkRecipe {
    fn title(&self) -> &str {
        match self {
            RethinkRecipe::Real { .. } => "rethinkdb",
            RethinkRecipe::Emulator { .. } => "reqlite 2.3.0 for rethinkdb",
        }
    }

    fn ports(&self) -> usize {
        match self {
            RethinkRecipe::Real { .. } => CLUSTER + 1,
            RethinkRecipe::Emulator { .. } => DRIVER + 1,
        }
    }

    fn ready_within(&self) -> Duration {
        READY_WITHIN
    }

    fn prepare(&self, members: &[Member], index: usize) -> Result<Launch, Failure> {
        let own = &members[index];
        Ok(match self {
            RethinkRecipe::Real { program } => {
                let data = directory::data(&own.directory).join("rethinkdb");
                let mut arguments: Vec<String> = [
                    ("--directory", data.display().to_string()),
                    ("--bind", own.host.to_string()),
                    ("--driver-port", own.ports[DRIVER].number().to_string()),
                    ("--cluster-port", own.ports[CLUSTER].number().to_string()),
                    ("--cache-size", "64".to_owned()),
                ]
                .into_iter()
                .flat_map(|(name, value)| [name.to_owned(), value])
                .collect();
                arguments.extend(["--no-http-admin".to_owned(), "--no-update-check".to_owned()]);
                Launch { program: program.clone(), arguments, family: false }
            }
            RethinkRecipe::Emulator { node, modules } => {
                let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("servers/reqlite/serve.js");
                let arguments = [
                    "--no-deprecation".to_owned(),
                    script.display().to_string(),
                    modules.display().to_string(),
                    own.ports[DRIVER].number().to_string(),
                ];
                Launch { program: node.clone(), arguments: arguments.into(), family: false }
            }
        })
    }

    async fn ready(&self, member: &Member) -> bool {
        let hello = timeout(HELLO_WITHIN, hello(member.address(DRIVER))).await;
        hello.is_ok_and(|answer| answer.is_ok_and(|answer| answer.contains("\"success\":true")))
    }

    async fn leads(&self, _: &Member) -> bool {
        // There is no other server.
        true
    }
}

/// The server's answer to a client's first message.
async fn hello(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(&VERSION_1_0).await?;
    let mut heard = vec![0; 512];
    let length = stream.read(&mut heard).await?;
    Ok(String::from_utf8_lossy(&heard[..length]).into_owned())
}
