//! Three members share typed tasks, and the submitter waits for their results.
//!
//! `cargo run -p tenure-cluster --example shared_task`
//!
//! The members are in one program here. On several hosts each has its own program and the same
//! store.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tenure::Backend;
use tenure_cluster::{Cluster, Context, Ended, Member, Order, Task, TaskError, Tasks};

/// Counts the words of a text.
#[derive(Serialize, Deserialize)]
struct CountWords(String);

#[async_trait]
impl Task for CountWords {
    const KIND: &'static str = "count-words";

    async fn run(self, context: &Context) -> Result<Option<String>, TaskError> {
        // A task may be begun again if its member dies. So everything that it writes elsewhere
        // carries the token, which is greater each time.
        println!("{} under token {}", context.id(), context.mandate().token());
        Ok(Some(self.0.split_whitespace().count().to_string()))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backend = Backend::memory(); // or a directory, or `tenure_stores::open(url)`
    let mut members = Vec::new();
    for name in ["host-a", "host-b", "host-c"] {
        let member = Cluster::builder(&backend, "words")
            .member(Member::new(2).named(name))
            .tasks(Tasks::new().with::<CountWords>())
            .join()
            .await?;
        members.push(member);
    }
    let mut executions = Vec::new();
    for (number, text) in ["one", "one two", "one two three"].into_iter().enumerate() {
        let order = Order::of(format!("text-{number}"), &CountWords(text.into()))?;
        executions.push(members[0].submit(order).await?);
    }
    for (number, execution) in executions.into_iter().enumerate() {
        let words = (number + 1).to_string();
        assert_eq!(execution.outcome().await?, Ended::Done(Some(words)));
    }
    println!("3 texts are counted");
    for member in members {
        member.leave().await;
    }
    Ok(())
}
