//! `tenure completions`

use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::args::{Arguments, Completions};
use crate::exit::Ending;

pub(crate) fn completions(wanted: &Completions) -> Ending {
    // Into memory first: the generator panics when its output is closed.
    let mut script = Vec::new();
    clap_complete::generate(wanted.shell, &mut Arguments::command(), "tenure", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
