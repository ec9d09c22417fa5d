use bytes::Bytes;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How many bytes may wait in one direction of a connection before reading stops. At 20 ms that is
/// 200 MB/s.
const LONGEST: usize = 4 << 20;

/// The bytes that wait to be forwarded, in order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    items: VecDeque<(Instant, Item)>,
    bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Message(Bytes),
    /// The sender closed the connection.
    End,
    /// The sender reset the connection.
    Reset,
}

impl Queue {
    /// Adds an item that arrived just now.
    pub(super) fn push(&mut self, arrived: Instant, delay: Duration, item: Item) {
        // A delay that was shortened must not change the order.
        let last = self.items.back().map_or(arrived, |(due, _)| *due);
        self.bytes += item.length();
        self.items.push_back((last.max(arrived + delay), item));
    }

    /// The time when the first item is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.items.front().map(|(due, _)| *due)
    }

    pub(super) fn pop(&mut self) -> Option<Item> {
        let (_, item) = self.items.pop_front()?;
        self.bytes -= item.length();
        Some(item)
    }

    pub(super) fn full(&self) -> bool {
        self.bytes >= LONGEST
    }
}

impl Item {
    fn length(&self) -> usize {
        match self {
            Item::Message(bytes) => bytes.len(),
            Item::End | Item::Reset => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_delay_does_not_overtake() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut queue = Queue::default();
        queue.push(now, second, Item::Message(Bytes::from_static(b"first")));
        queue.push(now, Duration::ZERO, Item::End);
        assert_eq!(queue.due(), Some(now + second));
        assert_eq!(queue.pop(), Some(Item::Message(Bytes::from_static(b"first"))));
        assert_eq!(queue.due(), Some(now + second));
        assert_eq!(queue.pop(), Some(Item::End));
        assert_eq!(queue.due(), None);
    }
}
