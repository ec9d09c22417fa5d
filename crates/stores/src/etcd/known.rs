//! The known state of a document that is waited on.

/// The state of a document at some revision of the whole store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// The document's own revision. If it is absent: a revision at which it was absent, or 0 for
    /// none.
    pub(super) revision: i64,
    pub(super) absent: bool,
}

/// The age of a caller's view, compared with the known state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is as new as the known state: the caller waits.
    Same,
    /// It is newer than the known state: callers with an older view are woken.
    Newer,
    /// It is out of date.
    Stale,
}

impl Known {
    /// Compares a caller's view with the known state.
    pub(super) fn judge(self, seen: Known) -> Verdict {
        match seen.revision.cmp(&self.revision) {
            std::cmp::Ordering::Less => Verdict::Stale,
            std::cmp::Ordering::Greater => Verdict::Newer,
            std::cmp::Ordering::Equal if seen.absent == self.absent => Verdict::Same,
            std::cmp::Ordering::Equal => Verdict::Stale,
        }
    }
}

/// The caller's last look at a document, and how recent it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Glimpse {
    /// The document's own revision; 0 when it was absent.
    pub(super) document: i64,
    /// The document's create revision; 0 if it was absent, or if the look did not ask for it.
    pub(super) created: i64,
    /// The store's revision at that time.
    pub(super) store: i64,
}

/// The state that is waited on, and the revision from which a watch has to begin.
pub(super) fn begin(seen: Option<i64>, glimpse: Option<Glimpse>) -> (Known, i64) {
    let glimpse = glimpse.filter(|glimpse| glimpse.document == seen.unwrap_or(0));
    match (seen, glimpse) {
        // Every change up to that look is known. A watch from there on does not wait for the server
        // to catch up.
        (Some(revision), Some(glimpse)) => {
            (Known { revision, absent: false }, glimpse.store.max(revision) + 1)
        }
        (Some(revision), None) => (Known { revision, absent: false }, revision + 1),
        (None, Some(glimpse)) => {
            (Known { revision: glimpse.store, absent: true }, glimpse.store + 1)
        }
        // The revision of its absence is unknown. The watch begins now, and its beginning wakes the
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
