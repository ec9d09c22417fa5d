//! Lets threads of one process wait for a directory without polling the kernel's lock.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The directories in which a thread has its turn.
#[derive(Debug, Default)]
pub(super) struct DirectoryLocks {
    taken: Mutex<HashSet<Vec<String>>>,
    over: Condvar,
}

impl DirectoryLocks {
    /// Waits until no other thread has its turn; `None` when that takes too long.
    pub(super) fn wait(&self, directory: &[String], deadline: Instant) -> Option<Turn<'_>> {
        let mut taken = self.taken();
        while taken.contains(directory) {
            let left = deadline.checked_duration_since(Instant::now())?;
            let woken = self.over.wait_timeout(taken, left);
            taken = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        taken.insert(directory.to_vec());
        Some(Turn { directory_locks: self, directory: directory.to_vec() })
    }

    fn taken(&self) -> MutexGuard<'_, HashSet<Vec<String>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread's turn. It is over when this is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct Turn<'t> {
    directory_locks: &'t DirectoryLocks,
    directory: Vec<String>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.directory_locks.taken().remove(&self.directory);
        self.directory_locks.over.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_directory_is_one_threads_at_a_time_and_others_are_not_in_its_way() {
        let directory_locks = DirectoryLocks::default();
        let (a, b) = (["a".to_owned()], ["b".to_owned()]);
        let soon = || Instant::now() + Duration::from_millis(20);
        let turn = directory_locks.wait(&a, soon()).expect("nobody's");
        assert!(directory_locks.wait(&a, soon()).is_none());
        assert!(directory_locks.wait(&b, soon()).is_some());
        let later = Instant::now() + Duration::from_secs(30);
        std::thread::scope(|scope| {
            let next = scope.spawn(|| directory_locks.wait(&a, later).is_some());
            drop(turn);
            assert!(next.join().expect("joined"));
        });
    }
}
