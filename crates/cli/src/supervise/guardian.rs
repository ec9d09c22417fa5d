//! The guardian: starts CMD, and ends all its processes before the lease ends.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal as Blocked};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitStatus, getpid, kill_process_group, set_child_subreaper};

use super::boot::{BootTime, BootTimer};
use super::cgroup::Cgroup;
use super::channel::{Inbox, send};
use super::message::{Cue, Order, Privileges, Refusal, Report, Status};
use super::tree::{self, Left};
use super::{STAGE, THIS_PROGRAM};
use crate::exit;

/// How much later than the supervisor the guardian stops an overdue tree.
///
/// The first to stop the tree decides on the reported reason, and the supervisor knows more.
const COURTESY: Duration = Duration::from_millis(20);
/// The first and the longest pause between two attempts to kill.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Guards CMD: `__guardian CMD ARGUMENTS…`. The supervisor's socket is standard input.
pub(crate) fn guard(command: impl Iterator<Item = OsString>) -> ExitCode {
    match Guard::new(command.collect()).and_then(Guard::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The supervisor notices the end of the socket and kills the tree.
            eprintln!("tenure: the guardian failed: {error}");
            ExitCode::from(exit::FAILURE)
        }
    }
}

#[derive(Debug)]
struct Guard {
    command: Vec<OsString>,
    signals: SignalFd,
    timer: BootTimer,
    /// `None` once the supervisor is dead.
    supervisor: Option<UnixStream>,
    inbox: Inbox,
    /// Never read: it only stays open as long as this process lives.
    _presence: Option<OwnedFd>,
    stdin: Option<OwnedFd>,
    /// The outputs of this run of CMD, if they differ from those of this process.
    outputs: Option<Outputs>,
    /// Whether another run of CMD may follow this one.
    in_series: bool,
    phase: Phase,
    lease: Option<Lease>,
    /// The signal that tells the tree to stop.
    signal: Signal,
    /// How long the tree has to stop after the supervisor's death.
    orphan_grace: Duration,
    cgroup: Option<Cgroup>,
    runtime: Option<PathBuf>,
    stopping: Option<Stopping>,
    overdue: bool,
}

#[derive(Debug)]
enum Phase {
    /// There is no child yet.
    Waiting,
    /// The child exists and is about to become CMD.
    Staged {
        child: Pid,
        stage: UnixStream,
        answers: Inbox,
        work: Option<OwnedFd>,
        privileges: Privileges,
        /// Signals for CMD that came before it.
        early: Vec<Signal>,
    },
    /// CMD runs.
    Running { child: Pid },
    /// CMD has ended, or has never begun; other processes of the tree may be left.
    Emptying,
}

#[derive(Debug)]
struct Outputs {
    out: OwnedFd,
    err: OwnedFd,
}

#[derive(Debug)]
struct Lease {
    until: BootTime,
    grace: Duration,
}

#[derive(Debug)]
struct Stopping {
    kill_at: BootTime,
    /// When to kill again, in case a process was born meanwhile.
    next: BootTime,
    pause: Duration,
}

impl Guard {
    fn new(command: Vec<OsString>) -> io::Result<Guard> {
        // Every process below CMD that loses its parent becomes a child of this process.
        set_child_subreaper(Some(getpid()))?;
        // Only for `ps`; without it the name would be "exe".
        let _ = rustix::thread::set_name(c"tenure-guardian");
        // A signal meant for the whole service must not kill its guardian: the supervisor decides.
        let mut held: SigSet = [
            Blocked::SIGCHLD,
            Blocked::SIGTERM,
            Blocked::SIGINT,
            Blocked::SIGHUP,
            Blocked::SIGQUIT,
            Blocked::SIGUSR1,
            Blocked::SIGUSR2,
            Blocked::SIGALRM,
        ]
        .into_iter()
        .collect();
        let signals = SignalFd::with_flags(&held, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        // This process may use the terminal from the background.
        held.add(Blocked::SIGTTOU);
        held.add(Blocked::SIGTSTP);
        held.thread_block()?;
        Ok(Guard {
            command,
            signals,
            timer: BootTimer::new()?,
            supervisor: Some(UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?)),
            inbox: Inbox::default(),
            _presence: None,
            stdin: None,
            outputs: None,
            in_series: false,
            phase: Phase::Waiting,
            lease: None,
            signal: Signal::TERM,
            orphan_grace: Duration::ZERO,
            cgroup: None,
            runtime: None,
            stopping: None,
            overdue: false,
        })
    }

    fn run(mut self) -> io::Result<()> {
        // Standard input is a second copy of the socket. Close it: the supervisor sees the end of
        // the socket only when no copy is left.
        let nothing = std::fs::File::open("/dev/null")?;
        rustix::stdio::dup2_stdin(&nothing)?;
        loop {
            self.wait()?;
            self.take_orders()?;
            self.take_answers()?;
            while let Ok(Some(_)) = self.signals.read_signal() {}
            let left = self.reap()?;
            match self.phase {
                Phase::Waiting if self.supervisor.is_none() => return Ok(()),
                Phase::Waiting => {}
                Phase::Emptying if left == Left::None && self.is_empty() => {
                    // Report first: the supervisor waits for it, and removing a group takes time.
                    self.report(&Report::TreeDead { overdue: self.overdue });
                    if !self.in_series || self.supervisor.is_none() {
                        self.clear_up();
                        return Ok(());
                    }
                    (self.phase, self.lease) = (Phase::Waiting, None);
                    (self.stdin, self.outputs) = (None, None);
                }
                Phase::Staged { .. } | Phase::Running { .. } | Phase::Emptying => self.enforce(),
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.cgroup.as_ref().is_none_or(Cgroup::is_empty)
    }

    /// Removes the control group and the runtime directory, if the supervisor is dead.
    fn clear_up(&self) {
        if self.supervisor.is_some() {
            return;
        }
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove();
        }
        if let Some(runtime) = &self.runtime {
            // A directory that stays behind takes a few bytes, and no process reads it.
            let _ = std::fs::remove_dir_all(runtime);
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        self.timer.set(self.wake_at())?;
        let mut watched = vec![
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.timer, PollFlags::IN),
        ];
        watched.extend(self.supervisor.iter().map(|socket| PollFd::new(socket, PollFlags::IN)));
        if let Phase::Staged { stage, .. } = &self.phase {
            watched.push(PollFd::new(stage, PollFlags::IN));
        }
        match poll(&mut watched, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn wake_at(&self) -> Option<BootTime> {
        match (&self.phase, &self.stopping) {
            (Phase::Waiting, _) => None,
            (_, Some(stopping)) => Some(stopping.next.max(self.kill_at(stopping))),
            (_, None) => self.lease.as_ref().map(Lease::stop_at),
        }
    }

    fn kill_at(&self, stopping: &Stopping) -> BootTime {
        let lease = self.lease.as_ref().map(Lease::kill_at);
        lease.map_or(stopping.kill_at, |lease| lease.min(stopping.kill_at))
    }

    /// Stops or kills the tree if its time has come.
    fn enforce(&mut self) {
        let stop_at = self.lease.as_ref().map(Lease::stop_at);
        if self.stopping.is_none() && stop_at.is_some_and(BootTime::has_passed) {
            self.overdue = true;
            self.stop(self.signal, None);
        }
        let Some(stopping) = &self.stopping else { return };
        if self.kill_at(stopping).has_passed() && stopping.next.has_passed() {
            self.signal_tree(Signal::KILL);
            if let Some(stopping) = &mut self.stopping {
                stopping.next = BootTime::now().after(stopping.pause);
                stopping.pause = (stopping.pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    /// Tells the tree to stop. Without a `kill_at`, the lease decides when to kill.
    fn stop(&mut self, signal: Signal, kill_at: Option<BootTime>) {
        let kill_at =
            kill_at.or_else(|| self.lease.as_ref().map(Lease::kill_at)).unwrap_or(BootTime::PAST);
        let earlier = self.stopping.as_ref().map_or(kill_at, |stopping| stopping.kill_at);
        self.stopping = Some(Stopping {
            kill_at: kill_at.min(earlier),
            next: BootTime::PAST,
            pause: FIRST_PAUSE,
        });
        if !kill_at.has_passed() {
            self.signal_tree(signal);
            // A suspended process could not react to the signal.
            self.signal_tree(Signal::CONT);
        }
    }

    fn signal_tree(&self, signal: Signal) {
        let child = match self.phase {
            Phase::Staged { child, .. } | Phase::Running { child } => Some(child),
            Phase::Waiting | Phase::Emptying => None,
        };
        if let (Some(cgroup), Signal::KILL) = (&self.cgroup, signal) {
            cgroup.kill();
        }
        // Signal the process group first, because that is one atomic step; then processes outside
        // of it.
        if let Some(child) = child {
            let _ = kill_process_group(child, signal);
        }
        for process in tree::descendants(getpid(), &[]) {
            if child.is_none() || process.group != child || signal == Signal::KILL {
                tree::signal(&process, signal);
            }
        }
    }

    fn take_orders(&mut self) -> io::Result<()> {
        loop {
            while let Some(order) = self.inbox.take()? {
                self.obey(order)?;
            }
            let Some(socket) = &self.supervisor else { return Ok(()) };
            match self.inbox.fill(socket) {
                Ok(true) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Ok(false) => {
                    // The supervisor is dead, so the tree must die. This process exits last.
                    self.supervisor = None;
                    let kill_at = match self.orphan_grace.is_zero() {
                        true => BootTime::PAST,
                        false => BootTime::now().after(self.orphan_grace),
                    };
                    self.stop(self.signal, Some(kill_at));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn obey(&mut self, order: Order) -> io::Result<()> {
        match order {
            Order::Watch { presence } => {
                self.stdin = self.inbox.take_descriptor();
                if presence {
                    self._presence = self.inbox.take_descriptor();
                }
            }
            Order::Start {
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
                job,
            } => {
                // Reset orders for an earlier job that came after its end.
                (self.stopping, self.overdue) = (None, false);
                if job.is_some() {
                    self.in_series = true;
                    self.stdin = self.inbox.take_descriptor();
                    let (out, err) = (self.inbox.take_descriptor(), self.inbox.take_descriptor());
                    self.outputs = out.zip(err).map(|(out, err)| Outputs { out, err });
                }
                let lease = self.lease.insert(Lease { until, grace });
                let work = if work { self.inbox.take_descriptor() } else { None };
                self.signal = Signal::from_named_raw(signal).unwrap_or(Signal::TERM);
                (self.orphan_grace, self.cgroup, self.runtime) = (orphan_grace, cgroup, runtime);
                if lease.stop_at().has_passed() {
                    // One of the two processes has slept: CMD must not start any more.
                    (self.overdue, self.phase) = (true, Phase::Emptying);
                    return Ok(());
                }
                let command = match &job {
                    Some(job) => job.command(&self.command),
                    None => self.command.clone(),
                };
                match self.start(&command, &environment, work, privileges) {
                    Ok(()) => {}
                    // An item that does not fit into a command line must not prevent later runs.
                    Err(error) if self.in_series => {
                        (self.phase, self.outputs) = (Phase::Emptying, None);
                        let why = error.to_string();
                        self.report(&Report::Failed { code: exit::NOT_EXECUTABLE, why });
                    }
                    Err(error) => return Err(error),
                }
                match &self.phase {
                    Phase::Staged { child, .. } if terminal => {
                        self.report(&Report::Staged { pid: child.as_raw_nonzero().get() });
                    }
                    Phase::Staged { .. } => self.proceed(),
                    Phase::Waiting | Phase::Running { .. } | Phase::Emptying => {}
                }
            }
            Order::Proceed => self.proceed(),
            Order::Until(until) => {
                if let Some(lease) = &mut self.lease {
                    lease.until = until;
                }
            }
            Order::Stop { signal, kill_at } => {
                let signal = Signal::from_named_raw(signal).unwrap_or(Signal::TERM);
                self.stop(signal, Some(kill_at));
            }
            Order::Signal(number) => {
                let Some(signal) = Signal::from_named_raw(number) else { return Ok(()) };
                match &mut self.phase {
                    Phase::Running { child } => pass_on(*child, signal),
                    // CMD may run already: its beginning is learnt from the closed socket.
                    Phase::Staged { early, .. } => early.push(signal),
                    Phase::Waiting | Phase::Emptying => {}
                }
            }
        }
        Ok(())
    }

    fn start(
        &mut self,
        words: &[OsString],
        environment: &[(String, String)],
        work: Option<OwnedFd>,
        privileges: Privileges,
    ) -> io::Result<()> {
        let (stage, theirs) = UnixStream::pair()?;
        let mut command = Command::new(THIS_PROGRAM);
        command.arg0("tenure").arg(STAGE).arg(getpid().as_raw_nonzero().to_string());
        command.args(words).stdin(Stdio::from(OwnedFd::from(theirs))).process_group(0);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        if let Some(Outputs { out, err }) = self.outputs.take() {
            command.stdout(out).stderr(err);
        }
        let child = Pid::from_child(&command.spawn()?);
        // Before the child becomes CMD, so that everything CMD starts is in the group, too.
        self.cgroup = self.cgroup.take().filter(|cgroup| cgroup.take(child).is_ok());
        let answers = Inbox::default();
        let early = Vec::new();
        self.phase = Phase::Staged { child, stage, answers, work, privileges, early };
        Ok(())
    }

    /// Lets the child become CMD. This process keeps no copy of CMD's descriptors.
    fn proceed(&mut self) {
        let Phase::Staged { stage, work, privileges, .. } = &mut self.phase else { return };
        let Some(stdin) = self.stdin.take() else { return };
        let work = work.take();
        let descriptors: Vec<_> =
            [Some(&stdin), work.as_ref()].into_iter().flatten().map(AsFd::as_fd).collect();
        // A child that has died already is reaped as one that failed.
        let cue = Cue { work: work.is_some(), privileges: *privileges };
        let _ = send(stage.as_fd(), &cue, &descriptors);
    }

    fn take_answers(&mut self) -> io::Result<()> {
        let Phase::Staged { child, stage, answers, early, .. } = &mut self.phase else {
            return Ok(());
        };
        let child = *child;
        loop {
            if let Some(Refusal { code, why }) = answers.take()? {
                self.phase = Phase::Emptying;
                self.report(&Report::Failed { code, why });
                return Ok(());
            }
            match answers.fill(&*stage) {
                Ok(true) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Ok(false) => {
                    let early = std::mem::take(early);
                    early.into_iter().for_each(|signal| pass_on(child, signal));
                    self.phase = Phase::Running { child };
                    let pid = child.as_raw_nonzero().get();
                    self.report(&Report::Started { pid, contained: self.cgroup.is_some() });
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn reap(&mut self) -> io::Result<Left> {
        let mut found = Vec::new();
        let left = tree::reap(|pid, status| found.push((pid, status)));
        for (pid, status) in found {
            // Handle messages that the child sent before it died first.
            self.take_answers()?;
            let child = match self.phase {
                Phase::Staged { child, .. } | Phase::Running { child } => child,
                Phase::Waiting | Phase::Emptying => continue,
            };
            if pid == child {
                self.child_changed(status, &left);
            }
        }
        Ok(left)
    }

    fn child_changed(&mut self, status: WaitStatus, left: &Left) {
        if status.stopped() {
            self.report(&Report::Suspended);
        } else if let Some(status) = Status::of(status) {
            self.phase = Phase::Emptying;
            self.report(&Report::Exited(status));
            // Processes that CMD left behind are told to stop, too.
            if self.stopping.is_none() && (*left == Left::Some || !self.is_empty()) {
                let grace = self.lease.as_ref().map_or(Duration::ZERO, |lease| lease.grace);
                self.stop(self.signal, Some(BootTime::now().after(grace)));
            }
        }
    }

    fn report(&self, report: &Report) {
        if let Some(socket) = &self.supervisor {
            // A dead supervisor is noticed where orders are read.
            let _ = send(socket.as_fd(), report, &[]);
        }
    }
}

/// Passes a signal on to CMD and its process group.
fn pass_on(child: Pid, signal: Signal) {
    // A group that is gone is reaped soon.
    let _ = kill_process_group(child, signal);
}

impl Lease {
    fn stop_at(&self) -> BootTime {
        self.until.before(self.grace).after(COURTESY.min(self.grace / 8))
    }

    fn kill_at(&self) -> BootTime {
        self.until.before(self.grace / 4)
    }
}
