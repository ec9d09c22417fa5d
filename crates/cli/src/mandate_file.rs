//! A file that tells CMD, or a handler, how long it may go on.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tenure::Mandate;

use crate::supervise::BootTime;

const FILE: &str = "mandate";

/// A private directory with one file in it; dropping this removes both.
#[derive(Debug)]
pub(crate) struct MandateFile {
    directory: PathBuf,
}

/// One line; docs/operating.md.
#[derive(Debug, Serialize)]
struct Content {
    token: u64,
    remaining_ms: u64,
    must_stop_in_ms: u64,
    until_boottime_ns: BootTime,
}

impl MandateFile {
    /// Makes the directory, with access for this user only.
    ///
    /// # Errors
    /// When there is no place for it.
    pub(crate) fn new() -> io::Result<MandateFile> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let runtime = runtime.filter(|directory| directory.is_absolute() && directory.is_dir());
        let unique = format!("tenure-{}-{}", std::process::id(), BootTime::now());
        let make = |parent: &Path| {
            let directory = parent.join(&unique);
            // Fails if anything is there already, a link included.
            DirBuilder::new().mode(0o700).create(&directory).map(|()| MandateFile { directory })
        };
        match runtime.map(|runtime| make(&runtime)) {
            Some(Ok(made)) => Ok(made),
            Some(Err(_)) | None => make(&std::env::temp_dir()),
        }
    }

    /// The directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The path of the file, for the variable `TENURE_MANDATE`.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join(FILE)
    }

    /// Writes the mandate's current times. Readers see the old content or the new.
    ///
    /// # Errors
    /// When the disk is full.
    pub(crate) fn write(&self, mandate: &Mandate) -> io::Result<()> {
        let milliseconds = |span: std::time::Duration| u64::try_from(span.as_millis());
        // The clock is read first: a pause in between must not add to the time that is left.
        let now = BootTime::now();
        let remaining = mandate.remaining();
        let content = Content {
            token: mandate.token(),
            remaining_ms: milliseconds(remaining).unwrap_or(u64::MAX),
            must_stop_in_ms: milliseconds(mandate.until_stop()).unwrap_or(u64::MAX),
            until_boottime_ns: now.after(remaining),
        };
        let new = self.directory.join(".new");
        fs::write(&new, serde_json::to_string(&content)? + "\n")?;
        fs::rename(&new, self.path())
    }
}

impl Drop for MandateFile {
    fn drop(&mut self) {
        // A directory that stays behind takes a few bytes, and no process reads it.
        let _ = fs::remove_dir_all(&self.directory);
    }
}
