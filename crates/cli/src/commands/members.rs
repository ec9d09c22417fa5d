//! `tenure members`

use std::process::ExitCode;

use serde::Serialize;
use tenure_cluster::{Life, MemberView};

use super::group;
use crate::args::Members;
use crate::exit::Ending;
use crate::session::Session;
use crate::show::{self, Colour, paint};

#[derive(Serialize)]
struct Listed {
    group: String,
    members: Vec<MemberJson>,
}

#[derive(Serialize)]
struct MemberJson {
    id: String,
    name: String,
    state: &'static str,
    workers: u32,
    idle: u32,
    finished: u64,
}

pub(crate) async fn members(session: &Session, wanted: &Members) -> Ending {
    let opened = session.open().await?;
    let (client, _) = group::existing(session, &opened.backend, &wanted.group.group).await?;
    let members = client.members().await?;
    group::mention(&members.garbled);
    if session.json {
        let members = members.items.iter().map(MemberJson::of).collect();
        show::print_json(&Listed { group: client.name().to_string(), members })?;
        return Ok(ExitCode::SUCCESS);
    }
    let name = |member: &MemberView| show::escape(&member.name);
    let width = members.items.iter().map(|member| name(member).chars().count()).max().unwrap_or(0);
    for member in &members.items {
        let MemberJson { id, state, workers, idle, finished, .. } = MemberJson::of(member);
        let colour = if state == "alive" { Colour::Green } else { Colour::Yellow };
        let (name, state) = (name(member), paint(colour, state));
        show::print(format_args!(
            "{name:width$}  {id}  {state}  {idle} of {} idle, {finished} finished",
            group::count(workers.into(), "worker", "workers")
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl MemberJson {
    fn of(member: &MemberView) -> MemberJson {
        let state = match &member.life {
            _ if member.dead => "dead",
            Life::Left(_) => "left",
            Life::Late(_) => "late",
            Life::Unknown => "unknown",
            Life::Alive(_) if member.draining => "draining",
            Life::Alive(_) => "alive",
        };
        MemberJson {
            id: member.id.to_string(),
            name: member.name.clone(),
            state,
            workers: member.workers,
            idle: member.idle(),
            finished: member.finished(),
        }
    }
}
