//! Walks a tree in the order of its paths, with bounded memory.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cluster::input::InputError;

/// How many names are kept in memory, over all directories on the way.
const MOST_NAMES: usize = 128 * 1024;
/// However deep the tree is, so many of each directory.
const LEAST_NAMES: usize = 256;
/// Paths of more bytes are refused anyway: there is no need to look below them.
const DEEPEST: usize = 512;

/// What lies next on the way.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A regular file, with its path below the root.
    File(String),
    /// Something whose name is not UTF-8, as well as it can be written.
    NoText(String),
}

/// A walk through a tree. Each directory on the way is read anew whenever the names kept of it are used up.
pub(super) struct Walk {
    root: Arc<Path>,
    /// Whether names that begin with a dot count.
    hidden: bool,
    /// The directories on the way, the outermost first.
    levels: Vec<Level>,
}

/// A directory on the way.
struct Level {
    /// Where it is below the root; ends with `/` unless it is the root.
    prefix: String,
    /// The next names of it, in order.
    names: VecDeque<Entry>,
    /// Names up to this one are behind us.
    passed: Vec<u8>,
    /// There may be more after `names`.
    more: bool,
}

/// A name in a directory, ordered as the paths of what lies there: a directory's goes on with `/`.
#[derive(PartialEq, Eq)]
struct Entry {
    name: OsString,
    is_directory: bool,
}

impl Walk {
    /// The walk after this path, which need not exist (any more); after nothing, the whole.
    pub(super) fn after(root: Arc<Path>, hidden: bool, position: &str) -> Walk {
        let mut levels = vec![Level::after(String::new(), Vec::new())];
        let mut prefix = String::new();
        let mut rest = position;
        while let Some((directory, below)) = rest.split_once('/') {
            let passed = format!("{directory}/");
            prefix.push_str(&passed);
            if let Some(level) = levels.last_mut() {
                level.passed = passed.into_bytes();
            }
            levels.push(Level::after(prefix.clone(), Vec::new()));
            rest = below;
        }
        if let Some(level) = levels.last_mut() {
            level.passed = rest.as_bytes().to_vec();
        }
        Walk { root, hidden, levels }
    }

    /// What lies next on the way, if anything.
    pub(super) fn next(&mut self) -> Result<Option<Found>, InputError> {
        loop {
            let Some(level) = self.levels.last_mut() else { return Ok(None) };
            let Some(entry) = level.names.pop_front() else {
                if level.more {
                    self.read()?;
                } else {
                    self.levels.pop();
                }
                continue;
            };
            level.passed = entry.key();
            let Some(name) = entry.name.to_str() else {
                return Ok(Some(Found::NoText(format!(
                    "{}{}",
                    level.prefix,
                    entry.name.to_string_lossy()
                ))));
            };
            let path = format!("{}{name}", level.prefix);
            if !entry.is_directory {
                return Ok(Some(Found::File(path)));
            }
            if self.levels.len() >= DEEPEST {
                return Ok(Some(Found::File(format!("{path}/…"))));
            }
            self.levels.push(Level::after(format!("{path}/"), Vec::new()));
        }
    }

    /// Reads the next names of the innermost directory.
    fn read(&mut self) -> Result<(), InputError> {
        let kept: usize = self.levels.iter().map(|level| level.names.len()).sum();
        let room = (MOST_NAMES.saturating_sub(kept) / 2).max(LEAST_NAMES);
        let is_root = self.levels.len() == 1;
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        let directory = self.root.join(PathBuf::from(&level.prefix));
        let listed = match list(&directory, &level.passed, room, self.hidden) {
            // Removed since we heard of it, or replaced by a file: there is nothing in it.
            Err(error) if !is_root && is_gone(&error) => (VecDeque::new(), false),
            Err(error) => {
                return Err(InputError::new(format!("listing {}", directory.display()), &error));
            }
            Ok(listed) => listed,
        };
        (level.names, level.more) = listed;
        Ok(())
    }
}

impl Level {
    fn after(prefix: String, passed: Vec<u8>) -> Level {
        Level { prefix, names: VecDeque::new(), passed, more: true }
    }
}

/// The first names of a directory after `passed`, in order, and whether there are more.
fn list(
    directory: &Path,
    passed: &[u8],
    room: usize,
    hidden: bool,
) -> io::Result<(VecDeque<Entry>, bool)> {
    let mut first: BinaryHeap<Entry> = BinaryHeap::new();
    let mut more = false;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let kind = match entry.file_type() {
            Ok(kind) => kind,
            Err(error) if is_gone(&error) => continue,
            Err(error) => return Err(error),
        };
        // Neither links nor devices: the one lead anywhere, the others have no end.
        if !kind.is_dir() && !kind.is_file() {
            continue;
        }
        let entry = Entry { name: entry.file_name(), is_directory: kind.is_dir() };
        let is_hidden = entry.name.as_encoded_bytes().starts_with(b".");
        if (is_hidden && !hidden) || compare(entry.parts(), (passed, false)).is_le() {
            continue;
        }
        if first.len() < room {
            first.push(entry);
            continue;
        }
        more = true;
        if let Some(mut last) = first.peek_mut()
            && entry < *last
        {
            *last = entry;
        }
    }
    Ok((first.into_sorted_vec().into(), more))
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

impl Entry {
    /// Its name, and whether a slash follows.
    fn parts(&self) -> (&[u8], bool) {
        (self.name.as_encoded_bytes(), self.is_directory)
    }

    /// What its path goes on with, and what is below it begins with.
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

/// Names are mostly decided by a comparison of memory; what is left of them may be a slash.
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
        let mut walk = Walk::after(root.into(), true, position);
        std::iter::from_fn(|| walk.next().expect("a readable tree"))
            .map(|found| match found {
                Found::File(path) => path,
                Found::NoText(path) => format!("no text: {path}"),
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
        // Paths that are no more, or have become something else.
        assert_eq!(rest(root.path(), "a/x/15"), rest(root.path(), "a/x/1"));
        assert_eq!(rest(root.path(), "a.txt/below/it"), rest(root.path(), "a.txt"));
        assert_eq!(rest(root.path(), "c/d/e"), rest(root.path(), "b"));
        assert_eq!(rest(root.path(), "zz"), ["é/ü"]);
    }

    #[test]
    fn a_directory_is_read_in_parts() {
        let directory = tree(&(0..50).map(|number| format!("{number:02}")).collect::<Vec<_>>());
        let (names, more) = list(directory.path(), b"07", 5, true).expect("a directory");
        let names: Vec<_> = names.into_iter().map(|entry| entry.name).collect();
        assert_eq!(
            (names, more),
            (vec!["08".into(), "09".into(), "10".into(), "11".into(), "12".into()], true)
        );
        let (names, more) = list(directory.path(), b"44", 5, true).expect("a directory");
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

    #[cfg(target_os = "linux")]
    #[test]
    fn a_name_that_is_no_text_is_named_as_well_as_it_can_be() {
        use std::os::unix::ffi::OsStringExt as _;
        let root = tree(&["a".to_owned(), "z".to_owned()]);
        let name = OsString::from_vec(b"m\xff".to_vec());
        std::fs::write(root.path().join(name), "x").expect("a file");
        assert_eq!(rest(root.path(), ""), ["a", "no text: m\u{fffd}", "z"]);
    }

    #[test]
    fn a_root_that_is_missing_is_an_error_and_not_an_empty_directory() {
        let root = tempfile::tempdir().expect("a directory");
        let mut walk = Walk::after(root.path().join("missing").into(), true, "");
        let error = walk.next().expect_err("there is none");
        assert!(error.0.starts_with("listing "), "{error}");
    }
}
