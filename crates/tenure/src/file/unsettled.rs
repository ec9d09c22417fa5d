//! Lasting writes that others can read already, and a power cut could still undo.
//!
//! A leader that was not told whether its claim was written reads the document, and leads if it
//! finds its own claim. That claim must not vanish in a power cut, or its token would be given
//! again. So a read of this process brings the directory to the disk first while one of its own
//! writes there is under way, or failed half-way.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Key;

#[derive(Debug, Default)]
pub(super) struct Unsettled {
    writes: Mutex<HashMap<Key, usize>>,
}

impl Unsettled {
    /// Called before anybody can read the write.
    pub(super) fn begin(&self, key: &Key) {
        *self.writes().entry(key.clone()).or_default() += 1;
    }

    /// Called once it would survive a power cut, and not at all if that is not known.
    pub(super) fn settle(&self, key: &Key) {
        let mut writes = self.writes();
        if let Some(count) = writes.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                writes.remove(key);
            }
        }
    }

    pub(super) fn contains(&self, key: &Key) -> bool {
        self.writes().contains_key(key)
    }

    fn writes(&self) -> MutexGuard<'_, HashMap<Key, usize>> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
