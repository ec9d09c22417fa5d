//! Lasting writes that are already readable, but that a power cut could still undo.
//!
//! If a leader was not told whether its claim was written, it reads the document, and leads if it
//! finds its own claim. That claim must not vanish in a power cut, or its token would be given out
//! again. So while one of this process's own writes is under way, or failed half-way, a read of
//! that document by this process brings the directory to the disk before it returns.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Key;

#[derive(Debug, Default)]
pub(super) struct UnsyncedWrites {
    writes: Mutex<HashMap<Key, usize>>,
}

impl UnsyncedWrites {
    /// Notes a write, before any process can read it.
    pub(super) fn begin(&self, key: &Key) {
        *self.writes().entry(key.clone()).or_default() += 1;
    }

    /// Notes that the write would survive a power cut. Not called if that is unknown.
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
