//! A control group of its own for CMD, where this process may make one.
//!
//! The tree is found without it: supervisor and guardian adopt every process that loses its parent.
//! If both are dead, the control group still finds processes that closed every descriptor.
//!
//! A group is identified by its inode in the unified hierarchy, and used through a descriptor of
//! its directory. A directory that only looks like a group, or that took the group's name, is not
//! touched.

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, Mode, OFlags, access, fstat, fstatfs, open, openat};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde::{Deserialize, Serialize};
use tenure::file::ControlGroup;

use super::boot::BootTime;

/// The type of the unified hierarchy's file system (`CGROUP2_SUPER_MAGIC`).
const CGROUP2: u64 = 0x6367_7270;
/// The first characters of the names of our groups.
const PREFIX: &str = "tenure-";

/// A directory of the unified hierarchy that this user made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cgroup {
    path: PathBuf,
    inode: u64,
}

impl Cgroup {
    /// Makes a group below this process's own. `None` where none may be made.
    ///
    /// # Errors
    /// When it should be possible, but fails.
    pub(crate) fn create() -> io::Result<Option<Cgroup>> {
        let Some(path) = plan() else { return Ok(None) };
        fs::create_dir(&path)?;
        match open_directory(&path).and_then(inode_of) {
            Ok(inode) => Ok(Some(Cgroup { path, inode })),
            Err(errno) => {
                fs::remove_dir(&path)?;
                Err(errno.into())
            }
        }
    }

    /// A group that another process has made and recorded. `None` for an impossible path.
    pub(super) fn recorded(group: &ControlGroup) -> Option<Cgroup> {
        let ours = group.path.file_name()?.to_str()?.starts_with(PREFIX);
        ours.then(|| Cgroup { path: group.path.clone(), inode: group.inode })
    }

    /// A record by which other processes find the group.
    pub(crate) fn record(&self) -> ControlGroup {
        ControlGroup { path: self.path.clone(), inode: self.inode }
    }

    /// Puts a process into the group.
    ///
    /// # Errors
    /// When that is not allowed.
    pub(super) fn take(&self, process: Pid) -> io::Result<()> {
        write(&self.open()?, "cgroup.procs", &process.as_raw_nonzero().to_string())
    }

    /// Kills every process in the group.
    pub(super) fn kill(&self) {
        let Ok(directory) = self.open() else { return };
        if write(&directory, "cgroup.kill", "1").is_ok() {
            return;
        }
        // Before Linux 5.14, kill them one by one. A process that is born meanwhile is killed the
        // next time. No member can leave, so a process id read from here is very probably still
        // valid.
        let members = read(&directory, "cgroup.procs").unwrap_or_default();
        for pid in members.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Returns true if no process lives in the group, or the group does not exist.
    pub(super) fn is_empty(&self) -> bool {
        match self.open().and_then(|directory| read(&directory, "cgroup.events")) {
            Ok(events) => events.lines().any(|line| line == "populated 0"),
            // A group is removed only when it is empty.
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    /// Returns true if this process can find the group.
    pub(super) fn is_there(&self) -> bool {
        self.open().is_ok()
    }

    /// Removes the group, and the groups that CMD made in it, if it is empty.
    pub(crate) fn remove(&self) {
        if self.open().is_ok() {
            remove_below(&self.path, 8);
        }
    }

    /// The group's directory. `NotFound` when something else has its path.
    fn open(&self) -> io::Result<OwnedFd> {
        let directory = open_directory(&self.path)?;
        match inode_of(&directory) {
            Ok(inode) if inode == self.inode => Ok(directory),
            Ok(_) | Err(Errno::NOENT) => Err(io::ErrorKind::NotFound.into()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// A name for a group below this process's own, if one may be made there.
fn plan() -> Option<PathBuf> {
    let own = own(
        &fs::read_to_string("/proc/self/mountinfo").ok()?,
        &fs::read_to_string("/proc/self/cgroup").ok()?,
    )?;
    access(&own, Access::WRITE_OK | Access::EXEC_OK).ok()?;
    access(own.join("cgroup.procs"), Access::WRITE_OK).ok()?;
    Some(own.join(format!("{PREFIX}{}-{}", std::process::id(), BootTime::now())))
}

fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match open(path, flags, Mode::empty()) {
        // A link, or a file: no group.
        Err(Errno::LOOP | Errno::NOTDIR) => Err(Errno::NOENT),
        opened => opened,
    }
}

/// The inode of a group that this user made; `NOENT` for any other directory.
fn inode_of(directory: impl AsFd) -> Result<u64, Errno> {
    let found = fstat(&directory)?;
    let is_group = fstatfs(&directory)?.f_type as u64 & 0xffff_ffff == CGROUP2;
    if is_group && found.st_uid == geteuid().as_raw() {
        Ok(found.st_ino)
    } else {
        Err(Errno::NOENT)
    }
}

/// Writes to a file of a group. The file must exist, and must not be a link.
fn write(directory: &OwnedFd, name: &str, text: &str) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, Mode::empty())?;
    rustix::io::write(&file, text.as_bytes())?;
    Ok(())
}

fn read(directory: &OwnedFd, name: &str) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut text = String::new();
    let file = openat(directory, name, flags, Mode::empty())?;
    fs::File::from(file).read_to_string(&mut text)?;
    Ok(text)
}

fn remove_below(directory: &Path, depth: u32) {
    if depth > 0 {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            remove_below(&entry.path(), depth - 1);
        }
    }
    // Removing the directory removes its files. A directory in use stays.
    let _ = fs::remove_dir(directory);
}

/// The directory of this process's own group.
///
/// It is made of the mount point of the hierarchy and the group's path below it.
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
    use std::os::unix::fs::{MetadataExt, chown, symlink};
    use std::process::Command;

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

    #[test]
    fn a_directory_that_only_looks_like_a_group_is_not_touched() {
        let at = tempfile::tempdir().expect("a directory");
        let path = at.path().join("tenure-1-1");
        fs::create_dir(&path).expect("made");
        fs::write(at.path().join("precious"), "precious").expect("written");
        symlink(at.path().join("precious"), path.join("cgroup.kill")).expect("linked");
        fs::write(path.join("cgroup.events"), "populated 1\n").expect("written");
        let inode = fs::metadata(&path).expect("there").ino();
        let group = Cgroup::recorded(&ControlGroup { path: path.clone(), inode }).expect("a name");
        assert!(group.is_empty(), "nothing can live in it");
        group.kill();
        group.remove();
        assert!(group.take(Pid::INIT).is_err());
        assert_eq!(fs::read_to_string(at.path().join("precious")).expect("read"), "precious");
        assert!(path.exists());
        assert_eq!(Cgroup::recorded(&ControlGroup { path: "/etc".into(), inode }), None);
    }

    #[test]
    fn a_group_is_killed_as_the_one_that_was_recorded_and_as_no_other() {
        let Ok(Some(group)) = Cgroup::create() else {
            eprintln!("SKIPPED a_group_is_killed_…: no control group may be made here");
            return;
        };
        let mut child = Command::new("sleep").arg("600").spawn().expect("spawned");
        group.take(Pid::from_child(&child)).expect("taken");
        let mut record = group.record();
        let found = Cgroup::recorded(&record).expect("a name");
        assert_eq!((&found, found.is_empty()), (&group, false));
        // Another group of the same name, made after this one was removed.
        record.inode += 1;
        let other = Cgroup::recorded(&record).expect("a name");
        other.kill();
        assert!(other.is_empty(), "the recorded one is gone");
        let link = tempfile::tempdir().expect("a directory");
        let path = link.path().join("tenure-link");
        symlink(&record.path, &path).expect("linked");
        let through = Cgroup::recorded(&ControlGroup { path, inode: group.inode }).expect("a name");
        through.kill();
        assert!(child.try_wait().expect("looked").is_none() && !group.is_empty());
        if geteuid().is_root() {
            // A group of another user is not ours, even with the right inode.
            chown(&record.path, Some(65534), None).expect("given away");
            found.kill();
            assert!(!found.is_there() && found.take(Pid::from_child(&child)).is_err());
            chown(&record.path, Some(0), None).expect("taken back");
            assert!(child.try_wait().expect("looked").is_none() && !group.is_empty());
        } else {
            eprintln!("SKIPPED a part of a_group_is_killed_…: only root gives a group away");
        }
        found.kill();
        child.wait().expect("reaped");
        while !group.is_empty() {
            std::thread::yield_now();
        }
        group.remove();
        assert!(!record.path.exists());
    }
}
