//! A control group of its own for CMD, where this process may make one.
//!
//! The tree is found without it: supervisor and guardian adopt every process that loses its parent. The
//! control group is what is left to find it by when both are dead.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::boot::BootTime;

/// A directory of the unified hierarchy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Cgroup(PathBuf);

impl Cgroup {
    /// A name for one below this process's own, if one may be made there. There is none yet.
    pub(crate) fn plan() -> Option<Cgroup> {
        let own = own(
            &fs::read_to_string("/proc/self/mountinfo").ok()?,
            &fs::read_to_string("/proc/self/cgroup").ok()?,
        )?;
        access(&own, Access::WRITE_OK | Access::EXEC_OK).ok()?;
        access(own.join("cgroup.procs"), Access::WRITE_OK).ok()?;
        let unique = format!("tenure-{}-{}", std::process::id(), BootTime::now());
        Some(Cgroup(own.join(unique)))
    }

    /// One that somebody else has made. `None` for what cannot be one.
    pub(super) fn named(path: &str) -> Option<Cgroup> {
        let path = PathBuf::from(path);
        let name = path.file_name()?.to_str()?;
        (name.starts_with("tenure-") && path.join("cgroup.procs").exists()).then_some(Cgroup(path))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> Option<&str> {
        self.0.to_str()
    }

    /// Makes it.
    ///
    /// # Errors
    /// When that is not allowed.
    pub(crate) fn create(&self) -> io::Result<()> {
        fs::create_dir(&self.0)
    }

    /// Puts a process into it.
    ///
    /// # Errors
    /// When that is not allowed.
    pub(super) fn take(&self, process: Pid) -> io::Result<()> {
        fs::write(self.0.join("cgroup.procs"), process.as_raw_nonzero().to_string())
    }

    /// Kills everything in it.
    pub(super) fn kill(&self) {
        if fs::write(self.0.join("cgroup.kill"), "1").is_ok() {
            return;
        }
        // Before Linux 5.14 one by one; whoever is born meanwhile is killed the next time. What is in
        // here cannot leave, so a number read from here is very probably still its own.
        let members = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        for pid in members.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Whether nothing lives in it, or there is none.
    pub(super) fn is_empty(&self) -> bool {
        match fs::read_to_string(self.0.join("cgroup.events")) {
            Ok(events) => events.lines().any(|line| line == "populated 0"),
            Err(_) => !self.0.exists(),
        }
    }

    /// Removes it, and what CMD made in it, if it is empty.
    pub(crate) fn remove(&self) {
        remove_below(&self.0, 8);
    }
}

fn remove_below(directory: &Path, depth: u32) {
    if depth > 0 {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            remove_below(&entry.path(), depth - 1);
        }
    }
    // The files in it go with it; one that is in use stays.
    let _ = fs::remove_dir(directory);
}

/// The directory of this process's own group: where the hierarchy is mounted, and the path in there.
fn own(mounts: &str, groups: &str) -> Option<PathBuf> {
    let (root, point) = mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        after.starts_with("cgroup2 ").then_some((fields.next()?, fields.next()?))
    })?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let below = path.strip_prefix(root.trim_end_matches('/'))?;
    Some(Path::new(point).join(below.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_in_either_layout() {
        let unified = "35 24 0:30 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw";
        let found = own(unified, "0::/system.slice/a.service\n");
        assert_eq!(found, Some("/sys/fs/cgroup/system.slice/a.service".into()));
        let hybrid = "1 2 0:1 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      3 2 0:2 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";
        assert_eq!(own(hybrid, "1:cpu:/x\n0::/\n"), Some("/sys/fs/cgroup/unified/".into()));
        let bound = "35 24 0:30 /docker/a /sys/fs/cgroup ro - cgroup2 cgroup2 rw";
        assert_eq!(own(bound, "0::/docker/a/b\n"), Some("/sys/fs/cgroup/b".into()));
        assert_eq!(own(bound, "0::/elsewhere\n"), None);
        assert_eq!(own("", "0::/\n"), None);
    }
}
