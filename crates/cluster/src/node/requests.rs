//! The requests of a node to the store, and how it takes their answers.

use futures_util::future::BoxFuture;
use tenure::Moment;
use tenure::protocol::Ask;
use tenure::store::{Durability, Mark, Put, StoreError, StoreExt as _, Version, Write};

use super::member::Standing;
use super::{Node, WakeUp};
use crate::claims::{AcknowledgedWrite, Input, Seen, SlotWrite};
use crate::client::Shown;
use crate::documents::{ClusterConfig, Format as _, Nodes, Slot};
use crate::error::ClusterError;
use crate::event::Event;

pub(super) type Request = BoxFuture<'static, Answer>;

/// The result of a request.
pub(super) enum Answer {
    Looked(Ask, Result<Looked, StoreError>),
    Wrote {
        ask: Ask,
        answers: Vec<Result<Put, StoreError>>,
        member: Option<Result<Put, StoreError>>,
    },
    Beat(Result<Put, StoreError>),
    Refreshed(Result<(Standing, Option<(Version, u64)>), ClusterError>),
    Rang(Result<(), ClusterError>),
    WakeUp(Result<Option<Version>, StoreError>),
    Gone(Mark),
}

pub(super) struct Looked {
    cluster_config: Option<ClusterConfig>,
    nodes: Option<Nodes>,
    wake_up: Option<Version>,
    slots: Vec<Option<Seen>>,
}

impl Node {
    pub(super) fn request(&mut self, make: impl FnOnce(&mut Node) -> Request) {
        let request = make(self);
        self.requests.push(request);
    }

    /// Handles a change of the wake-up document.
    ///
    /// A request in the background reads the document, and the node then waits for a change of that
    /// version: a store that wakes early must not keep the loop spinning. The loop itself waits for
    /// no answer, because it is the loop that tells work to stop.
    pub(super) fn rung(&mut self) {
        self.claims.take(self.clock.now(), Input::WakeUp);
        self.wake_up = WakeUp::Read(self.wake_up.version().clone());
        let (client, pause) = (self.set.client.clone(), self.set.timing.request() / 4);
        self.requests.push(Box::pin(async move {
            let wake_up = client.store().get(&client.keys.wake_up()).await;
            if wake_up.is_err() {
                client.sleep(pause).await;
            }
            Answer::WakeUp(wake_up.map(|document| document.map(|document| document.version)))
        }));
    }

    pub(super) fn look(&mut self, ask: Ask) -> Request {
        let (client, keys) = (self.set.client.clone(), self.keys.clone());
        Box::pin(async move {
            let answer = client.look_at(&keys).await.map(|shown| {
                let mut found = shown.into_iter().map(Shown::document);
                let cluster_config =
                    found.next().flatten().and_then(|d| ClusterConfig::decode(&d.body).ok());
                let nodes = found.next().flatten().and_then(|d| Nodes::decode(&d.body).ok());
                let wake_up = found.next().flatten().map(|document| document.version);
                let slots = found
                    .map(|document| {
                        let document = document?;
                        let slot = Slot::decode(&document.body);
                        Some(Seen { version: document.version, slot })
                    })
                    .collect();
                Looked { cluster_config, nodes, wake_up, slots }
            });
            Answer::Looked(ask, answer)
        })
    }

    pub(super) fn write(&mut self, ask: Ask, writes: Vec<SlotWrite>) -> Request {
        let (client, local_writes) = (self.set.client.clone(), self.set.local_writes.clone());
        let mut batch: Vec<Write> = writes
            .iter()
            .map(|write| Write {
                key: self.keys[write.slot + 3].clone(),
                expect: write.expect.clone(),
                body: Some(write.body.encode()),
                durability: if write.lasting {
                    Durability::Lasting
                } else {
                    Durability::UntilPowerCut
                },
            })
            .collect();
        let idle = self.set.workers.saturating_sub(self.busy);
        let member = self.membership.beat_along(&self.set.client, self.clock.now(), idle);
        let along = member.is_some();
        batch.extend(member);
        let sent = local_writes.sending();
        Box::pin(async move {
            let mut answers = client.store().put_many(batch).await;
            let member = if along { answers.pop() } else { None };
            local_writes.worked(sent, writes.into_iter().zip(&answers).filter_map(acknowledged));
            Answer::Wrote { ask, answers, member }
        })
    }

    pub(super) fn answered(&mut self, answer: Answer) {
        let now = self.clock.now();
        match answer {
            Answer::Looked(ask, answer) => {
                let answer = answer.map(|looked| self.looked(now, looked)).map_err(|error| {
                    tracing::debug!(%error, "a look failed");
                    error.fault
                });
                self.claims.take(now, Input::Looked(ask, answer));
                self.watch_marks();
            }
            Answer::Wrote { ask, answers, member } => {
                let answers = answers
                    .into_iter()
                    .map(|answer| {
                        answer.map_err(|error| {
                            tracing::debug!(%error, "a write failed");
                            error.fault
                        })
                    })
                    .collect();
                self.claims.take(now, Input::Wrote(ask, answers));
                if let Some(put) = member {
                    self.beaten(put);
                }
            }
            Answer::Beat(put) => self.beaten(put),
            Answer::Refreshed(Ok((standing, lock))) => {
                let members = standing.members();
                self.membership.found_lock(lock);
                if self.membership.refreshed(now, standing) {
                    self.tell(Event::Members(members));
                }
                self.place();
            }
            Answer::Refreshed(Err(error)) => {
                tracing::warn!(%error, "this member could not be registered");
                self.membership.failed(now);
            }
            Answer::WakeUp(wake_up) => {
                let version = wake_up.unwrap_or_else(|error| {
                    tracing::debug!(%error, "the bell could not be read");
                    self.wake_up.version().clone()
                });
                self.wake_up = WakeUp::Watched(version);
            }
            Answer::Rang(Ok(())) => {}
            Answer::Rang(Err(error)) => tracing::debug!(%error, "the leader was not called"),
            Answer::Gone(mark) => {
                self.watched.retain(|watched| *watched != mark);
                self.claims.take(now, Input::HolderGone(mark));
            }
        }
    }

    fn looked(&mut self, now: Moment, looked: Looked) -> Vec<Option<Seen>> {
        let Looked { cluster_config, nodes, wake_up, slots } = looked;
        if wake_up != *self.wake_up.version() {
            self.wake_up = match self.wake_up {
                WakeUp::Watched(_) => WakeUp::Watched(wake_up),
                WakeUp::Read(_) => WakeUp::Read(wake_up),
            };
            self.claims.take(now, Input::WakeUp);
        }
        if let Some(nodes) = nodes
            && self.membership.saw(&nodes)
        {
            self.place();
        }
        if let Some(cluster_config) = cluster_config
            && cluster_config.slots + 3 > self.keys.len()
        {
            self.set_keys(cluster_config.slots);
            self.claims.take(now, Input::WakeUp);
        }
        slots
    }

    /// Watches the members that hold a task, where their death can be proven.
    fn watch_marks(&mut self) {
        let Some(presence) = self.set.client.backend.presence().cloned() else { return };
        let mut fresh: Vec<Mark> = Vec::new();
        for mark in self.claims.foreign_marks() {
            if !self.watched.contains(mark) && !fresh.contains(mark) {
                fresh.push(mark.clone());
            }
        }
        for mark in fresh {
            self.watched.push(mark.clone());
            let presence = presence.clone();
            self.requests.push(Box::pin(async move {
                presence.gone(&mark).await;
                Answer::Gone(mark)
            }));
        }
    }
}

/// The fact of an acknowledged write, for the planner of this process.
fn acknowledged(
    (write, answer): (SlotWrite, &Result<Put, StoreError>),
) -> Option<AcknowledgedWrite> {
    match answer {
        Ok(Put::Stored(version)) => Some(AcknowledgedWrite {
            slot: write.slot,
            version: version.clone(),
            content: write.body,
        }),
        Ok(Put::Conflict) | Err(_) => None,
    }
}
