//! One document's file: read whole, or not at all.

use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use rustix::fs::{FileType, OFlags, fstat};
use rustix::io::Errno;

use super::directory::open_below;
use super::error::{failed, refused};
use crate::store::{Document, Fault, MAX_DOCUMENT_BYTES, StoreError, Version};

/// A fifo must not make us wait, nor a link lead us away.
const OPEN_DOCUMENT: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Reads a document at a path below a directory; `None` when there is none.
pub(super) fn read(directory: &OwnedFd, name: &str) -> Result<Option<Document>, StoreError> {
    let doing = || format!("reading the document {name}");
    let body = match read_body(directory, name) {
        Ok(Content::Body(body)) => body,
        Ok(Content::Missing) => return Ok(None),
        Ok(Content::NotAFile) => {
            let says = "it is not a regular file; move it away";
            return Err(refused(Fault::Permanent, doing(), says));
        }
        Ok(Content::TooLarge(bytes)) => {
            let says = format!("its {bytes} bytes are more than {MAX_DOCUMENT_BYTES}");
            return Err(refused(Fault::Permanent, doing(), says));
        }
        Err(errno) => return Err(failed(doing(), errno)),
    };
    Ok(Some(Document { version: version(&body), body: body.into() }))
}

enum Content {
    Body(Vec<u8>),
    Missing,
    NotAFile,
    TooLarge(u64),
}

fn read_body(directory: &OwnedFd, name: &str) -> Result<Content, Errno> {
    let file = match open_below(directory, name, OPEN_DOCUMENT) {
        Err(Errno::NOENT) => return Ok(Content::Missing),
        other => other?,
    };
    let found = fstat(&file)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Ok(Content::NotAFile);
    }
    let size = u64::try_from(found.st_size).unwrap_or(u64::MAX);
    if size > MAX_DOCUMENT_BYTES as u64 {
        return Ok(Content::TooLarge(size));
    }
    // One byte more than there should be, so that one read also finds the end.
    let mut body = vec![0; size as usize + 1];
    let mut filled = 0;
    loop {
        match rustix::io::read(&file, &mut body[filled..]) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno),
        }
        if filled == body.len() {
            if filled > MAX_DOCUMENT_BYTES {
                return Ok(Content::TooLarge(filled as u64));
            }
            // Somebody appends to it by hand.
            body.resize((filled * 2).min(MAX_DOCUMENT_BYTES + 1), 0);
        } else if filled == size as usize {
            break;
        }
    }
    body.truncate(filled);
    Ok(Content::Body(body))
}

/// Names a content.
///
/// Versions are only compared with versions of this process, so the hash may be keyed by chance:
/// nobody can write two contents that share one.
pub(super) fn version(body: &[u8]) -> Version {
    static KEYS: OnceLock<[RandomState; 2]> = OnceLock::new();
    let [first, second] = KEYS.get_or_init(|| [RandomState::new(), RandomState::new()]);
    Version::new(format!(
        "{:x}-{:016x}{:016x}",
        body.len(),
        first.hash_one(body),
        second.hash_one(body)
    ))
}
