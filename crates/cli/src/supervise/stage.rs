//! The last step before CMD: the setup that only the new process itself can do.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::FdFlags;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::channel::{Inbox, send};
use super::message::{Cue, Privileges, Refusal};
use crate::exit;

/// Becomes CMD: `__stage GUARDIAN CMD ARGUMENTS…`.
///
/// The guardian's socket is standard input.
pub(crate) fn stage(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let guardian = arguments.next().and_then(|pid| pid.to_str()?.parse::<i32>().ok());
    let Some(program) = arguments.next() else { return ExitCode::from(exit::FAILURE) };
    // A copy that closes when CMD begins: the guardian takes the end of the socket for success.
    let Ok(socket) = io::stdin().as_fd().try_clone_to_owned() else {
        return ExitCode::from(exit::FAILURE);
    };
    let refusal = match prepare(&socket, guardian) {
        Err(error) => Refusal { code: exit::FAILURE, why: error.to_string() },
        Ok(()) => {
            let error = Command::new(&program).args(arguments).exec();
            let found = error.kind() != io::ErrorKind::NotFound;
            let code = if found { exit::NOT_EXECUTABLE } else { exit::NOT_FOUND };
            Refusal { code, why: error.to_string() }
        }
    };
    // If the guardian is gone, the message is lost.
    let _ = send(socket.as_fd(), &refusal, &[]);
    ExitCode::from(refusal.code)
}

fn prepare(socket: &impl AsFd, guardian: Option<i32>) -> io::Result<()> {
    // CMD must not inherit the guardian's signal mask.
    SigSet::empty().thread_set_mask()?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // If the guardian died before that line, no signal would ever come.
    if getppid().map(|pid| pid.as_raw_nonzero().get()) != guardian {
        return Err(io::Error::other("the guardian is dead"));
    }
    let mut inbox = Inbox::default();
    let Cue { work, privileges } = loop {
        if let Some(cue) = inbox.take()? {
            break cue;
        }
        poll(&mut [PollFd::new(socket, PollFlags::IN)], None)?;
        if !inbox.fill(socket)? {
            return Err(io::Error::other("the guardian is dead"));
        }
    };
    let stdin = inbox.take_descriptor().ok_or_else(|| io::Error::other("no standard input"))?;
    rustix::stdio::dup2_stdin(&stdin)?;
    if work {
        let file = inbox.take_descriptor().ok_or_else(|| io::Error::other("no work file"))?;
        // CMD and everything it starts hold the work file open: so others see that they live.
        rustix::io::fcntl_setfd(&file, FdFlags::empty())?;
        std::mem::forget(file);
    }
    match privileges {
        Privileges::Fixed => rustix::thread::set_no_new_privs(true)?,
        Privileges::MayGrow => {}
    }
    Ok(())
}
