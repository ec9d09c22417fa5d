//! Commands about the program, the machine and the store.

use clap::{Args, Subcommand};

use super::run::RunOptions;

/// Show the settings, and where each comes from
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  $ TENURE_TTL=5s tenure config show
  ttl = 5s                     TENURE_TTL
  grace                        default
  …

Exit codes: 0 success; 2 usage; 78 the file is refused")]
pub(crate) struct Config {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every setting, its value, and where it comes from
    Show(Box<ConfigShow>),
}

#[derive(Debug, Args)]
pub(crate) struct ConfigShow {
    #[command(flatten)]
    pub(crate) options: RunOptions,
}

/// Check whether the store is reachable and safe
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  $ tenure doctor --store file:///srv/tenure
  ok    store          file:///srv/tenure opened in 0.3 ms
  ok    round trip     0.05 ms to read (median of 9), 2.1 ms to write
  …

Exit codes: 0 all is well; 2 usage; 69 store unreachable; 77 not allowed; 78 something is wrong")]
pub(crate) struct Doctor {}

/// Watch a take-over: a few candidates on this machine, and the leader is killed
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tenure demo --candidates 5

Exit codes: 0 the next one took over; 125 it did not")]
pub(crate) struct Demo {
    /// How many candidates stand
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=20))]
    pub(crate) candidates: u8,
}

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tenure completions bash > /etc/bash_completion.d/tenure

Exit codes: 0 success; 2 usage")]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}
