//! The store's directory: opened safely, and walked without following links.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{
    Access, AtFlags, FileType, FlockOperation, Mode, OFlags, ResolveFlags, Stat, accessat, flock,
    fstat, fstatfs, mkdirat, openat, openat2, stat,
};
use rustix::io::Errno;

use super::disk::fsync;
use super::error::{failed, refused};
use super::parents::{Above, Parents, sync, walk};
use super::step::step;
use crate::store::{Fault, StoreError};

/// Only the owner may use the directories: a user who can write here decides the leader.
pub(super) const DIRECTORY_MODE: Mode = Mode::RWXU;
pub(super) const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

const OPEN_DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The rights of every user but the owner.
const OTHERS: u32 = 0o077;

/// The first and the longest pause between two attempts to lock.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// The identity of a file, independent of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    pub device: u64,
    pub inode: u64,
}

impl Identity {
    pub(super) fn of(stat: &Stat) -> Identity {
        Identity { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// The directory a store was opened on.
#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    descriptor: OwnedFd,
    identity: Identity,
}

impl Root {
    /// Creates a missing directory, and refuses one that other users could tamper with.
    pub(super) fn open(
        path: &Path,
        force_file_system: bool,
        parents: Parents,
    ) -> Result<Root, StoreError> {
        let doing = || format!("opening the directory {}", path.display());
        let absolute = std::path::absolute(path)
            .map_err(|error| StoreError::new(Fault::Permanent, "file", doing(), error))?;
        // Remove the trailing slash, because a link would be followed through it.
        let path: PathBuf = absolute.components().collect();
        let above = walk(&path, parents)?;
        let descriptor = match open_in(&above) {
            Err(Errno::NOENT) => {
                create(&above).and_then(|()| open_in(&above)).map_err(|errno| {
                    failed(format!("creating the directory {}", path.display()), errno)
                })?
            }
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Err(refused(
                    Fault::Permanent,
                    doing(),
                    "it is a symbolic link or not a directory; name the directory itself",
                ));
            }
            other => other.map_err(|errno| failed(doing(), errno))?,
        };
        let found = fstat(&descriptor).map_err(|errno| failed(doing(), errno))?;
        check_owner(&found).map_err(|says| refused(Fault::Denied, doing(), says))?;
        check_mode(found.st_mode).map_err(|says| refused(Fault::Permanent, doing(), says))?;
        let kind = fstatfs(&descriptor).map_err(|errno| failed(doing(), errno))?;
        check_file_system(kind.f_type as u64, force_file_system)
            .map_err(|says| refused(Fault::Permanent, doing(), says))?;
        let all = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
        accessat(&descriptor, ".", all, AtFlags::EACCESS)
            .map_err(|errno| failed(doing(), errno))?;
        Ok(Root { identity: Identity::of(&found), path, descriptor })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    /// Fails when another directory has replaced this one.
    ///
    /// Other processes would not see our writes.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let now = stat(&self.path).map(|found| Identity::of(&found));
        if now == Ok(self.identity) {
            return Ok(());
        }
        let doing = format!("looking at the directory {}", self.path.display());
        let says = "it was moved, removed or replaced since it was opened; restart the program";
        Err(refused(Fault::Unavailable, doing, says))
    }

    /// Opens a directory below; `None` when it does not exist.
    pub(super) fn find(&self, directory: &[String]) -> Result<Option<OwnedFd>, Errno> {
        let path = if directory.is_empty() { ".".to_owned() } else { directory.join("/") };
        match open_below(&self.descriptor, &path, OPEN_DIRECTORY) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Opens a directory below, and creates missing directories on the way.
    pub(super) fn make(&self, directory: &[String]) -> Result<OwnedFd, Errno> {
        let mut at = open_directory(&self.descriptor, ".")?;
        for name in directory {
            at = match open_directory(&at, name) {
                Err(Errno::NOENT) => {
                    make_one(&at, name)?;
                    open_directory(&at, name)?
                }
                other => other?,
            };
        }
        Ok(at)
    }

    /// Locks a directory that was found or made.
    ///
    /// No other process writes there until it is unlocked.
    pub(super) fn lock(
        &self,
        directory: &[String],
        descriptor: &OwnedFd,
        deadline: Instant,
    ) -> Result<(), Errno> {
        lock(descriptor, deadline)?;
        // If the directory was moved away meanwhile, we hold the lock of a directory that is no
        // longer used.
        let now = self.find(directory)?.map(fstat).transpose()?;
        let ours = Identity::of(&fstat(descriptor)?);
        match now {
            Some(now) if Identity::of(&now) == ours => Ok(()),
            Some(_) | None => Err(Errno::STALE),
        }
    }
}

/// Opens a path below a directory. Follows no link, neither on the way nor at its end.
pub(super) fn open_below(top: &OwnedFd, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    if !path.contains('/') && flags.contains(OFlags::NOFOLLOW) {
        // One segment cannot lead outside, and this call is cheaper.
        return openat(top, path, flags, Mode::empty());
    }
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match openat2(top, path, flags, Mode::empty(), resolve) {
        // Kernels before 5.6 do not have this call, and some containers' filters refuse it.
        Err(Errno::NOSYS | Errno::PERM) => open_step_by_step(top, path, flags),
        other => other,
    }
}

fn open_step_by_step(top: &OwnedFd, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let Some((directories, name)) = path.rsplit_once('/') else {
        return openat(top, path, flags, Mode::empty());
    };
    let mut at = open_directory(top, ".")?;
    for directory in directories.split('/') {
        at = open_directory(&at, directory)?;
    }
    openat(&at, name, flags, Mode::empty())
}

fn make_one(parent: &OwnedFd, name: &str) -> Result<(), Errno> {
    step()?;
    match mkdirat(parent, name, DIRECTORY_MODE) {
        // Another process made it just now.
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    fsync(parent)
}

/// Opens a directory in another one, never through a link.
pub(super) fn open_directory(parent: impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    openat(parent, name, OPEN_DIRECTORY, Mode::empty())
}

/// Locks a directory, asking again until the deadline.
pub(super) fn lock(directory: &OwnedFd, deadline: Instant) -> Result<(), Errno> {
    let mut pause = FIRST_PAUSE;
    loop {
        match flock(directory, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {}
            Err(Errno::INTR) => continue,
            other => return other,
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Unlocks a directory, although it stays open.
///
/// It unlocks explicitly: a child that is being started holds a copy of the descriptor for a
/// moment.
pub(super) fn unlock(directory: &OwnedFd) {
    // It can only fail for a descriptor that is not open.
    let _ = flock(directory, FlockOperation::Unlock);
}

fn open_in(above: &Above) -> Result<OwnedFd, Errno> {
    openat(&above.directory, &above.name, OPEN_DIRECTORY, Mode::empty())
}

fn create(above: &Above) -> Result<(), Errno> {
    match mkdirat(&above.directory, &above.name, DIRECTORY_MODE) {
        // Another process made it just now.
        Ok(()) | Err(Errno::EXIST) => sync(&above.directory),
        Err(errno) => Err(errno),
    }
}

fn check_owner(found: &Stat) -> Result<(), String> {
    let us = rustix::process::geteuid().as_raw();
    if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
        return Err("it is not a directory".to_owned());
    }
    if found.st_uid != us {
        return Err(format!(
            "it belongs to user {}, and we are user {us}; give each user a directory of its own",
            found.st_uid
        ));
    }
    Ok(())
}

/// Refuses a directory that other users may enter.
///
/// A user who may only read it can still lock it, and then no process could open the store.
fn check_mode(mode: u32) -> Result<(), String> {
    if mode & OTHERS == 0 {
        return Ok(());
    }
    Err(format!(
        "others may enter it (mode {:04o}), and could lock it or make themselves leader; chmod 700 \
         it",
        mode & 0o7777
    ))
}

/// Refuses file systems where locks and renames may differ between processes.
///
/// They must mean the same to every process that sees the directory, and network file systems do
/// not promise that.
fn check_file_system(magic: u64, force: bool) -> Result<(), String> {
    let name = match magic & 0xffff_ffff {
        // ext2, ext3, ext4; xfs; btrfs; tmpfs; zfs; overlayfs.
        0xef53 | 0x5846_5342 | 0x9123_683e | 0x0102_1994 | 0x2fc1_2fc1 | 0x794c_7630 => {
            return Ok(());
        }
        _ if force => return Ok(()),
        0x6969 => "nfs".to_owned(),
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => "a Windows share (cifs, smb)".to_owned(),
        0x6573_5546 => "fuse".to_owned(),
        0x0102_1997 => "9p".to_owned(),
        0x00c3_6400 => "ceph".to_owned(),
        0x4d44 => "vfat".to_owned(),
        0x0bd0_0bd0 => "lustre".to_owned(),
        other => format!("file system type {other:#x}"),
    };
    Err(format!(
        "it is on {name}, where locks are not known to hold; use ext4, xfs, btrfs, zfs, tmpfs or \
         overlayfs, or force it if you know better"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_kernels_open_the_same_files_step_by_step() {
        let at = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(at.path().join("a/b")).expect("made");
        std::fs::write(at.path().join("a/b/c"), "").expect("written");
        std::os::unix::fs::symlink("a", at.path().join("link")).expect("linked");
        let top =
            openat(rustix::fs::CWD, at.path(), OPEN_DIRECTORY, Mode::empty()).expect("opened");
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for path in ["a/b/c", "a/b", "a", ".", "link/b/c", "link", "a/x", "x/y", "a/b/c/d"] {
            let identity = |opened: Result<OwnedFd, Errno>| {
                opened.and_then(fstat).map(|found| Identity::of(&found)).map_err(|errno| {
                    // Neither call tells a link to a directory from a file in its place.
                    if errno == Errno::NOTDIR { Errno::LOOP } else { errno }
                })
            };
            let stepwise = identity(open_step_by_step(&top, path, flags));
            assert_eq!(identity(open_below(&top, path, flags)), stepwise, "{path}");
        }
    }

    #[test]
    fn a_network_file_system_is_refused_by_its_name_unless_forced() {
        for good in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x2fc1_2fc1, 0x794c_7630] {
            assert_eq!(check_file_system(good, false), Ok(()));
        }
        // The kernel's number is signed on some machines.
        assert_eq!(check_file_system(0xffff_ffff_9123_683e, false), Ok(()));
        let says = check_file_system(0x6969, false).expect_err("refused");
        assert!(says.contains("nfs"), "{says}");
        assert!(check_file_system(0x1234, false).expect_err("refused").contains("0x1234"));
        assert_eq!(check_file_system(0x6969, true), Ok(()));
    }
}
