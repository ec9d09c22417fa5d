//! `tenure list`

use std::process::ExitCode;

use serde::Serialize;
use tenure::Election;

use crate::exit::Ending;
use crate::session::Session;
use crate::show::{self, StandingJson};

#[derive(Serialize)]
struct Listed {
    elections: Vec<StandingJson>,
}

pub(crate) async fn list(session: &Session) -> Ending {
    let opened = session.open().await?;
    let found = Election::list(&opened.backend).await?;
    let wall = opened.backend.clock().wall();
    if session.json {
        let elections = found.iter().map(|standing| StandingJson::of(standing, wall)).collect();
        show::print_json(&Listed { elections })?;
        return Ok(ExitCode::SUCCESS);
    }
    let names: Vec<String> =
        found.iter().map(|standing| show::escape(standing.election.as_str())).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    for (standing, name) in found.iter().zip(names) {
        show::print(format_args!("{name:width$}  {}", show::standing(standing, wall)))?;
    }
    Ok(ExitCode::SUCCESS)
}
