//! The memory store with lines in memory passes the suite.
//!
//! Its elections are queues.

use std::sync::Arc;
use std::time::Duration;

use tenure::{Backend, MemoryQueues, MemoryStore, Timing, system_clock};
use tenure_conformance::suite::Subject;

struct Lines {
    store: MemoryStore,
    lines: MemoryQueues,
}

impl Lines {
    fn fresh() -> Lines {
        Lines { store: MemoryStore::new(), lines: MemoryQueues::new(system_clock()) }
    }
}

#[async_trait::async_trait]
impl Subject for Lines {
    fn name(&self) -> &str {
        "queue"
    }

    async fn open(&self) -> Backend {
        let queue = self.lines.connect(self.timing().ttl());
        // As on ZooKeeper, every case that needs an election must ask for its creation.
        Backend::new(Arc::new(self.store.clone())).with_queue(Arc::new(queue)).with_creation(false)
    }

    fn timing(&self) -> Timing {
        Timing::new(Duration::from_secs(2)).expect("two seconds leave room for every part")
    }
}

tenure_conformance::conformance!(Lines::fresh());
