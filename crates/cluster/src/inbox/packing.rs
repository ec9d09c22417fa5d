//! Distributes entries to pages.

use crate::documents::{Entry, MAX_PAGE_BYTES};

/// Splits entries into as few pages as possible, in their order.
pub(super) fn pack(entries: Vec<Entry>) -> Vec<Vec<Entry>> {
    let mut pages: Vec<Vec<Entry>> = Vec::new();
    let mut room = 0;
    for entry in entries {
        let bytes = written(&entry);
        match pages.last_mut() {
            Some(page) if bytes <= room => page.push(entry),
            Some(_) | None => {
                pages.push(vec![entry]);
                room = MAX_PAGE_BYTES;
            }
        }
        room = room.saturating_sub(bytes);
    }
    pages
}

/// The bytes that an entry takes, with the comma after it.
fn written(entry: &Entry) -> usize {
    serde_json::to_vec(entry).expect("strings and numbers always encode").len() + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::{MAX_ID_BYTES, MAX_TASK_BYTES, Order};

    fn task(id: &str, bytes: usize) -> Entry {
        Entry::Task(Order::new(id, "kind", vec![7; bytes]))
    }

    #[test]
    fn pages_are_filled_in_order_and_never_beyond_their_size() {
        let entries: Vec<Entry> =
            (0..2000).map(|number| task(&number.to_string(), number % 97)).collect();
        let pages = pack(entries.clone());
        assert_eq!(pages.concat(), entries);
        for page in &pages {
            let bytes = serde_json::to_vec(page).expect("it encodes").len();
            assert!(bytes <= MAX_PAGE_BYTES + 2, "{bytes}");
        }
        for (page, next) in pages.iter().zip(&pages[1..]) {
            let together: usize = page.iter().chain(&next[..1]).map(written).sum();
            assert!(together > MAX_PAGE_BYTES, "a page was left with room on it");
        }
    }

    #[test]
    fn the_largest_task_there_can_be_fits_on_a_page() {
        // Control characters take the most bytes in JSON.
        let text = "\u{1}".repeat(MAX_ID_BYTES);
        let order = Order::new(text.clone(), text, vec![255; MAX_TASK_BYTES]);
        assert_eq!(order.check(), Ok(()));
        assert!(written(&Entry::Task(order)) <= MAX_PAGE_BYTES);
    }

    #[test]
    fn nothing_needs_no_page() {
        assert!(pack(Vec::new()).is_empty());
    }
}
