//! Work of earlier leaders that still runs when this process leads.
//!
//! | the process that started the work | the work | outcome |
//! |---|---|---|
//! | is dead, and so is its guardian | is in its control group | it is killed |
//! | is dead, and so is its guardian | has no control group here, holds the lock, has the user it was started as, and is younger than the process that started it | it is killed |
//! | any | anything else | this process waits for its end, and starts nothing meanwhile |
//!
//! No process leaves its control group by itself. So if a process outside of the group holds the
//! lock, CMD handed the descriptor to it, perhaps to make a root leader kill a service of root's.
//!
//! A process that merely has the work file open (a backup) holds no lock, and is ignored. A process
//! that was handed the descriptor may be anything: this module never kills such a bystander.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tenure::file::{FilePresence, StartedWork, Starter};
use tenure::store::StoreError;
use tokio::time::Instant;

use super::cgroup::Cgroup;
use super::tree::{self, Process};

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until no work of earlier leaders runs, and kills where it may.
///
/// # Errors
/// In words, when work is still there after `patience`. Then nothing may be started.
///
/// # Cancel safety
/// Cancel safe: the next call finds the rest.
pub(crate) async fn end_leftovers(
    presence: &Arc<FilePresence>,
    election: &str,
    patience: Duration,
) -> anyhow::Result<()> {
    let (presence, name) = (Arc::clone(presence), election.to_owned());
    wait_until_ended(move || look_and_kill(&presence, &name), patience).await
}

/// Looks until no work is left, or until `patience` is over. No single look may take longer.
///
/// Each look runs on a thread of its own: there may be many processes, and the lease is renewed
/// meanwhile. A look that hangs in a file system that does not answer must not keep the lease
/// renewed without end.
async fn wait_until_ended(
    look: impl Fn() -> Result<Vec<StartedWork>, StoreError> + Clone + Send + 'static,
    patience: Duration,
) -> anyhow::Result<()> {
    let mut deadline = None;
    loop {
        let looking = tokio::task::spawn_blocking(look.clone());
        let looked = tokio::time::timeout(patience, looking).await;
        let left = looked.context("looking for work of an earlier leader takes too long")???;
        let Some(first) = left.first() else { return Ok(()) };
        // Killed processes have this long to die, counted from the first attempt.
        let deadline = *deadline.get_or_insert_with(|| {
            let (process, token) = (first.process(), first.token());
            tracing::warn!(process, token, "waiting for the work of an earlier leader to end");
            Instant::now() + patience
        });
        if Instant::now() >= deadline {
            let describing = tokio::task::spawn_blocking(move || refusal(&left));
            let described = tokio::time::timeout(patience, describing).await;
            return Err(described.context("work of an earlier leader still runs")??);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Kills where it may, and returns all work that was there. Forgets work that has ended.
fn look_and_kill(presence: &FilePresence, election: &str) -> Result<Vec<StartedWork>, StoreError> {
    let mut left = Vec::new();
    for work in presence.started(election)? {
        match (is_left(&work), work.starter()) {
            (true, Starter::Dead) => {
                kill(&work);
                left.push(work);
            }
            (true, Starter::MayLive) => left.push(work),
            (false, Starter::Dead) => {
                // No other process is left to remove its group.
                group(&work).into_iter().for_each(|group| group.remove());
                work.forget();
            }
            (false, Starter::MayLive) => {}
        }
    }
    Ok(left)
}

fn refusal(left: &[StartedWork]) -> anyhow::Error {
    let works: Vec<String> = left.iter().map(describe).collect();
    anyhow::anyhow!(
        "work of an earlier leader still runs, and may not be killed by this process: {}; nothing is \
         started beside it: end it by hand",
        works.join(", ")
    )
}

fn describe(work: &StartedWork) -> String {
    let holders: Vec<Pid> = tree::processes()
        .iter()
        .map(|process| process.pid)
        .filter(|pid| holds(*pid, work))
        .collect();
    format!("{} (process {}, token {})", list(&holders), work.process(), work.token())
}

fn is_left(work: &StartedWork) -> bool {
    !work.probe().is_free() || group(work).is_some_and(|group| !group.is_empty())
}

fn group(work: &StartedWork) -> Option<Cgroup> {
    work.control_group().and_then(Cgroup::recorded)
}

fn kill(work: &StartedWork) {
    if let Some(group) = group(work).filter(Cgroup::is_there) {
        return group.kill();
    }
    for process in tree::processes() {
        if !may_be_killed(&process, work) {
            continue;
        }
        // The process id may belong to another process by now; a descriptor always means the same
        // one.
        let Ok(descriptor) = pidfd_open(process.pid, PidfdFlags::empty()) else { continue };
        if tree::read(process.pid).is_some_and(|now| may_be_killed(&now, work)) {
            let _ = pidfd_send_signal(&descriptor, Signal::KILL);
        }
    }
}

/// Returns true if this process is certainly a part of the work.
fn may_be_killed(process: &Process, work: &StartedWork) -> bool {
    is_part(process.started, user(process.pid), work.process_start(), work.user())
        && holds(process.pid, work)
}

/// Returns true if a process that holds the lock inherited it.
///
/// A daemon that was handed the descriptor has another user, or is older than the process that
/// started the work.
fn is_part(started: u64, user: Option<u32>, work_started: u64, work_user: u32) -> bool {
    user == Some(work_user) && started >= work_started
}

/// Returns true if a descriptor of the process holds the lock of the work file.
///
/// A descriptor from another `open` of the file, for reading or writing, holds no lock.
fn holds(pid: Pid, work: &StartedWork) -> bool {
    let process = pid.as_raw_nonzero();
    let Ok(open) = fs::read_dir(format!("/proc/{process}/fdinfo")) else { return false };
    open.flatten().any(|entry| {
        let same = |found: fs::Metadata| (found.dev(), found.ino()) == work.file();
        // Check the lock first: `metadata` may hang for ever if the file's server does not answer.
        fs::read_to_string(entry.path()).is_ok_and(|says| has_lock(&says))
            && fs::metadata(format!("/proc/{process}/fd/{}", entry.file_name().display()))
                .is_ok_and(same)
    })
}

/// Returns true if `/proc/PID/fdinfo/N` shows an exclusive lock:
/// `lock: 1: FLOCK  ADVISORY  WRITE 4711 fe:01:42 0 EOF`.
fn has_lock(says: &str) -> bool {
    says.lines().filter_map(|line| line.strip_prefix("lock:")).any(|lock| {
        let mut words = lock.split_ascii_whitespace().skip(1);
        words.next() == Some("FLOCK") && words.nth(1) == Some("WRITE")
    })
}

/// The real user of a process.
fn user(pid: Pid) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_ascii_whitespace().next()?.parse().ok()
}

fn list(pids: &[Pid]) -> String {
    let numbers: Vec<String> = pids.iter().map(|pid| pid.as_raw_nonzero().to_string()).collect();
    if numbers.is_empty() {
        return "a process that this user cannot look into".to_owned();
    }
    numbers.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_exclusive_lock_of_the_open_file_counts() {
        let head = "pos:\t0\nflags:\t0100002\nmnt_id:\t29\nino:\t42\n";
        let lock = |kind: &str| format!("{head}lock:\t1: {kind} 4711 fe:01:42 0 EOF\n");
        assert!(has_lock(&lock("FLOCK  ADVISORY  WRITE")));
        assert!(!has_lock(&lock("FLOCK  ADVISORY  READ")));
        assert!(!has_lock(&lock("POSIX  ADVISORY  WRITE")));
        assert!(!has_lock(head));
    }

    #[tokio::test]
    async fn a_look_that_hangs_is_not_waited_for_longer_than_the_rest() {
        let (hung, hangs) = std::sync::mpsc::channel::<()>();
        let hangs = Arc::new(std::sync::Mutex::new(hangs));
        let look = move || {
            // Until the other end is dropped.
            let _ = hangs.lock().map(|hangs| hangs.recv_timeout(Duration::from_secs(30)));
            Ok(Vec::new())
        };
        let refused = wait_until_ended(look, Duration::from_millis(20)).await;
        assert!(refused.is_err_and(|error| error.to_string().contains("takes too long")));
        drop(hung);
    }

    #[test]
    fn a_daemon_that_was_handed_the_descriptor_is_no_part_of_the_work() {
        let (work_started, work_user) = (1000, 7);
        assert!(is_part(1000, Some(7), work_started, work_user));
        assert!(!is_part(999, Some(7), work_started, work_user), "older");
        assert!(!is_part(2000, Some(0), work_started, work_user), "another user's");
        assert!(!is_part(2000, None, work_started, work_user), "already gone");
    }
}
