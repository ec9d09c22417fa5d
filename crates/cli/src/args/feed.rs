//! `feed`: a leader feed.

use std::time::Duration;

use clap::Args;
use clap::builder::FalseyValueParser;

use super::settings::Opening;
use super::values::duration;

/// Take part in a leader feed: follow a table's changes, and lead it or learn who does
///
/// Every process that runs this on the same table is told of its changes, and one of them leads. A
/// document in the table says who: its id is `leader`, its `value` the leader's id. The leader
/// writes it at each heartbeat; a follower that sees none for its election time-out takes over,
/// under a higher token. It needs a store with change feeds: MongoDB, RethinkDB (and memory:, for
/// trying it out).
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

    /// First show the table's existing content as changes
    #[arg(long, env = "TENURE_FROM_START", value_parser = FalseyValueParser::new())]
    pub(crate) from_start: bool,

    /// How often the leader writes [default: 1s]
    #[arg(long, env = "TENURE_HEARTBEAT_INTERVAL", value_name = "DURATION", value_parser = duration)]
    pub(crate) heartbeat_interval: Option<Duration>,

    /// The least time without a heartbeat after which a follower takes over [default: twice the
    /// heartbeat interval]
    #[arg(long, env = "TENURE_ELECTION_TIMEOUT_MIN", value_name = "DURATION")]
    #[arg(value_parser = duration)]
    pub(crate) election_timeout_min: Option<Duration>,

    /// The most time without a heartbeat after which a follower takes over [default: twice the
    /// least]
    #[arg(long, env = "TENURE_ELECTION_TIMEOUT_MAX", value_name = "DURATION")]
    #[arg(value_parser = duration)]
    pub(crate) election_timeout_max: Option<Duration>,

    /// Fail if the table does not exist
    #[arg(long, env = "TENURE_NO_CREATE", value_parser = FalseyValueParser::new())]
    pub(crate) no_create: bool,

    #[command(flatten)]
    pub(crate) opening: Opening,
}
