//! The directories below the store's own, and the documents in them.

use std::collections::BinaryHeap;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, statat};
use rustix::io::Errno;

use super::directory::{Root, open_directory};
use super::{document, path};
use crate::store::Page;
use crate::{Key, MAX_KEY_SEGMENTS};

/// An entry of a directory with a name that is text. Other names are never ours.
#[derive(Debug)]
pub(super) struct Entry {
    pub name: String,
    pub kind: FileType,
}

/// Reads a directory.
pub(super) fn entries(directory: &OwnedFd) -> Result<Vec<Entry>, Errno> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else {
            tracing::debug!(name = ?entry.file_name(), "skipped a name that is not text");
            continue;
        };
        if name == "." || name == ".." {
            continue;
        }
        // Some file systems do not report the type.
        let mut kind = entry.file_type();
        if kind == FileType::Unknown
            && let Ok(found) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        {
            kind = FileType::from_raw_mode(found.st_mode);
        }
        found.push(Entry { name: name.to_owned(), kind });
    }
    Ok(found)
}

/// A visitor of a directory: gets its path below the store's, itself, and its entries.
pub(super) type Visit<'v> = dyn FnMut(&[String], &OwnedFd, &[Entry]) -> Result<(), Errno> + 'v;

/// Calls `visit` with every directory that could hold documents, and its entries.
pub(super) fn each_directory(root: &Root, visit: &mut Visit<'_>) -> Result<(), Errno> {
    match root.find(&[])? {
        Some(top) => descend(&mut Vec::new(), &top, visit),
        None => Ok(()),
    }
}

fn descend(at: &mut Vec<String>, directory: &OwnedFd, visit: &mut Visit<'_>) -> Result<(), Errno> {
    let found = entries(directory)?;
    visit(at, directory, &found)?;
    if at.len() == MAX_KEY_SEGMENTS {
        return Ok(());
    }
    for entry in &found {
        if entry.kind != FileType::Directory || path::segment_of_directory(&entry.name).is_none() {
            continue;
        }
        match open_directory(directory, &entry.name) {
            Ok(below) => {
                at.push(entry.name.clone());
                descend(at, &below, visit)?;
                at.pop();
            }
            // It was removed or replaced meanwhile.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Up to `limit` documents strictly under `prefix` and after `after`, in key order.
pub(super) fn list(
    root: &Root,
    prefix: &Key,
    after: Option<&Key>,
    limit: usize,
) -> Result<Page, Errno> {
    let mut page = Page::default();
    let Some(top) = root.find(&path::directory(prefix))? else { return Ok(page) };
    let mut first = Smallest { most: limit.saturating_add(1), keys: BinaryHeap::new() };
    collect(&top, prefix, after, &mut first)?;
    let mut keys = first.keys.into_sorted_vec();
    if keys.len() > limit {
        keys.truncate(limit);
        page.next = keys.last().cloned();
    }
    for key in keys {
        match document::read(root.descriptor(), &path::Place::of(&key).path()) {
            Ok(Some(document)) => page.documents.push((key, document)),
            // It was deleted meanwhile.
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%key, %error, reason = %error.source, "skipped in a listing");
            }
        }
    }
    Ok(page)
}

/// The first keys in order, so that a listing needs no more memory than its page.
struct Smallest {
    most: usize,
    keys: BinaryHeap<Key>,
}

impl Smallest {
    fn offer(&mut self, key: Key) {
        if self.keys.len() < self.most {
            self.keys.push(key);
        } else if self.keys.peek().is_some_and(|largest| key < *largest) {
            self.keys.pop();
            self.keys.push(key);
        }
    }
}

fn collect(
    directory: &OwnedFd,
    at: &Key,
    after: Option<&Key>,
    first: &mut Smallest,
) -> Result<(), Errno> {
    for entry in entries(directory)? {
        if entry.name.starts_with('.') {
            continue;
        }
        let is_directory = entry.kind == FileType::Directory;
        let segment = if is_directory {
            path::segment_of_directory(&entry.name)
        } else {
            path::segment_of_document(&entry.name)
        };
        let Some(key) = segment.and_then(|segment| at.child(&segment).ok()) else {
            tracing::debug!(name = entry.name, under = %at, "skipped a name that is no key's");
            continue;
        };
        if !is_directory {
            if after.is_none_or(|after| key > *after) {
                first.offer(key);
            }
            continue;
        }
        match open_directory(directory, &entry.name) {
            Ok(below) => collect(&below, &key, after, first)?,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
