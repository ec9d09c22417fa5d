//! The limits of one transaction.

use std::sync::atomic::{AtomicUsize, Ordering};

/// etcd's default is 128 parts per transaction. It counts a write's own part too.
const MOST_WRITES: usize = 100;
const MOST_READS: usize = 120;
/// etcd takes requests of up to 1.5 MiB by default.
const MOST_BYTES: usize = 1024 * 1024;

/// The servers' limits, as far as they are known.
#[derive(Debug)]
pub(super) struct Room {
    writes: AtomicUsize,
    reads: AtomicUsize,
    bytes: AtomicUsize,
}

impl Default for Room {
    fn default() -> Room {
        Room {
            writes: AtomicUsize::new(MOST_WRITES),
            reads: AtomicUsize::new(MOST_READS),
            bytes: AtomicUsize::new(MOST_BYTES),
        }
    }
}

/// A write with a size.
pub(super) trait Load {
    /// Its approximate size in a request.
    fn bytes(&self) -> usize;
    /// Returns true if it must be sent alone.
    fn alone(&self) -> bool;
}

impl Room {
    /// The maximum number of reads in one transaction.
    pub(super) fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }

    /// Records that this many reads were too many.
    pub(super) fn too_many_reads(&self, count: usize) {
        lower(&self.reads, count);
    }

    /// Records that this many writes were too many.
    pub(super) fn too_many_writes(&self, count: usize) {
        lower(&self.writes, count);
    }

    /// Records that this many bytes were too many.
    pub(super) fn too_many_bytes(&self, count: usize) {
        lower(&self.bytes, count);
    }

    /// Divides writes into transactions.
    pub(super) fn cut<L: Load>(&self, loads: Vec<L>) -> Vec<Vec<L>> {
        let writes = self.writes.load(Ordering::Relaxed);
        let bytes = self.bytes.load(Ordering::Relaxed);
        let (mut flights, mut flight, mut taken) = (Vec::new(), Vec::new(), 0);
        for load in loads {
            if load.alone() {
                flights.push(vec![load]);
                continue;
            }
            let with = taken + load.bytes();
            if !flight.is_empty() && (flight.len() >= writes || with > bytes) {
                flights.push(std::mem::take(&mut flight));
                taken = 0;
            }
            taken += load.bytes();
            flight.push(load);
        }
        if !flight.is_empty() {
            flights.push(flight);
        }
        flights
    }
}

/// Lowers a limit to half of an excessive size, unless it is already lower.
///
/// It is never raised again. An operator that raises a limit restarts the servers, and each program
/// learns of the new limit when it restarts itself.
fn lower(limit: &AtomicUsize, too_much: usize) {
    limit.fetch_min((too_much / 2).max(1), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone)]
    struct BatchItem(usize, bool);

    impl Load for BatchItem {
        fn bytes(&self) -> usize {
            self.0
        }

        fn alone(&self) -> bool {
            self.1
        }
    }

    fn sizes(room: &Room, items: &[BatchItem]) -> Vec<usize> {
        room.cut(items.to_vec()).iter().map(Vec::len).collect()
    }

    #[test]
    fn writes_are_cut_by_number_and_by_bytes() {
        let room = Room::default();
        assert!(sizes(&room, &[]).is_empty());
        assert_eq!(sizes(&room, &vec![BatchItem(10, false); 250]), [100, 100, 50]);
        let third = BatchItem(MOST_BYTES / 3, false);
        assert_eq!(sizes(&room, &vec![third; 7]), [3, 3, 1]);
        let huge = BatchItem(2 * MOST_BYTES, false);
        assert_eq!(sizes(&room, &[huge.clone(), huge, BatchItem(1, false)]), [1, 1, 1]);
    }

    #[test]
    fn what_goes_alone_keeps_nobody_from_going_together() {
        let items =
            [BatchItem(1, false), BatchItem(1, true), BatchItem(1, false), BatchItem(1, true)];
        assert_eq!(sizes(&Room::default(), &items), [1, 1, 2]);
    }

    #[test]
    fn what_was_too_much_is_never_tried_again() {
        let room = Room::default();
        let items = vec![BatchItem(10, false); 20];
        room.too_many_writes(20);
        assert_eq!(sizes(&room, &items), [10, 10]);
        room.too_many_writes(100);
        assert_eq!(sizes(&room, &items), [10, 10], "less was too much already");
        room.too_many_bytes(100);
        assert_eq!(sizes(&room, &items), [5, 5, 5, 5]);
        room.too_many_writes(1);
        assert_eq!(sizes(&room, &items), [1; 20]);
        room.too_many_reads(16);
        assert_eq!(room.reads(), 8);
    }
}
