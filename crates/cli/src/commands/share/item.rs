//! Turns a stored item into an argument or an input for CMD.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::MemfdFlags;
use tenure_cluster::inputs::{check_below, open_below};

#[cfg(feature = "objects")]
use crate::redact;

/// The kind of tasks that hold plain text: a line, or a submitted item.
pub(super) const LINE: &str = "command";
/// The kind of tasks that hold the path of a file below a directory.
pub(super) const FILE: &str = "file";
/// The kind of tasks that hold the key of an object below a prefix.
#[cfg(feature = "objects")]
pub(super) const OBJECT: &str = "object";

/// The placeholder for the item in CMD.
pub(super) const PLACE: &str = "{}";

/// The sort of an item.
#[derive(Debug)]
pub(super) enum Sort {
    /// The text itself is the item.
    Line,
    /// The path of a file below this directory.
    File(PathBuf),
    /// The key of one of these objects.
    #[cfg(feature = "objects")]
    Object(tenure_cluster::inputs::Objects),
}

/// An item, ready for one run of CMD.
pub(super) struct Prepared {
    /// The text that replaces `{}`.
    pub(super) item: Option<OsString>,
    pub(super) stdin: OwnedFd,
    /// A copy that is deleted when this is dropped, or the room that the copy takes.
    pub(super) copy: Option<Box<dyn Send>>,
}

impl Sort {
    /// Limits the bytes that copies may take at once, if this sort makes copies.
    pub(super) fn with_copies_of_at_most(self, bytes: u64) -> Sort {
        #[cfg(feature = "objects")]
        if let Sort::Object(objects) = self {
            return Sort::Object(objects.copies_of_at_most(bytes));
        }
        let _ = bytes;
        self
    }

    /// Makes an argument of the item, or an input if CMD has no `{}`.
    ///
    /// # Errors
    /// In words: the item cannot be an argument, or its file cannot be opened, is behind a link or
    /// is no regular file. A payload from a store is not trusted.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is left behind.
    pub(super) async fn prepare(&self, payload: &[u8], argument: bool) -> Result<Prepared, String> {
        match self {
            Sort::Line if argument => Prepared::argument(text(payload)?),
            Sort::Line => Ok(Prepared::input(as_input(payload)?)),
            Sort::File(root) => {
                let path = relative(payload)?;
                let root = root.clone();
                blocking(move || Prepared::file_below(&root, &path, argument)).await
            }
            #[cfg(feature = "objects")]
            Sort::Object(objects) => {
                let key = std::str::from_utf8(payload).map_err(|_| "this is no key".to_owned())?;
                let copy = objects.fetch(key).await;
                // The error text goes into a dead letter, and may quote the URL of an endpoint.
                let copy = copy.map_err(|error| redact::text(&error.to_string()))?;
                if argument {
                    let prepared = Prepared::argument(copy.to_path_buf().into())?;
                    return Ok(Prepared { copy: Some(Box::new(copy)), ..prepared });
                }
                // As an input the copy is open, and needs no name any more.
                blocking(move || {
                    let says = |error: io::Error| format!("opening the copy: {error}");
                    let (file, room) = copy.into_file().map_err(says)?;
                    Ok(Prepared { copy: Some(Box::new(room)), ..Prepared::input(file.into()) })
                })
                .await
            }
        }
    }
}

impl Prepared {
    fn argument(item: OsString) -> Result<Prepared, String> {
        Ok(Prepared { item: Some(item), stdin: open(Path::new("/dev/null"))?, copy: None })
    }

    fn input(stdin: OwnedFd) -> Prepared {
        Prepared { item: None, stdin, copy: None }
    }

    /// Prepares a file below a directory that others may write to.
    ///
    /// It checks again that this is a regular file: it may have changed since the listing.
    fn file_below(root: &Path, path: &Path, argument: bool) -> Result<Prepared, String> {
        let full = root.join(path);
        let says = |error: io::Error| {
            if error.kind() == io::ErrorKind::InvalidInput {
                return "this is no path below the directory".to_owned();
            }
            format!("opening {}: {error}", full.display())
        };
        if !argument {
            return Ok(Prepared::input(open_below(root, path).map_err(says)?.into()));
        }
        check_below(root, path).map_err(says)?;
        Prepared::argument(undashed(full).into())
    }
}

/// The same path, spelt so that it does not look like a flag.
fn undashed(path: PathBuf) -> PathBuf {
    let dashed = path.as_os_str().as_encoded_bytes().starts_with(b"-");
    if dashed { Path::new(".").join(path) } else { path }
}

/// Runs work that may wait for a disk on a thread for blocking work.
async fn blocking(
    work: impl FnOnce() -> Result<Prepared, String> + Send + 'static,
) -> Result<Prepared, String> {
    let ran = tokio::task::spawn_blocking(work).await;
    ran.unwrap_or_else(|error| Err(format!("preparing the item: {error}")))
}

fn text(payload: &[u8]) -> Result<OsString, String> {
    match payload.contains(&0) {
        true => Err("a NUL byte cannot be in an argument".into()),
        false => Ok(OsString::from_vec(payload.to_vec())),
    }
}

/// The path of a file below the directory.
fn relative(payload: &[u8]) -> Result<PathBuf, String> {
    if payload.ends_with(b"/") {
        // The item stands for the unknown content of a directory: no run of CMD can process that.
        return Err("a directory that the leader may not list".into());
    }
    Ok(PathBuf::from(text(payload)?))
}

fn open(path: &Path) -> Result<OwnedFd, String> {
    let open = File::open(path).map_err(|error| format!("opening {}: {error}", path.display()))?;
    Ok(open.into())
}

/// A file without a name that holds the item and a line feed.
fn as_input(payload: &[u8]) -> Result<OwnedFd, String> {
    let write = || -> io::Result<OwnedFd> {
        let mut file = File::from(rustix::fs::memfd_create("item", MemfdFlags::CLOEXEC)?);
        file.write_all(payload)?;
        file.write_all(b"\n")?;
        file.rewind()?;
        Ok(file.into())
    };
    write().map_err(|error| format!("making an input of the item: {error}"))
}

/// Returns true if CMD has a place for the item.
pub(super) fn has_place(command: &[OsString]) -> bool {
    let holds = |word: &OsString| {
        word.as_encoded_bytes().windows(PLACE.len()).any(|part| part == PLACE.as_bytes())
    };
    // The program itself is never an item.
    command.iter().skip(1).any(holds)
}

/// Returns true if CMD might take an item that begins with a dash for a flag.
pub(super) fn may_be_a_flag(command: &[OsString]) -> bool {
    let words: Vec<&[u8]> = command.iter().map(|word| word.as_encoded_bytes()).collect();
    let Some((program, arguments)) = words.split_first() else { return false };
    let name = program.rsplit(|byte| *byte == b'/').next().unwrap_or(program);
    let is_shell = matches!(name, b"sh" | b"bash" | b"dash" | b"ash" | b"ksh" | b"zsh");
    // After the text that a shell runs, the words are parameters of that text.
    let is_text = |word: &&[u8]| word.starts_with(b"-") && word.ends_with(b"c");
    let text = arguments.iter().position(is_text).filter(|_| is_shell).map(|at| at + 1);
    let end = arguments.iter().position(|word| *word == b"--");
    let safe_after = [text, end].into_iter().flatten().min().unwrap_or(usize::MAX);
    arguments.iter().take(safe_after).any(|word| word.starts_with(PLACE.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn read(prepared: Prepared) -> Vec<u8> {
        let mut bytes = Vec::new();
        File::from(prepared.stdin).read_to_end(&mut bytes).expect("read");
        bytes
    }

    async fn prepare(sort: &Sort, payload: &[u8], argument: bool) -> Result<Prepared, String> {
        sort.prepare(payload, argument).await
    }

    #[tokio::test]
    async fn a_line_is_an_argument_or_an_input_as_it_is() {
        let line = b"a b; $(x) \xff";
        let argument = prepare(&Sort::Line, line, true).await.expect("an argument");
        assert_eq!(argument.item, Some(OsString::from_vec(line.to_vec())));
        assert_eq!(read(argument), b"");
        let input = prepare(&Sort::Line, line, false).await.expect("an input");
        assert_eq!(input.item, None);
        assert_eq!(read(input), b"a b; $(x) \xff\n");
        assert!(prepare(&Sort::Line, b"a\0b", true).await.is_err());
    }

    #[tokio::test]
    async fn a_file_is_never_outside_of_its_directory() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().join("in");
        std::fs::create_dir_all(root.join("a")).expect("directories");
        std::fs::write(root.join("a/b c"), "content").expect("a file");
        std::fs::write(directory.path().join("x"), "secret").expect("a file");
        std::os::unix::fs::symlink("..", root.join("out")).expect("a link");
        std::os::unix::fs::symlink("../x", root.join("link")).expect("a link");
        let files = Sort::File(root.clone());
        let path = prepare(&files, b"a/b c", true).await.expect("a path");
        assert_eq!(path.item, Some(root.join("a/b c").into()));
        assert_eq!(read(prepare(&files, b"a/b c", false).await.expect("an input")), b"content");
        for bad in [
            "",
            "/etc/passwd",
            "../x",
            "a/../../x",
            "./a/b c",
            "a\0b",
            "closed/",
            "out/x",
            "link",
            "gone",
            "a",
        ] {
            for argument in [true, false] {
                assert!(prepare(&files, bad.as_bytes(), argument).await.is_err(), "{bad:?}");
            }
        }
    }

    #[test]
    fn a_path_is_no_flag() {
        assert_eq!(undashed("-in/a".into()), Path::new("./-in/a"));
        assert_eq!(undashed("in/-a".into()), Path::new("in/-a"));
    }

    #[tokio::test]
    async fn a_file_that_is_gone_cannot_be_an_input() {
        let gone = prepare(&Sort::File("/nonexistent".into()), b"a", false).await;
        let says = gone.err().expect("no file");
        assert!(says.contains("opening /nonexistent/a: No such file"), "{says}");
    }

    #[test]
    fn the_item_has_a_place_wherever_the_braces_stand_but_not_in_the_program() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(has_place(&words("cp {} to")));
        assert!(has_place(&words("sh -c x{}y")));
        assert!(!has_place(&words("cat")));
        assert!(!has_place(&words("{} a { }")));
    }

    #[test]
    fn an_item_may_be_a_flag_unless_a_double_dash_or_the_text_of_a_shell_comes_first() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        for line in
            ["cat {}", "cat -n {} --", "cp a {}", "/bin/sh {}", "sh -x {} -c", "env -c x {}"]
        {
            assert!(may_be_a_flag(&words(line)), "{line}");
        }
        for line in
            ["cat", "cat -- {}", "cat x{}", "cp --to={} a", "sh -c x {}", "/bin/bash -ec x a {}"]
        {
            assert!(!may_be_a_flag(&words(line)), "{line}");
        }
    }
}
