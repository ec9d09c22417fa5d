//! The command line: raw arguments, checked where clap can.

mod sharing;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use rustix::process::Signal;

pub(crate) use sharing::{Cancel, Drain, EachTask, Members, Retry, Share, Submit, Tasks};

use crate::exit;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default());

/// Leader election and work sharing on the store you already run.
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
    /// The store: file:///absolute/directory, etcd://host/prefix, zookeeper://, mongodb://, rethinkdb://,
    /// elasticsearch+http://, opensearch+http:// or memory: [default: a directory of this user's, for this
    /// machine's processes]
    #[arg(long, global = true, env = "TENURE_STORE", value_name = "URL", hide_env_values = true)]
    pub(crate) store: Option<String>,

    /// A file that holds the store's URL, for one with a password in it
    #[arg(long, global = true, env = "TENURE_STORE_FILE", value_name = "FILE")]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) store_file: Option<PathBuf>,

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

    /// A TOML file with these same names [default: $XDG_CONFIG_HOME/tenure/config.toml, then
    /// /etc/tenure/config.toml]
    #[arg(long, global = true, env = "TENURE_CONFIG", value_name = "FILE")]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,

    /// Print JSON
    #[arg(long, global = true, env = "TENURE_JSON", value_parser = FalseyValueParser::new())]
    pub(crate) json: bool,

    /// How the log on standard error looks
    #[arg(long, global = true, env = "TENURE_LOG_FORMAT", value_name = "FORMAT")]
    #[arg(value_enum, default_value_t)]
    pub(crate) log_format: LogFormat,

    /// Log what happens to standard error; twice for more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// How the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One object a line
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<Run>),
    Who(Who),
    Watch(Watch),
    Feed(Feed),
    Share(Box<Share>),
    Tasks(Tasks),
    Members(Members),
    Submit(Submit),
    Retry(Retry),
    Cancel(Cancel),
    Drain(Drain),
    Candidates(Candidates),
    List(List),
    Create(Create),
    End(End),
    Delete(Delete),
    Doctor(Doctor),
    Demo(Demo),
    Config(Config),
    Completions(Completions),
}

/// Wait to lead ELECTION, run CMD while leading, stop it before anyone else can lead
///
/// CMD finds TENURE_ELECTION, TENURE_ID, TENURE_TOKEN, TENURE_TTL_MS and TENURE_MANDATE (a file that says how
/// long it may go on) in its environment. Hand the token to whatever CMD writes to, and let that refuse
/// smaller ones. When leadership is lost, CMD and everything it has started get TERM, and KILL before
/// the lease can expire. Instead of CMD, commands for the beginning and the end of a leadership may be given.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples: however many processes of this machine try, one report is made at a time
  tenure run reports/nightly --store file:///srv/tenure -- make-report --all
a nightly job on three hosts, whose clocks differ by less than ten minutes, is run once
  tenure run reports/nightly --nonblock --hold 10m -- make-report
a service that is started and stopped by commands
  tenure run db/primary --leader-begin-command 'ip addr add 10.0.0.9/24 dev eth0' \\
      --leader-end-command 'ip addr del 10.0.0.9/24 dev eth0'
the same commands, tried out without any store: type LEADER, NOTLEADER or ERROR
  tenure run --backend console --leader-begin-command 'echo up' --leader-end-command 'echo down'

Signals: TERM and INT stop CMD and release the leadership; a second INT kills at once. HUP, QUIT, \
USR2 and WINCH are passed on. USR1 steps down and stands again.

Exit codes: CMD's own (128 + n if signal n ended it); 0 when interrupted while waiting, or when \
handlers were stopped; 1 not elected in time, or the election has ended; 2 usage; 4 CMD succeeded, but \
the store did not say whether the leadership was released; 69 store unreachable; 70 the end command \
failed for good; 75 leadership lost; 77 not allowed; 78 refused; 125 tenure itself failed; 126 CMD \
cannot be run; 127 CMD not found")]
pub(crate) struct Run {
    /// The election: 1 to 8 segments joined by `/`; may be left out with `--backend console` and with
    /// `--etcd-keyspace`
    #[arg(value_name = "ELECTION")]
    pub(crate) election: Option<String>,

    #[command(flatten)]
    pub(crate) options: RunOptions,

    /// Say what would be run, and run nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// What to run while leading
    #[arg(last = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// What `run` can be told by flags, by the environment and by a file.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    pub(crate) waiting: Waiting,
    #[command(flatten)]
    pub(crate) child: ChildOptions,
    #[command(flatten)]
    pub(crate) handlers: HandlerOptions,
    #[command(flatten)]
    pub(crate) elector: ElectorOptions,
}

/// How to stand.
#[derive(Clone, Debug, Args)]
pub(crate) struct Waiting {
    /// Do not wait: exit unless elected at once
    #[arg(short, long, env = "TENURE_NONBLOCK", value_parser = FalseyValueParser::new())]
    pub(crate) nonblock: bool,

    /// Wait at most so long to be elected
    #[arg(short, long, env = "TENURE_WAIT", value_name = "DURATION", value_parser = duration)]
    pub(crate) wait: Option<Duration>,

    /// The exit code when not elected in time
    #[arg(short = 'E', long, env = "TENURE_CONFLICT_EXIT_CODE", value_name = "CODE")]
    #[arg(default_value_t = exit::NOT_LED)]
    pub(crate) conflict_exit_code: u8,

    /// What this candidate publishes, such as its address
    #[arg(long, env = "TENURE_VALUE", value_name = "TEXT", default_value = "")]
    #[arg(hide_default_value = true)]
    pub(crate) value: String,

    /// How long a successor waits after a leadership that did not end by a clean release
    #[arg(long, env = "TENURE_LOCK_DELAY", value_name = "DURATION", value_parser = duration)]
    pub(crate) lock_delay: Option<Duration>,

    /// Fail if the election does not exist
    #[arg(long, env = "TENURE_NO_CREATE", value_parser = FalseyValueParser::new())]
    pub(crate) no_create: bool,
}

/// What becomes of CMD.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "CMD")]
pub(crate) struct ChildOptions {
    /// Lead once, and exit as CMD does; the default
    #[arg(long, env = "TENURE_ONCE", value_parser = FalseyValueParser::new())]
    pub(crate) once: bool,

    /// Stand again when CMD has ended, or leadership was lost; after a pause that doubles while CMD fails
    #[arg(long, env = "TENURE_KEEP", value_parser = FalseyValueParser::new())]
    pub(crate) keep: bool,

    /// When CMD has ended, go on leading, idle, until so long after its start
    #[arg(long, env = "TENURE_HOLD", value_name = "DURATION", value_parser = duration)]
    pub(crate) hold: Option<Duration>,

    /// What tells CMD to stop
    #[arg(long, env = "TENURE_SIGNAL", value_name = "SIGNAL", default_value = "TERM")]
    #[arg(value_parser = signal)]
    pub(crate) signal: Signal,

    /// When this process dies, leave CMD so long to stop before it is killed; the next leader waits as long
    #[arg(long, env = "TENURE_ORPHAN_GRACE", value_name = "DURATION", default_value = "0s")]
    #[arg(value_parser = duration)]
    pub(crate) orphan_grace: Duration,
}

/// Commands instead of CMD.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Handlers, instead of CMD")]
pub(crate) struct HandlerOptions {
    /// What `sh -c` runs when leadership begins; leading is what follows its success
    #[arg(long, env = "TENURE_LEADER_BEGIN_COMMAND", hide_env_values = true, value_name = "TEXT")]
    #[arg(alias = "leader-start-command", value_hint = ValueHint::CommandString)]
    pub(crate) leader_begin_command: Option<String>,

    /// What `sh -c` runs when leadership ends; nobody else leads before its success
    #[arg(long, env = "TENURE_LEADER_END_COMMAND", hide_env_values = true, value_name = "TEXT")]
    #[arg(alias = "leader-stop-command", value_hint = ValueHint::CommandString)]
    pub(crate) leader_end_command: Option<String>,

    /// What `sh -c` runs after an error, when nothing here leads any more
    #[arg(long, env = "TENURE_ERROR_COMMAND", hide_env_values = true, value_name = "TEXT")]
    #[arg(value_hint = ValueHint::CommandString)]
    pub(crate) error_command: Option<String>,

    /// How long to keep away from the election after an error
    #[arg(long, env = "TENURE_ERROR_TIMEOUT", value_name = "DURATION", default_value = "30s")]
    #[arg(value_parser = duration)]
    pub(crate) error_timeout: Duration,

    /// How long the begin command may take [default: as long as it leads]
    #[arg(long, env = "TENURE_BEGIN_TIMEOUT", value_name = "DURATION", value_parser = duration)]
    pub(crate) begin_timeout: Option<Duration>,

    /// How long the end command may take [default: what is left of the lease]
    #[arg(long, env = "TENURE_END_TIMEOUT", value_name = "DURATION", value_parser = duration)]
    pub(crate) end_timeout: Option<Duration>,

    /// How long to wait between two attempts of an end command that fails
    #[arg(long, env = "TENURE_END_RETRY", value_name = "DURATION", default_value = "5s")]
    #[arg(value_parser = duration)]
    pub(crate) end_retry: Duration,

    /// How often an end command that fails is run
    #[arg(long, env = "TENURE_END_ATTEMPTS", value_name = "N", default_value_t = 12)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) end_attempts: u32,

    /// The last resort: what `sh -c` runs when the end command has failed for good
    #[arg(long, env = "TENURE_ON_STUCK", hide_env_values = true, value_name = "TEXT", value_hint = ValueHint::CommandString)]
    pub(crate) on_stuck: Option<String>,
}

/// The store as elector's users name it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Names that elector's users know, instead of --store")]
pub(crate) struct ElectorOptions {
    /// Where events come from
    #[arg(long, env = "TENURE_BACKEND", value_name = "NAME", value_enum)]
    pub(crate) backend: Option<ElectorBackend>,

    /// The election in etcd
    #[arg(long, env = "TENURE_ETCD_KEYSPACE", value_name = "KEY", alias = "keyspace")]
    pub(crate) etcd_keyspace: Option<String>,

    /// The members of the etcd cluster, separated by commas
    #[arg(long, env = "TENURE_ETCD_MEMBERS", value_name = "URLS", hide_env_values = true)]
    #[arg(value_delimiter = ',')]
    pub(crate) etcd_members: Vec<String>,

    /// The certificate authority of the store
    #[arg(long, env = "TENURE_CA_FILE", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) ca_file: Option<PathBuf>,

    /// This client's certificate
    #[arg(long, env = "TENURE_CERT_FILE", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) cert_file: Option<PathBuf>,

    /// The key of that certificate
    #[arg(long, env = "TENURE_KEY_FILE", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) key_file: Option<PathBuf>,
}

/// elector's backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ElectorBackend {
    /// Events typed by hand: LEADER, NOTLEADER, ERROR
    Console,
    /// An etcd cluster
    EtcdLock,
}

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

/// Take part in a leader feed: follow a table's changes, and lead it or learn who does
///
/// Every process that runs this on the same table is told of its changes, and one of them leads. A document in
/// the table says who: its id is `leader`, its `value` the leader's id. The leader writes it at each heartbeat; a
/// follower that sees none for its election time-out takes over, under a higher token. It needs a store with change
/// feeds: MongoDB, RethinkDB (and memory:, for trying it out).
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  $ tenure feed --store 'rethinkdb://127.0.0.1:28015/shop' --table orders --json
  {\"event\":\"subscribe started\"}
  {\"event\":\"new state\",\"state\":\"follower\"}
  {\"event\":\"new leader\",\"leader\":\"host-b\",\"token\":7}
  {\"event\":\"change\",\"change\":{\"new_val\":{\"id\":1,\"paid\":true},\"old_val\":null}}
a leader that may be out of reach for ten seconds
  tenure feed --table orders --election-timeout-min 10s

Signals: TERM and INT free the leadership, if there is one, and leave.

Exit codes: 0 interrupted; 2 usage; 69 store unreachable; 77 not allowed; 78 refused: the store has no \
change feed, the times do not fit, or the leader's document was deleted")]
pub(crate) struct Feed {
    /// The table or collection [default: the store URL's, else tenure]
    #[arg(long, env = "TENURE_TABLE", value_name = "TABLE")]
    pub(crate) table: Option<String>,

    /// Show what the table already holds as changes first
    #[arg(long, env = "TENURE_FROM_START", value_parser = FalseyValueParser::new())]
    pub(crate) from_start: bool,

    /// How often the leader writes [default: 1s]
    #[arg(long, env = "TENURE_HEARTBEAT_INTERVAL", value_name = "DURATION", value_parser = duration)]
    pub(crate) heartbeat_interval: Option<Duration>,

    /// The least time without a heartbeat after which a follower takes over [default: twice the heartbeat
    /// interval]
    #[arg(long, env = "TENURE_ELECTION_TIMEOUT_MIN", value_name = "DURATION")]
    #[arg(value_parser = duration)]
    pub(crate) election_timeout_min: Option<Duration>,

    /// The most time without a heartbeat after which a follower takes over [default: twice the least]
    #[arg(long, env = "TENURE_ELECTION_TIMEOUT_MAX", value_name = "DURATION")]
    #[arg(value_parser = duration)]
    pub(crate) election_timeout_max: Option<Duration>,

    /// Fail if the table does not exist
    #[arg(long, env = "TENURE_NO_CREATE", value_parser = FalseyValueParser::new())]
    pub(crate) no_create: bool,
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

/// Reads how long a task may take.
fn task_timeout(text: &str) -> Result<Duration, String> {
    let span = duration(text)?;
    match span.is_zero() || span > tenure::MAX_TTL {
        true => Err("expected more than nothing and at most 24h".to_owned()),
        false => Ok(span),
    }
}

/// Reads a signal's name, with or without SIG, or its number.
fn signal(text: &str) -> Result<Signal, String> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let named = STOPS.iter().find(|(known, _)| *known == name).map(|(_, signal)| *signal);
    let numbered = text.parse().ok().and_then(Signal::from_named_raw);
    named.or(numbered.filter(|signal| STOPS.iter().any(|(_, known)| known == signal))).ok_or_else(
        || {
            let known: Vec<&str> = STOPS.iter().map(|(name, _)| *name).collect();
            format!("not a signal that stops a program; known: {}", known.join(", "))
        },
    )
}

/// The signals that may tell a program to stop.
const STOPS: [(&str, Signal); 7] = [
    ("TERM", Signal::TERM),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("HUP", Signal::HUP),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("KILL", Signal::KILL),
];

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
