//! Removes members that are gone, conservatively.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tenure::Moment;
use tenure::store::{Mark, Put, StoreExt as _, Version};

use super::look::{Look, Sight};
use crate::client::ClusterClient;
use crate::documents::{MemberId, MemberLock, Nodes};
use crate::error::ClusterError;

/// The observed state of one member's lock.
#[derive(Clone, Debug)]
pub(super) struct Sighting {
    version: Option<Version>,
    /// When this version was first seen, after the answer arrived.
    since: Moment,
    ttl: Duration,
    /// The lock says that the member has left.
    left: bool,
}

impl Sighting {
    /// Continues the sighting before if the version is the same, or starts a new one.
    pub(super) fn of(
        before: Option<&Sighting>,
        found: Option<(Version, Option<&MemberLock>)>,
        now: Moment,
        ttl: Duration,
    ) -> Sighting {
        let (version, lock) = found.map_or((None, None), |(version, lock)| (Some(version), lock));
        let same = before.filter(|before| before.version == version);
        Sighting {
            version,
            since: same.map_or(now, |before| before.since),
            ttl: lock.map_or(ttl, |lock| lock.ttl),
            left: lock.is_some_and(|lock| lock.expire == 0),
        }
    }

    /// Returns true if the member let its lock run out, or left.
    pub(super) fn is_over(&self, now: Moment) -> bool {
        self.left || now.at_least_since(self.since) >= self.ttl
    }
}

/// The leader's knowledge of the members.
#[derive(Default)]
pub(super) struct Members {
    sightings: BTreeMap<MemberId, Sighting>,
    /// The version of each held slot, and since when it was seen.
    held: BTreeMap<usize, (Version, Moment)>,
    /// Members that are proven dead.
    gone: BTreeSet<MemberId>,
    watched: BTreeMap<MemberId, Mark>,
    watches: FuturesUnordered<BoxFuture<'static, MemberId>>,
    count: Option<usize>,
}

impl Members {
    /// Notes since when each held slot has not changed.
    pub(super) fn observe(&mut self, look: &Look) {
        let mut held = BTreeMap::new();
        for (number, sight) in look.slots.iter().enumerate() {
            let Sight::Found(version, slot) = sight else { continue };
            if slot.holding().is_none() {
                continue;
            }
            let since = match self.held.get(&number) {
                Some((before, since)) if before == version => *since,
                _ => look.at,
            };
            held.insert(number, (version.clone(), since));
        }
        self.held = held;
    }

    /// The number of members, if it has changed.
    pub(super) fn changed_count(&mut self, look: &Look) -> Option<usize> {
        let count = look.nodes.content()?.nodes.len();
        (self.count.replace(count) != Some(count)).then_some(count)
    }

    /// Reads the locks of all members, and returns those that seem to be gone.
    pub(super) async fn suspects(
        &mut self,
        client: &ClusterClient,
        me: &MemberId,
        ttl: Duration,
        nodes: &Nodes,
    ) -> Result<Vec<MemberId>, ClusterError> {
        let others: BTreeSet<MemberId> =
            nodes.nodes.iter().map(|node| node.token.clone()).filter(|id| id != me).collect();
        self.forget_all_but(&others);
        let keys: Vec<_> = others.iter().map(|id| client.keys.member(id)).collect();
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let found = client.find_many::<MemberLock>(&keys).await?;
        let now = client.backend.clock().now();
        for (id, found) in others.iter().zip(found) {
            let lock = found.as_ref().and_then(|found| found.content.as_ref().ok());
            self.watch(client, id, lock.and_then(|lock| lock.presence.as_ref()));
            let found = found.as_ref().map(|found| (found.version.clone(), lock));
            let sighting = Sighting::of(self.sightings.get(id), found, now, ttl);
            self.sightings.insert(id.clone(), sighting);
        }
        let is_over = |(id, sighting): &(&MemberId, &Sighting)| {
            self.gone.contains(*id) || sighting.is_over(now)
        };
        Ok(self.sightings.iter().filter(is_over).map(|(id, _)| id.clone()).collect())
    }

    fn forget_all_but(&mut self, members: &BTreeSet<MemberId>) {
        self.sightings.retain(|id, _| members.contains(id));
        self.gone.retain(|id| members.contains(id));
        let before = self.watched.len();
        self.watched.retain(|id, _| members.contains(id));
        if self.watched.len() < before {
            // The watches of members that left would wait for ever; the others are set up again.
            self.watched.clear();
            self.watches.clear();
        }
    }

    fn watch(&mut self, client: &ClusterClient, id: &MemberId, mark: Option<&Mark>) {
        let (Some(presence), Some(mark)) = (client.backend.presence(), mark) else { return };
        if self.watched.contains_key(id) {
            return;
        }
        self.watched.insert(id.clone(), mark.clone());
        let (presence, id, mark) = (presence.clone(), id.clone(), mark.clone());
        self.watches.push(Box::pin(async move {
            presence.gone(&mark).await;
            id
        }));
    }

    /// Resolves when a member is proven dead; never if that cannot be proven.
    pub(super) async fn proven_gone(&mut self) {
        match self.watches.next().await {
            Some(id) => {
                self.gone.insert(id);
            }
            None => std::future::pending().await,
        }
    }

    /// Returns true if a member holds a slot that others may not take yet.
    pub(super) fn still_holds(&self, look: &Look, member: &MemberId) -> bool {
        look.slots.iter().enumerate().any(|(number, sight)| {
            let Some(slot) = sight.content() else { return false };
            if slot.holding().is_none_or(|holding| holding.member != *member) {
                return false;
            }
            let since = self.held.get(&number).filter(|(seen, _)| Some(seen) == sight.version());
            since.is_none_or(|(_, since)| look.at.at_least_since(*since) < slot.ttl)
        })
    }

    /// Removes those of the suspects that hold no slot.
    ///
    /// Their locks go first, each at the version that did not change, so that a member that is
    /// alive after all stays. Then their entries in the list go.
    pub(super) async fn remove(
        &mut self,
        client: &ClusterClient,
        look: &Look,
        suspects: Vec<MemberId>,
    ) -> Result<(), ClusterError> {
        let mut removed = BTreeSet::new();
        for member in suspects {
            if self.still_holds(look, &member) {
                continue;
            }
            let version = self.sightings.get(&member).and_then(|known| known.version.clone());
            if let Some(version) = version {
                match client.store().delete(&client.keys.member(&member), version).await {
                    Ok(Put::Stored(_)) => {}
                    Ok(Put::Conflict) => continue,
                    Err(error) => {
                        tracing::warn!(%member, %error, "a member was not removed");
                        continue;
                    }
                }
            }
            removed.insert(member);
        }
        if removed.is_empty() {
            return Ok(());
        }
        let key = client.keys.nodes();
        let without = |nodes: Option<&Nodes>, op| {
            let Some(nodes) = nodes else { return Ok(None) };
            let mut after = Nodes { revision: nodes.revision + 1, op, ..nodes.clone() };
            after.nodes.retain(|node| !removed.contains(&node.token));
            Ok((after.nodes.len() < nodes.nodes.len()).then_some(after))
        };
        client.update(&key, |nodes: &Nodes| &nodes.op, without).await?;
        for member in &removed {
            tracing::info!(%member, "a member is gone, and was taken from the list");
            self.sightings.remove(member);
        }
        Ok(())
    }
}
