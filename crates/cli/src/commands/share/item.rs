//! What CMD works on: an item as it is stored, made into an argument or an input.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::MemfdFlags;

/// The kind of tasks whose item is text: a line, or what was submitted.
pub(super) const LINE: &str = "command";
/// The kind of tasks whose item is the path of a file below a directory.
pub(super) const FILE: &str = "file";
/// The kind of tasks whose item is the key of an object below a prefix.
#[cfg(feature = "objects")]
pub(super) const OBJECT: &str = "object";

/// What stands for the item in CMD.
pub(super) const PLACE: &str = "{}";

/// What an item is.
#[derive(Debug)]
pub(super) enum Sort {
    /// It speaks for itself.
    Line,
    /// The path of a file below this directory.
    File(PathBuf),
    /// The key of one of these objects.
    #[cfg(feature = "objects")]
    Object(tenure_inputs::Objects),
}

/// An item, ready for one run of CMD.
pub(super) struct Prepared {
    /// What stands for `{}`.
    pub(super) item: Option<OsString>,
    pub(super) stdin: OwnedFd,
    /// A copy that goes when this is dropped.
    pub(super) copy: Option<Box<dyn Send>>,
}

impl Sort {
    /// Makes it an argument, or an input where CMD has no place for one.
    ///
    /// # Errors
    /// In words: it cannot be an argument, or its file cannot be opened. What comes from a store is not trusted.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is left behind.
    pub(super) async fn prepare(&self, payload: &[u8], argument: bool) -> Result<Prepared, String> {
        match self {
            Sort::Line if argument => Prepared::argument(text(payload)?),
            Sort::Line => Ok(Prepared::input(as_input(payload)?)),
            Sort::File(root) => Prepared::file(below(root, payload)?, argument),
            #[cfg(feature = "objects")]
            Sort::Object(objects) => {
                let key = std::str::from_utf8(payload).map_err(|_| "this is no key".to_owned())?;
                let copy = objects.fetch(key).await.map_err(|error| error.to_string())?;
                let prepared = Prepared::file(copy.to_path_buf(), argument)?;
                // As an input it is open, and needs no name any more.
                Ok(if argument {
                    Prepared { copy: Some(Box::new(copy)), ..prepared }
                } else {
                    prepared
                })
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

    fn file(path: PathBuf, argument: bool) -> Result<Prepared, String> {
        match argument {
            true => Prepared::argument(path.into()),
            false => Ok(Prepared::input(open(&path)?)),
        }
    }
}

fn text(payload: &[u8]) -> Result<OsString, String> {
    match payload.contains(&0) {
        true => Err("a NUL byte cannot be in an argument".into()),
        false => Ok(OsString::from_vec(payload.to_vec())),
    }
}

/// The path of a file that is below the directory, whatever the store says.
fn below(root: &Path, payload: &[u8]) -> Result<PathBuf, String> {
    if payload.ends_with(b"/") {
        // It stands for what is in it, which nobody knows: no run of CMD could be the work on that.
        return Err("a directory that the leader may not list".into());
    }
    let path = PathBuf::from(text(payload)?);
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    if !plain || path.as_os_str().is_empty() {
        return Err("this is no path below the directory".into());
    }
    // What begins with a dash would be taken for a flag.
    let dashed = root.as_os_str().as_encoded_bytes().starts_with(b"-");
    Ok(if dashed { Path::new(".").join(root).join(path) } else { root.join(path) })
}

fn open(path: &Path) -> Result<OwnedFd, String> {
    let open = File::open(path).map_err(|error| format!("opening {}: {error}", path.display()))?;
    Ok(open.into())
}

/// A file without a name, with the item and a line feed in it.
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

/// Whether CMD has a place for the item.
pub(super) fn has_place(command: &[OsString]) -> bool {
    let holds = |word: &OsString| {
        word.as_encoded_bytes().windows(PLACE.len()).any(|part| part == PLACE.as_bytes())
    };
    // The program itself is never an item.
    command.iter().skip(1).any(holds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::io::Read;

    fn read(prepared: Prepared) -> Vec<u8> {
        let mut bytes = Vec::new();
        File::from(prepared.stdin).read_to_end(&mut bytes).expect("read");
        bytes
    }

    /// Nothing of this waits.
    fn prepare(sort: &Sort, payload: &[u8], argument: bool) -> Result<Prepared, String> {
        sort.prepare(payload, argument).now_or_never().expect("ready at once")
    }

    #[test]
    fn a_line_is_an_argument_or_an_input_as_it_is() {
        let line = b"a b; $(x) \xff";
        let argument = prepare(&Sort::Line, line, true).expect("an argument");
        assert_eq!(argument.item, Some(OsString::from_vec(line.to_vec())));
        assert_eq!(read(argument), b"");
        let input = prepare(&Sort::Line, line, false).expect("an input");
        assert_eq!(input.item, None);
        assert_eq!(read(input), b"a b; $(x) \xff\n");
        assert!(prepare(&Sort::Line, b"a\0b", true).is_err());
    }

    #[test]
    fn a_file_is_never_outside_of_its_directory() {
        let files = Sort::File("/srv/in".into());
        let path = |payload: &[u8]| prepare(&files, payload, true).map(|prepared| prepared.item);
        assert_eq!(path(b"a/b c"), Ok(Some("/srv/in/a/b c".into())));
        for bad in ["", "/etc/passwd", "../x", "a/../../x", "./a", "a\0b", "closed/"] {
            assert!(path(bad.as_bytes()).is_err(), "{bad:?}");
        }
        let dashed = prepare(&Sort::File("-in".into()), b"a", true).expect("a path");
        assert_eq!(dashed.item, Some("./-in/a".into()));
    }

    #[test]
    fn a_file_that_is_gone_cannot_be_an_input() {
        let gone = prepare(&Sort::File("/nonexistent".into()), b"a", false);
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
}
