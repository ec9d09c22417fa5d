//! The items that were given out last.

use std::collections::VecDeque;

/// The items that a windowed input gave out last or has ready.
///
/// They are kept because the leader may ask for the same window again, or for a smaller one. For
/// inputs with items that are their own positions: paths, keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recent {
    /// The position before the items.
    from: Option<String>,
    items: VecDeque<String>,
}

impl Recent {
    /// Creates an empty list that begins after this position.
    #[must_use]
    pub fn after(position: Option<&str>) -> Recent {
        Recent { from: position.map(str::to_owned), items: VecDeque::new() }
    }

    /// Drops the items up to this position; returns `false` if it is not among them.
    #[must_use]
    pub fn go_on_after(&mut self, position: Option<&str>) -> bool {
        if self.from.as_deref() == position {
            return true;
        }
        let Some(place) = self.items.iter().position(|item| Some(item.as_str()) == position) else {
            return false;
        };
        self.from = self.items.drain(..=place).next_back();
        true
    }

    /// Adds the next item.
    pub fn push(&mut self, item: String) {
        self.items.push_back(item);
    }

    /// How many items are ready.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns true if no item is ready.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The first items, at most `max`. They stay until the position has passed them.
    pub fn first(&self, max: usize) -> impl Iterator<Item = &String> {
        self.items.iter().take(max)
    }

    /// The position after `count` items.
    #[must_use]
    pub fn position_after(&self, count: usize) -> Option<String> {
        let last = count.checked_sub(1).and_then(|last| self.items.get(last));
        last.or(self.from.as_ref()).cloned()
    }
}
