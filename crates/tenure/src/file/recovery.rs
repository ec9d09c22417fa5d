//! After a power cut, documents go back to their last lasting content.
//!
//! A renewal is renamed into place without a sync, so a power cut may leave an empty or torn file.
//! Every lasting write therefore keeps a second name for its content, `.NAME.kept`, which renewals
//! do not touch. Many lasting writes together are in the directory's journal instead. The file
//! `.boot` names the boot of the machine under which the directory was last opened. The first
//! process to open it after another boot puts the lasting contents back.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::fs::{AtFlags, FileType, statat, unlinkat};
use rustix::io::Errno;

use super::directory::{Identity, Root, lock, unlock};
use super::disk::fsync;
use super::document;
use super::job::unlink_all;
use super::journal::{Contents, Journal, Lasting};
use super::path;
use super::step::step;
use super::temporary::{Kept, Temporary, link_over, read_small, replace};
use super::tree::{Entry, each_directory};

const BOOT: &str = ".boot";
const BOOT_ID_BYTES: usize = 64;

/// The id of the machine's current boot.
pub(super) fn boot_id() -> std::io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Recovers the documents if this is the first open after a boot.
pub(super) fn recover(root: &Root, boot: &str, deadline: Instant) -> Result<(), Errno> {
    let Some(top) = root.find(&[])? else { return Err(Errno::NOENT) };
    lock(&top, deadline)?;
    let recovered = recover_locked(root, &top, boot, deadline);
    unlock(&top);
    recovered
}

fn recover_locked(root: &Root, top: &OwnedFd, boot: &str, deadline: Instant) -> Result<(), Errno> {
    match read_small(top, BOOT, BOOT_ID_BYTES) {
        Ok(last) if last.trim_ascii_end() == boot.as_bytes() => return Ok(()),
        Ok(_) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    each_directory(root, &mut |at, directory, entries| {
        // The top is locked already, through another descriptor.
        if !at.is_empty() {
            lock(directory, deadline)?;
        }
        restore(directory, entries).inspect_err(|errno| {
            tracing::error!(directory = at.join("/"), %errno, "documents cannot be recovered");
        })
    })?;
    replace(top, BOOT, format!("{boot}\n").as_bytes())
}

fn restore(directory: &OwnedFd, entries: &[Entry]) -> Result<(), Errno> {
    let journal = Journal::open(directory)?;
    let mut changed = journal.is_some();
    let recorded = match journal {
        Some(journal) => replay(directory, journal)?,
        None => Contents::default(),
    };
    for entry in entries.iter().filter(|entry| entry.kind == FileType::RegularFile) {
        let name = path::name_of_kept(&entry.name).unwrap_or(&entry.name);
        if recorded.lasting(name).is_some() {
            // The journal is newer than the kept copy.
            continue;
        }
        if name != entry.name {
            changed |= put_back(directory, &entry.name, name)?;
        } else if path::segment_of_document(&entry.name).is_some() {
            let kept = path::kept(&entry.name);
            if !entries.iter().any(|other| other.name == kept) {
                changed |= remove_if_empty(directory, &entry.name)?;
            }
        }
    }
    if changed {
        fsync(directory)?;
    }
    Ok(())
}

/// Gives the documents the contents that the journal has.
///
/// They need no sync, because the journal still holds them.
fn replay(directory: &OwnedFd, mut journal: Journal) -> Result<Contents, Errno> {
    let contents = Contents::recover(&mut journal)?;
    for (name, lasting) in contents.all() {
        let Lasting::Body { at, length } = lasting else {
            unlink_all(directory, name)?;
            continue;
        };
        let body = journal.body(at, length)?;
        let now = document::read_locked(directory, name);
        if !matches!(now, Ok(Some(now)) if now.body == body) {
            Temporary::write(directory, &body)?.rename_to(name)?;
            tracing::info!(name, "a document went back to its last lasting content after a reboot");
        }
    }
    Ok(contents)
}

fn put_back(directory: &OwnedFd, kept: &str, name: &str) -> Result<bool, Errno> {
    let lasting = Identity::of(&statat(directory, kept, AtFlags::SYMLINK_NOFOLLOW)?);
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        // Renaming one name of a file over another does nothing, and leaves both.
        Ok(now) if Identity::of(&now) == lasting => return Ok(false),
        Ok(_) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    link_over(directory, kept, name).map_err(|error| match error {
        Kept::Untouched(errno) | Kept::Unsure(errno) => errno,
    })?;
    tracing::info!(name, "a document went back to its last lasting content after a reboot");
    Ok(true)
}

/// Removes an empty document without lasting content.
///
/// It was never written lastingly, so it may be missing as well; an empty file is of no use.
fn remove_if_empty(directory: &OwnedFd, name: &str) -> Result<bool, Errno> {
    if statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?.st_size != 0 {
        return Ok(false);
    }
    step()?;
    unlinkat(directory, name, AtFlags::empty())?;
    Ok(true)
}
