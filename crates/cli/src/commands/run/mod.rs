//! `tenure run`: leads, and runs CMD or handlers while leading.
//!
//! It waits, leads, runs them, stops them in time, and releases.

mod child;
mod console;
mod dry;
mod handlers;
mod lead;
mod place;
mod steered;
mod unproven;
mod wanted;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tenure::reconcile::{ElectionSource, Identity};
use tenure::{Candidate, Election, ElectionState};
use tenure_stores::Opened;

use self::child::Runner;
use self::console::Console;
use self::handlers::{Handled, Handlers};
use self::place::Place;
use self::steered::Steered;
use self::wanted::{Doing, Patience, Wanted, last_in_line};
use crate::args::{Run, RunOptions, Settings};
use crate::config::Origins;
use crate::exit::{self, Ending, Failure, USAGE};
use crate::mandate_file::MandateFile;
use crate::opening::{self, Opening};
use crate::session::{self, Session};
use crate::show;
use crate::signals::Signals;
use crate::systemd::Systemd;

pub(crate) async fn run(mut settings: Settings, origins: &Origins, run: Run) -> Ending {
    let Run { election, options, dry_run, command } = run;
    let wanted = Wanted::of(&options, command, origins)?;
    let doing = wanted.doing(&options, origins)?;
    let election = match place::place(&options.elector, &mut settings, election, origins)? {
        Place::Console { election } => {
            if doing == Doing::Child {
                return usage("the console is there to try handlers out; CMD needs a store");
            }
            return at_the_console(&settings, &options, election, dry_run).await;
        }
        Place::Store { election } => election,
    };
    let session = Session::new(settings, origins)?;
    let candidate = session.candidate(&options.waiting.value)?;
    if dry_run {
        return dry::describe(&session, &candidate, &election, &options, &wanted.command);
    }
    let create = !options.waiting.no_create;
    let (wait, patient) =
        (options.waiting.opening.wait_for_store, wanted.patience == Patience::Endless);
    let attempt = async || session.open_with(session.timing.request(), None, create).await;
    let (mut opened, mut signals) = match opening::open(attempt, wait, patient).await? {
        Opening::Opened(opened, signals) => (*opened, signals),
        Opening::Interrupted(_) => return Ok(ExitCode::SUCCESS),
    };
    if doing == Doing::Handlers {
        opened.backend = unproven::unproven(&opened.backend);
    }
    session.mention_embedded("electing");
    session.mention_granted(&opened.backend);
    let mut builder = Election::builder(&opened.backend, &election)
        .timing(session.timing)
        .create_if_missing(create);
    if let Some(delay) = options.waiting.lock_delay {
        builder = builder.lock_delay(delay);
    }
    let Ok(election) = signals.unless_interrupted(builder.open()).await else {
        return Ok(ExitCode::SUCCESS);
    };
    let election = election?;
    match doing {
        Doing::Child => {
            let systemd = Systemd::of_this_process();
            let session = &session;
            Runner { session, wanted, candidate, opened, election, signals, systemd }.rounds().await
        }
        Doing::Handlers => {
            with_handlers(&options, &wanted, candidate, opened, election, signals).await
        }
    }
}

/// Runs handlers for an election.
async fn with_handlers(
    options: &RunOptions,
    wanted: &Wanted,
    candidate: Candidate,
    opened: Opened,
    election: Election,
    signals: Signals,
) -> Ending {
    let now_or_never = wanted.patience == Patience::None;
    if now_or_never && election.standing().await?.state == ElectionState::Led {
        return Ok(wanted.conflict_exit_code.into());
    }
    let mandate_file = match MandateFile::new() {
        Ok(file) => Some(Arc::new(file)),
        Err(error) => {
            tracing::warn!(%error, "handlers run without TENURE_MANDATE");
            None
        }
    };
    let handlers = Handlers {
        options: &options.handlers,
        dry_run: false,
        patience: wanted.patience.span(election.timing()),
        conflict_exit_code: wanted.conflict_exit_code,
        mandate_file: mandate_file.clone(),
        signals,
        systemd: Systemd::of_this_process(),
    };
    let reconciler = handlers.reconciler()?;
    let keep_away = last_in_line(election.timing());
    let mut source = ElectionSource::new(election, candidate);
    let (steered, steering) = Steered::new(&mut source, mandate_file, keep_away);
    let handled = handlers.run(&reconciler, steered, steering).await;
    let ended = source.ended_by().map(|error| show::chain(&error.clone().into()));
    drop(source);
    // If this process has just been elected, release the leadership before we exit.
    opened.backend.close().await;
    match handled? {
        Handled::Exit(code) => Ok(code.into()),
        Handled::SourceEnded => {
            show::say(&ended.unwrap_or_else(|| "the election is over".to_owned()));
            Ok(exit::NOT_LED.into())
        }
    }
}

/// Runs handlers for events that a user types.
async fn at_the_console(
    settings: &Settings,
    options: &RunOptions,
    election: String,
    dry_run: bool,
) -> Ending {
    let timing = session::timing(settings)?;
    let identity = Identity {
        election,
        id: session::name(settings.id.as_ref()),
        ttl: timing.ttl(),
        stop_budget: timing.grace(),
    };
    let handlers = Handlers {
        options: &options.handlers,
        dry_run,
        patience: None,
        conflict_exit_code: 0,
        mandate_file: None,
        signals: Signals::listen()?,
        systemd: Systemd::of_this_process(),
    };
    let reconciler = handlers.reconciler()?;
    let console = Console::new(identity, reconciler.states());
    let (source, steering) = Steered::new(console, None, Duration::ZERO);
    Ok(handlers.run(&reconciler, source, steering).await?.code())
}

fn usage(text: &'static str) -> Ending {
    Err(Failure::new(USAGE, anyhow::anyhow!(text)))
}
