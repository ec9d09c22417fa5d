use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use std::io;
use std::time::Duration;

/// A process that leads a group of its own, and all processes that it has started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Family(pub(crate) Pid);

impl Family {
    pub(crate) fn signal(self, signal: Signal) -> io::Result<()> {
        Ok(kill_process_group(self.0, signal)?)
    }

    /// Waits until none of them is left. They were killed, so it needs no time limit.
    pub(crate) fn wait(self) {
        while test_kill_process_group(self.0).is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns true if all of them stand still.
    pub(crate) fn frozen(self) -> io::Result<bool> {
        for entry in std::fs::read_dir("/proc")? {
            let stat = entry?.path().join("stat");
            // Most entries are not processes, and processes come and go.
            let Ok(stat) = std::fs::read_to_string(stat) else { continue };
            let Some((state, group)) = state_and_group(&stat) else { continue };
            if group == self.0.as_raw_pid() && !matches!(state, "T" | "t" | "Z" | "X") {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The state and the group, which follow the name in brackets. The name may hold any character.
fn state_and_group(stat: &str) -> Option<(&str, i32)> {
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?;
    Some((state, words.nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_an_odd_name_has_a_state_and_a_group() {
        assert_eq!(state_and_group("7 (a) S b) T 1 42 3"), Some(("T", 42)));
        assert_eq!(state_and_group("nonsense"), None);
    }
}
