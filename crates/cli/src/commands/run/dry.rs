//! `--dry-run`: shows the commands that would be run.

use std::ffi::OsString;
use std::process::ExitCode;

use tenure::Candidate;

use crate::args::RunOptions;
use crate::exit::Ending;
use crate::redact;
use crate::session::Session;
use crate::show;

/// Prints the election and the commands. The store is not touched.
pub(super) fn describe(
    session: &Session,
    candidate: &Candidate,
    election: &str,
    options: &RunOptions,
    command: &[OsString],
) -> Ending {
    show::print(format_args!(
        "would stand in {} as {}, at {}, with a ttl of {} and a grace of {}",
        show::escape(election),
        show::escape(candidate.name()),
        show::escape(&session.location.to_string()),
        show::span(session.asked().unwrap_or(session.timing.ttl())),
        show::span(session.grace()),
    ))?;
    if session.asked().is_some() {
        show::print("the server may grant another ttl; `tenure doctor` says which")?;
    }
    let handlers = &options.handlers;
    for (step, text) in [
        ("begin", &handlers.leader_begin_command),
        ("end", &handlers.leader_end_command),
        ("error", &handlers.error_command),
        ("stuck", &handlers.on_stuck),
    ] {
        if let Some(text) = text {
            show::print(format_args!("would run ({step}): {}", show::escape(&redact::text(text))))?;
        }
    }
    if !command.is_empty() {
        let redacted = |word: &OsString| format!("{:?}", redact::text(&word.to_string_lossy()));
        let words: Vec<String> = command.iter().map(redacted).collect();
        show::print(format_args!("would run: {}", words.join(" ")))?;
    }
    Ok(ExitCode::SUCCESS)
}
