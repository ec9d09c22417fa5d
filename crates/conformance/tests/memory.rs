//! The memory store passes the suite.

use std::sync::Arc;
use std::time::Duration;

use tenure::{Backend, MemoryStore, Timing};
use tenure_conformance::suite::Subject;

#[derive(Default)]
struct Memory(MemoryStore);

#[async_trait::async_trait]
impl Subject for Memory {
    fn name(&self) -> &str {
        "memory"
    }

    async fn open(&self) -> Backend {
        Backend::new(Arc::new(self.0.clone()))
    }

    fn timing(&self) -> Timing {
        Timing::new(Duration::from_secs(2)).expect("two seconds leave room for every part")
    }
}

tenure_conformance::conformance!(Memory::default());

mod cluster {
    use super::*;
    tenure_conformance::cluster_conformance!(Memory::default());
}
