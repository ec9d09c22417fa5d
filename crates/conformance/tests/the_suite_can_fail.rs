//! A checker must be seen to fail: each flaw of a store is caught by its case.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tenure::store::{
    Document, Expect, Page, Put, Reads, Store, StoreError, StoreExt, Version, Write,
};
use tenure::{Backend, Key, MemoryStore, Timing};
use tenure_conformance::suite::{self, Subject};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// Writes without checking the expected version.
    Unconditional,
    /// Deletes without checking the expected version.
    DeletesAnything,
    /// Retries a write that was applied, and so reports a conflict.
    RetriesWrites,
    /// Answers each key once.
    AnswersOnce,
    /// One conflict undoes the rest of a batch.
    Transactional,
    /// Lists in an order of its own.
    Unordered,
    /// Begins every page at the beginning.
    ForgetsThePage,
    /// Lists keys that merely begin with the prefix's text.
    ListsLookAlikes,
    /// Takes `A` for `a`.
    FoldsCase,
    /// Takes `%2F` for `%2f`, and so on.
    DecodesKeys,
    /// Cuts off the bytes after a NUL.
    CutsAtNul,
    /// Shows the document from before the last write.
    ShowsTheSecondNewest,
}

#[derive(Clone, Debug)]
struct Flawed {
    inner: MemoryStore,
    flaw: Flaw,
    /// The state of each document before its last write.
    before: Arc<Mutex<BTreeMap<Key, Document>>>,
}

impl Flawed {
    fn key(&self, key: &Key) -> Key {
        let mut text = key.as_str().to_owned();
        if self.flaw == Flaw::FoldsCase {
            text = text.to_lowercase();
        }
        if self.flaw == Flaw::DecodesKeys {
            text = text.replace("%2F", "%2f");
        }
        Key::parse(&text).expect("still a key")
    }

    async fn write(&self, mut write: Write) -> Result<Put, StoreError> {
        write.key = self.key(&write.key);
        let there = self.inner.get(&write.key).await?;
        let deletes = write.body.is_none();
        if self.flaw == Flaw::Unconditional || (self.flaw == Flaw::DeletesAnything && deletes) {
            write.expect = match &there {
                Some(document) => Expect::At(document.version.clone()),
                None => Expect::Absent,
            };
        }
        if self.flaw == Flaw::CutsAtNul
            && let Some(body) = &mut write.body
            && let Some(nul) = body.iter().position(|byte| *byte == 0)
        {
            body.truncate(nul);
        }
        let again = write.clone();
        let put = self.inner.put_one(write).await?;
        if let (Some(there), Put::Stored(_)) = (there, &put) {
            self.before.lock().expect("no panic while it is held").insert(again.key.clone(), there);
        }
        if self.flaw == Flaw::RetriesWrites { self.inner.put_one(again).await } else { Ok(put) }
    }
}

#[async_trait]
impl Store for Flawed {
    fn reads(&self) -> Reads {
        Reads::Linearizable
    }

    fn notifies(&self) -> bool {
        true
    }

    fn forgets_deleted(&self) -> bool {
        true
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError> {
        let keys: Vec<Key> = keys.iter().map(|key| self.key(key)).collect();
        let mut found = self.inner.get_many(&keys).await?;
        let before = self.before.lock().expect("no panic while it is held");
        let mut asked = BTreeSet::new();
        for (key, document) in keys.iter().zip(&mut found) {
            let repeated = !asked.insert(key);
            if self.flaw == Flaw::AnswersOnce && repeated {
                *document = None;
            }
            if self.flaw == Flaw::ShowsTheSecondNewest {
                *document = before.get(key).cloned().or(document.take());
            }
        }
        Ok(found)
    }

    async fn put_many(&self, writes: Vec<Write>) -> Vec<Result<Put, StoreError>> {
        let mut outcomes = Vec::new();
        let mut conflict = false;
        for write in writes {
            if conflict && self.flaw == Flaw::Transactional {
                outcomes.push(Ok(Put::Conflict));
                continue;
            }
            let outcome = self.write(write).await;
            conflict |= matches!(outcome, Ok(Put::Conflict));
            outcomes.push(outcome);
        }
        outcomes
    }

    async fn list(
        &self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let after = after.filter(|_| self.flaw != Flaw::ForgetsThePage);
        let mut page = self.inner.list(prefix, after, limit).await?;
        if self.flaw == Flaw::Unordered {
            page.documents.reverse();
        }
        if self.flaw == Flaw::ListsLookAlikes {
            let (above, _) = prefix.as_str().rsplit_once('/').unwrap_or((prefix.as_str(), ""));
            let above = Key::parse(above).expect("a key above");
            page = self.inner.list(&above, after, limit).await?;
            page.documents.retain(|(key, _)| key.as_str().starts_with(prefix.as_str()));
        }
        Ok(page)
    }

    async fn changed(&self, key: &Key, seen: Option<&Version>) {
        self.inner.changed(&self.key(key), seen).await;
    }
}

#[async_trait]
impl Subject for Flawed {
    fn name(&self) -> &str {
        "flawed"
    }

    async fn open(&self) -> Backend {
        Backend::new(Arc::new(self.clone()))
    }

    fn timing(&self) -> Timing {
        Timing::default()
    }
}

macro_rules! each_flaw_is_caught {
    ($($test:ident: $flaw:ident by $theme:ident::$case:ident,)*) => {
        $(
            #[test]
            fn $test() {
                let run = |flaw| {
                    let flawed = Flawed { inner: MemoryStore::new(), flaw, before: Arc::default() };
                    catch_unwind(AssertUnwindSafe(|| {
                        suite::check(flawed, stringify!($case), |case| {
                            Box::pin(suite::$theme::$case(case))
                        });
                    }))
                };
                assert!(run(Flaw::None).is_ok(), "a sound store must pass");
                assert!(run(Flaw::$flaw).is_err(), "nobody noticed");
            }
        )*
    };
}

each_flaw_is_caught! {
    a_write_that_ignores_its_condition: Unconditional
        by documents::a_write_at_a_stale_version_is_a_conflict,
    a_create_that_overwrites: Unconditional by races::of_a_hundred_who_create_a_document_one_wins,
    a_lost_update: Unconditional by races::no_update_is_lost_among_concurrent_writers,
    a_deletion_that_ignores_its_condition: DeletesAnything
        by documents::a_deletion_at_a_stale_version_is_a_conflict,
    a_write_that_is_retried: RetriesWrites
        by documents::a_document_is_read_back_at_the_version_its_write_gave,
    a_repeated_key_that_is_answered_once: AnswersOnce
        by batches::documents_are_read_in_the_order_asked_for,
    a_batch_that_is_a_transaction: Transactional
        by batches::writes_of_a_batch_succeed_and_fail_on_their_own,
    a_listing_out_of_order: Unordered by listing::documents_are_listed_in_the_order_of_their_keys,
    a_page_that_begins_again: ForgetsThePage
        by listing::a_page_begins_after_a_key_whether_it_exists_or_not,
    a_listing_of_look_alikes: ListsLookAlikes
        by listing::only_what_is_strictly_below_the_prefix_is_listed,
    a_store_that_folds_case: FoldsCase by names::odd_names_are_kept_apart_and_listed_as_they_are,
    a_store_that_confuses_encodings: DecodesKeys
        by names::odd_names_are_kept_apart_and_listed_as_they_are,
    a_body_that_ends_at_nul: CutsAtNul by bodies::odd_bodies_are_kept_byte_by_byte,
    a_read_that_is_old: ShowsTheSecondNewest
        by documents::another_handle_reads_what_was_acknowledged,
}
