//! One running case: its own keys, its own handles, and a limit on its time.

use std::future::Future;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure::store::{Document, Expect, Put, Reads, Store, StoreExt, Version};
use tenure::{Backend, Candidate, Election, Key, Leadership, Protocol, Timing};

use super::{Faulty, Subject};

/// The longest time of a case; a longer one hangs.
const LONGEST_CASE: Duration = Duration::from_secs(180);
/// The longest wait for an expected event. Shorter than the calm ttl, so that no expiry ends a
/// wait.
const LONGEST_WAIT: Duration = Duration::from_secs(25);

/// The context of a case.
pub struct Case {
    subject: Box<dyn Subject>,
    name: &'static str,
    prefix: String,
    /// Whether this case is about leases, even if the backend has queues.
    leases: AtomicBool,
    said: AtomicBool,
}

/// Runs one case on a runtime of its own. [`conformance!`](crate::conformance!) calls it.
///
/// # Panics
/// When the store fails the case, or the case takes too long.
pub fn check(
    subject: impl Subject + 'static,
    name: &'static str,
    body: impl for<'a> FnOnce(&'a Case) -> Pin<Box<dyn Future<Output = ()> + 'a>>,
) {
    let prefix = format!("t{:012x}", rand::random::<u64>() >> 16);
    let (leases, said) = (AtomicBool::new(false), AtomicBool::new(false));
    let case = Case { subject: Box::new(subject), name, prefix, leases, said };
    run(body(&case));
}

/// Runs a case to its end.
///
/// Compiled once for all cases, and not with each: there are thousands of them.
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
            eprintln!("{subject} failed {name}; its keys have the prefix {}", self.prefix);
        }
    }
}

/// Handles, keys and names.
impl Case {
    /// A new handle on the storage, as another process would have it.
    pub async fn open(&self) -> Backend {
        let backend = self.subject.open().await;
        if !self.leases.load(Ordering::Relaxed) || backend.queue().is_none() {
            return backend;
        }
        if !self.said.swap(true, Ordering::Relaxed) {
            self.say("ran", "on the lease protocol: it looks at, or breaks, the record of a lease");
        }
        backend.without_queue()
    }

    /// Makes every later handle elect by leases.
    ///
    /// Call it in a case that looks at their record, or breaks it.
    pub fn on_leases(&self) {
        self.leases.store(true, Ordering::Relaxed);
    }

    /// A new handle, for cases that look only at documents.
    pub async fn store(&self) -> Arc<dyn Store> {
        self.open().await.store().clone()
    }

    /// A new handle, through a store that can be made to fail.
    ///
    /// Only documents can be made to fail, so such a case is about leases ([`Case::on_leases`]).
    pub async fn faulty(&self) -> (Backend, Arc<Faulty>) {
        self.on_leases();
        let backend = self.open().await;
        let faulty = Faulty::new(backend.store().clone());
        let mut wrapped = Backend::new(faulty.clone());
        if let Some(presence) = backend.presence() {
            wrapped = wrapped.with_presence(presence.clone());
        }
        (wrapped, faulty)
    }

    /// The key above all keys of this case.
    #[must_use]
    pub fn root(&self) -> Key {
        Key::parse(&format!("conformance/{}", self.prefix)).expect("a good key")
    }

    /// A key of this case.
    #[must_use]
    pub fn key(&self, below: &str) -> Key {
        Key::parse(&format!("{}/{below}", self.root())).expect("a good key")
    }

    /// A text that is unique to this case, to begin names with.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The name of the one election that most cases need.
    #[must_use]
    pub fn election(&self) -> String {
        format!("{}/primary", self.prefix)
    }

    /// The key of that election's record.
    #[must_use]
    pub fn record(&self) -> Key {
        Key::election(&self.election().parse().expect("a good name"))
    }

    /// Times under which no lease expires while a case runs.
    #[must_use]
    pub fn calm(&self) -> Timing {
        Timing::new(Duration::from_secs(30)).expect("half a minute leaves room for every part")
    }

    /// The subject's times, for a lease that must expire.
    #[must_use]
    pub fn brisk(&self) -> Timing {
        self.subject.timing()
    }

    /// That election, opened on this handle; no lease expires while the case runs.
    pub async fn enter(&self, backend: &Backend) -> Election {
        self.enter_with(backend, self.calm()).await
    }

    /// Leads in that election; no lease expires while the case runs.
    pub async fn lead(&self, backend: &Backend, name: &str) -> Leadership {
        lead(&self.enter(backend).await, name).await
    }

    /// Leads in that election, with leases that expire soon.
    pub async fn lead_briskly(&self, backend: &Backend, name: &str) -> Leadership {
        lead(&self.enter_briskly(backend).await, name).await
    }

    /// Where the record of that election is, once its next write is a claim, with token 2.
    ///
    /// The first candidate on a weak store writes to a new record before it claims.
    pub async fn record_led_once(&self, backend: &Backend) -> Key {
        self.lead(backend, "first").await.resign().await;
        self.record()
    }

    /// That election, with leases that expire soon.
    pub async fn enter_briskly(&self, backend: &Backend) -> Election {
        self.enter_with(backend, self.brisk()).await
    }

    /// That election, opened on this handle with these times.
    pub async fn enter_with(&self, backend: &Backend, timing: Timing) -> Election {
        let name = self.election();
        let builder = Election::builder(backend, &name).timing(timing).create_if_missing(true);
        builder.open().await.expect("the election opens")
    }

    /// Says on stderr that this case needs a feature that the store does not offer.
    pub fn skip(&self, why: &str) {
        self.say("skipped", why);
    }

    fn say(&self, what: &str, why: &str) {
        // Not `eprintln!`, which the test harness swallows when a test passes.
        let line = format!("{} {what} {}: {why}\n", self.subject.name(), self.name);
        // If stderr is closed, the message is lost.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

/// Opens an election with this name, and creates it if it is missing.
pub(super) async fn opened(backend: &Backend, name: &str) -> Result<Election, tenure::Error> {
    Election::builder(backend, name).create_if_missing(true).open().await
}

/// Returns true if the elections of this handle are queues.
pub(super) fn in_line(backend: &Backend) -> bool {
    backend.protocol() == Protocol::Queue
}

/// Waits until this candidate leads.
pub(super) async fn lead(election: &Election, name: &str) -> Leadership {
    let campaign = election.campaign(candidate(name));
    soon(&format!("{name} to lead"), campaign).await.expect("elected")
}

/// A candidate with this name.
pub(super) fn candidate(name: &str) -> Candidate {
    Candidate::new(name).expect("a good name")
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

/// The version of a write that must succeed.
pub(super) async fn stored(
    store: &dyn Store,
    key: &Key,
    expect: Expect,
    body: impl Into<bytes::Bytes>,
) -> Version {
    match store.put(key, expect, body.into()).await {
        Ok(Put::Stored(version)) => version,
        other => panic!("writing {key}: {other:?}"),
    }
}

/// A document that must be there.
pub(super) async fn found(store: &dyn Store, key: &Key) -> Document {
    store.get(key).await.expect("the store answers").unwrap_or_else(|| panic!("{key} is missing"))
}

/// Replaces the current document, as a user with an editor would.
pub(crate) async fn overwrite(store: &dyn Store, key: &Key, body: impl Into<bytes::Bytes>) {
    let body = body.into();
    until("the document is overwritten", async || {
        let expect = match store.get(key).await.expect("the store answers") {
            Some(document) => Expect::At(document.version),
            None => Expect::Absent,
        };
        matches!(store.put(key, expect, body.clone()).await, Ok(Put::Stored(_)))
    })
    .await;
}

/// Returns true if a read of this store always shows the current state.
pub(super) fn reads_prove(store: &dyn Store) -> bool {
    store.reads() == Reads::Linearizable
}
