//! Runs the tasks of a case, and keeps a log.
//!
//! A handler acts on a task's payload.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tenure::{Backend, Mandate, Timing};
use tenure_cluster::documents::Order;
use tenure_cluster::input::Inputs;
use tenure_cluster::{Cluster, ClusterClient, Context, Event, Handler, Member, TaskError, Tasks};
use tokio::sync::{broadcast, watch};

use crate::suite::Case;

/// The longest wait for an expected event.
const LONGEST_WAIT: Duration = Duration::from_secs(40);

/// One run of one task.
#[derive(Clone, Debug)]
pub struct Run {
    /// The node that ran it.
    pub node: String,
    /// The task.
    pub id: String,
    /// The attempt.
    pub attempt: u32,
    /// The mandate of the run.
    pub mandate: Mandate,
    /// Whether it has ended.
    pub over: bool,
}

/// Records the tasks that run. Clones are the same recorder.
#[derive(Clone)]
pub struct TaskRecorder {
    shared: Arc<Shared>,
}

struct Shared {
    cluster: String,
    log: Mutex<Vec<Run>>,
    faults: Mutex<Vec<String>>,
    open: watch::Sender<bool>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let faults =
            std::mem::take(&mut *self.faults.lock().unwrap_or_else(PoisonError::into_inner));
        if !std::thread::panicking() {
            assert!(faults.is_empty(), "two worked on one task at once: {faults:?}");
        }
    }
}

impl TaskRecorder {
    /// A recorder for this case, with a closed gate.
    #[must_use]
    pub fn new(case: &Case) -> TaskRecorder {
        let shared = Shared {
            cluster: format!("{}/work", case.prefix()),
            log: Mutex::default(),
            faults: Mutex::default(),
            open: watch::Sender::new(false),
        };
        TaskRecorder { shared: Arc::new(shared) }
    }

    /// The cluster of this case.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.shared.cluster
    }

    /// Lets all tasks pass the gate, now and later.
    pub fn open(&self) {
        self.shared.open.send_replace(true);
    }

    /// The cluster's records, as another process would read them.
    #[must_use]
    pub fn client(&self, backend: &Backend) -> ClusterClient {
        ClusterClient::open(backend, self.cluster()).expect("a good name")
    }

    /// Joins as a node with this name.
    pub async fn join(
        &self,
        backend: &Backend,
        name: &str,
        workers: usize,
        timing: Timing,
    ) -> Cluster {
        self.join_with(backend, name, workers, timing, Inputs::default()).await
    }

    /// Joins as a node with this name, with inputs.
    pub async fn join_with(
        &self,
        backend: &Backend,
        name: &str,
        workers: usize,
        timing: Timing,
        inputs: Inputs,
    ) -> Cluster {
        let handler = Arc::new(Room { recorder: self.clone(), node: name.to_owned() });
        Cluster::builder(backend, self.cluster())
            .member(Member::new(workers).named(name))
            .timing(timing)
            .tasks(Tasks::new().handling("room", handler))
            .inputs(inputs)
            .join()
            .await
            .expect("the node joins")
    }

    /// All runs so far.
    #[must_use]
    pub fn runs(&self) -> Vec<Run> {
        self.lock().clone()
    }

    /// How many runs were begun on this node.
    #[must_use]
    pub fn runs_on(&self, node: &str) -> usize {
        self.lock().iter().filter(|run| run.node == node).count()
    }

    /// The runs of one task.
    #[must_use]
    pub fn runs_of(&self, id: &str) -> Vec<Run> {
        self.lock().iter().filter(|run| run.id == id).cloned().collect()
    }

    /// Waits until this many runs have begun.
    pub async fn begun(&self, count: usize) {
        until(&format!("{count} tasks have begun"), async || self.lock().len() >= count).await;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Run>> {
        self.shared.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, node: &str, context: &Context) -> usize {
        let mut log = self.lock();
        for run in log.iter().filter(|run| run.id == context.id() && !run.over) {
            if run.mandate.is_leader() && context.mandate().is_leader() {
                let fault = format!("{} on {} beside {}", run.id, node, run.node);
                self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
            }
        }
        log.push(Run {
            node: node.to_owned(),
            id: context.id().to_owned(),
            attempt: context.attempt(),
            mandate: context.mandate().clone(),
            over: false,
        });
        log.len() - 1
    }
}

struct Room {
    recorder: TaskRecorder,
    node: String,
}

/// Records the end of a run however it ends: a run that is dropped has ended, too.
struct Ending<'a>(&'a TaskRecorder, usize);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.lock()[self.1].over = true;
    }
}

#[async_trait]
impl Handler for Room {
    async fn handle(&self, payload: Bytes, context: &Context) -> Result<Option<String>, TaskError> {
        let run = self.recorder.begin(&self.node, context);
        let _ending = Ending(&self.recorder, run);
        let mut open = self.recorder.shared.open.subscribe();
        match &payload[..] {
            b"quick" => Ok(Some(format!("by {}", self.node))),
            b"poison" => Err(TaskError::new("poison")),
            b"deaf" => {
                // Work that does not listen, and ends when the gate opens.
                let _ = open.wait_for(|open| *open).await;
                Ok(Some(format!("by {}", self.node)))
            }
            b"report" => {
                context.reporter().report("half");
                self.wait(&mut open, context).await
            }
            _ => self.wait(&mut open, context).await,
        }
    }
}

impl Room {
    async fn wait(
        &self,
        open: &mut watch::Receiver<bool>,
        context: &Context,
    ) -> Result<Option<String>, TaskError> {
        tokio::select! {
            _ = open.wait_for(|open| *open) => Ok(Some(format!("by {}", self.node))),
            why = context.stopped() => Err(TaskError::new(format!("{why:?}"))),
        }
    }
}

/// A task with this name that does this.
#[must_use]
pub(super) fn order(id: &str, does: &str) -> Order {
    Order {
        id: id.into(),
        kind: "room".into(),
        payload: Bytes::copy_from_slice(does.as_bytes()),
        attempts: 3,
        timeout: None,
        to: None,
        receipt: None,
    }
}

/// This many tasks that do this.
#[must_use]
pub(super) fn orders(count: usize, does: &str) -> Vec<Order> {
    (0..count).map(|number| order(&format!("task-{number:05}"), does)).collect()
}

/// Waits until the condition holds.
pub(super) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let holds = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
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

/// Waits for the next event that `pick` accepts.
pub(super) async fn heard<T>(
    what: &str,
    events: &mut broadcast::Receiver<Event>,
    mut pick: impl FnMut(Event) -> Option<T>,
) -> T {
    let hearing = async {
        loop {
            match events.recv().await {
                Ok(event) => {
                    if let Some(picked) = pick(event) {
                        return picked;
                    }
                }
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => panic!("the node is gone"),
            }
        }
    };
    soon(what, hearing).await
}

/// Waits until all accepted tasks have ended, and returns the totals.
pub(super) async fn all_ended(client: &ClusterClient, accepted: u64) -> tenure_cluster::Totals {
    let mut last = None;
    until(&format!("{accepted} tasks are at their end"), async || {
        let totals = client.totals().await.expect("the store answers");
        let ended = totals.accepted == accepted && totals.open == 0;
        last = Some(totals);
        ended
    })
    .await;
    last.expect("it was read")
}
