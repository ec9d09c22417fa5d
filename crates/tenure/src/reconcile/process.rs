//! Handlers that are processes, each in a process group that is ended as a whole.

use std::ffi::OsStr;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::credentials::holds_credentials;
use super::handler::{Context, VARIABLES};

/// The first and the longest pause between two checks of a group that is ending.
const LOOK: Duration = Duration::from_millis(2);
const LONGEST_LOOK: Duration = Duration::from_millis(50);
/// How long to wait for a killed group. Only a process that hangs in the kernel takes longer.
const UNTIL_DEAD: Duration = Duration::from_secs(2);

/// Runs a program until it ends or is told to stop.
///
/// Unless the program succeeded, no process of its group runs any more when this returns: processes
/// that a failed begin has started must not go on while another candidate leads.
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
    // Processes that a successful handler left behind go on. After a failure none is left.
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

/// A process and the processes it started in its group. Dropping it before the end kills them all.
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
        let store = std::env::var_os("TENURE_STORE");
        let mut command = prepare(program, arguments, context, store.as_deref());
        let child = command.spawn().map_err(|error| format!("starting {program:?}: {error}"))?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(Group { child, leader, over: false })
    }

    /// Sends TERM to the group, then KILL if any process is left. Returns when the group is empty.
    async fn end(&mut self, patience: Duration) {
        if self.dead_within(Duration::ZERO).await {
            return;
        }
        self.signal(Signal::TERM);
        // Lets a stopped process receive the TERM.
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
        // The kernel does not reuse a group's number while a process is in the group. Grandchildren
        // are not ours to wait for, so this polls.
        let mut pause = LOOK;
        while self.leader.is_some_and(lives) {
            if Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep_until(deadline.min(Instant::now() + pause)).await;
            pause = (pause * 2).min(LONGEST_LOOK);
        }
        true
    }

    fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            // An error means that no process is left to signal.
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

fn prepare(
    program: &str,
    arguments: &[String],
    context: &Context,
    store: Option<&OsStr>,
) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::inherit())
        .stderr(Stdio::inherit())
        // Makes the runtime reap the process even when its future is dropped.
        .kill_on_drop(true);
    // The variables of an enclosing `tenure` would describe another election.
    VARIABLES.iter().for_each(|name| {
        command.env_remove(name);
    });
    for (name, value) in context.variables.iter() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.envs(context.environment());
    if store.is_some_and(|store| holds_credentials(&store.to_string_lossy())) {
        command.env_remove("TENURE_STORE");
    }
    command
}

/// Returns true if any process in the group still runs.
fn lives(group: Pid) -> bool {
    test_kill_process_group(group).is_ok() && !only_zombies(group)
}

/// Returns true if the group holds only zombies.
///
/// Orphans stay in the group for ever if their new parent does not reap, as in a container without
/// an init. They do nothing. In doubt this returns false.
#[cfg(target_os = "linux")]
fn only_zombies(group: Pid) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    let group = group.as_raw_nonzero().to_string();
    let mut members = 0;
    for process in processes.flatten() {
        let Ok(stat) = std::fs::read_to_string(process.path().join("stat")) else { continue };
        // The format is `pid (name) state parent group ..`, and the name may contain any character.
        let Some((_, rest)) = stat.rsplit_once(')') else { continue };
        let mut words = rest.split_whitespace();
        let (state, its_group) = (words.next(), words.nth(1));
        if its_group == Some(group.as_str()) {
            members += 1;
            if state != Some("Z") && state != Some("X") {
                return false;
            }
        }
    }
    members > 0
}

#[cfg(not(target_os = "linux"))]
fn only_zombies(_: Pid) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::machine::Step;
    use crate::reconcile::{Identity, Reason};

    /// The change to a variable: set, removed (`Some(None)`) or inherited (`None`).
    fn variable(command: &Command, name: &str) -> Option<Option<String>> {
        let found = command.as_std().get_envs().find(|(key, _)| *key == name)?;
        Some(found.1.map(|value| value.to_string_lossy().into_owned()))
    }

    fn prepared(store: &str) -> Command {
        let identity = Identity {
            election: "jobs".into(),
            id: "a".into(),
            ttl: Duration::from_secs(15),
            stop_budget: Duration::from_secs(2),
        };
        let context = Context::new(&identity, Step::Error, Reason::Stop);
        prepare("true", &[], &context, Some(OsStr::new(store)))
    }

    #[test]
    fn a_store_with_credentials_is_taken_out_of_the_environment() {
        let taken_out = Some(None);
        assert_eq!(variable(&prepared("etcd://u:canary@h/p"), "TENURE_STORE"), taken_out);
        assert_eq!(variable(&prepared("file:///tmp/a"), "TENURE_STORE"), None, "inherited");
    }

    #[test]
    fn what_a_handler_is_not_told_it_does_not_inherit_from_a_tenure_around_it() {
        let command = prepared("file:///tmp/a");
        assert_eq!(variable(&command, "TENURE_TOKEN"), Some(None));
        assert_eq!(variable(&command, "TENURE_DEADLINE_MS"), Some(None));
        assert_eq!(variable(&command, "TENURE_STATE"), Some(Some("error".into())));
    }
}
