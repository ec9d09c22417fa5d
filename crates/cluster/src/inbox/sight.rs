//! The state of a place in the inbox, for a process that writes a page there.

use tenure::lease::record::Op;
use tenure::store::Expect;

use crate::client::Found;
use crate::documents::{DocumentError, FILLS_KEPT, INBOX_PAGES, Page};

/// The state of a place, seen from one page and the writes to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// The page is there, and is still empty.
    Empty { expect: Expect, before: Option<Page> },
    /// One of the given writes filled it.
    Ours,
    /// Another write's entries are on the page, or were.
    Taken,
    /// An earlier page still stands here; the leader has to read it first.
    Early,
    /// The document is invalid, so it is unknown whether a given write happened.
    Garbled(DocumentError),
    /// The place has moved on by so many pages that this is unknown, too.
    Overtaken,
}

/// Looks at a place for the page with this number, and for the given writes to it.
pub(super) fn look(found: Option<&Found<Page>>, number: u64, sent: &[Op]) -> Sight {
    let Some(found) = found else { return Sight::Empty { expect: Expect::Absent, before: None } };
    let page = match &found.content {
        Ok(page) => page,
        // The leader will clear this page away; until then it cannot be used.
        Err(_) if sent.is_empty() => return Sight::Taken,
        Err(error) => return Sight::Garbled(error.clone()),
    };
    if page.filled.iter().any(|op| sent.contains(op)) {
        return Sight::Ours;
    }
    if page.number < number {
        return Sight::Early;
    }
    if page.number == number && page.entries.is_empty() {
        let expect = Expect::At(found.version.clone());
        return Sight::Empty { expect, before: Some(page.clone()) };
    }
    let laps = (page.number - number) / INBOX_PAGES;
    if !sent.is_empty() && laps >= FILLS_KEPT as u64 {
        return Sight::Overtaken;
    }
    Sight::Taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::{Entry, Format};
    use tenure::CandidateId;
    use tenure::store::Version;

    fn op(number: u64) -> Op {
        Op::new(&CandidateId::from_bits(1), number)
    }

    fn found(page: Page) -> Found<Page> {
        Found { version: Version::new("1"), content: Ok(page) }
    }

    fn filled(number: u64, before: Option<&Page>, by: u64) -> Page {
        Page::filling(number, before, vec![Entry::NOTHING], op(by))
    }

    #[test]
    fn where_nothing_stands_the_page_is_empty() {
        assert!(matches!(look(None, 7, &[]), Sight::Empty { expect: Expect::Absent, .. }));
    }

    #[test]
    fn a_write_is_found_on_its_page_after_it_was_freed_and_after_others_used_the_place() {
        let mut page = filled(7, None, 1);
        assert_eq!(look(Some(&found(page.clone())), 7, &[op(9), op(1)]), Sight::Ours);
        page = page.cancelling(0, CandidateId::from_bits(2), op(100)).rewritten(op(101));
        for lap in 1..FILLS_KEPT as u64 {
            page = page.freed(op(200 + lap));
            assert_eq!(look(Some(&found(page.clone())), 7, &[op(1)]), Sight::Ours);
            page = filled(page.number, Some(&page), 300 + lap);
            assert_eq!(look(Some(&found(page.clone())), 7, &[op(1)]), Sight::Ours);
            assert_eq!(look(Some(&found(page.clone())), 7, &[op(9)]), Sight::Taken);
        }
        page = page.freed(op(400));
        page = filled(page.number, Some(&page), 401);
        assert_eq!(look(Some(&found(page.clone())), 7, &[op(1)]), Sight::Overtaken);
        assert_eq!(look(Some(&found(page)), 7, &[]), Sight::Taken);
    }

    #[test]
    fn a_place_that_still_shows_an_earlier_page_is_not_free() {
        let earlier = filled(7, None, 1);
        assert_eq!(look(Some(&found(earlier.clone())), 7 + INBOX_PAGES, &[]), Sight::Early);
        let freed = earlier.freed(op(2));
        let sight = look(Some(&found(freed.clone())), 7 + INBOX_PAGES, &[]);
        let expect = Expect::At(Version::new("1"));
        assert_eq!(sight, Sight::Empty { expect, before: Some(freed) });
    }

    #[test]
    fn what_makes_no_sense_is_passed_but_never_taken_for_an_answer() {
        let garbled = Found { version: Version::new("1"), content: Page::decode(b"{}") };
        assert_eq!(look(Some(&garbled), 7, &[]), Sight::Taken);
        assert!(matches!(look(Some(&garbled), 7, &[op(1)]), Sight::Garbled(_)));
    }
}
