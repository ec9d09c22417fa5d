//! Learns the current state.
//!
//! While the node in this process is the only one, the planner learns from it. Otherwise it looks
//! at all documents.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure::Moment;
use tenure::store::Version;

use super::held_cursor::{HeldCursor, Stop};
use super::look::Look;
use super::{LeaderState, PACE};
use crate::client::ClusterClient;
use crate::documents::{DocumentError, NodeEntry};
use crate::event::Event;
use crate::local_writes::LocalWritesReader;

/// How long a planner relies on its process's node before it looks by itself.
///
/// This is for a node that is the only one.
const ALONE: Duration = Duration::from_millis(200);

impl<'a> LeaderState<'a> {
    /// Learns the current state, by a look or from the node in this process.
    pub(super) async fn catch_up(
        &mut self,
        held_cursor: &HeldCursor,
        look: &mut Look,
    ) -> Result<(), Stop> {
        let alone = self.is_alone(look);
        let silent = self.reader.as_ref().is_none_or(LocalWritesReader::is_silent);
        let outdated = look.is_outdated || !held_cursor.is_seen_through();
        if outdated || self.is_look_due(alone) || silent && !alone {
            self.refresh(look, alone).await?;
        } else if !silent {
            self.keep_pace().await;
            self.caught_up = Some(self.now());
        }
        for write_seen in self.reader.iter().flat_map(LocalWritesReader::take) {
            look.heard(write_seen);
        }
        Ok(())
    }

    /// Returns true if the last look showed no other node than the one in this process.
    pub(super) fn is_alone(&self, look: &Look) -> bool {
        let is_me = |node: &NodeEntry| node.token == self.planner.me;
        look.nodes.content().is_some_and(|nodes| nodes.nodes.iter().all(is_me))
    }

    /// Returns true if a look is due, regardless of local writes of the node.
    fn is_look_due(&self, alone: bool) -> bool {
        let rung = self.look_due || self.wake_up_due && !alone;
        rung || self.next_look(alone).is_none_or(|next| next.boot <= self.now().boot)
    }

    /// The time of the next look, regardless of local writes of the node.
    pub(super) fn next_look(&self, alone: bool) -> Option<Moment> {
        Some(self.last_look? + if alone { ALONE } else { PACE })
    }

    /// Waits until several tasks may have ended, unless nodes wait for work.
    fn keep_pace(&self) -> impl Future<Output = ()> + use<'a> {
        let since = self.caught_up.map(|last| self.now().at_most_since(last));
        let left = since.and_then(|since| PACE.checked_sub(since)).filter(|_| self.stocked);
        let client = self.client();
        async move {
            if let Some(left) = left {
                client.sleep(left).await;
            }
        }
    }

    /// Looks at all documents after a short pause. Meanwhile wakes the nodes, if that is due and
    /// there are other nodes to hear it.
    async fn refresh(&mut self, look: &mut Look, alone: bool) -> Result<(), Stop> {
        let (client, pace) = (self.client(), self.keep_pace());
        let looking = async {
            pace.await;
            let at = client.backend.clock().now();
            (at, look.refresh(client).await)
        };
        let rings = self.wake_up_due && !alone;
        let ((at, looked), rung) = tokio::join!(looking, ring(client, rings));
        self.wake_up_due &= !rung;
        (self.caught_up, self.last_look) = (Some(at), Some(at));
        looked?;
        self.look_due = false;
        // Another node has joined, which has not heard of the slots that were filled meanwhile.
        let rings = self.wake_up_due && alone && !self.is_alone(look);
        self.wake_up_due &= !ring(client, rings).await;
        self.planner.local_writes.saw_nodes(look.nodes.content());
        self.planner.local_writes.filled(look.to_be_taken());
        self.members.observe(look);
        if let Some(count) = self.members.changed_count(look) {
            self.tell(Event::Members(count));
        }
        self.tell_of_garbled(look);
        Ok(())
    }

    /// Reports each invalid document once.
    fn tell_of_garbled(&mut self, look: &Look) {
        let mut garbled = Vec::new();
        let keys = &self.client().keys;
        garbled.extend(look.cluster_config.error().map(|found| (keys.cluster_config(), found)));
        garbled.extend(look.nodes.error().map(|found| (keys.nodes(), found)));
        let slots = look.slots.iter().enumerate();
        garbled.extend(slots.filter_map(|(number, slot)| Some((keys.slot(number), slot.error()?))));
        let mut told = BTreeMap::new();
        for (key, (version, error)) in garbled {
            if self.told.get(&key) != Some(version) {
                self.garbled(key.clone(), error.clone());
            }
            told.insert(key, version.clone());
        }
        let refused = Version::new("refused");
        for number in look.unreadable() {
            let key = self.client().keys.slot(number);
            if self.told.get(&key) != Some(&refused) {
                self.garbled(key.clone(), DocumentError::refused("slot"));
            }
            told.insert(key, refused.clone());
        }
        self.told = told;
    }
}

/// Wakes the nodes, if that is due. Returns false if it failed.
async fn ring(client: &ClusterClient, due: bool) -> bool {
    if !due {
        return false;
    }
    match client.ring(&client.keys.wake_up()).await {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(%error, "the bell was not rung; it is tried again");
            false
        }
    }
}
