//! The supervisor's side: talks to its guardian, and replaces it when it fails.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as Socket;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, getpid, set_child_subreaper, wait};
use tokio::net::UnixStream;

use super::boot::BootTime;
use super::cgroup::Cgroup;
use super::channel::{Inbox, send};
use super::message::{Job, Order, Privileges, Report, Status};
use super::terminal::Terminal;
use super::tree::{self, Left, Process};
use super::{GUARDIAN, THIS_PROGRAM};
use crate::show;

/// The first and the longest pause between two attempts to kill.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// After this many attempts, about five seconds, the user is told.
const HOPELESS: u32 = 100;

/// Everything that the guardian needs to start CMD.
#[derive(Debug)]
pub(crate) struct Work<'a> {
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) until: BootTime,
    pub(crate) grace: Duration,
    /// The signal that tells the tree to stop. The next field is how long the tree has after this
    /// process's death.
    pub(crate) signal: Signal,
    pub(crate) orphan_grace: Duration,
    /// A directory that the guardian removes if this process is dead.
    pub(crate) runtime: Option<PathBuf>,
    pub(crate) cgroup: Option<Cgroup>,
    /// Inherited by CMD and everything it starts.
    pub(crate) file: Option<BorrowedFd<'a>>,
    pub(crate) privileges: Privileges,
    /// The details of this run, if the guardian was posted for many.
    pub(crate) run: Option<RunOfMany<'a>>,
}

/// One run of CMD among many.
#[derive(Debug)]
pub(crate) struct RunOfMany<'a> {
    /// The text that replaces `{}`.
    pub(crate) item: Option<&'a OsStr>,
    /// Standard input, output and error.
    pub(crate) streams: [BorrowedFd<'a>; 3],
}

/// A report of the guardian about CMD.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Started {
        pid: Pid,
        /// Whether CMD is in a control group of its own.
        contained: bool,
    },
    /// CMD could not be run: the exit code and the reason.
    Failed(u8, String),
    Exited(Status),
    /// No process of the tree is left. `overdue` says that the guardian had to end them by itself.
    TreeDead {
        overdue: bool,
    },
    /// The guardian died first. The tree may still live.
    GuardianDied,
}

/// Makes this process adopt every orphan below it.
///
/// Returns the children that it already has (those of a shell that ran `exec`).
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn adopt_orphans() -> io::Result<Vec<Process>> {
    set_child_subreaper(Some(getpid()))?;
    Ok(match wait(WaitOptions::NOHANG) {
        Err(_) => Vec::new(),
        Ok(_) => tree::descendants(getpid(), &[]),
    })
}

/// A running guardian, and the terminal that its child may use.
#[derive(Debug)]
pub(crate) struct Guardian {
    socket: UnixStream,
    inbox: Inbox,
    pid: Pid,
    terminal: Option<Terminal>,
    child: Option<Pid>,
    cgroup: Option<Cgroup>,
    /// The children that this process had before. They are those of a shell that ran `exec`.
    foreign: Vec<Process>,
}

impl Guardian {
    /// Starts a guardian, which waits for the order to start CMD.
    ///
    /// CMD gets this process's input, and the terminal.
    ///
    /// # Errors
    /// When there is no process or socket to be had.
    pub(crate) fn post(
        command: &[OsString],
        unset: &[&str],
        presence: Option<OwnedFd>,
    ) -> io::Result<Guardian> {
        let foreign = adopt_orphans()?;
        let mut guardian = Guardian::begin(command, unset)?;
        (guardian.foreign, guardian.terminal) = (foreign, Terminal::of_this_process());
        guardian.watch(io::stdin().as_fd(), presence)?;
        Ok(guardian)
    }

    /// Starts one of several guardians.
    ///
    /// It runs CMD as often as it is ordered to, each time with other streams.
    ///
    /// This process must adopt orphans ([`adopt_orphans`]).
    ///
    /// # Errors
    /// When there is no process or socket to be had.
    pub(crate) fn post_for_many(
        command: &[OsString],
        unset: &[&str],
        presence: Option<OwnedFd>,
    ) -> io::Result<Guardian> {
        let guardian = Guardian::begin(command, unset)?;
        guardian.watch(std::fs::File::open("/dev/null")?.as_fd(), presence)?;
        Ok(guardian)
    }

    fn begin(command: &[OsString], unset: &[&str]) -> io::Result<Guardian> {
        let (ours, theirs) = Socket::pair()?;
        ours.set_nonblocking(true)?;
        let socket = UnixStream::from_std(ours)?;
        let mut guardian = Command::new(THIS_PROGRAM);
        guardian.arg0("tenure").arg(GUARDIAN).args(command);
        for name in unset {
            guardian.env_remove(name);
        }
        // A process group of its own: Ctrl-C is for the supervisor and CMD.
        let child = guardian.stdin(Stdio::from(OwnedFd::from(theirs))).process_group(0).spawn()?;
        let pid = Pid::from_child(&child);
        let inbox = Inbox::default();
        let (terminal, child, cgroup, foreign) = (None, None, None, Vec::new());
        Ok(Guardian { socket, inbox, pid, terminal, child, cgroup, foreign })
    }

    fn watch(&self, stdin: BorrowedFd<'_>, presence: Option<OwnedFd>) -> io::Result<()> {
        let mut descriptors = vec![stdin];
        descriptors.extend(presence.as_ref().map(AsFd::as_fd));
        self.order(&Order::Watch { presence: presence.is_some() }, &descriptors)
    }

    /// The guardian's process, as long as it lives.
    pub(crate) fn process(&self) -> Option<Process> {
        tree::read(self.pid)
    }

    /// The process id of the guardian.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Orders the guardian to start CMD.
    ///
    /// # Errors
    /// When the guardian is dead or hangs.
    pub(crate) fn start(&mut self, work: Work<'_>) -> io::Result<()> {
        let Work { environment, until, grace, signal, orphan_grace, runtime, .. } = work;
        let Work { cgroup, file, privileges, run, .. } = work;
        let (signal, terminal, work) = (signal.as_raw(), self.terminal.is_some(), file.is_some());
        self.cgroup.clone_from(&cgroup);
        let order = Order::Start {
            environment,
            until,
            grace,
            signal,
            orphan_grace,
            cgroup,
            runtime,
            terminal,
            work,
            privileges,
            job: run.as_ref().map(|run| Job::new(run.item)),
        };
        let streams = run.as_ref().map(|run| run.streams.as_slice()).unwrap_or_default();
        let descriptors: Vec<_> = streams.iter().copied().chain(file).collect();
        self.order(&order, &descriptors)
    }

    /// Tells the guardian of a renewal.
    ///
    /// # Errors
    /// When the guardian is dead or hangs.
    pub(crate) fn renewed(&self, until: BootTime) -> io::Result<()> {
        self.order(&Order::Until(until), &[])
    }

    /// Orders the guardian to tell the tree to stop, and to kill it at `kill_at`.
    ///
    /// # Errors
    /// When the guardian is dead or hangs.
    pub(crate) fn stop(&self, signal: Signal, kill_at: BootTime) -> io::Result<()> {
        self.order(&Order::Stop { signal: signal.as_raw(), kill_at }, &[])
    }

    /// Passes a signal on to CMD.
    ///
    /// # Errors
    /// When the guardian is dead or hangs.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        self.order(&Order::Signal(signal.as_raw()), &[])
    }

    /// Waits for the next event. After [`Event::TreeDead`] and [`Event::GuardianDied`] none
    /// follows.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn event(&mut self) -> Event {
        loop {
            match self.inbox.take() {
                Ok(Some(report)) => {
                    if let Some(event) = self.heard(report) {
                        return event;
                    }
                    continue;
                }
                Ok(None) => {}
                Err(_) => return Event::GuardianDied,
            }
            // Ask the socket itself first: after a pause the runtime may not know yet that it is
            // readable.
            let more = match self.inbox.fill(&self.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.receive().await,
                outcome => outcome,
            };
            if !matches!(more, Ok(true)) {
                return Event::GuardianDied;
            }
        }
    }

    async fn receive(&mut self) -> io::Result<bool> {
        loop {
            self.socket.readable().await?;
            let (inbox, socket) = (&mut self.inbox, &self.socket);
            match socket.try_io(tokio::io::Interest::READABLE, || inbox.fill(socket)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return outcome,
            }
        }
    }

    fn heard(&mut self, report: Report) -> Option<Event> {
        match report {
            Report::Staged { pid } => {
                self.child = Pid::from_raw(pid);
                self.lend_terminal();
                // If the guardian cannot receive this, its end is the next event.
                let _ = self.order(&Order::Proceed, &[]);
                None
            }
            Report::Started { pid, contained } => {
                self.child = Pid::from_raw(pid);
                self.child.map(|pid| Event::Started { pid, contained })
            }
            Report::Suspended => {
                self.suspend();
                None
            }
            Report::Failed { code, why } => Some(Event::Failed(code, why)),
            Report::Exited(status) => Some(Event::Exited(status)),
            Report::TreeDead { overdue } => {
                self.take_terminal_back();
                Some(Event::TreeDead { overdue })
            }
        }
    }

    /// Stops this process because CMD was suspended, and resumes CMD afterwards.
    ///
    /// Ctrl-Z reached CMD only, and the shell waits for this process. The lease is not renewed
    /// meanwhile: the guardian ends the tree in time.
    fn suspend(&mut self) {
        if self.terminal.is_none() {
            return;
        }
        self.take_terminal_back();
        let _ = rustix::process::kill_process(getpid(), Signal::STOP);
        // Another process has sent CONT.
        self.lend_terminal();
        let _ = self.signal(Signal::CONT);
    }

    fn lend_terminal(&mut self) {
        if let (Some(terminal), Some(child)) = (&mut self.terminal, self.child) {
            terminal.lend(child);
        }
    }

    fn take_terminal_back(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
        }
    }

    fn order(&self, order: &Order, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        send(self.socket.as_fd(), order, descriptors)
    }

    /// Dismisses a guardian without a child, or kills it with everything below it.
    ///
    /// Returns once no process is left.
    ///
    /// # Cancel safety
    /// Not cancel safe: the tree may live.
    pub(crate) async fn dismiss(mut self) {
        let foreign = std::mem::take(&mut self.foreign);
        self.dismiss_sparing(|| foreign.clone()).await;
    }

    /// Dismisses the guardian, but spares some processes and everything below them.
    ///
    /// `spared` is called again before each attempt to kill.
    ///
    /// # Cancel safety
    /// Not cancel safe: the tree may live.
    pub(crate) async fn dismiss_sparing(mut self, spared: impl Fn() -> Vec<Process>) {
        self.take_terminal_back();
        let mut pause = FIRST_PAUSE;
        let mut attempts = 0;
        let mut quiet = false;
        // Kill the guardian first, because it may hang. Its children become ours.
        let _ = rustix::process::kill_process(self.pid, Signal::KILL);
        loop {
            let contained = self.cgroup.as_ref().is_some_and(|cgroup| !cgroup.is_empty());
            if tree::reap(|_, _| {}) == Left::None && !contained {
                break;
            }
            let spared = spared();
            let left = tree::descendants(getpid(), &spared);
            if left.is_empty() && !spared.is_empty() && !contained {
                // A single look may miss a process that was born during it.
                if std::mem::replace(&mut quiet, true) {
                    break;
                }
                continue;
            }
            quiet = false;
            if let Some(cgroup) = &self.cgroup {
                cgroup.kill();
            }
            for process in &left {
                tree::signal(process, Signal::KILL);
            }
            attempts += 1;
            if attempts == HOPELESS {
                let pids = left.iter().map(|process| process.pid.as_raw_nonzero().to_string());
                show::say(&format!(
                    "cannot kill {}: another user's, or stuck in the kernel; waiting for their end",
                    pids.collect::<Vec<_>>().join(", ")
                ));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
