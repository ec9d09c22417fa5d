//! A server of S3's protocol: moto, which keeps its objects in memory.

use crate::launch::Launch;
use crate::recipe::{Member, Recipe};
use crate::version::{downloads, program};
use crate::{Cluster, Failure, Skipped, http};
use async_trait::async_trait;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// The version that `scripts/servers` installs.
const VERSION: &str = "5.2.5";
/// The time to get ready. It is ten times the longest time seen, because a test machine can be
/// busy.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How many objects it lists at once. It is a tenth of S3's number, so that tests of many pages
/// need few objects.
pub const PAGE: usize = 100;

/// A program that runs the packages in a directory, without those of the machine.
const SERVE: &str = "import os, sys
os.environ['MOTO_S3_DEFAULT_MAX_KEYS'] = sys.argv[2]
sys.path.insert(0, sys.argv[1])
from moto.server import main
main(sys.argv[3:])";

/// A server of S3's protocol, with the functions of a [`Cluster`].
#[derive(Debug)]
pub struct S3 {
    cluster: Cluster,
}

impl S3 {
    /// Starts one server, which accepts any credentials.
    ///
    /// Fails with [`Failure::Skipped`] if it is not installed, and also if it does not get ready.
    ///
    /// # Cancel safety
    /// A server that was started is ended.
    pub async fn single() -> Result<S3, Failure> {
        let recipe = MotoRecipe::find()?;
        Ok(S3 { cluster: Cluster::start(Arc::new(recipe), 1, false).await? })
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.cluster[0].address())
    }
}

impl Deref for S3 {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

#[derive(Debug)]
struct MotoRecipe {
    title: String,
    python: PathBuf,
    packages: PathBuf,
}

impl MotoRecipe {
    fn find() -> Result<MotoRecipe, Skipped> {
        let packages = downloads().join(format!("moto-{VERSION}"));
        let title = format!("moto {VERSION} for s3");
        let found = program("python3").filter(|_| packages.join("moto").is_dir());
        match found.and_then(|python| interpreter(&python)) {
            Some(python) => Ok(MotoRecipe { title, python, packages }),
            None => {
                let reason = "it is not installed; scripts/servers does it".to_owned();
                Err(Skipped { server: title, reason })
            }
        }
    }
}

/// The real Python interpreter.
///
/// The one on the search path may be a script that needs an environment, which servers do not get.
fn interpreter(python: &Path) -> Option<PathBuf> {
    let said = Command::new(python).args(["-c", "import sys; print(sys.executable)"]).output();
    let path = PathBuf::from(String::from_utf8(said.ok()?.stdout).ok()?.trim());
    path.is_file().then_some(path)
}

#[async_trait]
impl Recipe for MotoRecipe {
    fn title(&self) -> &str {
        &self.title
    }

    fn ports(&self) -> usize {
        1
    }

    fn ready_within(&self) -> Duration {
        READY_WITHIN
    }

    fn prepare(&self, members: &[Member], index: usize) -> Result<Launch, Failure> {
        let address = members[index].address(0);
        let arguments = ["-c".to_owned(), SERVE.to_owned(), self.packages.display().to_string()]
            .into_iter()
            .chain([PAGE.to_string(), "-H".to_owned(), address.ip().to_string()])
            .chain(["-p".to_owned(), address.port().to_string()])
            .collect();
        Ok(Launch { program: self.python.clone(), arguments, family: false })
    }

    async fn ready(&self, member: &Member) -> bool {
        let asked = http::get(member.address(0), "/moto-api/").await;
        asked.is_ok_and(|answer| answer.status == 200)
    }

    async fn leads(&self, _: &Member) -> bool {
        // There is no other server.
        true
    }
}
