use crate::directory;
use crate::family::Family;
use crate::launch::Launch;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::fs::OpenOptions;
use std::io;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A server's process, over restarts.
#[derive(Debug)]
pub(crate) struct Process {
    launch: Launch,
    directory: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Down,
    Running(Child),
    Paused(Child),
}

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Down,
    Running,
    Paused,
}

impl Process {
    pub(crate) fn new(launch: Launch, directory: PathBuf) -> Process {
        Process { launch, directory, state: Mutex::new(State::Down) }
    }

    /// Starts it. Does nothing if it runs already.
    pub(crate) fn start(&self) -> io::Result<()> {
        let mut state = self.lock();
        if let State::Down = *state {
            let log = directory::log(&self.directory);
            let log = OpenOptions::new().append(true).create(true).open(log)?;
            *state = State::Running(self.launch.spawn(&self.directory, log)?);
        }
        Ok(())
    }

    pub(crate) fn life(&self) -> Life {
        match *self.lock() {
            State::Down => Life::Down,
            State::Running(_) => Life::Running,
            State::Paused(_) => Life::Paused,
        }
    }

    pub(crate) fn id(&self) -> Option<u32> {
        match &*self.lock() {
            State::Down => None,
            State::Running(child) | State::Paused(child) => Some(child.id()),
        }
    }

    /// The exit status, once it has ended other than by [`Process::kill`].
    pub(crate) fn ended(&self) -> io::Result<Option<ExitStatus>> {
        let mut state = self.lock();
        let ended = match &mut *state {
            State::Down => None,
            State::Running(child) | State::Paused(child) => child.try_wait()?,
        };
        if ended.is_some() {
            *state = State::Down;
        }
        Ok(ended)
    }

    /// Kills it, and waits for its end. Returns false if it was not running.
    pub(crate) fn kill(&self) -> io::Result<bool> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Down) {
            State::Down => Ok(false),
            State::Running(mut child) | State::Paused(mut child) => {
                let family = self.launch.family.then(|| Family(number(&child)));
                match family {
                    Some(family) => family.signal(Signal::KILL)?,
                    None => child.kill()?,
                }
                // A SIGKILL takes effect soon, and the port is free only afterwards.
                child.wait()?;
                if let Some(family) = family {
                    family.wait();
                }
                Ok(true)
            }
        }
    }

    /// Freezes it. Its connections stay open, and the kernel even accepts new ones.
    pub(crate) fn pause(&self) -> io::Result<bool> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Down) {
            State::Down => Ok(false),
            State::Running(child) | State::Paused(child) => {
                let signalled = self.signal(&child, Signal::STOP);
                *state = State::Paused(child);
                signalled.map(|()| true)
            }
        }
    }

    /// Returns true if all of its threads are frozen. That takes a moment after the signal.
    pub(crate) fn frozen(&self) -> io::Result<bool> {
        match &*self.lock() {
            State::Down | State::Running(_) => Ok(false),
            State::Paused(child) => {
                // NOWAIT leaves the state there, so that it can be asked for again.
                let options =
                    WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
                let stands = waitid(WaitId::Pid(number(child)), options)?.is_some();
                Ok(stands && (!self.launch.family || Family(number(child)).frozen()?))
            }
        }
    }

    pub(crate) fn resume(&self) -> io::Result<bool> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Down) {
            State::Down => Ok(false),
            State::Running(child) | State::Paused(child) => {
                let signalled = self.signal(&child, Signal::CONT);
                *state = State::Running(child);
                signalled.map(|()| true)
            }
        }
    }

    /// Asks it to end. Returns false if it was not running.
    pub(crate) fn ask_to_end(&self) -> io::Result<bool> {
        match &*self.lock() {
            State::Down => return Ok(false),
            State::Running(child) => signal(child, Signal::TERM)?,
            State::Paused(child) => {
                signal(child, Signal::TERM)?;
                self.signal(child, Signal::CONT)?;
            }
        }
        Ok(true)
    }

    /// Sends a signal to it, and to all processes that it has started.
    fn signal(&self, child: &Child, to_all: Signal) -> io::Result<()> {
        if self.launch.family {
            Family(number(child)).signal(to_all)
        } else {
            signal(child, to_all)
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a signal. The child was not waited for yet, so its id cannot be another process's.
fn signal(child: &Child, signal: Signal) -> io::Result<()> {
    Ok(kill_process(number(child), signal)?)
}

fn number(child: &Child) -> Pid {
    let number = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    number.expect("a child has a positive process number")
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// A deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit(Instant);

impl Limit {
    pub(crate) fn within(limit: Duration) -> Limit {
        Limit(Instant::now() + limit)
    }

    pub(crate) fn reached(self) -> bool {
        Instant::now() >= self.0
    }
}
