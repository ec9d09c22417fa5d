//! The kernel's errors, in words an operator can act on.

use rustix::io::Errno;

use super::journal::DAMAGED;
use crate::store::{Fault, StoreError};

/// The error for a record of a start with invalid content.
pub(super) const UNREADABLE: Errno = Errno::ILSEQ;

pub(super) const BACKEND: &str = "file";

/// The error for a call without effect.
pub(super) fn failed(doing: impl Into<String>, errno: Errno) -> StoreError {
    StoreError::new(fault(errno), BACKEND, doing, words(errno))
}

/// The error for a call that may have had its effect all the same.
pub(super) fn unsure(doing: impl Into<String>, errno: Errno) -> StoreError {
    StoreError::new(Fault::Indeterminate, BACKEND, doing, words(errno))
}

/// The error for a request that we refuse, with the reason.
pub(super) fn refused(
    fault: Fault,
    doing: impl Into<String>,
    says: impl Into<String>,
) -> StoreError {
    StoreError::new(fault, BACKEND, doing, says.into())
}

fn fault(errno: Errno) -> Fault {
    match errno {
        Errno::ACCESS | Errno::PERM => Fault::Denied,
        Errno::ROFS
        | Errno::LOOP
        | Errno::NOTDIR
        | Errno::ISDIR
        | Errno::NAMETOOLONG
        | Errno::NXIO
        | Errno::OPNOTSUPP
        | DAMAGED => Fault::Permanent,
        _ => Fault::Unavailable,
    }
}

fn words(errno: Errno) -> String {
    let hint = match errno {
        Errno::NOSPC => "the disk is full; free some space",
        Errno::DQUOT => "the disk quota is used up",
        Errno::ROFS => "the file system is read-only; mount it for writing",
        Errno::ACCESS | Errno::PERM => "not allowed; run as the owner of the directory",
        Errno::LOOP => "a symbolic link stands there, and links are not followed; remove it",
        Errno::NOTDIR => "something other than a directory stands there; move it away",
        Errno::ISDIR => "a directory stands there; move it away",
        Errno::MFILE | Errno::NFILE => "too many open files; raise the limit",
        Errno::AGAIN => "another process kept the directory locked for too long",
        DAMAGED => {
            "the file .journal in the directory is damaged; restore it from a backup, or move it away to go on with \
             older contents"
        }
        UNREADABLE => {
            "a record of a start makes no sense, and its work may still run; end that, or move the file \
             presence/*.start away"
        }
        Errno::FBIG => "the documents of one directory are too many for its journal",
        Errno::STALE => "the directory was moved or replaced meanwhile",
        _ => return errno.to_string(),
    };
    format!("{hint} ({errno})")
}
