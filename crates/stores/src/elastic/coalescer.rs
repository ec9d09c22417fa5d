//! Sends only the first of several writes to one version of a document.
//!
//! At most one of them can succeed. Hundreds of candidates of one process may try the same write at
//! the same moment, such as to confirm an end. Their requests would only delay each other, and all
//! other requests.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tenure::Key;
use tenure::store::{Expect, Fault, Put, Version, Write};
use tokio::sync::watch;

use super::fault::Failure;

/// The writes of a store that are under way, by key and expected version.
///
/// Each has a channel to the writes that wait behind it, once there are any.
#[derive(Debug, Default)]
pub(super) struct WriteCoalescer {
    under_way: Mutex<UnderWay>,
}

type UnderWay = HashMap<(Key, Version), Option<watch::Sender<bool>>>;

/// The turn of a write: first, or behind another.
pub(super) enum Turn<'a> {
    /// The write may be sent: it is the first, or it expects an absent document.
    First(First<'a>),
    /// Another write to this version is under way.
    Behind(Behind),
}

/// The write that is sent. Others wait until it is dropped.
pub(super) struct First<'a> {
    coalescer: &'a WriteCoalescer,
    /// None for a write that others cannot wait behind.
    place: Option<(Key, Version)>,
    decided: bool,
}

/// A write that is not sent.
pub(super) struct Behind {
    decided: watch::Receiver<bool>,
}

impl WriteCoalescer {
    pub(super) fn take(&self, write: &Write) -> Turn<'_> {
        let first = |place| Turn::First(First { coalescer: self, place, decided: false });
        let Expect::At(version) = &write.expect else {
            // An absent document may be absent again later, so each of these writes has to ask.
            return first(None);
        };
        let place = (write.key.clone(), version.clone());
        match self.lock().entry(place.clone()) {
            Entry::Occupied(mut under_way) => {
                let tell = under_way.get_mut().get_or_insert_with(|| watch::channel(false).0);
                Turn::Behind(Behind { decided: tell.subscribe() })
            }
            Entry::Vacant(nobody) => {
                nobody.insert(None);
                first(Some(place))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        // Every change is complete before the next can panic.
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl First<'_> {
    /// Records that the outcome is known.
    ///
    /// Whether the write was stored or not, the document is not at that version, and never will be
    /// again.
    pub(super) fn decided(mut self) {
        self.decided = true;
    }
}

impl Drop for First<'_> {
    fn drop(&mut self) {
        let behind = self.place.take().and_then(|place| self.coalescer.lock().remove(&place));
        if let Some(tell) = behind.flatten() {
            // If the outcome is unknown, the writes behind learn only that the first one is gone.
            tell.send_replace(self.decided);
        }
    }
}

impl Behind {
    /// The outcome of a write that was not sent.
    pub(super) async fn outcome(mut self) -> Result<Put, Failure> {
        match self.decided.wait_for(|decided| *decided).await {
            Ok(_) => Ok(Put::Conflict),
            Err(_) => {
                let says = "another write to this version is in doubt; this one was not sent";
                Err(Failure::new(Fault::Unavailable, says))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use tenure::store::Durability;

    fn write(expect: Expect) -> Write {
        let key = Key::parse("elections/a").expect("a good key");
        Write { key, expect, body: None, durability: Durability::Lasting }
    }

    fn at(version: &str) -> Write {
        write(Expect::At(Version::new(version)))
    }

    fn first<'a>(coalescer: &'a WriteCoalescer, write: &Write) -> First<'a> {
        match coalescer.take(write) {
            Turn::First(first) => first,
            Turn::Behind(_) => panic!("somebody was before it"),
        }
    }

    fn behind(coalescer: &WriteCoalescer, write: &Write) -> Behind {
        match coalescer.take(write) {
            Turn::Behind(behind) => behind,
            Turn::First(_) => panic!("nobody was before it"),
        }
    }

    #[tokio::test]
    async fn who_comes_second_to_a_version_has_a_conflict_once_the_first_is_decided() {
        let coalescer = WriteCoalescer::default();
        let one = first(&coalescer, &at("1:1"));
        let _other_version = first(&coalescer, &at("2:1"));
        let two = behind(&coalescer, &at("1:1"));
        let three = behind(&coalescer, &at("1:1"));
        assert!(behind(&coalescer, &at("1:1")).outcome().now_or_never().is_none());
        one.decided();
        assert_eq!(two.outcome().await, Ok(Put::Conflict));
        assert_eq!(three.outcome().await, Ok(Put::Conflict));
        drop(first(&coalescer, &at("1:1")));
    }

    #[tokio::test]
    async fn behind_a_write_in_doubt_nothing_was_sent() {
        let coalescer = WriteCoalescer::default();
        let one = first(&coalescer, &at("1:1"));
        let two = behind(&coalescer, &at("1:1"));
        drop(one);
        assert_eq!(two.outcome().await.expect_err("not sent").fault, Fault::Unavailable);
        drop(first(&coalescer, &at("1:1")));
    }

    #[test]
    fn creations_do_not_wait_for_each_other() {
        let coalescer = WriteCoalescer::default();
        let _one = first(&coalescer, &write(Expect::Absent));
        let _two = first(&coalescer, &write(Expect::Absent));
    }
}
