//! `tenure create`, `tenure end` and `tenure delete`

use std::process::ExitCode;

use tenure::{Election, ElectionState};

use crate::args::{Create, Delete, End};
use crate::exit::{Ending, Failure, NOT_LED};
use crate::session::Session;
use crate::show;

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
    if !wanted.force && election.standing().await?.state == ElectionState::Missing {
        let text = format!(
            "there is no election {}; --force ends it all the same, for those who come later",
            show::escape(&wanted.target.election)
        );
        return Err(Failure::new(NOT_LED, anyhow::anyhow!(text)));
    }
    election.end().await?;
    session.print(&election.standing().await?, &opened.backend)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn delete(session: &Session, wanted: &Delete) -> Ending {
    let opened = session.open().await?;
    let election = session.election(&opened.backend, &wanted.target.election)?;
    let before = election.standing().await?;
    election.delete().await?;
    let now = election.standing().await?;
    // After a deletion say that it worked, and not that there is no such election.
    if !session.json
        && before.state != ElectionState::Missing
        && now.state == ElectionState::Missing
    {
        show::print("deleted")?;
    } else {
        session.print(&now, &opened.backend)?;
    }
    Ok(ExitCode::SUCCESS)
}
