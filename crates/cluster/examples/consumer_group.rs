//! A consumer group: members of a cluster share the partitions of a topic.
//!
//! They turn the messages into tasks.
//!
//! ```sh
//! cargo run -p tenure-cluster --features net --example consumer_group
//! ```
//!
//! The topic here is a few lists in memory that stand for a broker's. Two members share its
//! partitions. Then a third joins and takes its part, while the others go on with the partitions
//! they keep. One member at a time reads each partition, under a lease of its own, and the broker
//! keeps the partition's offset. The broker refuses a commit from a member that lost its lease,
//! because the token is smaller than one that it has seen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenure::Backend;
use tenure_cluster::documents::NodeEntry;
use tenure_cluster::input::{
    InputError, Inputs, Partition, PartitionContext, Supervised, Template,
};
use tenure_cluster::{Cluster, Context, Member, Task, TaskError, Tasks};

const PARTITIONS: usize = 8;
const MESSAGES: usize = 400;
/// How many messages are read at once.
const BATCH: usize = 5;

/// The partitions, as a broker keeps them.
#[derive(Default)]
struct Topic {
    partitions: Mutex<[Log; PARTITIONS]>,
}

#[derive(Default)]
struct Log {
    messages: Vec<usize>,
    /// The end of the messages that the group has read.
    offset: usize,
    /// The token of the last commit.
    token: u64,
}

impl Topic {
    fn publish(&self, message: usize) {
        self.partitions.lock().expect("nobody panics")[message % PARTITIONS].messages.push(message);
    }

    /// The next messages of a partition, and the offset after them.
    fn read(&self, partition: usize) -> (Vec<usize>, usize) {
        let log = &self.partitions.lock().expect("nobody panics")[partition];
        let end = (log.offset + BATCH).min(log.messages.len());
        (log.messages[log.offset..end].to_vec(), end)
    }

    /// Stores the group's offset, unless a greater token has committed.
    fn commit(&self, partition: usize, offset: usize, token: u64) -> Result<(), InputError> {
        let log = &mut self.partitions.lock().expect("nobody panics")[partition];
        if token < log.token {
            return Err(InputError(format!("token {token} came after {}", log.token)));
        }
        (log.offset, log.token) = (offset, token);
        Ok(())
    }
}

/// One member of the group.
struct Consumer {
    member: &'static str,
    topic: Arc<Topic>,
    readers: Arc<Mutex<BTreeMap<usize, &'static str>>>,
}

#[async_trait]
impl Supervised for Consumer {
    /// The partitions do not depend on the members. So a partition stays the same when a member
    /// joins or leaves.
    async fn partitions(&self, _members: &[NodeEntry]) -> Result<Vec<Partition>, InputError> {
        Ok((0..PARTITIONS).map(|number| Partition(json!({ "partition": number }))).collect())
    }

    async fn run(
        &self,
        partition: &Partition,
        context: &PartitionContext,
    ) -> Result<(), InputError> {
        let number = partition.0["partition"].as_u64().and_then(|number| number.try_into().ok());
        let Some(number) = number.filter(|number| *number < PARTITIONS) else {
            return Err(InputError(format!("{} is no partition", partition.0)));
        };
        let token = context.mandate.token();
        println!("{} reads partition {number} under token {token}", self.member);
        self.readers.lock().expect("nobody panics").insert(number, self.member);
        let template = Template::new(Message::KIND);
        loop {
            let (messages, offset) = self.topic.read(number);
            let order = |message: &usize| {
                let payload = serde_json::to_vec(&Message { message: *message });
                template.order(format!("message {message}"), payload.expect("a number encodes"))
            };
            let found = !messages.is_empty();
            let accepted = context.emitter.emit(messages.iter().map(order).collect()).await;
            accepted.map_err(|error| InputError::new("handing messages on", &error))?;
            // Commit last: after a crash between the two, messages are done twice. The other way
            // round, they would be lost.
            self.topic.commit(number, offset, token)?;
            if !found {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

/// The work for one message, on any member with a free worker.
#[derive(Serialize, Deserialize)]
struct Message {
    message: usize,
}

static SEEN: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

#[async_trait]
impl Task for Message {
    const KIND: &'static str = "message";

    async fn run(self, _context: &Context) -> Result<Option<String>, TaskError> {
        SEEN.lock().expect("nobody panics").insert(self.message);
        Ok(None)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backend = Backend::memory(); // or `tenure_stores::open("etcd://…")`, on several machines
    let (topic, readers) = (Arc::new(Topic::default()), Arc::default());
    let join = async |member: &'static str| {
        let consumer = Consumer { member, topic: topic.clone(), readers: Arc::clone(&readers) };
        Cluster::builder(&backend, "consumers")
            .member(Member::new(2).named(member))
            .tasks(Tasks::new().with::<Message>())
            .inputs(Inputs::new().supervised("topic", consumer))
            .join()
            .await
    };
    let (first, second) = (join("ada").await?, join("ben").await?);
    (0..MESSAGES / 2).for_each(|message| topic.publish(message));
    until(|| shares(&readers) == [4, 4]).await?;
    let third = join("cleo").await?;
    (MESSAGES / 2..MESSAGES).for_each(|message| topic.publish(message));
    until(|| shares(&readers).len() == 3).await?;
    until(|| SEEN.lock().expect("nobody panics").len() == MESSAGES).await?;
    for member in [first, second, third] {
        member.drain().await;
    }
    println!("all {MESSAGES} messages were read; partitions a member: {:?}", shares(&readers));
    Ok(())
}

/// How many partitions each member was the last to start reading.
fn shares(readers: &Mutex<BTreeMap<usize, &'static str>>) -> Vec<usize> {
    let mut shares: BTreeMap<&str, usize> = BTreeMap::new();
    for member in readers.lock().expect("nobody panics").values() {
        *shares.entry(member).or_default() += 1;
    }
    shares.into_values().collect()
}

async fn until(holds: impl Fn() -> bool) -> Result<(), Box<dyn std::error::Error>> {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    Ok(tokio::time::timeout(Duration::from_secs(60), waiting).await?)
}
