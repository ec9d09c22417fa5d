use crate::Failure;
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The directory of a cluster. Its logs are kept if the test panics.
#[derive(Debug)]
pub(crate) struct Directory {
    root: TempDir,
}

impl Directory {
    pub(crate) fn create(server: &str) -> Result<Directory, Failure> {
        let prefix = format!("tenure-{}-", server.to_lowercase().replace(' ', "-"));
        let root = tempfile::Builder::new().prefix(&prefix).tempdir();
        Ok(Directory { root: root.map_err(Failure::system("making a directory for a server"))? })
    }

    /// The directory of one member, created by the first call.
    pub(crate) fn member(&self, number: usize) -> Result<PathBuf, Failure> {
        let member = self.root.path().join(number.to_string());
        std::fs::create_dir_all(data(&member))
            .map_err(Failure::system("making a directory for a server"))?;
        Ok(member)
    }
}

/// The data directory of a member. Everything beside it is configuration and logs.
pub(crate) fn data(member: &Path) -> PathBuf {
    member.join("data")
}

/// The log file of a member.
pub(crate) fn log(member: &Path) -> PathBuf {
    member.join("log")
}

/// The end of a member's log, for a message.
pub(crate) fn end_of_log(member: &Path) -> String {
    const LINES: usize = 30;
    // Servers do not always write UTF-8.
    let log = std::fs::read(log(member)).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

impl Drop for Directory {
    fn drop(&mut self) {
        let asked = std::env::var_os("TENURE_KEEP").is_some();
        if !std::thread::panicking() && !asked {
            return;
        }
        self.root.disable_cleanup(true);
        let members = std::fs::read_dir(self.root.path());
        for member in members.into_iter().flatten().flatten() {
            // Only the logs are worth their space.
            let _ = std::fs::remove_dir_all(data(&member.path()));
        }
        let _ = writeln!(std::io::stderr(), "logs kept: {}/*/log", self.root.path().display());
    }
}
