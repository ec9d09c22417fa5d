//! Access to files below a directory without following links.
//!
//! Other users may write to the directory: a file may become a link, a FIFO or a device between the
//! listing of its name and its use. So each part of a path is opened relative to the directory
//! before it, and checks apply to the opened file, not to its name.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::Path;

#[cfg(not(unix))]
use self::names as system;
#[cfg(unix)]
use self::unix as system;

/// Opens a regular file below a directory, for reading.
///
/// It never waits for a writer, as opening a FIFO would.
///
/// No link is followed, neither at the end of the path nor on the way. The directory itself may be
/// reached through links. The call may wait for a disk, so make it where blocking is allowed.
///
/// # Errors
/// `InvalidInput` if the path is not a plain relative one, without `..` or empty parts. Otherwise
/// the system's error: the file is gone, is a link, is no regular file, or may not be read.
pub fn open_below(root: &Path, path: &Path) -> io::Result<File> {
    system::open(root, path)
}

/// Checks that there is a regular file at this path below a directory.
///
/// Follows the rules of [`open_below`], without reading the file.
///
/// # Errors
/// As for [`open_below`], except that the file need not be readable.
pub fn check_below(root: &Path, path: &Path) -> io::Result<()> {
    system::check(root, path)
}

/// Removes a file below a directory.
///
/// No file behind a link is touched. A link at the end of the path is itself removed.
pub(super) fn remove_below(root: &Path, path: &Path) -> io::Result<()> {
    system::remove(root, path)
}

/// Calls `each` for the files and directories in a directory at or below the root.
///
/// Links, devices and the like are left out.
pub(super) fn list_below(
    root: &Path,
    path: &Path,
    each: impl FnMut(OsString, Kind),
) -> io::Result<()> {
    system::list(root, path, each)
}

/// Opens a regular file at a path that the operator gave, so links are followed.
///
/// It never waits for a writer.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    system::open_named(path)
}

/// The kinds of directory entries that a walk handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
}

/// Returns true if these bytes are a relative path in its only spelling.
///
/// It has no `.`, `..` or empty part, and no NUL.
pub(super) fn is_plain(path: &[u8]) -> bool {
    let is_name = |part: &[u8]| !matches!(part, b"" | b"." | b"..") && !part.contains(&0);
    path.split(|byte| *byte == b'/').all(is_name)
}

/// The parts of a path below the root.
fn parts(path: &Path) -> io::Result<Vec<&OsStr>> {
    let is_normal = path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    if !is_normal || !is_plain(path.as_os_str().as_encoded_bytes()) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "this is no plain path below the directory",
        ));
    }
    Ok(path.iter().collect())
}

fn irregular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "this is a link, a pipe or a device, and no file")
}

#[cfg(unix)]
mod unix {
    use std::ffi::{OsStr, OsString};
    use std::fs::File;
    use std::io;
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
    use rustix::io::Errno;

    use super::{Kind, irregular, parts};

    /// Opens a directory to go through it.
    ///
    /// Where the system allows it, this needs no right to list the directory.
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    const REACH: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
    const REACH: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);
    const LIST: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);
    /// Opens without waiting, and without making a terminal our controlling terminal.
    const READ: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

    pub(super) fn open(root: &Path, path: &Path) -> io::Result<File> {
        let (directory, name) = reach(root, path)?;
        // Opening a device may have effects, so check the file before opening it, too.
        is_regular(&rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?)?;
        regular(rustix::fs::openat(&directory, name, READ | OFlags::NOFOLLOW, Mode::empty()))
    }

    pub(super) fn check(root: &Path, path: &Path) -> io::Result<()> {
        let (directory, name) = reach(root, path)?;
        is_regular(&rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    pub(super) fn remove(root: &Path, path: &Path) -> io::Result<()> {
        let (directory, name) = reach(root, path)?;
        Ok(rustix::fs::unlinkat(&directory, name, AtFlags::empty())?)
    }

    pub(super) fn open_named(path: &Path) -> io::Result<File> {
        is_regular(&rustix::fs::stat(path)?)?;
        regular(rustix::fs::open(path, READ, Mode::empty()))
    }

    pub(super) fn list(
        root: &Path,
        path: &Path,
        mut each: impl FnMut(OsString, Kind),
    ) -> io::Result<()> {
        let directory = if path.as_os_str().is_empty() {
            rustix::fs::open(root, LIST, Mode::empty())?
        } else {
            let (directory, name) = reach(root, path)?;
            rustix::fs::openat(&directory, name, LIST | OFlags::NOFOLLOW, Mode::empty())?
        };
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let mut kind = entry.file_type();
            // Some file systems tell the type only in a separate call.
            if kind == FileType::Unknown {
                kind = match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(found) => FileType::from_raw_mode(found.st_mode),
                    Err(Errno::NOENT | Errno::NOTDIR) => continue,
                    Err(error) => return Err(error.into()),
                };
            }
            // Skip links, which lead anywhere, and devices, which have no end.
            let kind = if kind == FileType::RegularFile {
                Kind::File
            } else if kind == FileType::Directory {
                Kind::Directory
            } else {
                continue;
            };
            each(OsStr::from_bytes(name.to_bytes()).to_owned(), kind);
        }
        Ok(())
    }

    /// The directory that holds the last part of a path, and that part.
    fn reach<'a>(root: &Path, path: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
        let parts = parts(path)?;
        let Some((name, way)) = parts.split_last() else { return Err(irregular()) };
        let mut directory = rustix::fs::open(root, REACH, Mode::empty())?;
        for part in way {
            directory =
                rustix::fs::openat(directory, *part, REACH | OFlags::NOFOLLOW, Mode::empty())?;
        }
        Ok((directory, name))
    }

    fn regular(opened: rustix::io::Result<OwnedFd>) -> io::Result<File> {
        let opened = match opened {
            // The file has become a link since.
            Err(Errno::LOOP) => return Err(irregular()),
            opened => opened?,
        };
        is_regular(&rustix::fs::fstat(&opened)?)?;
        // A process that inherits the file expects blocking reads.
        let flags = rustix::fs::fcntl_getfl(opened.as_fd())?;
        rustix::fs::fcntl_setfl(opened.as_fd(), flags.difference(OFlags::NONBLOCK))?;
        Ok(opened.into())
    }

    fn is_regular(found: &rustix::fs::Stat) -> io::Result<()> {
        let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        if is_file { Ok(()) } else { Err(irregular()) }
    }
}

/// Goes by names alone, where the system offers nothing better.
///
/// A name may change its meaning between the check and the use.
#[cfg(not(unix))]
mod names {
    use std::ffi::OsString;
    use std::fs::File;
    use std::io;
    use std::path::{Path, PathBuf};

    use super::{Kind, irregular, parts};

    pub(super) fn open(root: &Path, path: &Path) -> io::Result<File> {
        check(root, path)?;
        File::open(root.join(path))
    }

    pub(super) fn check(root: &Path, path: &Path) -> io::Result<()> {
        let found = std::fs::symlink_metadata(reach(root, path)?)?;
        if found.is_file() { Ok(()) } else { Err(irregular()) }
    }

    pub(super) fn remove(root: &Path, path: &Path) -> io::Result<()> {
        std::fs::remove_file(reach(root, path)?)
    }

    pub(super) fn open_named(path: &Path) -> io::Result<File> {
        if std::fs::metadata(path)?.is_file() { File::open(path) } else { Err(irregular()) }
    }

    pub(super) fn list(
        root: &Path,
        path: &Path,
        mut each: impl FnMut(OsString, Kind),
    ) -> io::Result<()> {
        let below = !path.as_os_str().is_empty();
        let directory = if below { reach(root, path)? } else { root.to_owned() };
        if below && !std::fs::symlink_metadata(&directory)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_file() {
                each(entry.file_name(), Kind::File);
            } else if kind.is_dir() {
                each(entry.file_name(), Kind::Directory);
            }
        }
        Ok(())
    }

    fn reach(root: &Path, path: &Path) -> io::Result<PathBuf> {
        let parts = parts(path)?;
        let Some((name, way)) = parts.split_last() else { return Err(irregular()) };
        let mut directory = root.to_owned();
        for part in way {
            directory.push(part);
            if !std::fs::symlink_metadata(&directory)?.is_dir() {
                return Err(io::ErrorKind::NotADirectory.into());
            }
        }
        Ok(directory.join(name))
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory `in` with `d/file`, and beside it a secret in `file`.
    fn scene() -> tempfile::TempDir {
        let scene = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(scene.path().join("in/d")).expect("directories");
        std::fs::write(scene.path().join("in/d/file"), "ours").expect("a file");
        std::fs::write(scene.path().join("file"), "secret").expect("a file");
        scene
    }

    fn read(root: &Path, path: &str) -> Result<String, io::ErrorKind> {
        let mut text = String::new();
        open_below(root, Path::new(path))
            .and_then(|mut file| file.read_to_string(&mut text))
            .map_err(|error| error.kind())?;
        Ok(text)
    }

    #[test]
    fn a_file_below_is_opened_and_the_directory_may_be_reached_through_a_link() {
        let scene = scene();
        assert_eq!(read(&scene.path().join("in"), "d/file"), Ok("ours".into()));
        symlink("in", scene.path().join("alias")).expect("a link");
        assert_eq!(read(&scene.path().join("alias"), "d/file"), Ok("ours".into()));
        assert!(check_below(&scene.path().join("alias"), Path::new("d/file")).is_ok());
    }

    #[test]
    fn no_link_is_followed_neither_at_the_end_nor_on_the_way() {
        let scene = scene();
        let root = scene.path().join("in");
        symlink("../file", root.join("link")).expect("a link");
        symlink("d/file", root.join("inner")).expect("a link");
        symlink("..", root.join("out")).expect("a link");
        for path in ["link", "inner", "out/file", "out/in/d/file", "link/x", "out"] {
            assert!(read(&root, path).is_err(), "{path}");
            assert!(check_below(&root, Path::new(path)).is_err(), "{path}");
        }
        assert!(remove_below(&root, Path::new("out/file")).is_err());
        assert!(scene.path().join("file").exists());
    }

    #[test]
    fn paths_that_are_not_plain_are_refused() {
        let scene = scene();
        for path in ["", "/etc/hostname", "../file", "d/../../file", "./d/file", "d//file", "d/"] {
            assert_eq!(read(&scene.path().join("in"), path), Err(io::ErrorKind::InvalidInput));
        }
    }

    #[test]
    fn a_pipe_or_a_directory_is_no_file_and_nothing_waits_for_a_writer() {
        let scene = scene();
        let (root, pipe) = (scene.path().join("in"), scene.path().join("in/pipe"));
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
        assert!(made.success());
        for path in ["pipe", "d"] {
            assert_eq!(read(&root, path), Err(io::ErrorKind::InvalidData), "{path}");
            let checked = check_below(&root, Path::new(path)).map_err(|error| error.kind());
            assert_eq!(checked, Err(io::ErrorKind::InvalidData), "{path}");
        }
        let named = open_regular(&pipe).map(drop).map_err(|error| error.kind());
        assert_eq!(named, Err(io::ErrorKind::InvalidData));
    }
}
