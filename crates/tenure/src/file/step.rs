//! A hook where tests make a system call fail, or the process die before the call.

use rustix::io::Errno;

/// Called before every system call that changes the directory.
#[cfg(not(test))]
#[inline]
pub(super) fn step() -> Result<(), Errno> {
    Ok(())
}

#[cfg(test)]
pub(super) use scripted::{Script, run, step};

#[cfg(test)]
mod scripted {
    use std::cell::Cell;

    use super::Errno;

    /// The failure to simulate.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(in crate::file) enum Script {
        /// No failure.
        Calm,
        /// The step after this many others fails once.
        Fails(usize),
        /// That step and all later ones never happen: the process is dead.
        Dies(usize),
    }

    thread_local! {
        static SCRIPT: Cell<Script> = const { Cell::new(Script::Calm) };
    }

    /// Runs `work` on this thread under a script; returns true if the script's moment came.
    pub(in crate::file) fn run<T>(script: Script, work: impl FnOnce() -> T) -> (T, bool) {
        SCRIPT.set(script);
        let result = work();
        let left = SCRIPT.replace(Script::Calm);
        let came = match (script, left) {
            (Script::Calm, _) => false,
            (Script::Fails(_), left) => left == Script::Calm,
            (Script::Dies(_), left) => left == Script::Dies(0),
        };
        (result, came)
    }

    pub(in crate::file) fn step() -> Result<(), Errno> {
        match SCRIPT.get() {
            Script::Calm => Ok(()),
            Script::Fails(0) => {
                SCRIPT.set(Script::Calm);
                Err(Errno::IO)
            }
            Script::Dies(0) => Err(Errno::IO),
            Script::Fails(left) => {
                SCRIPT.set(Script::Fails(left - 1));
                Ok(())
            }
            Script::Dies(left) => {
                SCRIPT.set(Script::Dies(left - 1));
                Ok(())
            }
        }
    }
}
