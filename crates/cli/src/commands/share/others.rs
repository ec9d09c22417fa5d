//! Detects tasks that this process does not run, and that no other process takes.

use tenure_cluster::{ClusterClient, Totals};

use super::super::group;
use super::item::LINE;
use crate::show;

/// How many reads in a row must show a standstill before the tasks are looked at.
const STANDSTILL: u32 = 4;

/// Reports once when this process runs none of the remaining tasks.
#[derive(Debug)]
pub(super) struct Others {
    /// The kinds that this process runs.
    kinds: Vec<&'static str>,
    looks: u32,
    told: bool,
}

impl Others {
    pub(super) fn new(kinds: Vec<&'static str>) -> Others {
        Others { kinds, looks: 0, told: false }
    }

    /// Takes note of the group's totals.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn look(&mut self, client: &ClusterClient, totals: &Totals) {
        let stands_still = totals.outstanding > 0 && totals.running == 0 && !totals.paused;
        self.looks = if stands_still { self.looks + 1 } else { 0 };
        if self.told || self.looks < STANDSTILL {
            return;
        }
        self.looks = 0;
        // An unreachable store is reported elsewhere.
        let Ok(work) = client.tasks(0).await else { return };
        let is_other = |kind: &str| !self.kinds.contains(&kind);
        let others = work.live.iter().filter(|task| is_other(&task.kind)).count() as u64;
        if others == 0 {
            return;
        }
        self.told = true;
        show::say(&text(&self.kinds, others));
    }
}

fn text(kinds: &[&str], others: u64) -> String {
    let count = group::count(others, "task waits", "tasks wait");
    let remedy = if kinds.contains(&LINE) {
        "a program that knows their kind must join, or tenure cancel must end them"
    } else {
        "others submitted them; --accept-submitted has CMD run for them here, tenure cancel ends them"
    };
    format!("{count} that this process does not run, and no other takes: {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_told_with_what_to_do() {
        assert!(text(&["file"], 1).starts_with("1 task waits that this process does not run"));
        assert!(text(&["file"], 2).contains("--accept-submitted"));
        assert!(!text(&["command"], 2).contains("--accept-submitted"));
    }
}
