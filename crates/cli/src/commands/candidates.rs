//! `tenure candidates`

use std::process::ExitCode;

use serde::Serialize;
use tenure::{ElectionState, Registered};

use crate::args::Candidates;
use crate::exit::{self, Ending};
use crate::session::Session;
use crate::show::{self, Colour, ValueJson, paint};

#[derive(Serialize)]
struct Listed {
    election: String,
    candidates: Vec<Listing>,
}

#[derive(Serialize)]
struct Listing {
    id: String,
    name: String,
    #[serde(flatten)]
    value: ValueJson,
    since_ms: Option<u64>,
    position: Option<usize>,
    leads: bool,
    stale: bool,
}

pub(crate) async fn candidates(session: &Session, wanted: &Candidates) -> Ending {
    let opened = session.open().await?;
    let election = session.election(&opened.backend, &wanted.target.election)?;
    let standing = election.standing().await?;
    if standing.state == ElectionState::Missing {
        session.print(&standing, &opened.backend)?;
        return Ok(ExitCode::from(exit::NOT_LED));
    }
    let mut found = election.candidates().await?;
    let leader = standing.leader.filter(|_| standing.state == ElectionState::Led);
    let leads =
        |candidate: &Registered| leader.as_ref().is_some_and(|leader| leader.id == candidate.id);
    // Candidates for a lease stand in no line: the leader comes first, then the oldest candidacy.
    if opened.backend.queue().is_none() {
        found.sort_by_key(|candidate| (!leads(candidate), candidate.since));
    }
    if session.json {
        let candidates = found.iter().map(|candidate| Listing {
            id: candidate.id.to_string(),
            name: candidate.name.to_string(),
            value: ValueJson::of(&candidate.value),
            since_ms: candidate.since,
            position: candidate.position,
            leads: leads(candidate),
            stale: candidate.stale,
        });
        let candidates = candidates.collect();
        show::print_json(&Listed { election: election.name().to_string(), candidates })?;
        return Ok(ExitCode::SUCCESS);
    }
    let name = |candidate: &Registered| show::escape(&candidate.name);
    let width = found.iter().map(|found| name(found).chars().count()).max().unwrap_or(0);
    for candidate in &found {
        let part = match (leads(candidate), candidate.stale) {
            (true, _) => paint(Colour::Green, "leads"),
            (false, true) => paint(Colour::Dim, "stale"),
            (false, false) => "     ".into(),
        };
        let since = candidate.since.map(show::time).filter(|since| !since.is_empty());
        let since = since.map_or_else(String::new, |since| format!("  since {since}"));
        let value = show::value(&candidate.value);
        let gap = if value.is_empty() { "" } else { "  " };
        let place = candidate.position.map_or_else(String::new, |place| format!("{place:>4}  "));
        show::print(format_args!("{place}{:width$}  {part}{since}{gap}{value}", name(candidate)))?;
    }
    Ok(ExitCode::SUCCESS)
}
