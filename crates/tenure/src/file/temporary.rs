//! A file that is not a document yet.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags, linkat, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::directory::FILE_MODE;
use super::disk::fsync;
use super::path;
use super::step::step;

const CREATE: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// A whole content under a name of its own. Dropping it removes the file.
#[derive(Debug)]
pub(super) struct Temporary<'d> {
    directory: &'d OwnedFd,
    file: OwnedFd,
    name: String,
    renamed: bool,
}

impl<'d> Temporary<'d> {
    /// Writes a content to a fresh file.
    pub(super) fn write(directory: &'d OwnedFd, body: &[u8]) -> Result<Temporary<'d>, Errno> {
        let temporary = Temporary::empty(directory)?;
        let mut rest = body;
        while !rest.is_empty() {
            step()?;
            match rustix::io::write(&temporary.file, rest) {
                Ok(written) => rest = &rest[written..],
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(temporary)
    }

    /// Makes a fresh file.
    pub(super) fn empty(directory: &'d OwnedFd) -> Result<Temporary<'d>, Errno> {
        let name = path::temporary();
        step()?;
        let file = openat(directory, &name, CREATE, FILE_MODE)?;
        Ok(Temporary { directory, file, name, renamed: false })
    }

    /// The file itself, for writing.
    pub(super) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Brings the content to the disk.
    pub(super) fn sync(&self) -> Result<(), Errno> {
        fsync(&self.file)
    }

    /// Gives the content a second, lasting name, replacing any file of that name.
    pub(super) fn keep_as(&self, name: &str) -> Result<(), Kept> {
        link_over(self.directory, &self.name, name)
    }

    /// Renames it to the document's name.
    pub(super) fn rename_to(mut self, name: &str) -> Result<(), Errno> {
        step()?;
        renameat(self.directory, &self.name, self.directory, name)?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.renamed {
            discard(self.directory, &self.name);
        }
    }
}

/// The state after giving a second name has failed.
#[derive(Debug)]
pub(super) enum Kept {
    /// Nothing changed.
    Untouched(Errno),
    /// The name may or may not stand for the new content.
    Unsure(Errno),
}

/// Makes `name` a second name of the file `of`, atomically for all readers.
pub(super) fn link_over(directory: &OwnedFd, of: &str, name: &str) -> Result<(), Kept> {
    let second = path::temporary();
    let linked = step().and_then(|()| linkat(directory, of, directory, &second, AtFlags::empty()));
    linked.map_err(Kept::Untouched)?;
    let renamed = step().and_then(|()| renameat(directory, &second, directory, name));
    renamed.map_err(|errno| {
        discard(directory, &second);
        Kept::Unsure(errno)
    })
}

fn discard(directory: &OwnedFd, name: &str) {
    let removed = step().and_then(|()| unlinkat(directory, name, AtFlags::empty()));
    if let Err(errno) = removed {
        // The next sweep removes it.
        tracing::debug!(name, %errno, "left a temporary file behind");
    }
}

/// Replaces a small file of the store's own, lastingly.
pub(super) fn replace(directory: &OwnedFd, name: &str, body: &[u8]) -> Result<(), Errno> {
    let temporary = Temporary::write(directory, body)?;
    temporary.sync()?;
    temporary.rename_to(name)?;
    fsync(directory)
}

/// Reads at most `most` bytes of a small file of the store's own.
pub(super) fn read_small(directory: &OwnedFd, name: &str, most: usize) -> Result<Vec<u8>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, Mode::empty())?;
    let mut body = vec![0; most];
    let read = rustix::io::read(&file, &mut body)?;
    body.truncate(read);
    Ok(body)
}
