//! `tenure create`, `tenure end` and `tenure delete`

use std::process::ExitCode;

use tenure::Election;

use crate::args::{Create, Delete, End};
use crate::exit::Ending;
use crate::session::Session;

pub(crate) async fn create(session: &Session, wanted: &Create) -> Ending {
    let opened = session.open().await?;
    let mut builder =
        Election::builder(&opened.backend, &wanted.target.election).timing(session.timing);
    if let Some(delay) = wanted.lock_delay {
        builder = builder.lock_delay(delay);
    }
    let election = builder.create().await?;
    session.print(&election.standing().await?, &opened.backend)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn end(session: &Session, wanted: &End) -> Ending {
    let opened = session.open().await?;
    let election = session.election(&opened.backend, &wanted.target.election)?;
    election.end().await?;
    session.print(&election.standing().await?, &opened.backend)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn delete(session: &Session, wanted: &Delete) -> Ending {
    let opened = session.open().await?;
    let election = session.election(&opened.backend, &wanted.target.election)?;
    election.delete().await?;
    session.print(&election.standing().await?, &opened.backend)?;
    Ok(ExitCode::SUCCESS)
}
