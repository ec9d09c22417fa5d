//! The span of a task.

#[allow(dead_code, reason = "the tests of elections ask for more")]
#[path = "../../tenure/tests/support/spans.rs"]
mod support;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use support::Spans;
use tenure::Backend;
use tenure_cluster::{Cluster, Context, Ended, Member, Order, Task, TaskError, Tasks};

#[derive(Serialize, Deserialize)]
struct Speak;

#[async_trait]
impl Task for Speak {
    const KIND: &'static str = "speak";

    async fn run(self, context: &Context) -> Result<Option<String>, TaskError> {
        Ok(Some(context.mandate().token().to_string()))
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_task_is_a_span_with_its_id_serial_attempt_and_token() {
    let spans = Spans::default();
    let _collecting = tracing::subscriber::set_default(spans.clone());
    let member = Cluster::builder(&Backend::memory(), "words")
        .member(Member::new(1).named("host-a"))
        .tasks(Tasks::new().with::<Speak>())
        .join()
        .await
        .expect("joined");
    let order = Order::of("first", &Speak).expect("a good task");
    let execution = member.submit(order).await.expect("submitted");
    let ended = execution.outcome().await.expect("an outcome");

    let task = spans.only("task");
    assert_eq!(task.fields["id"], "first");
    assert_eq!(task.fields["serial"], "1");
    assert_eq!(task.fields["attempt"], "1");
    assert_eq!(ended, Ended::Done(Some(task.fields["token"].clone())));
    member.leave().await;
}
