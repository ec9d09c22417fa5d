//! Joining a cluster, and the operations of a member.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use tenure::{Backend, Candidate, Election, Name, Timing, check_segment};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::JoinHandle;

use super::client::ClusterClient;
use super::documents::{MemberId, Order};
use super::event::Event;
use super::execution::Execution;
use super::input::{self, Inputs};
use super::leading;
use super::local_writes::LocalWrites;
use super::node::{self, Membership, Node};
use super::planner::Planner;
use super::task::Tasks;
use super::views::MemberView;
use crate::error::ClusterError;

/// How many events a slow listener may be behind before it misses some.
const EVENTS: usize = 4096;

/// The description of a node that joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    workers: usize,
    name: String,
}

impl Member {
    /// Describes a node that works on at most `workers` tasks at once.
    ///
    /// With 0 workers it only plans, or looks.
    #[must_use]
    pub fn new(workers: usize) -> Member {
        Member { workers, name: String::new() }
    }

    /// Sets a name for people.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Member {
        self.name = name.into();
        self
    }
}

/// The settings of a node that joins a cluster.
#[derive(Debug)]
#[must_use = "nothing happens until `join`"]
pub struct Builder {
    backend: Backend,
    name: String,
    member: Member,
    timing: Timing,
    tasks: Tasks,
    inputs: Inputs,
}

impl Builder {
    /// Sets the description of the node; one worker unless this is set.
    pub fn member(mut self, member: Member) -> Self {
        self.member = member;
        self
    }

    /// Sets the times of the node's locks; a ttl of 15 s unless this is set.
    pub fn timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// Sets the kinds of tasks that the node can run.
    pub fn tasks(mut self, tasks: Tasks) -> Self {
        self.tasks = tasks;
        self
    }

    /// Sets the inputs that work comes from.
    pub fn inputs(mut self, inputs: Inputs) -> Self {
        self.inputs = inputs;
        self
    }

    /// Joins the cluster: when this returns, the node is in the node list, and works.
    ///
    /// # Errors
    /// [`ClusterError::Store`] when the store does not serve, [`ClusterError::Name`],
    /// [`ClusterError::Full`].
    ///
    /// # Cancel safety
    /// Cancel safe: at worst an entry is left in the node list, which the leader removes.
    pub async fn join(self) -> Result<Cluster, ClusterError> {
        let Builder { backend, name, member, timing, tasks, inputs } = self;
        // On every store, a lease decides which node leads a cluster.
        let backend = backend.without_queue();
        let client = ClusterClient::open(&backend, &name)?.with_timing(timing);
        inputs.check()?;
        if !member.name.is_empty() {
            check_segment(&member.name)?;
        }
        if let Err(error) = client.uphold_succession().await {
            // If the store does not serve, a request below reports it. If the cursor makes no
            // sense, the leader reports it.
            tracing::debug!(cluster = %name, %error, "the leaders' token could not be looked at");
        }
        let me = backend.fresh_id();
        // The cluster's cursor remembers its leaders' token.
        let leaders = Name::parse(&format!("clusters/{name}"))?;
        let election = Election::at_key(&backend, leaders, client.keys.leader(), timing)?;
        election.ensure_lease().await?;
        let shown = if member.name.is_empty() { me.as_str() } else { member.name.as_str() };
        let candidate = Candidate::new(shown)?.with_value(me.as_str().to_owned())?;
        let lists = inputs.windowed.is_some();
        let mut membership = Membership::new(&client, me.clone(), timing).listing(lists);
        membership.join(&client, &member.name, member.workers).await?;

        let (events, _) = broadcast::channel(EVENTS);
        let (orders, heard) = mpsc::unbounded_channel();
        let (leading, is_leading) = watch::channel(false);
        let (over, is_over) = watch::channel(false);
        let local_writes = Arc::new(LocalWrites::default());
        let planner = Planner {
            client: client.clone(),
            timing,
            source: inputs.windowed.clone(),
            local_writes: local_writes.clone(),
            events: events.clone(),
            me: me.clone(),
        };
        let helper = |work: BoxFuture<'static, ()>| tokio::spawn(until_over(is_over.clone(), work));
        let mut helpers =
            vec![helper(leading::lead(election, candidate, planner, leading).boxed())];
        for (input_name, local) in inputs.local {
            helpers.push(helper(input::run_local(input_name, local, client.clone()).boxed()));
        }
        for (input_name, supervised) in inputs.supervised {
            let (client, me, leads) = (client.clone(), me.clone(), is_leading.clone());
            let input = input::run_supervised(input_name, supervised, client, me, timing, leads);
            helpers.push(helper(input.boxed()));
        }
        let node = Node::new(
            node::Settings {
                client: client.clone(),
                me: me.clone(),
                name: member.name,
                workers: member.workers,
                timing,
                tasks,
                local_writes,
                events: events.clone(),
                orders: heard,
                over,
            },
            membership,
        );
        // The node ends by itself when the last handle is dropped, after it has given back its
        // tasks.
        drop(tokio::spawn(node.run()));
        let shared = Shared {
            client,
            me,
            orders,
            events,
            leading: is_leading,
            over: is_over,
            _helpers: Helpers(helpers),
        };
        Ok(Cluster { shared: Arc::new(shared) })
    }
}

/// Runs `work` until the node has left: then it plans no more, and takes nothing in.
async fn until_over(mut over: watch::Receiver<bool>, work: BoxFuture<'static, ()>) {
    tokio::select! {
        biased;
        // An error means that the node's task is gone, so the node is over, too.
        _ = over.wait_for(|over| *over) => {}
        () = work => {}
    }
}

/// Background tasks that end with the last handle of the cluster.
#[derive(Debug)]
struct Helpers(Vec<JoinHandle<()>>);

impl Drop for Helpers {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// A cluster that this process is a member of. Clones share one membership.
///
/// Dropping the last clone gives running tasks back and leaves, in the background.
#[derive(Clone, Debug)]
pub struct Cluster {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client: ClusterClient,
    me: MemberId,
    orders: mpsc::UnboundedSender<node::Order>,
    events: broadcast::Sender<Event>,
    leading: watch::Receiver<bool>,
    over: watch::Receiver<bool>,
    _helpers: Helpers,
}

impl Cluster {
    /// Joins a cluster as a node that can run no kinds of tasks.
    ///
    /// Use [`Cluster::builder`] to name kinds.
    ///
    /// # Errors
    /// As for [`Builder::join`].
    ///
    /// # Cancel safety
    /// Cancel safe: at worst an entry is left in the node list, which the leader removes.
    pub async fn join(
        backend: &Backend,
        name: &str,
        member: Member,
    ) -> Result<Cluster, ClusterError> {
        Cluster::builder(backend, name).member(member).join().await
    }

    /// Returns a builder to join a cluster with other settings.
    pub fn builder(backend: &Backend, name: &str) -> Builder {
        Builder {
            backend: backend.clone(),
            name: name.to_owned(),
            member: Member::new(1),
            timing: Timing::default(),
            tasks: Tasks::new(),
            inputs: Inputs::default(),
        }
    }

    /// The id of this member.
    #[must_use]
    pub fn id(&self) -> &MemberId {
        &self.shared.me
    }

    /// The documents of the cluster, for operations that need no membership.
    #[must_use]
    pub fn client(&self) -> &ClusterClient {
        &self.shared.client
    }

    /// Subscribes to the events on this node, from now on.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.shared.events.subscribe()
    }

    /// Returns true if this node leads, and plans for all.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        *self.shared.leading.borrow()
    }

    /// The members of the cluster.
    ///
    /// # Errors
    /// [`ClusterError::Store`] when the store does not serve.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn members(&self) -> Result<Vec<MemberView>, ClusterError> {
        Ok(self.client().members().await?.items)
    }

    /// Submits a task to the cluster. It is in the store when this returns, and will be done.
    ///
    /// # Errors
    /// As for [`ClusterClient::submit`]: [`ClusterError::Store`] when the store does not serve,
    /// [`ClusterError::Order`] when the task is too large.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves it open whether the task was accepted.
    pub async fn submit(&self, order: Order) -> Result<Execution, ClusterError> {
        self.client().submit_one(order).await
    }

    /// Waits for idle workers, and returns one of each member that has any.
    ///
    /// # Errors
    /// [`ClusterError::Store`] when the store does not serve.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn idle_workers(&self) -> Result<Vec<Worker>, ClusterError> {
        loop {
            let idle: Vec<Worker> = self
                .members()
                .await?
                .into_iter()
                .filter(|member| member.idle() > 0)
                .map(|member| Worker { member: member.id, client: self.client().clone() })
                .collect();
            if !idle.is_empty() {
                return Ok(idle);
            }
            self.client().sleep(self.client().timing.poll(false)).await;
        }
    }

    /// Declares a worker's node dead.
    ///
    /// The node takes no more tasks, and never comes back under this id. Its tasks are free when
    /// its locks have run out. The declaration is in the store when this returns.
    ///
    /// # Errors
    /// [`ClusterError::Store`] when the store does not serve.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves it open whether it was done.
    pub async fn mark_dead(&self, worker: &Worker) -> Result<(), ClusterError> {
        // It does not matter whether the node was in the node list.
        self.client().mark_dead(&worker.member).await.map(drop)
    }

    /// Brings a dead letter back. Returns false if there is none.
    ///
    /// The request is in the store when this returns.
    ///
    /// # Errors
    /// [`ClusterError::Store`] when the store does not serve.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves it open whether it was done.
    pub async fn re_enqueue(&self, serial: u64) -> Result<bool, ClusterError> {
        self.client().re_enqueue(serial).await
    }

    /// Finishes the running tasks, takes no more and leaves; returns when that is done.
    ///
    /// # Cancel safety
    /// Cancel safe: the node goes on leaving in the background.
    pub async fn drain(&self) {
        // An error means that the node has stopped, so it has left already.
        let _ = self.shared.orders.send(node::Order::Drain);
        self.gone().await;
    }

    /// Stops the running tasks, gives them back and leaves; returns when that is done.
    ///
    /// # Cancel safety
    /// Cancel safe: the node goes on leaving in the background.
    pub async fn leave(&self) {
        // An error means that the node has stopped, so it has left already.
        let _ = self.shared.orders.send(node::Order::Leave);
        self.gone().await;
    }

    /// Resolves when nothing of this node is left in the store, not even leadership.
    async fn gone(&self) {
        self.left().await;
        self.client().backend.close().await;
    }

    /// Resolves when this node has left, by a call here or because it was drained.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn left(&self) {
        let mut over = self.shared.over.clone();
        // An error means that the node's task is gone, with the runtime.
        let _ = over.wait_for(|over| *over).await;
    }
}

/// An idle worker somewhere in the cluster.
#[derive(Clone, Debug)]
pub struct Worker {
    member: MemberId,
    client: ClusterClient,
}

impl Worker {
    /// The member that the worker belongs to.
    #[must_use]
    pub fn member(&self) -> &MemberId {
        &self.member
    }

    /// Submits a task to this worker's node. No other node takes it while that node is listed.
    ///
    /// # Errors
    /// As for [`Cluster::submit`].
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves it open whether the task was accepted.
    pub async fn submit(&self, order: Order) -> Result<Execution, ClusterError> {
        self.client.submit_one(Order { to: Some(self.member.clone()), ..order }).await
    }
}
