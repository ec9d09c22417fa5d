//! `tenure who`

use std::process::ExitCode;

use tenure::ElectionState;

use crate::args::Who;
use crate::exit::{self, Ending};
use crate::session::Session;

pub(crate) async fn who(session: &Session, wanted: &Who) -> Ending {
    let opened = session.open().await?;
    let election = session.election(&opened.backend, &wanted.target.election)?;
    let standing = election.standing().await?;
    session.print(&standing, &opened.backend)?;
    let led = standing.state == ElectionState::Led;
    Ok(if led { ExitCode::SUCCESS } else { ExitCode::from(exit::NOT_LED) })
}
