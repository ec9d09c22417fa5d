//! One running case: its own table, its own handles, and a limit on its time.

use std::future::Future;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tenure::Backend;
use tenure::feed::{
    Beat, Builder, Event, Feed, FeedStore, Fields, Found, Item, LEADER, Origin, State, Subscription,
};
use tenure::store::{Expect, Put, StoreError, Version};

use futures_util::StreamExt;
use serde_json::Value;

use super::{FaultyFeed, FeedSubject, Times};

/// The longest time of a case; a longer one hangs.
const LONGEST_CASE: Duration = Duration::from_secs(120);
/// The longest wait for an expected event.
const LONGEST_WAIT: Duration = Duration::from_secs(40);

/// The context of a case.
pub struct Case {
    subject: Box<dyn FeedSubject>,
    name: &'static str,
    table: String,
    /// All feeds of the case. At most one of them may lead at any time.
    feeds: Arc<Mutex<Vec<Weak<Feed>>>>,
    faults: Arc<Mutex<Vec<String>>>,
}

/// A feed of a case, its handle on the database, and its events so far.
pub struct Member {
    /// The feed.
    pub feed: Arc<Feed>,
    /// Its handle on the database.
    pub store: Arc<FaultyFeed>,
    told: Arc<Mutex<Vec<Event>>>,
}

/// Runs one case on a runtime of its own. [`feed_conformance!`](crate::feed_conformance!) calls it.
///
/// # Panics
/// When the database fails the case, or the case takes too long.
pub fn check(
    subject: impl FeedSubject + 'static,
    name: &'static str,
    body: impl for<'a> FnOnce(&'a Case) -> Pin<Box<dyn Future<Output = ()> + 'a>>,
) {
    let table = format!("feed_{:012x}", rand::random::<u64>() >> 16);
    let subject = Box::new(subject);
    let case = Case { subject, name, table, feeds: Arc::default(), faults: Arc::default() };
    run(body(&case));
    let faults = lock(&case.faults).clone();
    assert!(faults.is_empty(), "two led at once: {faults:?}");
}

/// Runs a case to its end.
///
/// Compiled once for all cases, and not with each.
fn run(body: Pin<Box<dyn Future<Output = ()> + '_>>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be started");
    runtime.block_on(async {
        let limit = tokio::time::timeout(LONGEST_CASE, body);
        assert!(limit.await.is_ok(), "the case did not end within {LONGEST_CASE:?}");
    });
}

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (name, subject) = (self.name, self.subject.name());
            eprintln!("{subject} failed {name}; its table is {}", self.table);
        }
    }
}

impl Case {
    /// The database under test.
    #[must_use]
    pub fn subject(&self) -> &dyn FeedSubject {
        &*self.subject
    }

    /// The table of this case.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.table
    }

    /// A handle on the database, with this case's table created.
    pub async fn open(&self) -> Arc<dyn FeedStore> {
        let store = self.subject.open().await;
        store.create(&self.table).await.expect("the table is created");
        store.start(&self.table).await.expect("the table serves");
        store
    }

    /// A feed that is not started, with a handle of its own, and these times.
    pub async fn member(&self, id: &str, times: Times) -> Member {
        self.member_with(id, times, |builder| builder).await
    }

    /// A feed that is not started, with further settings.
    pub async fn member_with(
        &self,
        id: &str,
        times: Times,
        set_up: impl FnOnce(Builder) -> Builder,
    ) -> Member {
        let store = FaultyFeed::new(self.subject.open().await);
        let backend = Backend::memory().with_feed(store.clone());
        let told: Arc<Mutex<Vec<Event>>> = Arc::default();
        let (log, feeds, faults) = (told.clone(), self.feeds.clone(), self.faults.clone());
        let builder = Feed::builder(&backend)
            .id(id)
            .table(&self.table)
            .heartbeat_interval(times.heartbeat)
            .election_timeout_min(times.min)
            .election_timeout_max(times.max)
            .on_event(move |event| {
                if let Event::NewState(State::Leader) = event {
                    note_two_leaders(&feeds, &faults);
                }
                lock(&log).push(event.clone());
            });
        let feed = Arc::new(set_up(builder).build().expect("the settings are good"));
        lock(&self.feeds).push(Arc::downgrade(&feed));
        Member { feed, store, told }
    }

    /// A feed that is started, under calm times.
    pub async fn started(&self, id: &str) -> Member {
        self.started_with(id, Times::calm()).await
    }

    /// A feed that is started, with these times.
    pub async fn started_with(&self, id: &str, times: Times) -> Member {
        let member = self.member(id, times).await;
        member.feed.start().await.expect("the feed starts");
        member
    }

    /// A feed that leads, under calm times.
    pub async fn leading(&self, id: &str) -> Member {
        self.leading_with(id, Times::calm()).await
    }

    /// A feed that leads, with these times.
    pub async fn leading_with(&self, id: &str, times: Times) -> Member {
        let member = self.started_with(id, times).await;
        member.leads().await;
        member
    }

    /// The leader's document, which must be there.
    pub async fn record(&self) -> Found {
        found(&self.open().await, &self.table, LEADER).await.expect("there is a leader's document")
    }

    /// Writes to the table as one of its users.
    pub async fn write(&self, id: &str, n: u64) {
        self.subject.write(&self.table, id, n).await;
    }

    /// Says on stderr that this case needs a feature that the database does not offer.
    pub fn skip(&self, why: &str) {
        // Not `eprintln!`, which the test harness swallows when a test passes.
        let line = format!("{} skipped {}: {why}\n", self.subject.name(), self.name);
        // If stderr is closed, the message is lost.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    /// The documents of these changes, and their new numbers.
    pub fn understood(&self, changes: &[Value]) -> Vec<(String, Option<u64>)> {
        changes.iter().map(|change| self.subject.understand(change)).collect()
    }
}

fn note_two_leaders(feeds: &Mutex<Vec<Weak<Feed>>>, faults: &Mutex<Vec<String>>) {
    let feeds: Vec<Arc<Feed>> = lock(feeds).iter().filter_map(Weak::upgrade).collect();
    let leaders: Vec<&str> =
        feeds.iter().filter(|feed| feed.is_leader()).map(|feed| feed.id()).collect();
    if leaders.len() > 1 {
        lock(faults).push(leaders.join(" and "));
    }
}

impl Member {
    /// The events so far.
    #[must_use]
    pub fn told(&self) -> Vec<Event> {
        lock(&self.told).clone()
    }

    /// Forgets the events so far.
    pub fn forget(&self) {
        lock(&self.told).clear();
    }

    /// The states in the events so far.
    #[must_use]
    pub fn states(&self) -> Vec<State> {
        let state = |event: &Event| {
            if let Event::NewState(state) = event { Some(*state) } else { None }
        };
        self.told().iter().filter_map(state).collect()
    }

    /// The leaders in the events so far.
    #[must_use]
    pub fn leaders(&self) -> Vec<(String, u64)> {
        let leader = |event: &Event| {
            if let Event::NewLeader { leader, token } = event {
                Some((leader.clone(), *token))
            } else {
                None
            }
        };
        self.told().iter().filter_map(leader).collect()
    }

    /// The changes in the events so far.
    #[must_use]
    pub fn changes(&self) -> Vec<Value> {
        let change = |event: &Event| {
            if let Event::Change(change) = event { Some(change.clone()) } else { None }
        };
        self.told().iter().filter_map(change).collect()
    }

    /// Waits until it has emitted an event that `is` accepts.
    pub async fn tells(&self, what: &str, is: impl Fn(&Event) -> bool) {
        until(&format!("{} tells of {what}", self.feed.id()), async || self.told().iter().any(&is))
            .await;
    }

    /// Waits until it leads, and has emitted the event.
    pub async fn leads(&self) {
        let id = self.feed.id();
        until(&format!("{id} leads"), async || {
            self.feed.is_leader() && self.states().last() == Some(&State::Leader)
        })
        .await;
    }

    /// Waits until it follows this leader under this token, and has emitted the event.
    pub async fn follows(&self, leader: &str, token: u64) {
        let wanted = (leader.to_owned(), token);
        until(&format!("{} follows {leader}", self.feed.id()), async || {
            self.leaders().last() == Some(&wanted)
        })
        .await;
    }

    /// Its token, if it leads.
    #[must_use]
    pub fn token(&self) -> Option<u64> {
        self.feed.mandate().map(|mandate| mandate.token())
    }
}

/// Waits until the condition holds, by asking again and again.
pub(super) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let holds = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(LONGEST_WAIT, holds).await.is_ok(), "waited in vain until {what}");
}

/// Waits for a future that should resolve soon.
pub(super) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LONGEST_WAIT, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited in vain for {what}"),
    }
}

/// Reads a document of ours.
pub(super) async fn found(store: &Arc<dyn FeedStore>, table: &str, id: &str) -> Option<Found> {
    let found = store.read(table, &[id.to_owned()]).await.expect("the database answers");
    assert_eq!(found.len(), 1, "as many answers as questions");
    found.into_iter().next().flatten()
}

/// The fields of a document of ours, with a number to identify them.
pub(super) fn fields(id: &str, number: u64) -> Fields {
    let op = format!("{:016x}-{number}", rand::random::<u64>());
    let document = serde_json::json!({ "id": id, "value": "host-a", "token": number, "op": op });
    document.as_object().expect("an object").clone()
}

/// Writes a heartbeat with such fields.
pub(super) async fn beat(
    store: &Arc<dyn FeedStore>,
    table: &str,
    expect: Expect,
    fields: &Fields,
) -> Result<Put, StoreError> {
    let id = fields.get("id").and_then(Value::as_str).expect("an id").to_owned();
    store.heartbeat(table, Beat { id, expect, fields: Some(fields.clone()) }).await
}

/// The version of a heartbeat that must succeed.
pub(super) async fn stored(
    store: &Arc<dyn FeedStore>,
    table: &str,
    expect: Expect,
    fields: &Fields,
) -> Version {
    match beat(store, table, expect, fields).await {
        Ok(Put::Stored(version)) => version,
        other => panic!("writing {fields:?}: {other:?}"),
    }
}

/// A subscription from now on.
pub(super) async fn subscribed(store: &Arc<dyn FeedStore>, table: &str) -> Subscription {
    store.subscribe(table, Origin::Now).await.expect("the table can be followed")
}

/// The next change, or write of the leader's document.
pub(super) async fn next(subscription: &mut Subscription) -> Item {
    loop {
        let item = soon("the next item", subscription.next()).await;
        match item.expect("the subscription goes on").expect("the subscription goes well") {
            Item::Alive(_) => {}
            item @ (Item::Change { .. } | Item::Leader(_)) => return item,
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
