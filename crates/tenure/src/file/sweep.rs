//! Removes temporary files that a dead process left.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Stat, statat, unlinkat};
use rustix::io::Errno;

use super::directory::Root;
use super::path;
use super::tree::each_directory;

/// The age at which a temporary file is stale: no write takes this long.
const TEMPORARY_AGE: Duration = Duration::from_secs(60 * 60);

/// Removes stale files. A failure does no harm, so it is only logged.
pub(super) fn sweep(root: &Root) {
    if let Err(errno) = sweep_temporaries(root) {
        tracing::debug!(%errno, "sweeping temporary files");
    }
}

fn sweep_temporaries(root: &Root) -> Result<(), Errno> {
    each_directory(root, &mut |_, directory, entries| {
        for entry in entries.iter().filter(|entry| path::is_temporary(&entry.name)) {
            let found = statat(directory, &entry.name, AtFlags::SYMLINK_NOFOLLOW);
            if found.is_ok_and(|found| older_than(&found, TEMPORARY_AGE)) {
                let _ = unlinkat(directory, &entry.name, AtFlags::empty());
            }
        }
        Ok(())
    })
}

/// Compares by the wall clock, with which the file system stamps.
pub(super) fn older_than(found: &Stat, age: Duration) -> bool {
    let modified = UNIX_EPOCH + Duration::from_secs(u64::try_from(found.st_mtime).unwrap_or(0));
    SystemTime::now().duration_since(modified).is_ok_and(|passed| passed > age)
}
