//! `share`, and the commands about groups that share work.

use std::ffi::OsString;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{Args, ValueHint};

use super::settings::Opening;
use super::values::{size, task_timeout};

/// Share work among as many machines as you like: CMD runs once for each item
///
/// Start the same command on every machine, with the same --store. One of them leads: it lists a
/// directory, a bucket or the lines of a file in order and keeps its place in the store. All of
/// them take items and run CMD; an item that fails is tried again, on another machine if there is
/// one. This very process reads `--from -` and `--from cmd:…`; an item is accepted once it is in
/// the store. Without --from this process only works on items that others bring. With a directory
/// or a bucket it works on nothing else, unless --accept-submitted is given.
///
/// In CMD `{}` stands for the item: the path of the file (of an object: of a copy), or the line
/// itself. No shell reads it. A line that begins with a dash may look like a flag: write `--`
/// before `{}`. Without `{}` CMD reads the item on its standard input, which is safest where others
/// write to the directory. CMD finds TENURE_GROUP, TENURE_TASK, TENURE_SERIAL, TENURE_ATTEMPT and
/// TENURE_TOKEN in its environment. The end of its output is kept as the result, the end of its
/// errors as the reason of a failure. If a machine is lost, an item may be begun twice: hand the
/// token to every system that CMD writes to.
///
/// All processes end when the source is read to its end and everything is done. On a terminal there
/// is a progress line; otherwise one JSON object for each item that ended here, and a summary.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples: every picture of a directory, four at a time on each machine that runs this
  tenure share thumbs --store etcd://10.0.0.5/jobs --from /mnt/pictures --workers 4 -- shrink {}
lines, as xargs would
  seq 1000 | tenure share numbers --from - -- sh -c 'factor \"$0\"' {}
what another program finds, each on standard input
  tenure share checks --from 'cmd:list-hosts' --attempts 5 --timeout 30s -- check-host
a worker for whatever others submit (tenure submit thumbs …), until it is interrupted
  tenure share thumbs -- shrink -- {}

Signals: the first INT or TERM takes nothing more, finishes what runs and leaves; the second stops what runs, \
which others then do.

Exit codes: 0 all is done; 1 there are dead letters (tenure tasks GROUP --dead), or the source failed, or it was drained before \
the end; 2 usage; 69 store unreachable; 77 not allowed; 78 refused, such as a --from that is not there; 125 tenure itself failed; 126 CMD \
cannot be run; 127 CMD not found; 130 or 143 interrupted before the end (0 with --follow and without --from)")]
pub(crate) struct Share {
    #[command(flatten)]
    pub(crate) group: Group,

    /// Where items come from: a directory, s3://bucket/prefix, a file of lines, 'cmd:COMMAND', or -
    /// for standard input
    #[arg(long, value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub(crate) from: Option<OsString>,

    #[command(flatten)]
    pub(crate) options: ShareOptions,

    #[command(flatten)]
    pub(crate) each: EachTask,

    /// The command to run for each item
    #[arg(last = true, required = true, value_name = "CMD")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// How a process takes part in the work.
#[derive(Clone, Debug, Args)]
pub(crate) struct ShareOptions {
    /// How many items are worked on at once here [default: one for each processor]
    #[arg(short, long, env = "TENURE_WORKERS", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: Option<u16>,

    /// With a directory or a bucket: also run CMD for items that others submit, which may name any
    /// file
    #[arg(long, env = "TENURE_ACCEPT_SUBMITTED", value_parser = FalseyValueParser::new())]
    pub(crate) accept_submitted: bool,

    /// How much room the copies of objects may take in $TMPDIR at once: a larger object fails,
    /// others wait for room
    #[arg(long, env = "TENURE_COPY_LIMIT", value_name = "SIZE", default_value = "1GiB", value_parser = size)]
    pub(crate) copy_limit: u64,

    /// Do not end: wait for new files, new lines, new objects
    #[arg(long, env = "TENURE_FOLLOW", value_parser = FalseyValueParser::new())]
    pub(crate) follow: bool,

    /// Let no setuid program change the user of CMD, or of a process that CMD starts: such a
    /// process could not be killed
    #[arg(long, env = "TENURE_NO_NEW_PRIVS", value_parser = FalseyValueParser::new())]
    pub(crate) no_new_privs: bool,

    #[command(flatten)]
    pub(crate) opening: Opening,
}

/// How to try each task.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct EachTask {
    /// How often an item is tried before it becomes a dead letter
    #[arg(long, env = "TENURE_ATTEMPTS", value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) attempts: u32,

    /// How long one attempt may take [default: as long as it likes]
    #[arg(long, env = "TENURE_TIMEOUT", value_name = "DURATION", value_parser = task_timeout)]
    pub(crate) timeout: Option<Duration>,
}

/// The group to work on.
#[derive(Debug, Args)]
pub(crate) struct Group {
    /// The group that shares the work: 1 to 5 segments joined by `/`
    #[arg(value_name = "GROUP")]
    pub(crate) group: String,
}

/// Show the tasks of GROUP: the open ones, the dead letters, or the results
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  $ tenure tasks thumbs
  50 accepted: 40 done, 1 dead, 0 cancelled, 9 open
    41  running  cat.jpg  attempt 1 of 3, host-a
    42  waiting  dog.jpg  attempt 1 of 3 failed: exit code 1: no memory
  $ tenure tasks thumbs --dead
    17  fox.jpg  attempt 3 of 3 failed: exit code 2: not a picture

Exit codes: 0 success; 1 there is no such group; 2 usage; 69 store unreachable; 77 not allowed; 78 refused")]
pub(crate) struct Tasks {
    #[command(flatten)]
    pub(crate) group: Group,

    /// Show tasks that failed for good, until they are retried
    #[arg(long)]
    pub(crate) dead: bool,

    /// Show the results of tasks that ended
    #[arg(long, conflicts_with = "dead")]
    pub(crate) results: bool,
}

/// Show the members of GROUP
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  $ tenure members thumbs
  host-a  5e0c67d3a4f4f8f1c0ffee0000000001  alive  1 of 4 workers idle, 20 finished
  host-b  5e0c67d3a4f4f8f1c0ffee0000000002  draining  0 of 4 workers idle, 19 finished

Exit codes: 0 success; 1 there is no such group; 2 usage; 69 store unreachable; 77 not allowed; 78 refused")]
pub(crate) struct Members {
    #[command(flatten)]
    pub(crate) group: Group,
}

/// Give GROUP something to do
///
/// When this returns the items are in the store. They are done once a process runs `tenure share
/// GROUP -- CMD`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure submit checks www.example.org www.example.net
many at once, one a line
  list-hosts | tenure submit checks -

Exit codes: 0 all are accepted; 2 usage, such as an item of more than 16 KiB; 4 the store did not say about all of \
them; 69 store unreachable; 77 not allowed; 78 refused")]
pub(crate) struct Submit {
    #[command(flatten)]
    pub(crate) group: Group,

    /// The kind of the tasks: the one that `tenure share` runs, or a type that a program of yours
    /// registers
    #[arg(long, value_name = "KIND", default_value = "command")]
    pub(crate) kind: String,

    #[command(flatten)]
    pub(crate) each: EachTask,

    /// The items to run CMD for; - reads lines from standard input
    #[arg(value_name = "ITEM", required = true)]
    pub(crate) items: Vec<OsString>,
}

/// Bring dead letters of GROUP back: they are tried again from their first attempt
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure retry thumbs 17 fox.jpg
  tenure retry thumbs --all

Exit codes: 0 they are tried again; 1 some are no dead letters; 2 usage; 69 store unreachable; 77 not allowed; 78 refused")]
pub(crate) struct Retry {
    #[command(flatten)]
    pub(crate) group: Group,

    /// Their numbers or names, as `tenure tasks GROUP --dead` shows them
    #[arg(value_name = "ID", required_unless_present = "all")]
    pub(crate) ids: Vec<String>,

    /// Retry all dead letters
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
}

/// Cancel tasks of GROUP that wait or run
///
/// A waiting task ends at once; a running one is stopped, within a heartbeat. Neither is a failure.
/// An item that is not yet taken in has no number, and cannot be cancelled.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure cancel thumbs 41 dog.jpg
what was lost because somebody deleted or overwrote its document, which does not come back
  tenure cancel thumbs --lost

Exit codes: 0 they are cancelled, or told to stop; 1 some are no tasks that wait or run; 2 usage; 4 the store did not say; 69 \
store unreachable; 77 not allowed; 78 refused")]
pub(crate) struct Cancel {
    #[command(flatten)]
    pub(crate) group: Group,

    /// Their numbers or names, as `tenure tasks GROUP` shows them
    #[arg(value_name = "ID", required_unless_present = "lost")]
    pub(crate) ids: Vec<String>,

    /// Cancel the tasks that `tenure tasks GROUP` calls lost
    #[arg(long, conflicts_with = "ids")]
    pub(crate) lost: bool,
}

/// Have GROUP, or one of its members, finish its tasks and take no more
///
/// A member leaves when it is done. Without MEMBER the whole group is paused: tasks that were
/// handed out are finished, the rest waits in the store until --resume.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples: before host-a is shut down
  tenure drain thumbs host-a --wait
before a maintenance of all of them, and after it
  tenure drain thumbs --wait
  tenure drain thumbs --resume

Exit codes: 0 they were asked, or are done with --wait; 1 there is no such group or member; 2 usage; 69 store \
unreachable; 77 not allowed; 78 refused; 130 or 143 interrupted while waiting")]
pub(crate) struct Drain {
    #[command(flatten)]
    pub(crate) group: Group,

    /// A member, by its name or id as `tenure members` shows it; several may have the same name
    #[arg(value_name = "MEMBER")]
    pub(crate) member: Option<String>,

    /// Let the group go on
    #[arg(long, conflicts_with_all = ["member", "wait"])]
    pub(crate) resume: bool,

    /// Wait until none of its tasks runs any more
    #[arg(long)]
    pub(crate) wait: bool,
}
