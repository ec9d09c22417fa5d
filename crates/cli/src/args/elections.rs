//! Commands that ask about elections, or change them.

use std::time::Duration;

use clap::Args;

use super::values::duration;

/// The election to work on.
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
  2026-01-31T12:00:00Z  free
  2026-01-31T12:00:04Z  led by host-a, token 8, for another 14.9s

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

`stale` marks a candidate that has not been heard of for long; on etcd and ZooKeeper an entry that belongs to no \
session. Such an entry is no candidate, and has no place in the queue.

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

Exit codes: 0 it has ended; 1 there is no such election, and no --force; 2 usage; 4 the store did not say; 69 store \
unreachable; 77 not allowed; 78 refused")]
pub(crate) struct End {
    #[command(flatten)]
    pub(crate) target: Target,

    /// End it even if it does not exist yet: candidates who come later find it ended
    #[arg(long)]
    pub(crate) force: bool,
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
