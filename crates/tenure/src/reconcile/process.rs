//! Handlers that are processes: a group of their own, ended as a whole.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::credentials::holds_credentials;
use super::handler::{Context, VARIABLES};

/// How often a group that was told to end is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// How long a killed group is waited for. Only a process that hangs in the kernel takes longer.
const UNTIL_DEAD: Duration = Duration::from_secs(2);

/// Runs a program to its end, or until it is told to stop.
///
/// Unless it succeeded, nothing of its group runs any more when this returns: what a begin that failed
/// has started must not go on while somebody else leads.
pub(super) async fn run(
    words: &[String],
    context: &Context,
    kill_after: Duration,
    stop: oneshot::Receiver<Duration>,
) -> Result<(), String> {
    let mut group = Group::spawn(words, context)?;
    let result = tokio::select! {
        biased;
        ended = group.child.wait() => judge(ended),
        Ok(patience) = stop => {
            group.end(patience).await;
            Err("it was stopped".to_owned())
        }
    };
    if result.is_err() {
        group.end(kill_after).await;
    }
    // What it left behind on purpose is not ours to end.
    group.over = true;
    result
}

fn judge(ended: std::io::Result<ExitStatus>) -> Result<(), String> {
    match ended {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("it ended with {status}")),
        Err(error) => Err(format!("waiting for it: {error}")),
    }
}

/// A process and whatever it started in its group. Dropped in mid-run, all of it is killed.
struct Group {
    child: Child,
    leader: Option<Pid>,
    over: bool,
}

impl Group {
    fn spawn(words: &[String], context: &Context) -> Result<Group, String> {
        let Some((program, arguments)) = words.split_first() else {
            return Err("there is no program to run".to_owned());
        };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::inherit())
            .stderr(Stdio::inherit())
            // So that the runtime reaps it even when this future is dropped.
            .kill_on_drop(true);
        // Those of a `tenure` around this one would speak of another election.
        VARIABLES.iter().for_each(|name| {
            command.env_remove(name);
        });
        command.envs(context.environment());
        let store = std::env::var_os("TENURE_STORE");
        if store.is_some_and(|store| holds_credentials(&store.to_string_lossy())) {
            command.env_remove("TENURE_STORE");
        }
        let child = command.spawn().map_err(|error| format!("starting {program:?}: {error}"))?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(Group { child, leader, over: false })
    }

    /// TERM to all, then KILL to what is left; returns when the group is empty.
    async fn end(&mut self, patience: Duration) {
        if self.dead_within(Duration::ZERO).await {
            return;
        }
        self.signal(Signal::TERM);
        // So that a stopped process gets to see it.
        self.signal(Signal::CONT);
        if self.dead_within(patience).await {
            return;
        }
        self.signal(Signal::KILL);
        if !self.dead_within(UNTIL_DEAD).await {
            tracing::error!(group = ?self.leader, "a killed handler is still there; going on without it");
        }
    }

    /// Waits for the process, reaps it, and waits for the rest of its group.
    async fn dead_within(&mut self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        if tokio::time::timeout_at(deadline, self.child.wait()).await.is_err() {
            return false;
        }
        // A group's number is not given out again while anything is in it. Grandchildren are not ours
        // to wait for, so they are looked at.
        while self.leader.is_some_and(|leader| test_kill_process_group(leader).is_ok()) {
            if Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(LOOK).await;
        }
        true
    }

    fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            // An error means that nothing is left to be told.
            let _ = kill_process_group(leader, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.over {
            self.signal(Signal::KILL);
        }
    }
}
