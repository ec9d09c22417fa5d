//! Where inputs put what they find.

#[cfg(feature = "test-util")]
use tokio::sync::mpsc;

use crate::Error;
use crate::cluster::books::Books;
use crate::cluster::documents::Order;

/// Where an input puts what it finds.
#[derive(Clone, Debug)]
pub struct Emitter {
    to: Destination,
}

#[derive(Clone, Debug)]
enum Destination {
    // Boxed, since it is much larger than a channel.
    Inbox(Box<Books>),
    #[cfg(feature = "test-util")]
    Channel(mpsc::Sender<Order>),
}

impl Emitter {
    /// Into the inbox of this cluster.
    #[must_use]
    pub fn new(books: Books) -> Emitter {
        Emitter { to: Destination::Inbox(Box::new(books)) }
    }

    /// Into a channel that holds this many, for inputs under test; once the receiver is gone,
    /// nothing is accepted.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn channel(capacity: usize) -> (Emitter, mpsc::Receiver<Order>) {
        let (sender, receiver) = mpsc::channel(capacity);
        (Emitter { to: Destination::Channel(sender) }, receiver)
    }

    /// Accepts tasks: when this returns they are in the store, and will be done. Waits while the
    /// inbox is full.
    ///
    /// # Errors
    /// As for [`Books::submit`]: [`Error::Order`] when no cluster would take one of them,
    /// [`Error::Store`] when the store does not serve, [`Error::PartlyAccepted`].
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves it open whether they were accepted.
    pub async fn emit(&self, orders: Vec<Order>) -> Result<(), Error> {
        match &self.to {
            Destination::Inbox(books) => books.submit(orders).await,
            #[cfg(feature = "test-util")]
            Destination::Channel(sender) => {
                for order in orders {
                    sender.send(order).await.map_err(|_| Error::Stopped)?;
                }
                Ok(())
            }
        }
    }
}
