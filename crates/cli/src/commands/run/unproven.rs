//! A process whose death proves nothing.

use std::sync::Arc;

use async_trait::async_trait;
use tenure::{Backend, Mark, Presence, StoreError};

/// Handlers start things that outlive this process: that it is dead does not say that they are. So
/// its lease must run out, although it can tell when others are dead.
#[derive(Debug)]
struct Unproven(Arc<dyn Presence>);

#[async_trait]
impl Presence for Unproven {
    fn mark(&self) -> Result<Mark, StoreError> {
        // Nobody can read anything from it.
        Ok(Mark(serde_json::Map::new()))
    }

    async fn gone(&self, mark: &Mark) {
        self.0.gone(mark).await;
    }
}

/// The same backend, for a candidate that must not be replaced before its lease has run out.
pub(super) fn unproven(backend: &Backend) -> Backend {
    match backend.presence() {
        Some(presence) => backend.clone().with_presence(Arc::new(Unproven(Arc::clone(presence)))),
        None => backend.clone(),
    }
}
