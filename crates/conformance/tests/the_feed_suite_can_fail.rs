//! A checker must be seen to fail: each flaw of a feed is caught by its case.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt;
use serde_json::{Value, json};
use tenure::feed::{
    Beat, FeedStore, Found, Handle, Item, LEADER, MemoryFeed, Origin, Subscription,
};
use tenure::store::{Expect, Put, Reads, StoreError};
use tenure_conformance::feed::{self, FeedSubject, Times};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// Writes without checking the expected version.
    Unconditional,
    /// Leaves the stamp out.
    Unstamped,
    /// Reports a conflict for a write that it has applied.
    RetriesWrites,
    /// Merges new fields into the old ones.
    Merges,
    /// Shows its own documents as changes.
    ShowsMetadata,
    /// Begins every subscription at the start.
    ReplaysHistory,
    /// Shows nothing of the leader's document.
    HidesHeartbeats,
    /// Says that any table exists.
    StartsAnywhere,
}

#[derive(Clone, Debug)]
struct Flawed {
    inner: MemoryFeed,
    flaw: Flaw,
}

impl Flawed {
    async fn current(&self, table: &str, id: &str) -> Result<Option<Found>, StoreError> {
        Ok(self.inner.read(table, &[id.to_owned()]).await?.into_iter().next().flatten())
    }
}

#[async_trait]
impl FeedStore for Flawed {
    fn reads(&self) -> Reads {
        self.inner.reads()
    }

    fn table(&self) -> &str {
        self.inner.table()
    }

    async fn create(&self, table: &str) -> Result<(), StoreError> {
        self.inner.create(table).await
    }

    async fn start(&self, table: &str) -> Result<(), StoreError> {
        if self.flaw == Flaw::StartsAnywhere { Ok(()) } else { self.inner.start(table).await }
    }

    async fn read(&self, table: &str, ids: &[String]) -> Result<Vec<Option<Found>>, StoreError> {
        let mut found = self.inner.read(table, ids).await?;
        if self.flaw == Flaw::Unstamped {
            for found in found.iter_mut().flatten() {
                found.fields.remove("timestamp");
            }
        }
        Ok(found)
    }

    async fn heartbeat(&self, table: &str, mut beat: Beat) -> Result<Put, StoreError> {
        let there = self.current(table, &beat.id).await?;
        if self.flaw == Flaw::Unconditional {
            beat.expect = match &there {
                Some(found) => Expect::At(found.version.clone()),
                None => Expect::Absent,
            };
        }
        if let (Flaw::Merges, Some(there), Some(fields)) = (self.flaw, there, &mut beat.fields) {
            let mut merged = there.fields;
            merged.append(fields);
            *fields = merged;
        }
        let again = beat.clone();
        let put = self.inner.heartbeat(table, beat).await?;
        if self.flaw == Flaw::RetriesWrites {
            self.inner.heartbeat(table, again).await
        } else {
            Ok(put)
        }
    }

    async fn subscribe(&self, table: &str, from: Origin) -> Result<Subscription, StoreError> {
        let from = if self.flaw == Flaw::ReplaysHistory { Origin::Start } else { from };
        let (flaw, inner) = (self.flaw, self.inner.subscribe(table, from).await?);
        let shown = inner.filter_map(move |item| {
            std::future::ready(match (flaw, item) {
                (Flaw::HidesHeartbeats, Ok(Item::Leader(_))) => None,
                (Flaw::ShowsMetadata, Ok(Item::Leader(found))) => {
                    let change = json!({ "id": LEADER, "new": found.map(|found| found.fields) });
                    Some(Ok(Item::Change { change, cursor: None }))
                }
                (_, item) => Some(item),
            })
        });
        Ok(shown.boxed())
    }

    async fn unsubscribe(&self, subscription: Subscription) {
        drop(subscription);
    }

    fn handle(&self, table: &str, handle: Handle) -> Option<Arc<dyn Any + Send + Sync>> {
        self.inner.handle(table, handle)
    }
}

#[async_trait]
impl FeedSubject for Flawed {
    fn name(&self) -> &str {
        "flawed"
    }

    async fn open(&self) -> Arc<dyn FeedStore> {
        Arc::new(self.clone())
    }

    fn times(&self) -> Times {
        Times::brisk()
    }

    fn shows_the_past(&self) -> bool {
        true
    }

    async fn write(&self, table: &str, id: &str, n: u64) {
        self.inner.open(table).expect("the table was created").write(id, json!({ "n": n }));
    }

    async fn delete(&self, table: &str, id: &str) {
        self.inner.open(table).expect("the table was created").delete(id);
    }

    fn understand(&self, change: &Value) -> (String, Option<u64>) {
        let id = change["id"].as_str().expect("a change has an id");
        (id.to_owned(), change["new"]["n"].as_u64())
    }
}

macro_rules! caught {
    ($($name:ident: $flaw:ident by $theme:ident::$case:ident;)*) => {
        $(
            #[test]
            fn $name() {
                let check = |flaw| {
                    let flawed = Flawed { inner: MemoryFeed::new(), flaw };
                    catch_unwind(AssertUnwindSafe(|| {
                        feed::check(flawed, stringify!($case), |case| {
                            Box::pin(feed::$theme::$case(case))
                        });
                    }))
                };
                assert!(check(Flaw::None).is_ok(), "a sound feed passes");
                assert!(check(Flaw::$flaw).is_err(), "the flaw was not noticed");
            }
        )*
    };
}

caught! {
    a_feed_that_writes_whatever_is_expected_is_caught:
        Unconditional by documents::a_heartbeat_at_a_stale_version_is_a_conflict;
    a_feed_that_lets_many_win_is_caught:
        Unconditional by documents::of_twenty_who_create_the_leaders_document_one_wins;
    a_feed_without_the_servers_time_is_caught:
        Unstamped by documents::the_server_stamps_its_time_into_each_heartbeat;
    a_feed_that_retries_its_writes_is_caught:
        RetriesWrites by documents::a_document_is_read_back_with_every_field;
    a_feed_that_merges_is_caught: Merges by documents::a_heartbeat_replaces_every_field;
    a_feed_that_shows_metadata_is_caught:
        ShowsMetadata by subscriptions::no_document_of_ours_is_ever_a_change_not_even_its_deletion;
    a_feed_that_replays_history_is_caught:
        ReplaysHistory by subscriptions::nothing_of_the_past_is_shown;
    a_feed_that_replays_history_is_caught_from_above:
        ReplaysHistory by living::nothing_of_history_is_told_unless_it_is_asked_for;
    a_feed_that_hides_heartbeats_is_caught:
        HidesHeartbeats by algorithm::followers_read_nothing_while_heartbeats_are_shown;
    a_feed_that_starts_anywhere_is_caught:
        StartsAnywhere by documents::starting_on_a_table_that_does_not_exist_fails_for_good;
}

/// docs/adding-a-feed.md promises this.
#[test]
fn the_worked_example_has_fewer_than_200_lines_of_code() {
    let source = include_str!("../../tenure/src/feed/memory.rs");
    let code = source.lines().map(str::trim).filter(|line| !line.is_empty());
    let code = code.filter(|line| !line.starts_with("//")).count();
    assert!(code < 200, "{code} lines");
}
