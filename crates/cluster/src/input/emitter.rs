//! The destination for the tasks that inputs find.

use crate::client::ClusterClient;
use crate::documents::Order;
use crate::error::ClusterError;

#[cfg(feature = "test-util")]
use tokio::sync::mpsc;

/// Accepts the tasks that an input finds.
#[derive(Clone, Debug)]
pub struct Emitter {
    to: Destination,
}

#[derive(Clone, Debug)]
enum Destination {
    // Boxed, since it is much larger than a channel.
    Inbox(Box<ClusterClient>),
    #[cfg(feature = "test-util")]
    Channel(mpsc::Sender<Order>),
}

impl Emitter {
    /// Creates an emitter into the inbox of this cluster.
    #[must_use]
    pub fn new(client: ClusterClient) -> Emitter {
        Emitter { to: Destination::Inbox(Box::new(client)) }
    }

    /// Creates an emitter into a channel of this capacity, for inputs under test.
    ///
    /// Once the receiver is gone, nothing is accepted.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn channel(capacity: usize) -> (Emitter, mpsc::Receiver<Order>) {
        let (sender, receiver) = mpsc::channel(capacity);
        (Emitter { to: Destination::Channel(sender) }, receiver)
    }

    /// Accepts tasks. When this returns, they are in the store and will be done.
    ///
    /// Waits while the inbox is full.
    ///
    /// # Errors
    /// As for [`ClusterClient::submit`]: [`ClusterError::Order`] if no cluster would take one of
    /// them, [`ClusterError::Store`] if the store does not serve, [`ClusterError::PartlyAccepted`].
    ///
    /// # Cancel safety
    /// Not cancel safe: after dropping the future it is unknown whether the tasks were accepted.
    pub async fn emit(&self, orders: Vec<Order>) -> Result<(), ClusterError> {
        match &self.to {
            Destination::Inbox(client) => client.submit(orders).await,
            #[cfg(feature = "test-util")]
            Destination::Channel(sender) => {
                for order in orders {
                    sender.send(order).await.map_err(|_| ClusterError::Stopped)?;
                }
                Ok(())
            }
        }
    }
}
