//! Files and folders that are no documents, in the places of slots.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tenure::Backend;
use tenure::file::{FileOptions, FileStore};
use tenure::store::MAX_DOCUMENT_BYTES;
use tenure_cluster::{Cluster, Context, Event, Handler, Member, Order, TaskError, Tasks};

struct Nothing;

#[async_trait]
impl Handler for Nothing {
    async fn handle(&self, _: Bytes, _: &Context) -> Result<Option<String>, TaskError> {
        Ok(None)
    }
}

/// A regression: a slot larger than any document stopped all work and every view, because one read
/// of all slots failed.
#[tokio::test]
async fn what_the_store_refuses_to_show_is_told_of_and_holds_nothing_else_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let store =
        FileStore::open(&directory.path().join("store"), FileOptions::default()).expect("opened");
    let slots = directory.path().join("store/clusters/shop/till/slots");
    std::fs::create_dir_all(&slots).expect("made");
    std::fs::write(slots.join("00001.json"), vec![b'x'; 4 * MAX_DOCUMENT_BYTES]).expect("written");
    std::fs::create_dir(slots.join("00003.json")).expect("made");
    let backend = Backend::new(Arc::new(store));
    let cluster = Cluster::builder(&backend, "shop/till")
        .member(Member::new(2))
        .tasks(Tasks::new().handling("sell", Arc::new(Nothing)))
        .join()
        .await
        .expect("a node");
    let mut events = cluster.events();
    let orders = (0..300).map(|number| Order::new(format!("task-{number}"), "sell", ""));
    cluster.client().submit(orders.collect()).await.expect("accepted");
    let told = async {
        let mut told = std::collections::BTreeSet::new();
        while told.len() < 2 {
            if let Ok(Event::Garbled { key, .. }) = events.recv().await {
                told.insert(key.to_string());
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), told).await.expect("both are told of");
    let done = async {
        while cluster.client().totals().await.expect("it serves").done < 300 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), done).await.expect("everything else is done");
    cluster.leave().await;
}
