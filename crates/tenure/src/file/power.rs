//! Simulated power cuts for tests.
//!
//! They rebuild a directory as the disk would have it, from the syncs of this thread.
//!
//! Of all data that was not synced, a cut loses all, nothing, or some.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, statat};

use super::directory::Identity;
use super::tree::entries;

/// How much unsynced data reaches the disk all the same.
#[derive(Clone, Copy, Debug)]
pub(super) enum Luck {
    /// Nothing.
    Bad,
    /// Everything.
    Good,
    /// Some names and some contents, by chance; and some contents in part.
    Mixed { seed: u64 },
}

/// The data known to be on the disk.
#[derive(Debug, Default)]
struct Disk {
    files: HashMap<Identity, Vec<u8>>,
    directories: HashMap<Identity, HashMap<String, Identity>>,
    /// Kept open, so that no other file gets the same inode.
    open: Vec<OwnedFd>,
}

thread_local! {
    static DISK: RefCell<Option<Disk>> = const { RefCell::new(None) };
}

/// Starts to record the syncs of this thread.
pub(super) fn watch() {
    DISK.set(Some(Disk::default()));
}

/// Notes that a file or a directory was synced.
pub(super) fn synced(descriptor: BorrowedFd<'_>) {
    DISK.with_borrow_mut(|disk| {
        if let Some(disk) = disk {
            disk.sync(descriptor);
        }
    });
}

/// Notes that everything below was synced.
pub(super) fn all_synced(top: BorrowedFd<'_>) {
    DISK.with_borrow_mut(|disk| {
        if let Some(disk) = disk {
            disk.sync_all(top);
        }
    });
}

/// Reduces a directory to the state that the disk has after a power cut.
pub(super) fn cut(at: &Path, luck: Luck) {
    let disk = DISK.take().expect("somebody watched");
    let moved = at.with_extension("before the cut");
    fs::rename(at, &moved).expect("moved");
    let chance = match luck {
        Luck::Bad | Luck::Good => StdRng::seed_from_u64(0),
        Luck::Mixed { seed } => StdRng::seed_from_u64(seed),
    };
    let mut rebuilding = Rebuilding { disk: &disk, luck, chance, made: HashMap::new() };
    rebuilding.directory(&moved, at);
    fs::remove_dir_all(moved).expect("removed");
}

impl Disk {
    fn sync(&mut self, descriptor: BorrowedFd<'_>) {
        let identity = Identity::of(&fstat(descriptor).expect("a file"));
        let own = descriptor.try_clone_to_owned().expect("a copy");
        // The descriptor may be for writing only.
        let path = PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()));
        if fs::metadata(&path).expect("there").is_dir() {
            let mut names = HashMap::new();
            for entry in entries(&own).expect("read") {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = openat(&own, &entry.name, flags, Mode::empty()).expect("there");
                names.insert(entry.name, Identity::of(&fstat(&file).expect("there")));
                self.open.push(file);
            }
            self.directories.insert(identity, names);
        } else {
            self.files.insert(identity, fs::read(path).expect("read"));
        }
        self.open.push(own);
    }

    fn sync_all(&mut self, top: BorrowedFd<'_>) {
        self.sync(top);
        let own = top.try_clone_to_owned().expect("a copy");
        for entry in entries(&own).expect("read") {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let found = openat(&own, &entry.name, flags, Mode::empty()).expect("there");
            if entry.kind == FileType::Directory {
                self.sync_all(found.as_fd());
            } else {
                self.sync(found.as_fd());
            }
        }
    }
}

struct Rebuilding<'d> {
    disk: &'d Disk,
    luck: Luck,
    chance: StdRng,
    made: HashMap<Identity, PathBuf>,
}

impl Rebuilding<'_> {
    fn is_lucky(&mut self) -> bool {
        match self.luck {
            Luck::Bad => false,
            Luck::Good => true,
            Luck::Mixed { .. } => self.chance.random_bool(0.5),
        }
    }

    fn directory(&mut self, was: &Path, at: &Path) {
        fs::create_dir(at).expect("made");
        let mode = fs::metadata(was).expect("there").permissions();
        fs::set_permissions(at, mode).expect("set");
        let opened = OwnedFd::from(File::open(was).expect("opened"));
        let identity = Identity::of(&fstat(&opened).expect("there"));
        let mut now = HashMap::new();
        for entry in entries(&opened).expect("read") {
            let found = statat(&opened, &entry.name, AtFlags::SYMLINK_NOFOLLOW).expect("there");
            now.insert(entry.name, (Identity::of(&found), entry.kind));
        }
        let before = self.disk.directories.get(&identity).cloned().unwrap_or_default();
        let mut names: Vec<String> = before.keys().chain(now.keys()).cloned().collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let chosen = if self.is_lucky() {
                now.get(&name).map(|(identity, _)| *identity)
            } else {
                before.get(&name).copied()
            };
            let Some(chosen) = chosen else { continue };
            match now.get(&name) {
                // Directories are never renamed or removed here.
                Some((_, FileType::Directory)) => self.directory(&was.join(&name), &at.join(&name)),
                Some(_) | None => self.file(chosen, was, &now, &at.join(&name)),
            }
        }
    }

    fn file(
        &mut self,
        identity: Identity,
        was: &Path,
        now: &HashMap<String, (Identity, FileType)>,
        at: &Path,
    ) {
        if let Some(made) = self.made.get(&identity) {
            fs::hard_link(made, at).expect("linked");
            return;
        }
        let synced = self.disk.files.get(&identity).cloned().unwrap_or_default();
        let name = now.iter().find(|(_, (other, _))| *other == identity).map(|(name, _)| name);
        let current = name.map(|name| fs::read(was.join(name)).expect("read"));
        let mut body = match current {
            Some(current) if self.is_lucky() => current,
            Some(current) if matches!(self.luck, Luck::Mixed { .. }) => {
                self.torn(&synced, &current)
            }
            Some(_) | None => synced,
        };
        fs::write(at, std::mem::take(&mut body)).expect("written");
        self.made.insert(identity, at.to_owned());
    }

    /// Mixes blocks of both contents.
    fn torn(&mut self, synced: &[u8], current: &[u8]) -> Vec<u8> {
        let length = if self.is_lucky() { current.len() } else { synced.len() };
        let mut body = vec![0; length];
        for (number, block) in body.chunks_mut(512).enumerate() {
            let from = if self.is_lucky() { current } else { synced };
            let rest = from.get(number * 512..).unwrap_or_default();
            let known = rest.len().min(block.len());
            block[..known].copy_from_slice(&rest[..known]);
        }
        body
    }
}
