//! `tenure watch`

use std::process::ExitCode;

use futures_util::StreamExt;
use tenure::store::Fault;
use tenure::{ElectionState, Error};

use crate::args::Watch;
use crate::exit::{self, Ending};
use crate::session::Session;
use crate::show;
use crate::signals::{Asked, Signals};

pub(crate) async fn watch(session: &Session, wanted: &Watch) -> Ending {
    let opened = session.open().await?;
    let election = session.election(&opened.backend, &wanted.target.election)?;
    // If the store does not serve now, fail. If it stops serving later, wait.
    election.standing().await?;
    let mut observer = election.observe()?;
    let mut signals = Signals::listen()?;
    loop {
        let seen = tokio::select! {
            seen = observer.next() => seen,
            asked = signals.next() => match asked {
                Asked::Stop(_) | Asked::PassOn(_) => return Ok(ExitCode::SUCCESS),
                Asked::Mention(_) | Asked::StepDown | Asked::Resume => continue,
            },
        };
        match seen {
            None => return Err(Error::Stopped.into()),
            Some(Ok(standing)) => {
                session.print_with_time(&standing, &opened.backend)?;
                if standing.state == ElectionState::Ended {
                    return Ok(ExitCode::from(exit::NOT_LED));
                }
            }
            Some(Err(error)) if passes(&error) => show::say(&show::chain(&error.into())),
            Some(Err(error)) => return Err(error.into()),
        }
    }
}

/// Returns true if waiting may help.
///
/// The store may serve again, or a user may repair the record.
fn passes(error: &Error) -> bool {
    if let Error::Store(error) = error {
        return matches!(error.fault, Fault::Unavailable | Fault::Indeterminate);
    }
    matches!(error, Error::Record { .. })
}
