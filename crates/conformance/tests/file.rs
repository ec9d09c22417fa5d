//! The file store passes the suite.
#![cfg(target_os = "linux")]

use std::sync::Arc;
use std::time::Duration;

use tenure::file::{FileOptions, FileStore};
use tenure::{Backend, Timing};
use tenure_conformance::suite::Subject;

struct Directory(tempfile::TempDir);

impl Directory {
    fn fresh() -> Directory {
        Directory(tempfile::tempdir().expect("a directory can be made"))
    }
}

#[async_trait::async_trait]
impl Subject for Directory {
    fn name(&self) -> &str {
        "file"
    }

    async fn open(&self) -> Backend {
        // All cases sync the same disk at the same time, so two seconds can be too short.
        let options = FileOptions { request: Duration::from_secs(10), ..FileOptions::default() };
        let store = FileStore::open(&self.0.path().join("store"), options);
        let store = store.expect("the directory opens");
        let presence = store.presence();
        Backend::new(Arc::new(store)).with_presence(presence)
    }

    fn timing(&self) -> Timing {
        Timing::new(Duration::from_secs(2)).expect("two seconds leave room for every part")
    }
}

tenure_conformance::conformance!(Directory::fresh());

mod cluster {
    use super::*;
    tenure_conformance::cluster_conformance!(Directory::fresh());
}
