//! Feeds in memory pass the suite for feeds.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure::feed::{FeedStore, MemoryFeed};
use tenure_conformance::feed::{FeedSubject, Times};

#[derive(Default)]
struct Memory(MemoryFeed);

#[async_trait::async_trait]
impl FeedSubject for Memory {
    fn name(&self) -> &str {
        "memory"
    }

    async fn open(&self) -> Arc<dyn FeedStore> {
        Arc::new(self.0.clone())
    }

    fn times(&self) -> Times {
        Times::brisk()
    }

    fn shows_the_past(&self) -> bool {
        true
    }

    async fn write(&self, table: &str, id: &str, n: u64) {
        self.0.open(table).expect("the table was created").write(id, json!({ "n": n }));
    }

    async fn delete(&self, table: &str, id: &str) {
        self.0.open(table).expect("the table was created").delete(id);
    }

    fn understand(&self, change: &Value) -> (String, Option<u64>) {
        let id = change["id"].as_str().expect("a change has an id");
        (id.to_owned(), change["new"]["n"].as_u64())
    }
}

tenure_conformance::feed_conformance!(Memory::default());
