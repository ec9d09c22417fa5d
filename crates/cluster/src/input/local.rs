//! Keeps a local input running.

use std::sync::Arc;

use super::pause::{Pauses, contained};
use super::{Emitter, Local};
use crate::client::ClusterClient;

/// Runs an input, and starts it again whenever it ends, after pauses that grow.
///
/// Never returns. Dropping the future stops the input.
pub(crate) async fn run_local(name: String, input: Arc<dyn Local>, client: ClusterClient) {
    let emitter = Emitter::new(client.clone());
    let mut pauses = Pauses::new();
    loop {
        let began = client.backend.clock().now();
        match contained(input.run(&emitter)).await {
            Ok(()) => tracing::info!(input = name, "the input ended; it is started again"),
            Err(error) => tracing::warn!(input = name, %error, "the input failed"),
        }
        pauses.wait(&client, began).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use async_trait::async_trait;
    use tokio::sync::watch;

    use super::*;
    use crate::input::InputError;
    use tenure::Backend;

    /// Ends in each way in turn, then keeps running.
    #[derive(Default)]
    struct Flaky {
        begun: AtomicU32,
        lasts: watch::Sender<bool>,
    }

    #[async_trait]
    impl Local for Flaky {
        async fn run(&self, _emitter: &Emitter) -> Result<(), InputError> {
            match self.begun.fetch_add(1, Ordering::Relaxed) {
                0 => Ok(()),
                1 => Err(InputError("as it was asked to".into())),
                2 => panic!("as it was asked to"),
                _ => {
                    self.lasts.send_replace(true);
                    std::future::pending().await
                }
            }
        }
    }

    #[tokio::test]
    async fn an_input_is_started_again_however_it_ended() {
        let input = Arc::new(Flaky::default());
        let client = ClusterClient::open(&Backend::memory(), "cluster").expect("a good name");
        let mut lasts = input.lasts.subscribe();
        tokio::select! {
            () = run_local("flaky".into(), input, client) => unreachable!("it never returns"),
            lasts = lasts.wait_for(|lasts| *lasts) => drop(lasts.expect("the input lives")),
            () = tokio::time::sleep(Duration::from_secs(60)) => panic!("it was not started again"),
        }
    }
}
