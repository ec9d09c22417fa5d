//! The table as one node reaches it, as a store with faults.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt as _};
use serde_json::Value;
use tenure::feed::{Beat, FeedStore, Found, Handle, Item, LEADER, Origin, Subscription};
use tenure::store::{Fault, Put, Reads, StoreError, Version};

use super::super::clock::SimulatedClock;
use super::network::{Fate, Sky};

/// The table as one node reaches it.
pub(super) struct Reached {
    pub(super) number: u64,
    pub(super) sky: Arc<Sky>,
    pub(super) clock: SimulatedClock,
    pub(super) timeout: Duration,
}

impl fmt::Debug for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reached({})", self.number)
    }
}

impl Reached {
    async fn carry<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.carry_to(self.sky.fate(self.number), call).await
    }

    async fn carry_to<T>(
        &self,
        fate: Fate,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        if fate.refused {
            tokio::time::sleep(fate.back).await;
            self.clock.while_running().await;
            return Err(failed(Fault::Unavailable));
        }
        let arrived = async {
            tokio::time::sleep(fate.out).await;
            let answer = call.await;
            tokio::time::sleep(fate.back).await;
            answer
        };
        let answer = if fate.arrives { Some(arrived.await) } else { None };
        // A call without an answer is given up at its time-out. The write may have been applied.
        let answer = match answer.filter(|_| fate.answered) {
            Some(answer) => answer,
            None => {
                tokio::time::sleep(self.timeout).await;
                Err(failed(Fault::Indeterminate))
            }
        };
        self.clock.while_running().await;
        answer
    }
}

fn failed(fault: Fault) -> StoreError {
    StoreError::new(fault, "simulated", "asking the table", "the seed wanted this to fail")
}

/// A renewal of this record that no node ever wrote.
fn forged(found: &Found, nonce: u64) -> Item {
    let mut fields = found.fields.clone();
    let revision = fields.get("revision").and_then(Value::as_u64).unwrap_or(0);
    let op = format!("forged-{nonce}");
    fields.insert("revision".into(), (revision + 1 + nonce % 3).into());
    fields.insert("op".into(), op.clone().into());
    Item::Leader(Some(Found { version: Version::new(op), fields }))
}

#[async_trait]
impl FeedStore for Reached {
    fn reads(&self) -> Reads {
        Reads::Linearizable
    }

    fn table(&self) -> &str {
        "simulated"
    }

    async fn create(&self, table: &str) -> Result<(), StoreError> {
        self.carry(self.sky.table.create(table)).await
    }

    async fn start(&self, table: &str) -> Result<(), StoreError> {
        self.carry(self.sky.table.start(table)).await
    }

    async fn read(&self, table: &str, ids: &[String]) -> Result<Vec<Option<Found>>, StoreError> {
        self.carry(self.sky.table.read(table, ids)).await
    }

    async fn heartbeat(&self, table: &str, beat: Beat) -> Result<Put, StoreError> {
        let fate = self.sky.fate(self.number);
        if let Some(fields) = beat.fields.clone().filter(|_| beat.id == LEADER && !fate.arrives) {
            let chance = self.sky.lock().weather.forgeries;
            if self.sky.lock().rng.permille(chance) {
                let op = fields.get("op").and_then(Value::as_str).unwrap_or_default().to_owned();
                // An isolated server takes it, shows it, and loses it. Without subscribers it is
                // not seen.
                let _ = self.sky.uncommitted.send(Found { version: Version::new(op), fields });
            }
        }
        self.carry_to(fate, self.sky.table.heartbeat(table, beat)).await
    }

    async fn subscribe(&self, table: &str, from: Origin) -> Result<Subscription, StoreError> {
        let committed = self.carry(self.sky.table.subscribe(table, from)).await?;
        let receiver = (self.sky.uncommitted.subscribe(), self.sky.clone());
        let uncommitted = stream::unfold(receiver, async |(mut shown, sky)| {
            loop {
                let found = shown.recv().await.ok()?;
                // Only subscribers of the same isolated server see it.
                if sky.lock().rng.permille(500) {
                    return Some((Ok(Item::Leader(Some(found))), (shown, sky)));
                }
            }
        });
        let shown = stream::select(committed, uncommitted);
        let (sky, number, clock) = (self.sky.clone(), self.number, self.clock.clone());
        let shown = shown.then(move |item| {
            let showing = sky.showing(number);
            let (clock, nonce) = (clock.clone(), sky.lock().rng.next());
            async move {
                let Some((lag, forgery)) = showing else { return Vec::new() };
                tokio::time::sleep(lag).await;
                clock.while_running().await;
                match &item {
                    Ok(Item::Leader(Some(found))) if forgery => {
                        let forged = forged(found, nonce);
                        vec![item, Ok(forged)]
                    }
                    _ => vec![item],
                }
            }
        });
        let sky = self.sky.clone();
        let broken = async move { sky.broken.notified().await };
        let end = stream::once(async { Err(failed(Fault::Unavailable)) });
        let shown = shown.flat_map(stream::iter).take_until(Box::pin(broken)).chain(end);
        Ok(shown.boxed())
    }

    async fn unsubscribe(&self, subscription: Subscription) {
        drop(subscription);
    }

    fn handle(&self, table: &str, handle: Handle) -> Option<Arc<dyn Any + Send + Sync>> {
        self.sky.table.handle(table, handle)
    }
}
