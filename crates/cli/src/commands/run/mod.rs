//! `tenure run`: wait, lead, run CMD or handlers while leading, stop them in time, release.

mod child;
mod lead;
mod place;
mod secrets;
mod wanted;

use tenure::Election;

use self::child::Runner;
use self::place::Place;
use self::wanted::{Wanted, has_handlers};
use crate::args::{Run, Settings};
use crate::config::Origins;
use crate::exit::{Ending, Failure, USAGE};
use crate::session::Session;
use crate::show;
use crate::signals::Signals;
use crate::systemd::Systemd;

pub(crate) async fn run(mut settings: Settings, origins: &Origins, run: Run) -> Ending {
    let Run { election, options, dry_run, command } = run;
    let wanted = Wanted::of(&options, command, origins)?;
    let handlers = has_handlers(&options.handlers);
    match (handlers, wanted.command.is_empty()) {
        (true, false) => return usage("there are both handlers and CMD; one of them must do"),
        (false, true) => return usage("there is nothing to run: write `-- CMD`, or name handlers"),
        (true, true) | (false, false) => {}
    }
    let election = match place::place(&options.elector, &mut settings, election, origins)? {
        Place::Console { .. } => return usage("not yet"),
        Place::Store { election } => election,
    };
    let _ = dry_run;
    let session = Session::new(settings, origins)?;
    let candidate = session.candidate(&options.waiting.value)?;
    let opened = session.open().await?;
    if session.embedded {
        show::say(&format!(
            "no --store given: electing among this machine's processes only, in {}",
            session.location
        ));
    }
    let mut builder = Election::builder(&opened.backend, &election)
        .timing(session.timing)
        .create_if_missing(!options.waiting.no_create);
    if let Some(delay) = options.waiting.lock_delay {
        builder = builder.lock_delay(delay);
    }
    let election = builder.open().await?;
    let signals = Signals::listen()?;
    let systemd = Systemd::of_this_process();
    Runner { session: &session, wanted, candidate, opened, election, signals, systemd }
        .rounds()
        .await
}

fn usage(text: &'static str) -> Ending {
    Err(Failure::new(USAGE, anyhow::anyhow!(text)))
}
