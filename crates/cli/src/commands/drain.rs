//! `tenure drain`

use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use tenure_cluster::{ClusterClient, Life, MemberId};

use super::group;
use crate::args::Drain;
use crate::exit::{Ending, Failure, NOT_LED};
use crate::session::Session;
use crate::show;
use crate::signals::{Asked, Signals};

/// The pause between two checks whether the drain is done.
const PAUSE: Duration = Duration::from_millis(250);

#[derive(Serialize)]
struct Drained {
    group: String,
    /// The members that were asked; `None` if the whole group is paused or resumed.
    members: Option<Vec<String>>,
    paused: bool,
    done: bool,
}

pub(crate) async fn drain(session: &Session, wanted: &Drain) -> Ending {
    let opened = session.open().await?;
    let (client, _) = group::existing(session, &opened.backend, &wanted.group.group).await?;
    let (asked, paused) = match (&wanted.member, wanted.resume) {
        (None, true) => {
            client.resume().await?;
            (None, false)
        }
        (None, false) => {
            client.pause().await?;
            (None, true)
        }
        (Some(member), _) => {
            let asked = client.drain_member(member).await?;
            if asked.is_empty() {
                let says = format!("{member:?} is no member of the group {}", client.name());
                return Err(Failure::new(NOT_LED, anyhow::anyhow!(says)));
            }
            (Some(asked), false)
        }
    };
    let waited = if wanted.wait { wait(&client, asked.as_deref()).await? } else { None };
    if session.json {
        let members =
            asked.as_ref().map(|asked| asked.iter().map(ToString::to_string).collect::<Vec<_>>());
        let (group, done) = (client.name().to_string(), wanted.wait && waited.is_none());
        show::print_json(&Drained { group, members, paused, done })?;
    } else {
        show::print(told(asked.as_deref(), paused, wanted.wait && waited.is_none()))?;
    }
    Ok(waited.map_or(ExitCode::SUCCESS, ExitCode::from))
}

fn told(asked: Option<&[MemberId]>, paused: bool, done: bool) -> String {
    match (asked, paused) {
        (Some(asked), _) => {
            let members = group::count(asked.len() as u64, "member", "members");
            let what = if done { "left" } else { "asked to leave" };
            format!("{members} {what}")
        }
        (None, true) if done => "paused, and nothing runs any more".to_owned(),
        (None, true) => "paused: nothing more is handed out".to_owned(),
        (None, false) => "goes on".to_owned(),
    }
}

/// Waits until the members have left, or no task runs. Returns an exit code if interrupted.
async fn wait(client: &ClusterClient, asked: Option<&[MemberId]>) -> Result<Option<u8>, Failure> {
    let mut signals = Signals::listen()?;
    loop {
        let done = match asked {
            Some(asked) => {
                let members = client.members().await?.items;
                let stays = |id: &MemberId| {
                    let mut members = members.iter();
                    members.any(|member| member.id == *id && !matches!(member.life, Life::Left(_)))
                };
                !asked.iter().any(stays)
            }
            None => {
                let totals = client.totals().await?;
                totals.running + totals.outstanding == 0
            }
        };
        if done {
            return Ok(None);
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            asked = signals.next() => if let Asked::Stop(signal) | Asked::PassOn(signal) = asked {
                return Ok(Some(128 + u8::try_from(signal.as_raw()).unwrap_or(0)));
            },
        }
    }
}
