//! A presence that never proves death.

use std::sync::Arc;

use async_trait::async_trait;
use tenure::Backend;
use tenure::store::{Mark, Presence, StoreError};

/// A presence for candidates with handlers.
///
/// Handlers start processes that outlive this one, so the death of this process does not prove that
/// they are dead. Its lease must therefore run out. This process can still detect the death of
/// others.
#[derive(Debug)]
struct Unproven(Arc<dyn Presence>);

#[async_trait]
impl Presence for Unproven {
    fn mark(&self) -> Result<Mark, StoreError> {
        // An empty mark: other candidates cannot prove anything from it.
        Ok(Mark(serde_json::Map::new()))
    }

    async fn gone(&self, mark: &Mark) {
        self.0.gone(mark).await;
    }
}

/// The same backend, for a candidate that keeps its lease until the lease ends.
pub(super) fn unproven(backend: &Backend) -> Backend {
    match backend.presence() {
        Some(presence) => backend.clone().with_presence(Arc::new(Unproven(Arc::clone(presence)))),
        None => backend.clone(),
    }
}
