//! `run`: the candidate, the command to run, and its supervision.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum, ValueHint};
use rustix::process::Signal;

use super::settings::Opening;
use super::values::{duration, signal};
use crate::exit;

/// Wait to lead ELECTION, run CMD while leading, stop it before anyone else can lead
///
/// CMD finds TENURE_ELECTION, TENURE_ID, TENURE_TOKEN, TENURE_TTL_MS and TENURE_MANDATE (a file
/// that says how long it may go on) in its environment. Hand the token to every system that CMD
/// writes to, and let that system refuse smaller ones. When leadership is lost, CMD and everything
/// it has started get TERM, and KILL before the lease can expire. Instead of CMD, commands for the
/// beginning and the end of a leadership may be given.
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
failed for good; 75 leadership lost; 77 not allowed; 78 refused, such as a configuration that others may \
change, another recorded node prefix, or a token that fell; 125 tenure itself failed, or work of an earlier \
leader still runs; 126 CMD cannot be run; 127 CMD not found")]
pub(crate) struct Run {
    /// The election: 1 to 8 segments joined by `/`; may be left out with `--backend console` and
    /// with `--etcd-keyspace`
    #[arg(value_name = "ELECTION")]
    pub(crate) election: Option<String>,

    #[command(flatten)]
    pub(crate) options: RunOptions,

    /// Show the command that would be run, and run nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// The command to run while leading
    #[arg(last = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// The options of `run`: by flags, by the environment or by a file.
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

/// How to stand as a candidate.
#[derive(Clone, Debug, Args)]
pub(crate) struct Waiting {
    /// Do not wait: exit unless elected at once
    #[arg(short, long, env = "TENURE_NONBLOCK", value_parser = FalseyValueParser::new())]
    pub(crate) nonblock: bool,

    /// Wait at most this long to be elected
    #[arg(short, long, env = "TENURE_WAIT", value_name = "DURATION", value_parser = duration)]
    pub(crate) wait: Option<Duration>,

    /// The exit code when not elected in time
    #[arg(short = 'E', long, env = "TENURE_CONFLICT_EXIT_CODE", value_name = "CODE")]
    #[arg(default_value_t = exit::NOT_LED)]
    pub(crate) conflict_exit_code: u8,

    /// The value that this candidate publishes, such as its address
    #[arg(long, env = "TENURE_VALUE", value_name = "TEXT", default_value = "")]
    #[arg(hide_default_value = true)]
    pub(crate) value: String,

    /// How long a successor waits after a leadership that did not end by a clean release
    #[arg(long, env = "TENURE_LOCK_DELAY", value_name = "DURATION", value_parser = duration)]
    pub(crate) lock_delay: Option<Duration>,

    /// Fail if the election does not exist
    #[arg(long, env = "TENURE_NO_CREATE", value_parser = FalseyValueParser::new())]
    pub(crate) no_create: bool,

    #[command(flatten)]
    pub(crate) opening: Opening,
}

/// How to run CMD, and what happens after its end.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "CMD")]
pub(crate) struct ChildOptions {
    /// Lead once, and exit as CMD does; the default
    #[arg(long, env = "TENURE_ONCE", value_parser = FalseyValueParser::new())]
    pub(crate) once: bool,

    /// Stand again when CMD has ended, or leadership was lost; after a pause that doubles while CMD
    /// fails
    #[arg(long, env = "TENURE_KEEP", value_parser = FalseyValueParser::new())]
    pub(crate) keep: bool,

    /// When CMD has ended, go on leading, idle, until this long after its start
    #[arg(long, env = "TENURE_HOLD", value_name = "DURATION", value_parser = duration)]
    pub(crate) hold: Option<Duration>,

    /// The signal that tells CMD to stop
    #[arg(long, env = "TENURE_SIGNAL", value_name = "SIGNAL", default_value = "TERM")]
    #[arg(value_parser = signal)]
    pub(crate) signal: Signal,

    /// When this process dies, leave CMD this long to stop before it is killed; the next leader
    /// waits as long
    #[arg(long, env = "TENURE_ORPHAN_GRACE", value_name = "DURATION", default_value = "0s")]
    #[arg(value_parser = duration)]
    pub(crate) orphan_grace: Duration,

    /// Let no setuid program change the user of CMD, or of a process that CMD starts: such a
    /// process could not be killed
    #[arg(long, env = "TENURE_NO_NEW_PRIVS", value_parser = FalseyValueParser::new())]
    pub(crate) no_new_privs: bool,
}

/// Commands instead of CMD.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Handlers, instead of CMD")]
pub(crate) struct HandlerOptions {
    /// The command that `sh -c` runs when leadership begins; leading starts after its success
    #[arg(long, env = "TENURE_LEADER_BEGIN_COMMAND", value_name = "TEXT")]
    #[arg(alias = "leader-start-command", value_hint = ValueHint::CommandString)]
    pub(crate) leader_begin_command: Option<String>,

    /// The command that `sh -c` runs when leadership ends; no other candidate leads before its
    /// success
    #[arg(long, env = "TENURE_LEADER_END_COMMAND", value_name = "TEXT")]
    #[arg(alias = "leader-stop-command", value_hint = ValueHint::CommandString)]
    pub(crate) leader_end_command: Option<String>,

    /// The command that `sh -c` runs after an error, when nothing here leads any more
    #[arg(long, env = "TENURE_ERROR_COMMAND", value_name = "TEXT")]
    #[arg(value_hint = ValueHint::CommandString)]
    pub(crate) error_command: Option<String>,

    /// How long to keep away from the election after an error
    #[arg(long, env = "TENURE_ERROR_TIMEOUT", value_name = "DURATION", default_value = "30s")]
    #[arg(value_parser = duration)]
    pub(crate) error_timeout: Duration,

    /// How long the begin command may take [default: as long as it leads]
    #[arg(long, env = "TENURE_BEGIN_TIMEOUT", value_name = "DURATION", value_parser = duration)]
    pub(crate) begin_timeout: Option<Duration>,

    /// How long the end command may take [default: the rest of the lease]
    #[arg(long, env = "TENURE_END_TIMEOUT", value_name = "DURATION", value_parser = duration)]
    pub(crate) end_timeout: Option<Duration>,

    /// How long to wait between two attempts of a failing end command
    #[arg(long, env = "TENURE_END_RETRY", value_name = "DURATION", default_value = "5s")]
    #[arg(value_parser = duration)]
    pub(crate) end_retry: Duration,

    /// How often to run a failing end command
    #[arg(long, env = "TENURE_END_ATTEMPTS", value_name = "N", default_value_t = 12)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) end_attempts: u32,

    /// The last resort: a command that `sh -c` runs when the end command has failed for good
    #[arg(long, env = "TENURE_ON_STUCK", value_name = "TEXT", value_hint = ValueHint::CommandString)]
    pub(crate) on_stuck: Option<String>,
}

/// The store as users of elector name it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Names that elector's users know, instead of --store")]
pub(crate) struct ElectorOptions {
    /// The source of events
    #[arg(long, env = "TENURE_BACKEND", value_name = "NAME", value_enum)]
    pub(crate) backend: Option<ElectorBackend>,

    /// The election in etcd
    #[arg(long, env = "TENURE_ETCD_KEYSPACE", value_name = "KEY", alias = "keyspace")]
    pub(crate) etcd_keyspace: Option<String>,

    /// The members of the etcd cluster, separated by commas
    #[arg(long, env = "TENURE_ETCD_MEMBERS", value_name = "URLS")]
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

/// The backends of elector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ElectorBackend {
    /// Events typed by hand: LEADER, NOTLEADER, ERROR
    Console,
    /// An etcd cluster
    EtcdLock,
}
