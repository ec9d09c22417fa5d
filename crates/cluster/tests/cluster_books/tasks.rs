//! Locks, semaphores, shared values and more tasks, as used by tasks.

use std::convert::Infallible;
use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tenure::{Backend, MemoryStore, Timing};
use tenure_cluster::{
    Cluster, ClusterClient, Context, Ended, Lock, Member, Order, Semaphore, SemaphoreError, Task,
    TaskError, Tasks,
};

/// Counts how many tasks work at once. Each test needs its own, because tests of one process run at
/// the same time.
#[derive(Debug)]
struct Crowd {
    now: AtomicU32,
    most: AtomicU32,
    begun: AtomicU32,
    token: AtomicU32,
}

impl Crowd {
    const fn new() -> Crowd {
        Crowd {
            now: AtomicU32::new(0),
            most: AtomicU32::new(0),
            begun: AtomicU32::new(0),
            token: AtomicU32::new(0),
        }
    }

    async fn enter(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        self.begun.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(5)).await;
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Starts two nodes with four workers each on one store.
async fn cluster(tasks: Tasks) -> (ClusterClient, Vec<Cluster>) {
    let store = MemoryStore::new();
    let timing = Timing::new(Duration::from_secs(10)).expect("a usable ttl");
    let mut nodes = Vec::new();
    for name in ["a", "b"] {
        // Each node has its own backend, as in two processes.
        let backend = Backend::new(Arc::new(store.clone()));
        let member = Member::new(4).named(name);
        let builder = Cluster::builder(&backend, "shop").member(member).timing(timing);
        nodes.push(builder.tasks(tasks.clone()).join().await.expect("it joins"));
    }
    (nodes[0].client().clone(), nodes)
}

/// Submits all tasks, and waits until each is done.
async fn done(client: &ClusterClient, orders: Vec<Order>) {
    let mut executions = Vec::new();
    for order in orders {
        executions.push(client.submit_one(order).await.expect("accepted"));
    }
    for execution in executions {
        let waiting = tokio::time::timeout(Duration::from_secs(60), execution.into_future());
        let ended = waiting.await.expect("it ends within a minute").expect("an outcome");
        assert_eq!(ended, Ended::Done(None));
    }
}

static LOCKED: Crowd = Crowd::new();

#[derive(Serialize, Deserialize)]
struct Locked {
    lock: Lock,
}

#[async_trait]
impl Task for Locked {
    const KIND: &'static str = "locked";

    async fn run(self, context: &Context) -> Result<Option<String>, TaskError> {
        let guard = self.lock.acquire(context).await?;
        let token = u32::try_from(guard.mandate().token())?;
        if LOCKED.token.swap(token, Ordering::SeqCst) >= token {
            return Err(TaskError::new("the token did not rise"));
        }
        LOCKED.enter().await;
        guard.release().await;
        Ok(None)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_task_at_a_time_holds_a_lock_wherever_it_runs_and_tokens_rise() {
    let (client, nodes) = cluster(Tasks::new().with::<Locked>()).await;
    let lock = Lock::new("till").expect("a good name");
    let task = |number| Order::of(format!("{number}"), &Locked { lock: lock.clone() });
    done(&client, (0..16).map(|number| task(number).expect("it encodes")).collect()).await;
    assert_eq!(LOCKED.most.load(Ordering::SeqCst), 1);
    assert!(LOCKED.begun.load(Ordering::SeqCst) >= 16);
    for node in nodes {
        node.leave().await;
    }
}

static COUNTED: Crowd = Crowd::new();

#[derive(Serialize, Deserialize)]
struct Counted {
    semaphore: Semaphore,
}

#[async_trait]
impl Task for Counted {
    const KIND: &'static str = "counted";

    async fn run(self, context: &Context) -> Result<Option<String>, TaskError> {
        let guard = self.semaphore.acquire(context).await?;
        COUNTED.enter().await;
        drop(guard);
        Ok(None)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_tasks_hold_a_semaphore_than_it_has_permits() {
    let (client, nodes) = cluster(Tasks::new().with::<Counted>()).await;
    let semaphore = Semaphore::new("tills", 3).expect("a good name");
    let task = |number| Order::of(format!("{number}"), &Counted { semaphore: semaphore.clone() });
    done(&client, (0..24).map(|number| task(number).expect("it encodes")).collect()).await;
    let most = COUNTED.most.load(Ordering::SeqCst);
    assert!((1..=3).contains(&most), "{most} held it at once");
    assert!(COUNTED.begun.load(Ordering::SeqCst) >= 24);
    for node in nodes {
        node.leave().await;
    }
}

static MADE: AtomicU32 = AtomicU32::new(0);

#[derive(Serialize, Deserialize)]
struct Sharing {
    children: u32,
}

#[async_trait]
impl Task for Sharing {
    const KIND: &'static str = "sharing";

    async fn run(self, context: &Context) -> Result<Option<String>, TaskError> {
        let made = || async { Ok::<_, Infallible>(MADE.fetch_add(1, Ordering::SeqCst)) };
        context.shared("connection", Duration::from_secs(60), made).await?;
        for child in 0..self.children {
            let id = format!("{}/{child}", context.id());
            context.emit(Order::of(id, &Sharing { children: 0 })?).await?;
        }
        Ok(None)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_share_what_one_of_them_made_and_submit_more_tasks() {
    let (client, nodes) = cluster(Tasks::new().with::<Sharing>()).await;
    let parent = Order::of("parent", &Sharing { children: 20 }).expect("it encodes");
    done(&client, vec![parent]).await;
    let all_done = async {
        while client.totals().await.expect("it serves").done < 21 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all_done).await.expect("all are done");
    let made = MADE.load(Ordering::SeqCst);
    assert!((1..=2).contains(&made), "{made} made by two nodes");
    for node in nodes {
        node.leave().await;
    }
}

#[test]
fn locks_and_semaphores_are_data() {
    let lock = Lock::new("till").expect("a good name");
    assert_eq!(serde_json::to_string(&lock).expect("it encodes"), r#""till""#);
    assert_eq!(serde_json::from_str::<Lock>(r#""till""#).expect("it decodes"), lock);
    let semaphore = Semaphore::new("tills", 3).expect("a good name");
    let text = r#"{"name":"tills","permits":3}"#;
    assert_eq!(serde_json::to_string(&semaphore).expect("it encodes"), text);
    assert_eq!(serde_json::from_str::<Semaphore>(text).expect("it decodes"), semaphore);
}

#[test]
fn a_lock_or_semaphore_that_cannot_be_is_refused_wherever_it_comes_from() {
    for name in ["", "a/b", "..", "\n", &"x".repeat(129)] {
        assert!(Lock::new(name).is_err(), "{name:?}");
        assert!(serde_json::from_value::<Lock>(name.into()).is_err(), "{name:?}");
        assert!(Semaphore::new(name, 1).is_err(), "{name:?}");
    }
    assert!(Semaphore::new(&"x".repeat(125), 64).is_ok());
    assert!(Semaphore::new(&"x".repeat(126), 64).is_err());
    for permits in [0, 65, u32::MAX] {
        assert_eq!(Semaphore::new("a", permits), Err(SemaphoreError::Permits { permits }));
        let text = format!(r#"{{"name":"a","permits":{permits}}}"#);
        assert!(serde_json::from_str::<Semaphore>(&text).is_err(), "{permits}");
    }
}
