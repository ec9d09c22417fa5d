//! The directories above the store's: found or made one by one, and checked.
//!
//! A user who may rename one of them can put an empty directory in the store's place. A second
//! leader could then be elected there, with the same token as the first. So each of them, and each
//! symbolic link on the way, must belong to root or to us, and no other user may write to it. Other
//! users may write to a sticky directory such as `/tmp`: there only owners rename their entries.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, mkdirat, open, openat, readlinkat};
use rustix::io::Errno;

use super::disk::fsync;
use super::error::{failed, refused};
use crate::store::{Fault, StoreError};

/// The flags to walk through a directory, even one that we may not list.
const WALK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// The mode of parents that we make: all users may pass, only we may write, with any umask.
const PARENT_MODE: Mode =
    Mode::RWXU.union(Mode::RGRP).union(Mode::XGRP).union(Mode::ROTH).union(Mode::XOTH);
/// The most links to follow, as in the kernel.
const MOST_LINKS: usize = 40;
const STICKY: u32 = 0o1000;
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// The treatment of the directories above the store's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parents {
    /// A directory that another user can replace is refused.
    Checked,
    /// The caller vouches for them.
    Trusted,
}

/// The directory that the store's directory is in, and its name there.
#[derive(Debug)]
pub(super) struct Above {
    pub directory: OwnedFd,
    pub name: OsString,
}

/// Walks to the directory above an absolute path, and makes missing directories.
pub(super) fn walk(path: &Path, parents: Parents) -> Result<Above, StoreError> {
    let doing = || format!("opening the directory {}", path.display());
    let mut way = Way { path, parents, left: VecDeque::new(), links: 0 };
    way.left = parts(path);
    let mut at = At::root().map_err(|errno| failed(doing(), errno))?;
    way.check(&at.shown, &fstat(&at.directory).map_err(|errno| failed(doing(), errno))?)?;
    while let Some(name) = way.left.pop_front() {
        if way.left.is_empty() && name != ".." {
            return Ok(Above { directory: at.directory, name });
        }
        at = way.step(at, &name)?;
    }
    Ok(Above { directory: at.directory, name: ".".into() })
}

/// The current place of the walk.
struct At {
    directory: OwnedFd,
    /// Its path without links, for messages.
    shown: PathBuf,
}

impl At {
    fn root() -> Result<At, Errno> {
        let directory = open("/", WALK | OFlags::DIRECTORY, Mode::empty())?;
        Ok(At { directory, shown: PathBuf::from("/") })
    }
}

struct Way<'p> {
    path: &'p Path,
    parents: Parents,
    left: VecDeque<OsString>,
    links: usize,
}

impl Way<'_> {
    fn step(&mut self, at: At, name: &OsStr) -> Result<At, StoreError> {
        let shown = if name == ".." {
            at.shown.parent().unwrap_or(&at.shown).to_owned()
        } else {
            at.shown.join(name)
        };
        let fails = |errno| failed(format!("opening the directory {}", shown.display()), errno);
        let directory = match openat(&at.directory, name, WALK, Mode::empty()) {
            Err(Errno::NOENT) => make(&at.directory, name)
                .and_then(|()| openat(&at.directory, name, WALK, Mode::empty()))
                .map_err(|errno| {
                    failed(format!("creating the directory {}", shown.display()), errno)
                })?,
            other => other.map_err(fails)?,
        };
        let found = fstat(&directory).map_err(fails)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => {
                self.check(&shown, &found)?;
                Ok(At { directory, shown })
            }
            FileType::Symlink => {
                self.check(&shown, &found)?;
                self.follow(at, name).map_err(fails)
            }
            FileType::RegularFile
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Err(fails(Errno::NOTDIR)),
        }
    }

    /// Continues at the target of a link. The link itself was checked.
    fn follow(&mut self, at: At, name: &OsStr) -> Result<At, Errno> {
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(Errno::LOOP);
        }
        let target = readlinkat(&at.directory, name, Vec::new())?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        for part in parts(&target).into_iter().rev() {
            self.left.push_front(part);
        }
        if target.is_absolute() { At::root() } else { Ok(at) }
    }

    fn check(&self, shown: &Path, found: &rustix::fs::Stat) -> Result<(), StoreError> {
        let us = rustix::process::geteuid().as_raw();
        match self.parents {
            Parents::Trusted => Ok(()),
            Parents::Checked => {
                replaceable(shown, found.st_uid, found.st_mode, us).map_or(Ok(()), |says| {
                    let doing = format!("opening the directory {}", self.path.display());
                    Err(refused(Fault::Permanent, doing, says))
                })
            }
        }
    }
}

/// The reason why another user could replace this directory or link, or an entry of it.
///
/// `None` when no other user can.
fn replaceable(shown: &Path, owner: u32, mode: u32, us: u32) -> Option<String> {
    let shown = shown.display();
    let trust = "if you trust its users, as in a user namespace, say so with trust-parents=true in \
                 the store's URL";
    if owner != 0 && owner != us {
        return Some(format!(
            "{shown} belongs to user {owner}, who could replace the store and elect a second \
             leader; put the store where every parent belongs to root or to user {us}; {trust}"
        ));
    }
    let directory = FileType::from_raw_mode(mode) == FileType::Directory;
    (directory && mode & WRITABLE_BY_OTHERS != 0 && mode & STICKY == 0).then(|| {
        format!(
            "others may write to {shown} (mode {:04o}), and could replace the store and elect a \
             second leader; chmod go-w it; {trust}",
            mode & 0o7777
        )
    })
}

/// The names to walk through.
fn parts(path: &Path) -> VecDeque<OsString> {
    let name = |part: Component<'_>| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(name).collect()
}

fn make(directory: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    match mkdirat(directory, name, PARENT_MODE) {
        // Another process made it just now.
        Ok(()) | Err(Errno::EXIST) => sync(directory),
        Err(errno) => Err(errno),
    }
}

/// Brings a new name in this directory to the disk.
pub(super) fn sync(directory: &OwnedFd) -> Result<(), Errno> {
    // The walk's own descriptor cannot be synced.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(directory, ".", flags, Mode::empty()).and_then(fsync)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: u32 = 0o040_000;
    const LINK: u32 = 0o120_000;

    #[test]
    fn a_parent_is_safe_if_only_root_and_we_can_replace_what_is_in_it() {
        let (root, us, other) = (0, 7, 8);
        for (owner, mode, safe) in [
            (root, DIRECTORY | 0o755, true),
            (us, DIRECTORY | 0o755, true),
            (us, DIRECTORY | 0o700, true),
            (root, DIRECTORY | 0o1777, true),
            (us, DIRECTORY | 0o1777, true),
            (root, DIRECTORY | 0o2775, false),
            (us, DIRECTORY | 0o775, false),
            (us, DIRECTORY | 0o757, false),
            (other, DIRECTORY | 0o700, false),
            (other, DIRECTORY | 0o1777, false),
            // The mode of a link has no meaning; its owner may replace it.
            (root, LINK | 0o777, true),
            (us, LINK | 0o777, true),
            (other, LINK | 0o777, false),
        ] {
            let says = replaceable(Path::new("/x"), owner, mode, us);
            assert_eq!(says.is_none(), safe, "owner {owner}, mode {mode:o}: {says:?}");
        }
        // Root itself does not trust other users' directories either.
        assert!(replaceable(Path::new("/x"), us, DIRECTORY | 0o755, root).is_some());
    }
}
