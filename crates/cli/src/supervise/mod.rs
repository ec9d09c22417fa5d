//! Two processes that watch over the work, so that none of it outlives the leadership.
//!
//! ```text
//! supervisor     the process the user started; it talks to the store
//!   └ guardian   the same program again: one thread, no store, no runtime
//!       └ CMD    with everything that it starts
//! ```
//! Supervisor and guardian are both *subreapers*: a process of the tree whose parent dies becomes a
//! child of the guardian, or of the supervisor when the guardian is dead, however often it forked.
//! So "the tree is dead" is one system call: there is nothing left to wait for.
//!
//! - The supervisor dies: the guardian reads the end of their socket and kills the tree, at once or
//!   after the orphans' grace. It exits last, and with it goes the last copy of the presence file:
//!   that is what tells the next leader.
//! - The supervisor hangs: the guardian knows until when the lease is proven. It stops the tree in
//!   time by itself, unless it was told of a renewal.
//! - The guardian dies: the supervisor reads the end of the socket and kills the tree at once.
//! - The guardian hangs: the supervisor has asked it to stop the tree, waits, and then kills the
//!   guardian first.
//! - Both die at the same instant: the kernel kills CMD itself (the parent death signal). Processes
//!   that CMD had started hold the lock of the work file, or are in its control group; the next
//!   leader waits out the lease and kills them before it starts anything.
//! - A process of the tree cannot be killed, because a setuid program changed its user: it still
//!   holds the lock. The next leader starts nothing.
//!
//! From its start on only the work holds the work file: the supervisor and the guardian close their
//! copies. A locked work file whose start is recorded means that work runs, whoever else hangs.
//!
//! Descriptors travel over the socket, never as inherited numbers: nothing leaks into CMD, and
//! there is no unsafe code.

mod boot;
mod cgroup;
mod channel;
mod guardian;
mod leash;
mod leftovers;
mod message;
mod stage;
mod supervisor;
mod terminal;
mod tree;

pub(crate) use boot::BootTime;
pub(crate) use cgroup::Cgroup;
pub(crate) use guardian::guard;
pub(crate) use leash::Leash;
pub(crate) use leftovers::end_leftovers;
pub(crate) use message::{Privileges, Status};
pub(crate) use stage::stage;
pub(crate) use supervisor::{Event, Guardian, RunOfMany, Work, adopt_orphans};
pub(crate) use tree::Process;

/// The hidden first argument that makes this program a guardian.
pub(crate) const GUARDIAN: &str = "__guardian";
/// The hidden first argument that makes it the last step before CMD.
pub(crate) const STAGE: &str = "__stage";
/// This very program, even when the file it came from has been replaced since.
pub(crate) const THIS_PROGRAM: &str = "/proc/self/exe";
