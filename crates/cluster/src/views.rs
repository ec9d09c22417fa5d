//! Views of a cluster that need no membership.
//!
//! Each view is read document by document while other processes write. It is as new as the read,
//! and no more exact than that.

mod members;
mod results;
mod tasks;
mod totals;

pub use members::{Life, MemberView, Members};
pub use results::{Letters, Results};
pub use tasks::{Stage, TaskView, Work};
pub use totals::Totals;

use tenure::Key;

use super::documents::DocumentError;

/// A document that makes no sense: it was skipped, and an operator should look at it.
pub type Garbled = (Key, DocumentError);
