//! What a leader left behind that was killed together with its guardian.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tenure::file::{FilePresence, Orphan};
use tokio::time::Instant;

use super::cgroup::Cgroup;
use super::tree;

/// The pause between two attempts to kill.
const PAUSE: Duration = Duration::from_millis(5);

/// Kills what earlier leaders of an election left behind, and waits until it is dead.
///
/// # Errors
/// In words, when something is still there after so long.
///
/// # Cancel safety
/// Cancel safe: what was not killed is still there.
pub(crate) async fn end_orphans(
    presence: &FilePresence,
    election: &str,
    patience: Duration,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + patience;
    let mut told = false;
    loop {
        let orphans = presence.orphans(election)?;
        let (left, dead): (Vec<&Orphan>, Vec<&Orphan>) =
            orphans.iter().partition(|orphan| is_left(orphan));
        // Nobody else is left to remove their groups.
        dead.into_iter().filter_map(group).for_each(|group| group.remove());
        if left.is_empty() {
            return Ok(());
        }
        let holders: Vec<Pid> = left.iter().flat_map(|orphan| holders(orphan)).collect();
        if !std::mem::replace(&mut told, true) {
            tracing::warn!(
                processes = %list(&holders),
                "an earlier leader died with its guardian; killing what it left behind"
            );
        }
        for orphan in &left {
            kill(orphan);
        }
        if Instant::now() >= deadline {
            let whose: Vec<String> =
                left.iter().map(|orphan| orphan.process().to_string()).collect();
            anyhow::bail!(
                "work of an earlier leader (process {}) still runs and cannot be killed: {}",
                whose.join(", "),
                list(&holders)
            );
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn is_left(orphan: &Orphan) -> bool {
    !orphan.probe().is_free() || group(orphan).is_some_and(|group| !group.is_empty())
}

fn group(orphan: &Orphan) -> Option<Cgroup> {
    orphan.cgroup().and_then(Cgroup::named)
}

fn kill(orphan: &Orphan) {
    if let Some(group) = group(orphan) {
        group.kill();
        group.remove();
    }
    for pid in holders(orphan) {
        // The number may have been given to another process since; its descriptor cannot be.
        let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        if holds(pid, orphan.file()) {
            let _ = pidfd_send_signal(&descriptor, Signal::KILL);
        }
    }
}

/// The processes of this pid namespace that have the work file open.
fn holders(orphan: &Orphan) -> Vec<Pid> {
    let all = tree::processes().into_iter().map(|process| process.pid);
    all.filter(|pid| holds(*pid, orphan.file())).collect()
}

fn holds(pid: Pid, (device, inode): (u64, u64)) -> bool {
    let Ok(open) = std::fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())) else {
        return false;
    };
    open.flatten().any(|entry| {
        std::fs::metadata(entry.path())
            .is_ok_and(|found| (found.dev(), found.ino()) == (device, inode))
    })
}

fn list(pids: &[Pid]) -> String {
    let mut numbers: Vec<i32> = pids.iter().map(|pid| pid.as_raw_nonzero().get()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    if numbers.is_empty() {
        return "nobody whom this process can see".to_owned();
    }
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
