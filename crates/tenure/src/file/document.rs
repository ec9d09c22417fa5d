//! One document's file: read whole, or not at all.

use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use rustix::fs::{AtFlags, FileType, FlockOperation, OFlags, Stat, flock, fstat, statat};
use rustix::io::Errno;

use super::directory::{Identity, open_below};
use super::error::{failed, refused};
use crate::store::{Document, Fault, MAX_DOCUMENT_BYTES, StoreError, Version};

/// A fifo must not block us, and a link must not be followed.
const OPEN_DOCUMENT: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// The most attempts to read. Each fails only if a renewal comes within the microseconds of a read.
const MOST_TRIES: usize = 100;

/// Reads a document at a path below a directory; `None` when there is none.
pub(super) fn read(directory: &OwnedFd, name: &str) -> Result<Option<Document>, StoreError> {
    read_while(directory, name, || {})
}

/// Reads a document; `meanwhile` runs after the file was opened.
fn read_while(
    directory: &OwnedFd,
    name: &str,
    mut meanwhile: impl FnMut(),
) -> Result<Option<Document>, StoreError> {
    for _ in 0..MOST_TRIES {
        let Some(file) = open(directory, name)? else { return Ok(None) };
        meanwhile();
        // Lock the file, so that it is not rewritten as a spare. Then check it again, because it
        // may have been rewritten before the lock.
        let locked = flock(&file, FlockOperation::NonBlockingLockShared).is_ok();
        let found = fstat(&file).map_err(|errno| failed(doing(name), errno))?;
        if locked && is_still(directory, name, &found) {
            return read_open(&file, &found, name);
        }
        std::thread::yield_now();
    }
    let says = "it changed faster than it could be read";
    Err(refused(Fault::Unavailable, doing(name), says))
}

/// Reads a document under the directory's lock, which prevents any rewriting.
pub(super) fn read_locked(directory: &OwnedFd, name: &str) -> Result<Option<Document>, StoreError> {
    match open(directory, name)? {
        Some(file) => {
            let found = fstat(&file).map_err(|errno| failed(doing(name), errno))?;
            read_open(&file, &found, name)
        }
        None => Ok(None),
    }
}

fn doing(name: &str) -> String {
    format!("reading the document {name}")
}

fn open(directory: &OwnedFd, name: &str) -> Result<Option<OwnedFd>, StoreError> {
    match open_below(directory, name, OPEN_DOCUMENT) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(failed(doing(name), errno)),
    }
}

fn is_still(directory: &OwnedFd, name: &str, found: &Stat) -> bool {
    let now = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    now.is_ok_and(|now| Identity::of(&now) == Identity::of(found))
}

fn read_open(file: &OwnedFd, found: &Stat, name: &str) -> Result<Option<Document>, StoreError> {
    let says = match read_body(file, found) {
        Ok(Content::Body(body)) => {
            return Ok(Some(Document { version: version(&body), body: body.into() }));
        }
        Ok(Content::NotAFile) => "it is not a regular file; move it away".to_owned(),
        Ok(Content::TooLarge(bytes)) => {
            format!("its {bytes} bytes are more than {MAX_DOCUMENT_BYTES}")
        }
        Err(errno) => return Err(failed(doing(name), errno)),
    };
    Err(refused(Fault::Permanent, doing(name), says))
}

enum Content {
    Body(Vec<u8>),
    NotAFile,
    TooLarge(u64),
}

fn read_body(file: &OwnedFd, found: &Stat) -> Result<Content, Errno> {
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
        match rustix::io::read(file, &mut body[filled..]) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno),
        }
        if filled == body.len() {
            if filled > MAX_DOCUMENT_BYTES {
                return Ok(Content::TooLarge(filled as u64));
            }
            // A person appends to the file by hand.
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
/// Versions are only compared with versions of this process. So the hash has random keys, and no
/// user can craft two contents with the same version.
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

#[cfg(test)]
mod tests {
    use super::super::spare::renew;
    use super::super::step::{Script, run};
    use super::*;

    #[test]
    fn a_file_that_is_rewritten_after_it_was_opened_is_not_what_is_read() {
        let at = tempfile::tempdir().expect("a directory");
        let directory = OwnedFd::from(std::fs::File::open(at.path()).expect("opened"));
        std::fs::write(at.path().join("b.json"), "first, and long").expect("written");
        let mut opened = 0;
        let read = read_while(&directory, "b.json", || {
            opened += 1;
            if opened == 1 {
                renew(&directory, "b.json", b"second").expect("renewed");
                // The writer dies when it has rewritten half of the file that the reader has open.
                let (third, came) = run(Script::Dies(1), || renew(&directory, "b.json", b"third"));
                assert!(came && third.is_err());
                let torn = std::fs::read(at.path().join(".b.json.spare")).expect("read");
                assert_eq!(torn, b"third, and long");
            }
        });
        assert_eq!(&read.expect("read").expect("there").body[..], b"second");
        assert_eq!(opened, 2);
    }

    #[test]
    fn a_file_that_somebody_reads_is_not_rewritten() {
        let at = tempfile::tempdir().expect("a directory");
        let directory = OwnedFd::from(std::fs::File::open(at.path()).expect("opened"));
        std::fs::write(at.path().join("b.json"), "first").expect("written");
        let reading = std::fs::File::open(at.path().join("b.json")).expect("opened");
        reading.lock_shared().expect("locked");
        for body in ["second", "third", "fourth"] {
            renew(&directory, "b.json", body.as_bytes()).expect("renewed");
        }
        assert_eq!(std::io::read_to_string(reading).expect("read"), "first");
        assert_eq!(std::fs::read(at.path().join("b.json")).expect("read"), b"fourth");
    }
}
