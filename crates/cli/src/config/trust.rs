//! Finds out which other users may read or write a file that we rely on.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// The number of links that the kernel follows.
const MOST_LINKS: usize = 40;
const STICKY: u32 = 0o1000;
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// The reason why other users can read a file with a secret; `None` if they cannot.
///
/// Root may share its file with a group. For any other owner a group that can read is a mistake.
pub(crate) fn readable(path: &Path) -> Option<String> {
    // A file without readable metadata was not read either.
    let found = path.metadata().ok()?;
    let everyone = found.mode() & 0o004 != 0;
    let group = found.mode() & 0o040 != 0 && found.uid() != 0;
    (found.is_file() && (everyone || group)).then(|| {
        format!(
            "{} holds a password, and other users can read it (mode {:04o}); chmod 600 it",
            path.display(),
            found.mode() & 0o7777
        )
    })
}

/// The reason why a user other than root can change this path; `None` if none can.
///
/// # Errors
/// When a part of the path cannot be looked at.
pub(super) fn writable(path: &Path) -> io::Result<Option<String>> {
    let mut at = PathBuf::from("/");
    let mut left = parts(&std::path::absolute(path)?);
    let mut links = 0;
    while let Some(name) = left.pop() {
        let next = if name == ".." {
            at.parent().unwrap_or(Path::new("/")).to_owned()
        } else {
            at.join(&name)
        };
        let found = next.symlink_metadata()?;
        if let Some(why) = changeable(&next, &found) {
            return Ok(Some(why));
        }
        if !found.is_symlink() {
            at = next;
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(io::Error::other("too many symbolic links"));
        }
        let target = next.read_link()?;
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        left.extend(parts(&target));
    }
    Ok(None)
}

fn changeable(path: &Path, found: &Metadata) -> Option<String> {
    if found.uid() != 0 {
        return Some(format!("{} belongs to user {}", path.display(), found.uid()));
    }
    let sticky = found.is_dir() && found.mode() & STICKY != 0;
    let writable = !found.is_symlink() && found.mode() & WRITABLE_BY_OTHERS != 0 && !sticky;
    writable.then(|| {
        let mode = found.mode() & 0o7777;
        format!("other users may write to {} (mode {mode:04o})", path.display())
    })
}

/// The names to walk through, in reverse order.
fn parts(path: &Path) -> Vec<OsString> {
    let name = |part: Component<'_>| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(name).collect()
}
