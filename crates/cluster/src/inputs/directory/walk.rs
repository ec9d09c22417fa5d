//! Walks a tree in the order of its paths, with bounded memory.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::documents::MAX_POSITION_BYTES;
use crate::input::InputError;
use crate::inputs::confined::{Kind, list_below};

/// How many names are kept in memory, over all directories on the way.
const MOST_NAMES: usize = 128 * 1024;
/// How many names of each directory are kept at least, even if the tree is deep.
const LEAST_NAMES: usize = 256;
/// The deepest level to look at. Paths with more levels are too long to be given out.
const DEEPEST: usize = MAX_POSITION_BYTES / 2;

/// The next find of a walk, with the bytes of its path below the root.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A regular file.
    File(Vec<u8>),
    /// A directory that may not be listed, with a `/` at its end.
    Closed(Vec<u8>),
}

/// A walk through a tree.
///
/// It reads each directory on the way again whenever the names kept of it are used up.
pub(super) struct Walk {
    root: Arc<Path>,
    /// Include names that begin with a dot.
    hidden: bool,
    /// The directories on the way, the outermost first.
    levels: Vec<Level>,
}

/// A directory on the way.
struct Level {
    /// Its path below the root; ends with `/` unless it is the root.
    prefix: Vec<u8>,
    /// Its next names, in order.
    names: VecDeque<Entry>,
    /// The last name already passed.
    passed: Vec<u8>,
    /// The directory may have more names after `names`.
    more: bool,
}

/// A name in a directory. Names are ordered like paths: a directory's name is followed by `/`.
#[derive(PartialEq, Eq)]
struct Entry {
    name: OsString,
    is_directory: bool,
}

impl Walk {
    /// The walk after this plain path, which need not exist. An empty path walks the whole tree.
    pub(super) fn after(root: Arc<Path>, hidden: bool, position: &[u8]) -> Walk {
        let mut levels = vec![Level::of(Vec::new())];
        let mut prefix = Vec::new();
        // A part with a slash is a directory; a slash at the end means that all of it has been
        // passed.
        for part in position.split_inclusive(|byte| *byte == b'/') {
            if !prefix.is_empty() {
                levels.push(Level::of(prefix.clone()));
            }
            prefix.extend_from_slice(part);
            if let Some(level) = levels.last_mut() {
                level.passed = part.to_vec();
            }
        }
        Walk { root, hidden, levels }
    }

    /// The next file or closed directory, if any.
    pub(super) fn next(&mut self) -> Result<Option<Found>, InputError> {
        loop {
            let Some(level) = self.levels.last_mut() else { return Ok(None) };
            let Some(entry) = level.names.pop_front() else {
                if level.more {
                    if let Some(closed) = self.read()? {
                        return Ok(Some(Found::Closed(closed)));
                    }
                } else {
                    self.levels.pop();
                }
                continue;
            };
            level.passed = entry.key();
            let path = [level.prefix.as_slice(), &level.passed].concat();
            if !entry.is_directory {
                return Ok(Some(Found::File(path)));
            }
            if self.levels.len() >= DEEPEST {
                return Ok(Some(Found::Closed(path)));
            }
            self.levels.push(Level::of(path));
        }
    }

    /// Reads the next names of the innermost directory. Returns its path if it may not be listed.
    fn read(&mut self) -> Result<Option<Vec<u8>>, InputError> {
        let kept: usize = self.levels.iter().map(|level| level.names.len()).sum();
        let room = (MOST_NAMES.saturating_sub(kept) / 2).max(LEAST_NAMES);
        let is_root = self.levels.len() == 1;
        let Some(level) = self.levels.last_mut() else { return Ok(None) };
        let way =
            PathBuf::from(native(level.prefix.strip_suffix(b"/").unwrap_or_default().to_vec()));
        let listed = match list(&self.root, &way, &level.passed, room, self.hidden) {
            // The directory was removed or replaced by a file since its name was listed, so it is
            // empty.
            Err(error) if !is_root && is_gone(&error) => (VecDeque::new(), false),
            // Trying again would not help, and the rest of the tree must not wait for it.
            Err(error) if !is_root && error.kind() == io::ErrorKind::PermissionDenied => {
                let closed = self.levels.pop();
                return Ok(closed.map(|level| level.prefix));
            }
            Err(error) => {
                let directory = if is_root { self.root.to_path_buf() } else { self.root.join(way) };
                return Err(InputError::new(format!("listing {}", directory.display()), &error));
            }
            Ok(listed) => listed,
        };
        (level.names, level.more) = listed;
        Ok(None)
    }
}

impl Level {
    fn of(prefix: Vec<u8>) -> Level {
        Level { prefix, names: VecDeque::new(), passed: Vec::new(), more: true }
    }
}

/// These bytes as the system's own string.
pub(super) fn native(path: Vec<u8>) -> OsString {
    #[cfg(unix)]
    return std::os::unix::ffi::OsStringExt::from_vec(path);
    #[cfg(not(unix))]
    return String::from_utf8_lossy(&path).into_owned().into();
}

/// The first names of a directory below the root after `passed`, in order.
///
/// Also returns whether there are more.
fn list(
    root: &Path,
    way: &Path,
    passed: &[u8],
    room: usize,
    hidden: bool,
) -> io::Result<(VecDeque<Entry>, bool)> {
    let mut first: BinaryHeap<Entry> = BinaryHeap::new();
    let mut more = false;
    list_below(root, way, |name, kind| {
        let entry = Entry { name, is_directory: kind == Kind::Directory };
        let is_hidden = entry.name.as_encoded_bytes().starts_with(b".");
        if (is_hidden && !hidden) || compare(entry.parts(), (passed, false)).is_le() {
            return;
        }
        if first.len() < room {
            first.push(entry);
            return;
        }
        more = true;
        if let Some(mut last) = first.peek_mut()
            && entry < *last
        {
            *last = entry;
        }
    })?;
    Ok((first.into_sorted_vec().into(), more))
}

/// Returns true if the file or a directory on the way to it does not exist.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

impl Entry {
    /// Its name, and whether a slash follows.
    fn parts(&self) -> (&[u8], bool) {
        (self.name.as_encoded_bytes(), self.is_directory)
    }

    /// Its name in a path: with a slash if it is a directory.
    fn key(&self) -> Vec<u8> {
        let (name, slash) = self.parts();
        after_shared(name, slash, 0).collect()
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        compare(self.parts(), other.parts())
    }
}

/// Compares names, with their slashes. A comparison of memory decides most cases.
fn compare((one, slash): (&[u8], bool), (other, other_slash): (&[u8], bool)) -> Ordering {
    let shared = one.len().min(other.len());
    one[..shared].cmp(&other[..shared]).then_with(|| {
        after_shared(one, slash, shared).cmp(after_shared(other, other_slash, shared))
    })
}

fn after_shared(name: &[u8], slash: bool, shared: usize) -> impl Iterator<Item = u8> + '_ {
    name[shared..].iter().copied().chain(slash.then_some(b'/'))
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(paths: &[String]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for path in paths {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("below the root")).expect("directories");
            std::fs::write(path, "x").expect("a file");
        }
        root
    }

    fn rest(root: &Path, position: &str) -> Vec<String> {
        let mut walk = Walk::after(root.into(), true, position.as_bytes());
        std::iter::from_fn(|| walk.next().expect("a readable tree"))
            .map(|found| match found {
                Found::File(path) | Found::Closed(path) => {
                    String::from_utf8(path).expect("a name that is text")
                }
            })
            .collect()
    }

    #[test]
    fn paths_come_in_their_byte_order_and_the_walk_goes_on_after_any_of_them() {
        let mut paths: Vec<String> =
            ["b", "a/x/1", "a/x/2", "a/y", "a-b", "a.txt", "a0", "a/x.txt", "é/ü", "z/z/z/z"]
                .map(str::to_owned)
                .to_vec();
        let root = tree(&paths);
        paths.sort();
        assert_eq!(rest(root.path(), ""), paths);
        for (index, path) in paths.iter().enumerate() {
            assert_eq!(rest(root.path(), path), paths[index + 1..], "after {path}");
        }
        // Paths that no longer exist, or are now something else.
        assert_eq!(rest(root.path(), "a/x/15"), rest(root.path(), "a/x/1"));
        assert_eq!(rest(root.path(), "a.txt/below/it"), rest(root.path(), "a.txt"));
        assert_eq!(rest(root.path(), "c/d/e"), rest(root.path(), "b"));
        assert_eq!(rest(root.path(), "zz"), ["é/ü"]);
    }

    #[test]
    fn a_directory_is_read_in_parts() {
        let directory = tree(&(0..50).map(|number| format!("{number:02}")).collect::<Vec<_>>());
        let (names, more) =
            list(directory.path(), Path::new(""), b"07", 5, true).expect("a directory");
        let names: Vec<_> = names.into_iter().map(|entry| entry.name).collect();
        assert_eq!(
            (names, more),
            (vec!["08".into(), "09".into(), "10".into(), "11".into(), "12".into()], true)
        );
        let (names, more) =
            list(directory.path(), Path::new(""), b"44", 5, true).expect("a directory");
        assert_eq!((names.len(), more), (5, false));
    }

    #[cfg(unix)]
    #[test]
    fn links_are_neither_followed_nor_given_out() {
        let root = tree(&["a".to_owned(), "d/b".to_owned()]);
        std::os::unix::fs::symlink("..", root.path().join("d/loop")).expect("a link");
        std::os::unix::fs::symlink("a", root.path().join("link")).expect("a link");
        assert_eq!(rest(root.path(), ""), ["a", "d/b"]);
    }

    /// Regression: the walk followed a link and left the root.
    ///
    /// The link had replaced a directory after it was listed.
    #[cfg(unix)]
    #[test]
    fn a_directory_that_became_a_link_has_nothing_in_it() {
        let root =
            tree(&["in/a".to_owned(), "in/d/b".to_owned(), "in/z".to_owned(), "out/b".into()]);
        let inside = root.path().join("in");
        let mut walk = Walk::after(inside.as_path().into(), true, b"");
        assert_eq!(walk.next().expect("a tree"), Some(Found::File(b"a".to_vec())));
        std::fs::rename(inside.join("d"), root.path().join("elsewhere")).expect("renamed");
        std::os::unix::fs::symlink("../out", inside.join("d")).expect("a link");
        assert_eq!(walk.next().expect("a tree"), Some(Found::File(b"z".to_vec())));
        // The link is not followed when the position lies below it, either.
        assert_eq!(rest(&inside, "d/a"), ["z"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn names_that_are_no_text_have_their_place_in_the_order_too() {
        let root = tree(&["a".to_owned(), "z".to_owned()]);
        let below = root.path().join(native(b"m\xff".to_vec()));
        std::fs::create_dir(&below).expect("a directory");
        std::fs::write(below.join("x"), "x").expect("a file");
        let all: Vec<&[u8]> = vec![b"a", b"m\xff/x", b"z"];
        for (index, position) in [b"".as_slice()].iter().chain(&all).enumerate() {
            let mut walk = Walk::after(root.path().into(), true, position);
            for path in &all[index..] {
                assert_eq!(walk.next().expect("a tree"), Some(Found::File(path.to_vec())));
            }
            assert_eq!(walk.next().expect("a tree"), None);
        }
    }

    #[test]
    fn a_directory_that_is_behind_us_as_a_whole_is_not_looked_into() {
        let root = tree(&["a/1".to_owned(), "a/2".to_owned(), "a0".to_owned()]);
        assert_eq!(rest(root.path(), "a/"), ["a0"]);
    }

    #[test]
    fn a_root_that_is_missing_is_an_error_and_not_an_empty_directory() {
        let root = tempfile::tempdir().expect("a directory");
        let mut walk = Walk::after(root.path().join("missing").into(), true, b"");
        let error = walk.next().expect_err("there is none");
        assert!(error.0.starts_with("listing "), "{error}");
    }
}
