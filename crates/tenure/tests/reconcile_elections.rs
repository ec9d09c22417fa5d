//! The reconciliation on elections of this library: which candidate may lead, and when.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure::reconcile::{
    Context, ElectionSource, Event, Finished, Handler, ReconcileError, Reconciler, Release, Source,
    State, Stopper,
};
use tenure::store::{Document, Fault, Page, Put, Reads, Store, StoreError, Version, Write};
use tenure::{Backend, Candidate, Election, ElectionState, Error, Key, MemoryStore, Timing};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A short ttl, so that waiting for a lease does not take long, but long enough for a busy machine
/// to renew it.
fn timing() -> Timing {
    Timing::new(Duration::from_secs(4)).expect("it fits")
}

async fn open(backend: &Backend) -> Election {
    Election::builder(backend, "jobs").timing(timing()).open().await.expect("it opens")
}

fn candidate(name: &str) -> Candidate {
    Candidate::new(name).expect("a good name")
}

struct Elector {
    stopper: Stopper,
    states: watch::Receiver<State>,
    run: JoinHandle<Result<Finished, ReconcileError>>,
}

impl Elector {
    fn start(election: &Election, name: &str, reconciler: Reconciler) -> Elector {
        let source = ElectionSource::new(election.clone(), candidate(name));
        let (stopper, states) = (reconciler.stopper(), reconciler.states());
        let run = tokio::spawn(async move { reconciler.run(source).await });
        Elector { stopper, states, run }
    }

    async fn until(&mut self, condition: impl FnMut(&State) -> bool) -> State {
        let seen = tokio::time::timeout(Duration::from_secs(60), self.states.wait_for(condition));
        *seen.await.expect("within a minute").expect("open")
    }

    async fn leads(&mut self) -> u64 {
        let state = self.until(|state| matches!(state, State::Leading { .. })).await;
        let State::Leading { token } = state else { panic!("{state:?}") };
        token
    }

    async fn stop(self) -> Result<Finished, ReconcileError> {
        self.stopper.stop();
        self.run.await.expect("no panic")
    }
}

fn fails_once() -> Handler {
    let failed = Arc::new(AtomicBool::new(false));
    Handler::closure(move |_| {
        let first = !failed.swap(true, Ordering::SeqCst);
        async move { if first { Err("not today") } else { Ok(()) } }
    })
}

#[tokio::test]
async fn after_an_error_another_leads_meanwhile_and_the_first_stands_again() {
    let backend = Backend::memory();
    let election = open(&backend).await;
    let error_timeout = Duration::from_secs(8);
    let failing = Reconciler::builder()
        .begin(fails_once())
        .error_timeout(error_timeout)
        .build()
        .expect("good settings");
    let began = std::time::Instant::now();
    let mut first = Elector::start(&election, "a", failing);
    first.until(|state| *state == State::Failing).await;
    // The lease was released: one that ran out would be lapsed.
    let free = async {
        while election.standing().await.expect("read").state != ElectionState::Free {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), free).await.expect("released");
    let second = Reconciler::builder().build().expect("good settings");
    let mut second = Elector::start(&election, "b", second);
    assert_eq!(second.leads().await, 2);
    assert_eq!(*first.states.borrow(), State::Failing);
    first.until(|state| *state == State::NotLeading).await;
    assert!(began.elapsed() >= error_timeout, "it waited");
    assert_eq!(second.stop().await, Ok(Finished::Stopped));
    assert_eq!(first.leads().await, 3);
    assert_eq!(first.stop().await, Ok(Finished::Stopped));
    assert_eq!(election.standing().await.expect("read").state, ElectionState::Free);
}

#[tokio::test]
async fn while_an_end_runs_nobody_else_leads() {
    let backend = Backend::memory();
    let election = open(&backend).await;
    let ended = Arc::new(AtomicBool::new(false));
    let flag = ended.clone();
    let slow = Reconciler::builder()
        .end_timeout(Duration::from_secs(20))
        .end(Handler::closure(move |_| {
            let flag = flag.clone();
            async move {
                // Longer than the ttl: the lease must be renewed meanwhile.
                tokio::time::sleep(timing().ttl() + Duration::from_secs(1)).await;
                flag.store(true, Ordering::SeqCst);
                Ok::<(), String>(())
            }
        }))
        .build()
        .expect("good settings");
    let mut first = Elector::start(&election, "a", slow);
    first.leads().await;
    let mut second = election.stand(candidate("b")).expect("it stands");
    first.stopper.stop();
    let second = second.elected().await.expect("elected");
    assert!(ended.load(Ordering::SeqCst));
    assert_eq!(second.mandate().token(), 2);
    assert_eq!(first.run.await.expect("no panic"), Ok(Finished::Stopped));
}

#[tokio::test]
async fn a_stuck_leader_stops_renewing_and_is_replaced_only_by_expiry() {
    let backend = Backend::memory();
    let election = open(&backend).await;
    let resort = Arc::new(std::sync::Mutex::new(None));
    let seen = resort.clone();
    let stuck = Reconciler::builder()
        .end(Handler::closure(async |_| Err("never")))
        .end_retry(Duration::from_millis(1), 3)
        .on_stuck(Handler::closure(move |context| {
            let mandate = context.mandate.expect("a mandate");
            let (now, left) = (std::time::Instant::now(), mandate.remaining());
            *seen.lock().expect("no panic") = Some((now, left, mandate));
            async { Ok::<(), String>(()) }
        }))
        .build()
        .expect("good settings");
    let mut first = Elector::start(&election, "a", stuck);
    first.leads().await;
    let mut second = election.stand(candidate("b")).expect("it stands");
    first.stopper.stop();
    let second = second.elected().await.expect("elected");
    let taken = std::time::Instant::now();
    let (abandoned, left, mandate) = resort.lock().expect("no panic").take().expect("it was run");
    // No candidate takes a lease before the end of the window that its holder last proved.
    assert!(taken - abandoned >= left, "after {:?} of {left:?}", taken - abandoned);
    assert!(!left.is_zero() && !mandate.is_leader());
    assert_eq!(second.mandate().token(), 2);
    let error = first.run.await.expect("no panic").expect_err("stuck");
    assert!(matches!(error, ReconcileError::Stuck { token: 1, attempts: 3, .. }), "{error}");
    assert!(abandoned.elapsed() >= timing().ttl(), "it outlives the lease it left behind");
}

#[tokio::test]
async fn a_dropped_run_frees_nothing_before_its_lease_is_over() {
    let backend = Backend::memory();
    let election = open(&backend).await;
    let (told, begun) = std::sync::mpsc::channel();
    let begin = Handler::closure(move |context: Context| {
        let sent = told.send(context.mandate.expect("a mandate"));
        async move { sent }
    });
    let reconciler = Reconciler::builder().begin(begin).build().expect("good settings");
    let mut first = Elector::start(&election, "a", reconciler);
    first.leads().await;
    let mandate = begun.try_recv().expect("the begin was run");
    let (dropped, left) = (std::time::Instant::now(), mandate.remaining());
    first.run.abort();
    let _ = first.run.await;
    let second = election.campaign(candidate("b")).await.expect("elected");
    assert!(!left.is_zero(), "it led");
    assert!(dropped.elapsed() >= left, "after {:?} of {left:?}", dropped.elapsed());
    drop(second);
}

#[tokio::test]
async fn an_election_that_ends_ends_the_work_then_the_source() {
    let backend = Backend::memory();
    let election = open(&backend).await;
    let reconciler = Reconciler::builder().build().expect("good settings");
    let mut states = reconciler.states();
    let mut source = ElectionSource::new(election.clone(), candidate("a"));
    let end = async {
        states.wait_for(|state| matches!(state, State::Leading { .. })).await.expect("open");
        election.end().await.expect("ended");
    };
    let (finished, ()) = tokio::join!(reconciler.run(&mut source), end);
    assert_eq!(finished, Ok(Finished::SourceEnded));
    assert!(matches!(source.ended_by(), Some(Error::Ended { .. })), "{source:?}");
}

#[tokio::test]
async fn an_election_that_is_deleted_ends_the_source_after_the_work_has_ended() {
    let backend = Backend::memory();
    let election = open(&backend).await;
    let mut source = ElectionSource::new(election.clone(), candidate("a"));
    let Some(Event::Leader { token: 1, mandate: Some(mandate) }) = source.next().await else {
        panic!("{source:?}");
    };
    election.delete().await.expect("deleted");
    mandate.lost().await;
    let told = source.next().await;
    assert!(matches!(told, Some(Event::NotLeader { .. })), "{told:?}");
    let early = tokio::time::timeout(Duration::from_millis(20), source.next()).await;
    assert!(early.is_err(), "nothing follows before the work has ended: {early:?}");
    source.release(Release::StandAgain).await;
    assert!(source.next().await.is_none());
}

#[tokio::test]
async fn when_the_store_fails_a_leader_ends_within_its_lease_and_leads_again_afterwards() {
    let store = Arc::new(Faulty::default());
    let backend = Backend::new(store.clone());
    let election = open(&backend).await;
    let (told, ends) = std::sync::mpsc::channel();
    let reconciler = Reconciler::builder()
        .end(Handler::closure(move |context: Context| {
            let sent = told.send((context.mandate.map(|it| it.is_leader()), context.deadline));
            async move { sent }
        }))
        .build()
        .expect("good settings");
    let mut elector = Elector::start(&election, "a", reconciler);
    assert_eq!(elector.leads().await, 1);
    store.down.store(true, Ordering::SeqCst);
    elector.until(|state| *state == State::NotLeading).await;
    let (led, deadline) = ends.try_recv().expect("the end was run");
    assert_eq!(led, Some(true), "the stop budget is still ahead when the end starts");
    assert!(deadline.is_some_and(|span| span <= timing().grace()), "{deadline:?}");
    store.down.store(false, Ordering::SeqCst);
    assert_eq!(elector.leads().await, 2);
    assert_eq!(elector.stop().await, Ok(Finished::Stopped));
}

#[cfg(all(feature = "process", unix))]
#[tokio::test]
async fn a_begin_that_ignores_term_is_killed_early_enough_for_an_end_within_the_lease() {
    let store = Arc::new(Faulty::default());
    let backend = Backend::new(store.clone());
    let ttl = Duration::from_secs(3);
    let timing = Timing::new(ttl).expect("it fits");
    let builder = Election::builder(&backend, "jobs").timing(timing);
    let election = builder.open().await.expect("it opens");
    let (told, ends) = std::sync::mpsc::channel();
    let reconciler = Reconciler::builder()
        .begin(Handler::shell("trap '' TERM; while :; do sleep 1; done"))
        .kill_after(Duration::from_secs(60))
        .end(Handler::closure(move |context: Context| {
            let sent = told.send(context.mandate.map(|mandate| mandate.remaining()));
            async move { sent }
        }))
        .build()
        .expect("good settings");
    let mut elector = Elector::start(&election, "a", reconciler);
    elector.until(|state| matches!(state, State::Beginning { .. })).await;
    store.down.store(true, Ordering::SeqCst);
    elector.until(|state| *state == State::NotLeading).await;
    let left = ends.try_recv().expect("the end was run").expect("a mandate");
    assert!(!left.is_zero(), "the begin took all of the stop budget");
    assert!(left <= timing.grace() / 2, "{left:?}: it had half of it to end by itself");
}

#[tokio::test]
async fn a_store_that_fails_for_a_ttl_while_waiting_is_an_error_and_candidacy_resumes() {
    let store = Arc::new(Faulty::default());
    let backend = Backend::new(store.clone());
    let election = open(&backend).await;
    store.down.store(true, Ordering::SeqCst);
    let (told, errors) = std::sync::mpsc::channel();
    let reconciler = Reconciler::builder()
        .error(Handler::closure(move |context: Context| {
            let sent = told.send(context.reason.to_string());
            async move { sent }
        }))
        .error_timeout(Duration::from_millis(50))
        .build()
        .expect("good settings");
    let started = std::time::Instant::now();
    let mut elector = Elector::start(&election, "a", reconciler);
    elector.until(|state| *state == State::Failing).await;
    assert!(started.elapsed() >= timing().ttl(), "a hiccup is no error");
    store.down.store(false, Ordering::SeqCst);
    elector.leads().await;
    let reason = errors.try_recv().expect("the handler was run");
    assert!(reason.starts_with("error: the store does not serve: "), "{reason}");
    assert_eq!(elector.stop().await, Ok(Finished::Stopped));
}

/// A store that can be down.
#[derive(Debug, Default)]
struct Faulty {
    inner: MemoryStore,
    down: AtomicBool,
}

impl Faulty {
    fn check(&self) -> Result<(), StoreError> {
        if self.down.load(Ordering::SeqCst) {
            return Err(StoreError::new(Fault::Unavailable, "faulty", "serving", "it is down"));
        }
        Ok(())
    }
}

#[async_trait::async_trait]
impl Store for Faulty {
    fn reads(&self) -> Reads {
        self.inner.reads()
    }

    fn notifies(&self) -> bool {
        self.inner.notifies()
    }

    fn forgets_deleted(&self) -> bool {
        self.inner.forgets_deleted()
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError> {
        self.check()?;
        self.inner.get_many(keys).await
    }

    async fn put_many(&self, writes: Vec<Write>) -> Vec<Result<Put, StoreError>> {
        match self.check() {
            Ok(()) => self.inner.put_many(writes).await,
            Err(error) => writes.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn list(
        &self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.check()?;
        self.inner.list(prefix, after, limit).await
    }

    async fn changed(&self, key: &Key, seen: Option<&Version>) {
        self.inner.changed(key, seen).await;
    }
}
