//! Finds and signals the processes below this one.

use std::collections::HashMap;
use std::fs;
use std::io::Read;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, pidfd_open, pidfd_send_signal, wait,
};

/// One process, as /proc shows it.
///
/// The start time distinguishes it from a later process with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    parent: Option<Pid>,
    pub(super) group: Option<Pid>,
    /// In ticks since the boot.
    pub(super) started: u64,
    zombie: bool,
}

/// The result of [`reap`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Living children are left.
    Some,
    /// There is no child, and so no descendant: every descendant is below a child.
    None,
}

/// Collects the children that have ended or stopped.
pub(super) fn reap(mut found: impl FnMut(Pid, WaitStatus)) -> Left {
    loop {
        match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((pid, status))) => found(pid, status),
            Ok(None) => return Left::Some,
            Err(Errno::INTR) => {}
            // This is ECHILD; no other error is possible with these arguments.
            Err(_) => return Left::None,
        }
    }
}

/// The living processes below `root`, without those below `spared`.
pub(super) fn descendants(root: Pid, spared: &[Process]) -> Vec<Process> {
    let all = processes();
    let mut below: HashMap<Pid, Vec<Process>> = HashMap::new();
    for process in all {
        if let Some(parent) = process.parent {
            below.entry(parent).or_default().push(process);
        }
    }
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        for process in below.remove(&parent).unwrap_or_default() {
            if spared.iter().any(|spared| spared.is_same(&process)) {
                continue;
            }
            open.push(process.pid);
            if !process.zombie {
                found.push(process);
            }
        }
    }
    found
}

/// Signals one process, and no other that got its process id meanwhile.
pub(super) fn signal(process: &Process, signal: Signal) {
    let Ok(descriptor) = pidfd_open(process.pid, PidfdFlags::empty()) else { return };
    if read(process.pid).is_some_and(|now| now.is_same(process)) {
        // If the process has died since, there is nothing to do. A process that we may not signal
        // (setuid) stays, and is reported as left.
        let _ = pidfd_send_signal(&descriptor, signal);
    }
}

impl Process {
    fn is_same(&self, other: &Process) -> bool {
        self.pid == other.pid && self.started == other.started
    }
}

/// All processes that this one can see.
pub(super) fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Pid::from_raw)
        .filter_map(read)
        .collect()
}

/// Reads one process.
pub(super) fn read(pid: Pid) -> Option<Process> {
    // One read gives the whole line, which is far shorter than this buffer.
    let mut line = [0; 1024];
    let mut stat = fs::File::open(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let length = stat.read(&mut line).ok()?;
    parse(pid, &line[..length])
}

/// Parses `pid (name) state ppid pgrp … starttime …`.
///
/// The name may hold anything, even `)`.
fn parse(pid: Pid, stat: &[u8]) -> Option<Process> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // For a process that is just vanishing the kernel shows -1.
    let number = |index: usize| {
        let number = fields.get(index)?.parse::<i32>().ok().filter(|number| *number > 0)?;
        Pid::from_raw(number)
    };
    Some(Process {
        pid,
        parent: number(1),
        group: number(2),
        started: fields.get(19)?.parse().ok()?,
        zombie: matches!(*fields.first()?, "Z" | "X"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_name_with_a_bracket_does_not_confuse() {
        let stat = b"7 (a) R 1 ) S 3 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        let process = parse(Pid::INIT, stat).expect("parsed");
        assert_eq!(process.parent, Pid::from_raw(3));
        assert_eq!((process.started, process.zombie), (4711, false));
    }

    #[test]
    fn a_process_that_vanishes_while_it_is_looked_at_has_no_group() {
        let stat = b"7 (a) Z 3 -1 -1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        let process = parse(Pid::INIT, stat).expect("parsed");
        assert_eq!((process.group, process.zombie), (None, true));
    }

    #[test]
    fn children_of_children_are_found_and_those_below_the_spared_are_not() {
        let mut child =
            Command::new("sh").args(["-c", "sleep 600 & sleep 600; :"]).spawn().expect("spawned");
        let me = rustix::process::getpid();
        let pid = Pid::from_child(&child);
        let below = |spared: &[Process]| descendants(me, spared);
        // `sh` is there at once; wait for its two children.
        while descendants(pid, &[]).len() < 2 {
            std::thread::yield_now();
        }
        let shell = below(&[]).into_iter().find(|process| process.pid == pid).expect("the shell");
        for process in descendants(pid, &[]) {
            assert!(below(&[]).contains(&process));
            assert!(!below(&[shell]).contains(&process));
            signal(&process, Signal::KILL);
        }
        child.wait().expect("reaped");
    }
}
