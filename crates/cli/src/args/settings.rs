//! The settings that every command takes.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum, ValueHint};

use super::values::duration;

/// The settings of every command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Settings")]
pub(crate) struct Settings {
    /// The store: file:///absolute/directory, etcd://host/prefix, zookeeper://, mongodb://,
    /// rethinkdb://, elasticsearch+http://, opensearch+http:// or memory: [default: a directory of
    /// this user's, for this machine's processes]
    #[arg(long, global = true, env = "TENURE_STORE", value_name = "URL")]
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

    /// How long work may take to stop, out of the ttl [default: the rest of the ttl, 2.4s of 15s;
    /// on etcd and ZooKeeper a tenth of it, and at most a quarter]
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

    /// Log events to standard error; twice and three times for more, four times for other
    /// libraries' logs
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// When to wait for a store that cannot be reached yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitForStore {
    /// When systemd runs this as a service; not when `run` is told how long to wait for a
    /// leadership
    #[default]
    Auto,
    /// For as long as it takes
    Always,
    /// Exit with 69
    Never,
}

/// How to open a store that may not serve yet.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Opening {
    /// Wait for a store that cannot be reached when this starts, instead of exiting with 69
    #[arg(long, env = "TENURE_WAIT_FOR_STORE", value_name = "WHEN", value_enum, default_value_t)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    pub(crate) wait_for_store: WaitForStore,
}

/// The format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One object a line
    Json,
}
