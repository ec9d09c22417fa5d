//! Supervisor and guardian: two processes that end the work with the leadership.
//!
//! ```text
//! supervisor     the process the user started; it talks to the store
//!   └ guardian   the same program again: one thread, no store, no runtime
//!       └ CMD    with everything that it starts
//! ```
//! Supervisor and guardian are both *subreapers*: when a parent in the tree dies, its children
//! become children of the guardian, or of the supervisor if the guardian is dead, however often
//! they forked. So one system call finds out that the tree is dead: there is no child left to wait
//! for.
//!
//! - The supervisor dies: the guardian reads the end of their socket and kills the tree, at once or
//!   after the orphans' grace. The guardian exits last and closes the last copy of the presence
//!   file. That tells the next leader.
//! - The supervisor hangs: the guardian knows until when the lease is proven. Unless it learns of a
//!   renewal, it stops the tree in time by itself.
//! - The guardian dies: the supervisor reads the end of the socket and kills the tree at once.
//! - The guardian hangs: the supervisor has asked it to stop the tree, waits, and then kills the
//!   guardian first.
//! - Both die at the same instant: the kernel kills CMD itself (the parent death signal). Processes
//!   that CMD had started hold the lock of the work file, or are in its control group. The next
//!   leader waits out the lease and kills them before it starts anything.
//! - A process of the tree cannot be killed, because a setuid program changed its user: it still
//!   holds the lock, so the next leader starts nothing.
//!
//! Once the work has started, only the work holds the work file: the supervisor and the guardian
//! close their copies. So a locked work file with a recorded start means that work runs, even if
//! the supervisor or the guardian hangs.
//!
//! Descriptors travel over the socket, never as inherited numbers: none leaks into CMD, and there
//! is no unsafe code.

mod boot;
mod cgroup;
mod channel;
mod guardian;
mod lease_deadline;
mod leftovers;
mod message;
mod stage;
mod supervisor;
mod terminal;
mod tree;

pub(crate) use boot::BootTime;
pub(crate) use cgroup::Cgroup;
pub(crate) use guardian::guard;
pub(crate) use lease_deadline::LeaseDeadline;
pub(crate) use leftovers::end_leftovers;
pub(crate) use message::{Privileges, Status};
pub(crate) use stage::stage;
pub(crate) use supervisor::{Event, Guardian, RunOfMany, Work, adopt_orphans};
pub(crate) use tree::Process;

/// The hidden first argument that makes this program a guardian.
pub(crate) const GUARDIAN: &str = "__guardian";
/// The hidden first argument that makes this program the last step before CMD.
pub(crate) const STAGE: &str = "__stage";
/// This very program, even if its file has been replaced since.
pub(crate) const THIS_PROGRAM: &str = "/proc/self/exe";
