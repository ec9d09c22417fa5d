//! What is known about a document that somebody waits on.

/// How a document was at some revision of the whole store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// For a document that exists its own revision, else any at which it was absent; 0 for none.
    pub(super) revision: i64,
    pub(super) absent: bool,
}

/// What a newer view makes of an older one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is of the same age: whoever holds it waits.
    Same,
    /// It is newer than all that is known: whoever held another is woken.
    Newer,
    /// It is out of date.
    Stale,
}

impl Known {
    /// Compares what somebody saw with what is known.
    pub(super) fn judge(self, seen: Known) -> Verdict {
        match seen.revision.cmp(&self.revision) {
            std::cmp::Ordering::Less => Verdict::Stale,
            std::cmp::Ordering::Greater => Verdict::Newer,
            std::cmp::Ordering::Equal if seen.absent == self.absent => Verdict::Same,
            std::cmp::Ordering::Equal => Verdict::Stale,
        }
    }
}

/// How the caller's last look at a document went, and how recent it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Glimpse {
    /// The document's own revision; 0 when it was absent.
    pub(super) document: i64,
    /// When the document was made; 0 when it was absent, or when nobody asked.
    pub(super) created: i64,
    /// The store's revision at that time.
    pub(super) store: i64,
}

/// What is waited on, and from where a watch would have to begin. None: it cannot be as it was
/// seen.
pub(super) fn begin(seen: Option<i64>, glimpse: Option<Glimpse>) -> (Known, i64) {
    let glimpse = glimpse.filter(|glimpse| glimpse.document == seen.unwrap_or(0));
    match (seen, glimpse) {
        // Everything until that look is known: a watch from there on does not wait for the server's
        // catching up.
        (Some(revision), Some(glimpse)) => {
            (Known { revision, absent: false }, glimpse.store.max(revision) + 1)
        }
        (Some(revision), None) => (Known { revision, absent: false }, revision + 1),
        (None, Some(glimpse)) => {
            (Known { revision: glimpse.store, absent: true }, glimpse.store + 1)
        }
        // Nobody knows when it was absent. The watch begins now, and its beginning wakes the
        // caller.
        (None, None) => (Known { revision: 0, absent: true }, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn present(revision: i64) -> Known {
        Known { revision, absent: false }
    }

    const fn absent(revision: i64) -> Known {
        Known { revision, absent: true }
    }

    #[test]
    fn only_what_is_as_new_as_all_that_is_known_waits() {
        for (known, seen, verdict) in [
            (present(5), present(5), Verdict::Same),
            (present(5), present(4), Verdict::Stale),
            (present(5), present(6), Verdict::Newer),
            (present(5), absent(4), Verdict::Stale),
            (present(5), absent(5), Verdict::Stale),
            (absent(5), absent(5), Verdict::Same),
            (absent(5), absent(0), Verdict::Stale),
            (absent(5), present(6), Verdict::Newer),
        ] {
            assert_eq!(known.judge(seen), verdict, "{known:?} {seen:?}");
        }
    }

    #[test]
    fn a_watch_begins_after_the_last_look() {
        let glimpse = |document, store| Some(Glimpse { document, created: 0, store });
        assert_eq!(begin(Some(5), glimpse(5, 9)), (present(5), 10));
        assert_eq!(begin(Some(5), glimpse(4, 9)), (present(5), 6));
        assert_eq!(begin(Some(5), None), (present(5), 6));
        assert_eq!(begin(None, glimpse(0, 9)), (absent(9), 10));
        assert_eq!(begin(None, glimpse(4, 9)), (absent(0), 0));
    }
}
