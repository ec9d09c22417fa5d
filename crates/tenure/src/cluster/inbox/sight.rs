//! What a place of the inbox shows somebody who wants to write a page there, or did.

use crate::cluster::books::Found;
use crate::cluster::documents::{DocumentError, FILLS_KEPT, INBOX_PAGES, Page};
use crate::lease::record::Op;
use crate::store::Expect;

/// What it shows.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// The page is there, and nobody has written on it.
    Empty { expect: Expect, before: Option<Page> },
    /// One of the writes asked about filled it.
    Ours,
    /// Somebody else's entries are on it, or were.
    Taken,
    /// A page before it is there, which has to be read first.
    Early,
    /// What is there makes no sense, and whether one of the writes asked about happened cannot be
    /// known.
    Garbled(DocumentError),
    /// So many pages were there since that it cannot be known either.
    Overtaken,
}

/// Looks at a place for the page of this number, and for these writes to it.
pub(super) fn look(found: Option<&Found<Page>>, number: u64, sent: &[Op]) -> Sight {
    let Some(found) = found else { return Sight::Empty { expect: Expect::Absent, before: None } };
    let page = match &found.content {
        Ok(page) => page,
        // The leader clears it away; until then it is only in the way.
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
    use crate::CandidateId;
    use crate::cluster::documents::{Entry, Format};
    use crate::store::Version;

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
