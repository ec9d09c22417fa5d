//! Started work: its starter, and the proof that the starter is dead.
//!
//! The record of a start is a file of its own, `presence/<work file>.start`. The work inherits the
//! work file and may write anything into it, so its content is never trusted. The work never holds
//! the record, and only this user may write to the directory.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, flock, fstat, openat, statat, unlinkat,
};
use rustix::io::Errno;
use serde_json::{Map, Value};

use super::mark::{Claim, Life, Locked, namespace};
use super::presence_directory;
use super::proof::{has_ended, is_free};
use super::work::WorkProbe;
use crate::file::directory::{Identity, Root};
use crate::file::error::UNREADABLE;
use crate::file::notify::FileWatchers;
use crate::file::path;
use crate::file::temporary::{Temporary, read_small};
use crate::file::tree::entries;
use crate::store::Mark;

/// The most bytes of a record.
const MOST_BYTES: usize = 16 * 1024;

/// A control group that contains work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlGroup {
    /// Its path when it was made.
    pub path: PathBuf,
    /// Its inode: another group may have its path later.
    pub inode: u64,
}

/// The data of a start that the leader records.
#[derive(Clone, Debug)]
pub struct WorkStart<'a> {
    /// The election that the work belongs to.
    pub election: &'a str,
    /// The token of the leadership.
    pub token: u64,
    /// The control group that will contain the work, if there is one.
    pub control_group: Option<ControlGroup>,
}

/// The state of the process that started work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starter {
    /// The process is proven dead, and so is every process that shared its proof of life.
    Dead,
    /// The death of the process is not proven.
    MayLive,
}

/// Started work that may still run.
#[derive(Clone, Debug)]
pub struct StartedWork {
    root: Arc<Root>,
    work: Locked,
    user: u32,
    token: u64,
    life: Life,
    control_group: Option<ControlGroup>,
    probe: WorkProbe,
}

impl StartedWork {
    /// The device and the inode of the file that the work has open.
    #[must_use]
    pub fn file(&self) -> (u64, u64) {
        (self.work.identity.device, self.work.identity.inode)
    }

    /// The owner of this file: the user that started the work.
    #[must_use]
    pub fn user(&self) -> u32 {
        self.user
    }

    /// The token of the leadership in which it was started.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.token
    }

    /// The process that started it, by its number in its own pid namespace.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.life.process
    }

    /// When that process started, in ticks since the boot. All processes that it started are
    /// younger.
    #[must_use]
    pub fn process_start(&self) -> u64 {
        self.life.start
    }

    /// The control group that contains it, if there is one.
    #[must_use]
    pub fn control_group(&self) -> Option<&ControlGroup> {
        self.control_group.as_ref()
    }

    /// Returns whether the process that started it is dead.
    #[must_use]
    pub fn starter(&self) -> Starter {
        if is_dead(&self.root, &self.life) { Starter::Dead } else { Starter::MayLive }
    }

    /// A probe that resolves when no process has the file locked any more.
    pub fn probe(&self) -> &WorkProbe {
        &self.probe
    }

    /// Removes the record, when nothing of this work is left.
    pub fn forget(&self) {
        if let Ok(Some(directory)) = self.root.find(&presence_directory()) {
            forget(&directory, &self.work.file);
        }
    }
}

/// Records that work starts now.
pub(super) fn record(
    root: &Root,
    work: &Locked,
    life: &Life,
    start: &WorkStart<'_>,
) -> Result<(), Errno> {
    let mut map = Claim { life: life.clone(), work: None }.mark().0;
    map.insert("election".to_owned(), start.election.into());
    map.insert("token".to_owned(), start.token.to_string().into());
    if let Some(ControlGroup { path, inode }) = &start.control_group {
        // This program never makes a path that is not text.
        map.insert("cgroup".to_owned(), path.to_str().ok_or(Errno::INVAL)?.into());
        map.insert("cgroup_ino".to_owned(), inode.to_string().into());
    }
    let directory = root.make(&presence_directory())?;
    let text = Value::Object(map).to_string();
    // Without a sync: a record of an earlier boot does not matter.
    Temporary::write(&directory, text.as_bytes())?.rename_to(&path::start(&work.file))
}

/// Removes the record of a start, if there is one.
pub(super) fn forget(directory: &OwnedFd, work: &str) {
    match unlinkat(directory, path::start(work), AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        // The record that stays behind is about a free file, so it does no harm.
        Err(errno) => tracing::debug!(work, %errno, "left the record of a start behind"),
    }
}

/// Returns true if the work file of this record is gone.
pub(super) fn is_stray(directory: &OwnedFd, work: &str) -> bool {
    matches!(statat(directory, work, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
}

/// The started work of an election that may still run.
///
/// Work without a control group is over when its file is free; its record is removed if the process
/// that made it is dead. Work in a control group is always returned, and the caller must look into
/// the group.
pub(super) fn find(
    root: &Arc<Root>,
    watchers: &Arc<FileWatchers>,
    boot: &str,
    election: &str,
) -> Result<Vec<StartedWork>, Errno> {
    let Some(directory) = root.find(&presence_directory())? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in entries(&directory)? {
        let Some(name) = path::work_of_start(&entry.name) else { continue };
        if entry.kind != FileType::RegularFile {
            continue;
        }
        let record = match read(&directory, &entry.name) {
            Ok(record) => record,
            // Its owner, or another leader, has just removed it.
            Err(Errno::NOENT) => continue,
            // Never skip work that may still run: it could be this election's.
            Err(errno) if may_be_locked(&directory, name) => return Err(errno),
            Err(errno) => {
                // Written before a power failure, for example. Its work has ended.
                tracing::warn!(file = entry.name, %errno, "skipped an unreadable record of a start");
                continue;
            }
        };
        if record.election != election || record.life.boot != boot {
            continue;
        }
        let Some((identity, user)) = look_at(&directory, name)? else { continue };
        let work = Locked { file: name.to_owned(), identity };
        let started = StartedWork {
            root: Arc::clone(root),
            probe: WorkProbe::new(work.clone(), Arc::clone(root), Arc::clone(watchers)),
            work,
            user,
            token: record.token,
            life: record.life,
            control_group: record.control_group,
        };
        if started.control_group.is_none() && started.probe.is_free() {
            if started.starter() == Starter::Dead {
                started.forget();
            }
            continue;
        }
        found.push(started);
    }
    Ok(found)
}

struct Record {
    election: String,
    token: u64,
    life: Life,
    control_group: Option<ControlGroup>,
}

/// The identity and the owner of a file.
///
/// `None` when it is gone: it was free for a day, and was swept away.
fn look_at(directory: &OwnedFd, name: &str) -> Result<Option<(Identity, u32)>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat(directory, name, flags, Mode::empty()) {
        Ok(file) => {
            let found = fstat(file.as_fd())?;
            Ok(Some((Identity::of(&found), found.st_uid)))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Returns true if a process may have this file locked. In doubt, true.
fn may_be_locked(directory: &OwnedFd, name: &str) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat(directory, name, flags, Mode::empty()) {
        Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
        Err(errno) => errno != Errno::NOENT,
    }
}

/// Reads a record. Fails with [`UNREADABLE`] when the file is not a valid record.
fn read(directory: &OwnedFd, name: &str) -> Result<Record, Errno> {
    let text = read_small(directory, name, MOST_BYTES)?;
    let map = serde_json::from_slice(&text).ok();
    map.and_then(parse).ok_or(UNREADABLE)
}

fn parse(mut map: Map<String, Value>) -> Option<Record> {
    let text = |value: Value| value.as_str().map(str::to_owned);
    let election = text(map.remove("election")?)?;
    let token = text(map.remove("token")?)?.parse().ok()?;
    let control_group = match (map.remove("cgroup"), map.remove("cgroup_ino")) {
        (None, None) => None,
        (path, inode) => Some(ControlGroup {
            path: Path::new(&text(path?)?).to_owned(),
            inode: text(inode?)?.parse().ok()?,
        }),
    };
    let life = Claim::read(&Mark(map))?.life;
    Some(Record { election, token, life, control_group })
}

/// Returns true if the process and its guardian are dead. In doubt, false.
fn is_dead(root: &Root, life: &Life) -> bool {
    if is_free(root, &life.locked) {
        return has_ended(life);
    }
    // The proof of life of a process that died long ago was swept away. Its process number still
    // helps, but only in the namespace that gave it.
    let swept = root.find(&presence_directory()).is_ok_and(|directory| {
        directory.is_some_and(|directory| is_stray(&directory, &life.locked.file))
    });
    swept && namespace().is_ok_and(|ours| ours == life.namespace) && has_ended(life)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{FileOptions, FilePresence, FileStore};

    fn open(at: &tempfile::TempDir) -> FileStore {
        FileStore::open(&at.path().join("store"), FileOptions::default()).expect("opened")
    }

    fn start(token: u64) -> WorkStart<'static> {
        WorkStart { election: "job", token, control_group: None }
    }

    /// Writes a start record of the work of another process.
    fn record_of(presence: &FilePresence, work: &Locked, change: impl FnOnce(&mut Life)) {
        let (root, mut life) = presence.root_and_life().expect("a life");
        change(&mut life);
        record(&root, work, &life, &start(7)).expect("recorded");
    }

    #[test]
    fn a_waiting_candidates_work_file_is_locked_and_counts_only_once_it_was_started() {
        let at = tempfile::tempdir().expect("a directory");
        let (one, two) = (open(&at).presence(), open(&at).presence());
        let work = one.work().expect("a work file");
        assert!(two.started("job").expect("listed").is_empty(), "it waits");
        one.record_start(&work, &start(7)).expect("recorded");
        assert!(two.started("other").expect("listed").is_empty());
        let found = two.started("job").expect("listed");
        let [started] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((started.token(), started.starter()), (7, Starter::MayLive));
        assert_eq!(started.user(), rustix::process::geteuid().as_raw());
        let probe = work.close();
        let began = std::time::Instant::now();
        // A child that another test is just starting holds copies of our descriptors for a moment.
        while !probe.is_free() && began.elapsed().as_secs() < 10 {
            std::thread::yield_now();
        }
        assert!(two.started("job").expect("listed").is_empty(), "it has ended");
    }

    #[test]
    fn a_record_with_a_group_is_read_as_it_was_written() {
        let at = tempfile::tempdir().expect("a directory");
        let presence = open(&at).presence();
        let work = presence.work().expect("a work file");
        let group = ControlGroup { path: "/sys/fs/cgroup/tenure-1-2".into(), inode: u64::MAX };
        let start = WorkStart { control_group: Some(group.clone()), ..start(u64::MAX) };
        presence.record_start(&work, &start).expect("recorded");
        drop(work);
        let found = presence.started("job").expect("listed");
        assert_eq!(found.len(), 1, "free, but the caller must look into the group");
        assert_eq!(found[0].control_group(), Some(&group));
        assert_eq!(found[0].token(), u64::MAX);
        found[0].forget();
        assert!(presence.started("job").expect("listed").is_empty());
    }

    /// The name of the only record.
    fn only_record(at: &tempfile::TempDir) -> PathBuf {
        let listed = std::fs::read_dir(at.path().join("store/presence")).expect("listed");
        let mut records = listed.flatten().map(|entry| entry.path());
        records.find(|path| path.extension() == Some("start".as_ref())).expect("a record")
    }

    /// Issue 13, 3: a leader that skips a record starts CMD beside live work.
    #[test]
    fn a_record_that_cannot_be_read_is_passed_over_only_when_its_work_has_ended() {
        let at = tempfile::tempdir().expect("a directory");
        let presence = open(&at).presence();
        let work = presence.work().expect("a work file");
        presence.record_start(&work, &start(7)).expect("recorded");
        let record = only_record(&at);
        for garbage in ["", "{", r#"{"election":"job"}"#] {
            std::fs::write(&record, garbage).expect("written");
            let refused = presence.started("job").expect_err("the work may still run");
            let text = refused.source.to_string();
            assert!(text.contains("record of a start"), "{garbage}: {text}");
        }
        let probe = work.close();
        let began = std::time::Instant::now();
        while !probe.is_free() && began.elapsed().as_secs() < 10 {
            std::thread::yield_now();
        }
        assert!(presence.started("job").expect("listed").is_empty(), "it has ended");
    }

    /// Like an exhausted table of descriptors, or a bad disk: here the file cannot be opened.
    #[test]
    fn a_record_that_another_leader_removes_meanwhile_is_no_failure_and_any_other_error_is() {
        let at = tempfile::tempdir().expect("a directory");
        let presence = open(&at).presence();
        let work = presence.work().expect("a work file");
        presence.record_start(&work, &start(7)).expect("recorded");
        let (root, _) = presence.root_and_life().expect("a life");
        let directory = root.find(&presence_directory()).expect("found").expect("there");
        let name = path::start(&work.locked().file);
        assert_eq!(read(&directory, &name).map(|record| record.token), Ok(7));
        std::fs::remove_file(only_record(&at)).expect("removed");
        assert_eq!(read(&directory, &name).map(|record| record.token), Err(Errno::NOENT));
        assert!(may_be_locked(&directory, &work.locked().file));
        assert!(!may_be_locked(&directory, "missing"));
        std::os::unix::fs::symlink("elsewhere", at.path().join("store/presence").join(&name))
            .expect("linked");
        assert_eq!(read(&directory, &name).map(|record| record.token), Err(Errno::LOOP));
    }

    #[test]
    fn nothing_that_is_written_into_a_work_file_is_believed() {
        let at = tempfile::tempdir().expect("a directory");
        let presence = open(&at).presence();
        let work = presence.work().expect("a work file");
        presence.record_start(&work, &start(7)).expect("recorded");
        let record = only_record(&at);
        let text = std::fs::read_to_string(&record).expect("read");
        std::fs::remove_file(&record).expect("removed");
        rustix::io::pwrite(work.descriptor(), text.as_bytes(), 0).expect("written");
        assert!(presence.started("job").expect("listed").is_empty());
    }

    /// A swept-away process is dead only by its number.
    ///
    /// A number from another pid namespace proves nothing here.
    #[test]
    fn who_was_swept_away_is_proven_dead_only_in_its_own_pid_namespace() {
        let at = tempfile::tempdir().expect("a directory");
        let presence = open(&at).presence();
        let work = presence.work().expect("a work file");
        let starter = |change: &dyn Fn(&mut Life)| {
            record_of(&presence, work.locked(), |life| {
                life.locked.file = path::random();
                // Above every number that a process can have.
                life.process = i32::MAX.unsigned_abs();
                change(life);
            });
            presence.started("job").expect("listed")[0].starter()
        };
        assert_eq!(starter(&|_| {}), Starter::Dead);
        assert_eq!(starter(&|life| life.namespace += 1), Starter::MayLive);
        let own = std::process::id();
        assert_eq!(starter(&|life| life.process = own), Starter::MayLive, "it lives");
    }

    #[test]
    fn a_record_of_an_earlier_boot_is_of_no_interest() {
        let at = tempfile::tempdir().expect("a directory");
        let presence = open(&at).presence();
        let work = presence.work().expect("a work file");
        record_of(&presence, work.locked(), |life| life.boot = "another".to_owned());
        assert!(presence.started("job").expect("listed").is_empty());
    }
}
