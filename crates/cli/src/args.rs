//! The command line: raw arguments, checked where clap can.

use std::ffi::OsString;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand, ValueHint};

use crate::exit;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default());

/// Leader election on the store you already run.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, styles = STYLES, max_term_width = 100)]
#[command(after_help = exit::ALL, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) settings: Settings,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The same on every command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Settings")]
pub(crate) struct Settings {
    /// Where elections are held: file:///absolute/directory or memory: [default: a directory of this
    /// user's, for elections among this machine's processes]
    #[arg(long, global = true, env = "TENURE_STORE", value_name = "URL", hide_env_values = true)]
    pub(crate) store: Option<String>,

    /// How long a leader that was cut off blocks the others
    #[arg(long, global = true, env = "TENURE_TTL", value_name = "DURATION", default_value = "15s")]
    #[arg(value_parser = duration)]
    pub(crate) ttl: Duration,

    /// The candidate's name, for people [default: the host name]
    #[arg(long, global = true, env = "TENURE_ID", value_name = "NAME", alias = "instance-id")]
    pub(crate) id: Option<String>,

    /// How long work may take to stop, out of the ttl [default: what the ttl leaves, 2.4s of 15s]
    #[arg(long, global = true, env = "TENURE_GRACE", value_name = "DURATION")]
    #[arg(value_parser = duration)]
    pub(crate) grace: Option<Duration>,

    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Log what happens to standard error; twice for more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Who(Who),
    Watch(Watch),
    Candidates(Candidates),
    List(List),
    Create(Create),
    End(End),
    Delete(Delete),
    Doctor(Doctor),
    Demo(Demo),
    Completions(Completions),
}

/// Wait to lead ELECTION, run CMD while leading, stop it before anyone else can lead
///
/// CMD finds TENURE_ELECTION, TENURE_ID, TENURE_TOKEN and TENURE_TTL_MS in its environment. Hand the
/// token to whatever CMD writes to, and let that refuse smaller ones. When leadership is lost, CMD and
/// everything it has started get TERM, and KILL before the lease can expire.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: however many processes of this machine try, one report is made at a time
  tenure run reports/nightly --store file:///srv/tenure -- make-report --all

Signals: TERM and INT stop CMD and release the leadership; a second INT kills at once. HUP, QUIT, \
USR2 and WINCH are passed on. USR1 steps down and stands again.

Exit codes: CMD's own (128 + n if signal n ended it); 0 when interrupted while waiting; 1 not elected \
in time, or the election has ended; 2 usage; 4 CMD succeeded, but the store did not say whether the \
leadership was released; 69 store unreachable; 75 leadership lost; 77 not allowed; 78 refused; 125 \
tenure itself failed; 126 CMD cannot be run; 127 CMD not found")]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) target: Target,

    /// Do not wait: exit unless elected at once
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) nonblock: bool,

    /// Wait at most so long to be elected
    #[arg(short, long, value_name = "DURATION", value_parser = duration)]
    pub(crate) wait: Option<Duration>,

    /// The exit code when not elected in time
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = exit::NOT_LED)]
    pub(crate) conflict_exit_code: u8,

    /// Stand again when CMD has ended, or leadership was lost
    #[arg(long)]
    pub(crate) keep: bool,

    /// What this candidate publishes, such as its address
    #[arg(
        long,
        env = "TENURE_VALUE",
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) value: String,

    /// How long a successor waits after a leadership that did not end by a clean release
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) lock_delay: Option<Duration>,

    /// Fail if the election does not exist
    #[arg(long)]
    pub(crate) no_create: bool,

    /// What to run while leading
    #[arg(last = true, required = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Which election.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The election: 1 to 8 segments joined by `/`
    #[arg(value_name = "ELECTION")]
    pub(crate) election: String,
}

/// Show who leads ELECTION
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  $ tenure who reports/nightly
  led by host-a, token 7, for another 11.2s

Exit codes: 0 somebody leads; 1 nobody does; 2 usage; 69 store unreachable; 77 not allowed; 78 refused")]
pub(crate) struct Who {
    #[command(flatten)]
    pub(crate) target: Target,
}

/// Follow ELECTION: one line for each change, until it ends
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  $ tenure watch reports/nightly
  free
  led by host-a, token 8, for another 14.9s

Exit codes: 0 interrupted; 1 the election has ended; 2 usage; 69 store unreachable; 77 not allowed; 78 \
refused")]
pub(crate) struct Watch {
    #[command(flatten)]
    pub(crate) target: Target,
}

/// Show who stands in ELECTION
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  $ tenure candidates reports/nightly
  host-a  leads  since 2026-01-31T12:00:00Z  10.0.0.7:8080
  host-b         since 2026-01-31T12:00:04Z

Exit codes: 0 success; 1 there is no such election; 2 usage; 69 store unreachable; 77 not allowed; 78 \
refused")]
pub(crate) struct Candidates {
    #[command(flatten)]
    pub(crate) target: Target,
}

/// List the elections of this store
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  $ tenure list
  reports/nightly  led by host-a, token 8, for another 14.9s
  reports/weekly   free

Exit codes: 0 success; 2 usage; 69 store unreachable; 77 not allowed; 78 refused")]
pub(crate) struct List {}

/// Create ELECTION, or begin it again after its end
#[derive(Debug, Args)]
#[command(after_help = "\
Example: an election whose next leader waits a minute after a crash
  tenure create reports/nightly --lock-delay 1m

Exit codes: 0 it exists now; 2 usage; 69 store unreachable; 77 not allowed; 78 refused")]
pub(crate) struct Create {
    #[command(flatten)]
    pub(crate) target: Target,

    /// How long a successor waits after a leadership that did not end by a clean release
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) lock_delay: Option<Duration>,
}

/// End ELECTION for all its candidates, until it is created again
#[derive(Debug, Args)]
#[command(after_help = "\
Example: no report tonight
  tenure end reports/nightly

Exit codes: 0 it has ended, or did not exist; 2 usage; 4 the store did not say; 69 store unreachable; 77 \
not allowed; 78 refused")]
pub(crate) struct End {
    #[command(flatten)]
    pub(crate) target: Target,
}

/// End ELECTION and forget it, but for its token
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tenure delete reports/nightly

Exit codes: 0 it is gone; 2 usage; 4 the store did not say; 69 store unreachable; 77 not allowed; 78 \
refused")]
pub(crate) struct Delete {
    #[command(flatten)]
    pub(crate) target: Target,
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
    /// How many stand
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
    /// Which shell
    pub(crate) shell: clap_complete::Shell,
}

/// Reads a duration as people write it.
fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; write for example 15s or 2m"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_declaration_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example_and_its_exit_codes() {
        for command in Arguments::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{}", command.get_name());
            assert!(help.contains("Exit codes"), "{}", command.get_name());
        }
    }

    #[test]
    fn settings_may_stand_before_or_after_the_command() {
        for line in [
            ["tenure", "--ttl", "5s", "who", "a"],
            ["tenure", "who", "--ttl", "5s", "a"],
            ["tenure", "who", "a", "--ttl", "5s"],
        ] {
            let arguments = Arguments::try_parse_from(line).expect("understood");
            assert_eq!(arguments.settings.ttl, Duration::from_secs(5));
        }
    }
}
