//! `tenure cancel`

use std::collections::BTreeSet;
use std::process::ExitCode;

use serde::Serialize;
use tenure_cluster::{Cancellation, ClusterClient, GivenUp};

use super::group;
use crate::args::Cancel;
use crate::exit::{Ending, Failure, NOT_LED};
use crate::session::Session;
use crate::show;

#[derive(Default, Serialize)]
struct Cancelled {
    group: String,
    /// Tasks that no member worked on; they have ended.
    cancelled: u64,
    /// Tasks that a member works on; it was told to stop.
    asked: u64,
    /// Tasks that were lost, and are back.
    restored: u64,
    /// Tasks that were lost, and are given up.
    lost: u64,
    missing: Vec<String>,
}

pub(crate) async fn cancel(session: &Session, wanted: &Cancel) -> Ending {
    let opened = session.open().await?;
    let (client, _) = group::existing(session, &opened.backend, &wanted.group.group).await?;
    let cancelled = if wanted.lost {
        let GivenUp { restored, lost } = client.give_up_lost().await?;
        Cancelled { restored, lost, ..Cancelled::default() }
    } else {
        some(&client, &wanted.ids).await?
    };
    let cancelled = Cancelled { group: client.name().to_string(), ..cancelled };
    if session.json {
        show::print_json(&cancelled)?;
    } else {
        show::print(told(&cancelled, wanted.lost))?;
    }
    for id in &cancelled.missing {
        show::say(&format!("{id:?} is no task that waits or runs"));
    }
    Ok(if cancelled.missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(NOT_LED) })
}

fn told(cancelled: &Cancelled, lost: bool) -> String {
    if lost {
        let lost = group::count(cancelled.lost, "lost task", "lost tasks");
        return match cancelled.restored {
            0 => format!("{lost} given up"),
            restored => format!("{lost} given up, {restored} restored"),
        };
    }
    let mut text = format!("{} cancelled", group::count(cancelled.cancelled, "task", "tasks"));
    if cancelled.asked > 0 {
        text.push_str(&format!(", {} told to stop", cancelled.asked));
    }
    text
}

/// Cancels the tasks with these numbers and names.
async fn some(client: &ClusterClient, ids: &[String]) -> Result<Cancelled, Failure> {
    let live = client.tasks(0).await?;
    group::mention(&live.garbled);
    let (mut serials, mut cancelled) = (BTreeSet::new(), Cancelled::default());
    for id in ids {
        // A word that is a number means the task with that number; if there is none, the task with
        // that name.
        let numbered = live.live.iter().filter(|task| task.serial.to_string() == *id);
        let mut meant: Vec<u64> = numbered.map(|task| task.serial).collect();
        if meant.is_empty() {
            let named = live.live.iter().filter(|task| task.id == *id);
            meant.extend(named.map(|task| task.serial));
        }
        if meant.is_empty() {
            cancelled.missing.push(id.clone());
        }
        serials.extend(meant);
    }
    for serial in serials {
        match client.cancel(serial).await? {
            Cancellation::Cancelled => cancelled.cancelled += 1,
            Cancellation::Asked => cancelled.asked += 1,
            // The task ended meanwhile.
            Cancellation::NotFound => cancelled.missing.push(serial.to_string()),
        }
    }
    Ok(cancelled)
}
