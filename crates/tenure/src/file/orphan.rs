//! Work whose process is dead: what a leader left behind that died with its guardian.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, openat};
use rustix::io::{Errno, pwrite};
use serde_json::{Map, Value};

use super::directory::{Identity, Root};
use super::mark::{Claim, namespace};
use super::notify::Bells;
use super::proof::{has_ended, is_free};
use super::tree::entries;
use super::work::WorkProbe;
use super::{path, presence_directory};
use crate::store::Mark;

/// What a work file says is shorter.
const MOST_BYTES: u64 = 16 * 1024;

/// Work that may still run although the process it belonged to is dead.
#[derive(Clone, Debug)]
pub struct Orphan {
    identity: Identity,
    process: u32,
    cgroup: Option<String>,
    probe: WorkProbe,
}

impl Orphan {
    /// The device and the inode of the file that the work has open.
    #[must_use]
    pub fn file(&self) -> (u64, u64) {
        (self.identity.device, self.identity.inode)
    }

    /// The process it belonged to, by its number in its own pid namespace.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process
    }

    /// The control group it was put into, if there is one.
    #[must_use]
    pub fn cgroup(&self) -> Option<&str> {
        self.cgroup.as_deref()
    }

    /// Tells when no process has the file open any more.
    pub fn probe(&self) -> &WorkProbe {
        &self.probe
    }
}

/// What is written into a work file, so that others know whose work it is.
pub(super) fn describe(
    file: impl AsFd,
    claim: &Claim,
    election: &str,
    cgroup: Option<&str>,
) -> Result<(), Errno> {
    let mut map = claim.mark().0;
    map.insert("election".to_owned(), election.into());
    map.extend(cgroup.map(|cgroup| ("cgroup".to_owned(), Value::from(cgroup))));
    let text = Value::Object(map).to_string();
    let written = pwrite(file, text.as_bytes(), 0)?;
    if written < text.len() { Err(Errno::NOSPC) } else { Ok(()) }
}

/// The orphans of an election. Anything odd is none: then its lease has run out, as it must.
pub(super) fn find(
    root: &Arc<Root>,
    bells: &Arc<Bells>,
    boot: &str,
    election: &str,
) -> Result<Vec<Orphan>, Errno> {
    let Some(directory) = root.find(&presence_directory())? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in entries(&directory)? {
        if entry.kind != FileType::RegularFile || !path::is_random(&entry.name) {
            continue;
        }
        let Some(text) = read(&directory, &entry.name) else { continue };
        let Some((claim, cgroup)) = parse(text, election) else { continue };
        let Some(work) = claim.work.clone().filter(|work| work.file == entry.name) else {
            continue;
        };
        if claim.life.boot != boot || !is_dead(root, &claim) {
            continue;
        }
        // Without a control group only the lock tells.
        if cgroup.is_none() && is_free(root, &work) {
            continue;
        }
        found.push(Orphan {
            identity: work.identity,
            process: claim.life.process,
            cgroup,
            probe: WorkProbe::new(work, Arc::clone(root), Arc::clone(bells)),
        });
    }
    Ok(found)
}

fn read(directory: &OwnedFd, name: &str) -> Option<Map<String, Value>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, Mode::empty()).ok()?;
    let mut text = Vec::new();
    std::fs::File::from(file).take(MOST_BYTES).read_to_end(&mut text).ok()?;
    // The files that prove life are empty.
    serde_json::from_slice(&text).ok()
}

fn parse(mut map: Map<String, Value>, election: &str) -> Option<(Claim, Option<String>)> {
    if map.remove("election")?.as_str()? != election {
        return None;
    }
    let cgroup = match map.remove("cgroup") {
        Some(cgroup) => Some(cgroup.as_str()?.to_owned()),
        None => None,
    };
    Some((Claim::read(&Mark(map))?, cgroup))
}

/// Whether the process and its guardian are dead. In doubt, no.
fn is_dead(root: &Root, claim: &Claim) -> bool {
    if is_free(root, &claim.life.locked) {
        return has_ended(&claim.life);
    }
    // The proof of life of somebody long dead was swept away; here its number still tells.
    let swept = root.find(&presence_directory()).is_ok_and(|directory| {
        directory.is_some_and(|directory| {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let gone = openat(&directory, &claim.life.locked.file, flags, Mode::empty());
            matches!(gone, Err(Errno::NOENT))
        })
    });
    swept && namespace().is_ok_and(|ours| ours == claim.life.namespace) && has_ended(&claim.life)
}
