//! The tenure program: leader election on the store you already run.

mod args;
mod commands;
mod exit;
mod session;
mod show;
mod signals;
mod supervise;

use std::process::ExitCode;

use clap::Parser;

use crate::args::Arguments;
use crate::exit::Failure;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next().as_deref().and_then(|first| first.to_str()) {
        Some(supervise::GUARDIAN) => return supervise::guard(arguments),
        Some(supervise::STAGE) => return supervise::stage(arguments),
        _ => {}
    }
    let arguments = Arguments::parse();
    show::log_to_stderr(arguments.settings.verbose);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&error.into()),
    };
    let ending = runtime.block_on(commands::execute(arguments));
    // A thread that waits for a disk which does not answer must not keep us here.
    runtime.shutdown_background();
    ending.unwrap_or_else(|failure| report(&failure))
}

fn report(failure: &Failure) -> ExitCode {
    if failure.is_closed_output() {
        // Whoever read our output has seen enough.
        return ExitCode::SUCCESS;
    }
    // What a store says is not ours: it must not drive the terminal.
    show::say(&show::chain(&failure.error));
    ExitCode::from(failure.code)
}
