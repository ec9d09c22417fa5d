//! The tenure program: leader election on the store you already run.

mod args;
mod commands;
mod conceal;
mod config;
mod escape;
mod exit;
mod mandate_file;
mod opening;
mod redact;
mod secrets;
mod session;
mod show;
mod signals;
mod supervise;
mod systemd;

use std::ffi::OsString;
use std::process::ExitCode;

use crate::config::Misunderstood;
use crate::exit::Failure;

fn main() -> ExitCode {
    conceal::from_others();
    let mut words = std::env::args_os().skip(1);
    match words.next().as_deref().and_then(|first| first.to_str()) {
        Some(supervise::GUARDIAN) => return supervise::guard(words),
        Some(supervise::STAGE) => return supervise::stage(words),
        _ => {}
    }
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let passwords = conceal::passwords();
    tenure_stores::provide_passwords(
        passwords.get(tenure_stores::PASSWORD_VARIABLE),
        passwords.get(tenure_stores::API_KEY_VARIABLE),
    );
    let understood = match config::understand(words.clone(), &passwords) {
        Ok(understood) => understood,
        Err(Misunderstood::Line(error)) => return tell(&error, &words),
        Err(Misunderstood::File(failure)) => return report(&failure),
    };
    if let Err(failure) = conceal::check() {
        return report(&failure);
    }
    let settings = &understood.arguments.settings;
    show::log_to_stderr(settings.verbose, settings.log_format);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&error.into()),
    };
    let ending = runtime.block_on(commands::execute(understood));
    // Do not wait for a thread that is stuck on a disk that does not answer.
    runtime.shutdown_background();
    ending.unwrap_or_else(|failure| report(&failure))
}

/// Prints the error in the command line, or the help that was asked for.
fn tell(error: &clap::Error, words: &[OsString]) -> ExitCode {
    if error.use_stderr() {
        // The error quotes the command line, and a URL in the wrong place is still a secret.
        let text = error.render();
        let shown = if show::colours(&std::io::stderr()) {
            text.ansi().to_string()
        } else {
            text.to_string()
        };
        eprint!("{}", escape::line(&redact::usage(error, words, &shown)));
    } else {
        // If the reader closes the pipe before the end of the help, that is no failure.
        let _ = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(exit::USAGE))
}

fn report(failure: &Failure) -> ExitCode {
    if failure.is_closed_output() {
        // The reader of our output closed it, which is no failure.
        return ExitCode::SUCCESS;
    }
    // A store's error text comes from elsewhere: escape it, so that it cannot drive the terminal.
    show::say(&show::chain(&failure.error));
    ExitCode::from(failure.code)
}
