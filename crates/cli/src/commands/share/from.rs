//! The source of items, as `--from` names it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::exit::{DENIED, Failure, REFUSED, USAGE};

/// The source of items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// The files of a directory, listed by the leader.
    Directory(PathBuf),
    /// The lines of a file, read by the leader.
    Lines(PathBuf),
    /// The objects of a bucket, listed by the leader.
    Objects(String),
    /// The lines that this process reads on its standard input.
    Input,
    /// The lines that a command prints, which this process runs.
    Command(String),
}

impl From {
    /// Parses `--from`, and checks that the source exists and can be read.
    ///
    /// # Errors
    /// When the text makes no sense, or the source is neither a file nor a directory, or may not be
    /// read.
    pub(super) fn parse(text: &OsStr) -> Result<From, Failure> {
        if text == "-" {
            return Ok(From::Input);
        }
        if let Some(text) = text.to_str() {
            if let Some(command) = text.strip_prefix("cmd:") {
                if command.trim().is_empty() {
                    let says = "--from cmd: needs a command, such as 'cmd:find . -name \"*.png\"'";
                    return Err(Failure::new(USAGE, anyhow::anyhow!(says)));
                }
                return Ok(From::Command(command.to_owned()));
            }
            if text.contains("://") && !text.starts_with("file:///") {
                return Ok(From::Objects(text.to_owned()));
            }
        }
        let path = text.to_str().and_then(|text| text.strip_prefix("file://"));
        let path = path.map_or(Path::new(text), Path::new);
        let unreadable = |error| unreadable(text, error);
        let found = std::fs::metadata(path).map_err(unreadable)?;
        if found.is_dir() {
            std::fs::read_dir(path).map_err(unreadable)?;
            return Ok(From::Directory(path.to_owned()));
        }
        if found.is_file() {
            // A pipe may have replaced the file. Do not wait for its writer.
            rustix::fs::open(path, OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
                .map_err(|error| unreadable(error.into()))?;
            return Ok(From::Lines(path.to_owned()));
        }
        let says = "neither a file nor a directory; `--from -` reads what others write";
        Err(Failure::new(REFUSED, anyhow::anyhow!("--from {}: {says}", text.to_string_lossy())))
    }

    /// Returns true if this process reads the source, instead of the leader.
    pub(super) fn is_own(&self) -> bool {
        match self {
            From::Input | From::Command(_) => true,
            From::Directory(_) | From::Lines(_) | From::Objects(_) => false,
        }
    }
}

/// The failure to read a source.
///
/// It names the source as the user typed it; the output is [redacted](crate::redact) like any
/// other.
fn unreadable(source: &OsStr, error: std::io::Error) -> Failure {
    let denied = error.kind() == std::io::ErrorKind::PermissionDenied;
    let code = if denied { DENIED } else { REFUSED };
    let context = format!("--from {}", source.to_string_lossy());
    Failure::new(code, anyhow::Error::from(error).context(context))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_told_from_the_others() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("a.jsonl");
        std::fs::write(&file, "x\n").expect("written");
        let parse = |text: &OsStr| From::parse(text).map_err(|failure| failure.code);
        assert_eq!(parse("-".as_ref()), Ok(From::Input));
        assert_eq!(parse("cmd:ls -1".as_ref()), Ok(From::Command("ls -1".into())));
        assert_eq!(parse("s3://b/p".as_ref()), Ok(From::Objects("s3://b/p".into())));
        assert_eq!(
            parse(directory.path().as_os_str()),
            Ok(From::Directory(directory.path().into()))
        );
        assert_eq!(parse(file.as_os_str()), Ok(From::Lines(file.clone())));
        let url = format!("file://{}", file.display());
        assert_eq!(parse(url.as_ref()), Ok(From::Lines(file.clone())));
        assert_eq!(parse("cmd: ".as_ref()), Err(2));
        assert_eq!(parse("/nonexistent/x".as_ref()), Err(78));
        assert_eq!(parse("/dev/null".as_ref()), Err(78));
    }
}
