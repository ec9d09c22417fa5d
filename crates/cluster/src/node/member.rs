//! A node's own entry in the node list, and its member lock.

use tenure::store::{Durability, Expect, Fault, Mark, Put, StoreError, StoreExt, Version, Write};
use tenure::{Moment, Timing};

use super::Node;
use super::requests::{Answer, Request};
use crate::claims::Place;
use crate::client::ClusterClient;
use crate::documents::{Format as _, MOST_NODES, MemberId, MemberLock, NodeEntry, Nodes};
use crate::error::ClusterError;

/// The node list, after this member has looked at it.
pub(crate) struct Standing {
    nodes: Nodes,
}

impl Standing {
    pub(super) fn members(&self) -> usize {
        self.nodes.nodes.len()
    }
}

/// One member's registration.
pub(crate) struct Membership {
    me: MemberId,
    presence: Option<Mark>,
    timing: Timing,
    nodes: Option<Nodes>,
    /// The lock's version and revision, as far as they are known.
    lock: Option<(Version, u64)>,
    /// When the last beat was sent.
    sent: Option<Moment>,
    /// The revision of the beat under way.
    flying: Option<u64>,
    refreshed: Option<Moment>,
    refreshing: bool,
    lists: bool,
    pub(super) finished: u64,
}

impl Membership {
    /// A member that is not registered yet.
    pub(crate) fn new(client: &ClusterClient, me: MemberId, timing: Timing) -> Membership {
        let presence = client.backend.presence().and_then(|presence| match presence.mark() {
            Ok(mark) => Some(mark),
            Err(error) => {
                // Without a mark, its tasks become free only after the ttl; nothing else is lost.
                tracing::warn!(%error, "no proof of presence");
                None
            }
        });
        Membership {
            me,
            presence,
            timing,
            nodes: None,
            lock: None,
            sent: None,
            flying: None,
            refreshed: None,
            refreshing: false,
            lists: false,
            finished: 0,
        }
    }

    /// Sets whether the node can list the source.
    pub(crate) fn listing(self, lists: bool) -> Membership {
        Membership { lists, ..self }
    }

    pub(super) fn presence(&self) -> Option<Mark> {
        self.presence.clone()
    }

    fn body(&self, client: &ClusterClient, revision: u64, idle: usize, left: bool) -> MemberLock {
        let ttl = self.timing.ttl();
        let span = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        MemberLock {
            holder: self.me.clone(),
            expire: if left { 0 } else { client.wall().saturating_add(span) },
            ttl,
            idle: u32::try_from(idle).unwrap_or(u32::MAX),
            finished: self.finished,
            lists: self.lists,
            presence: self.presence.clone(),
            revision,
            op: client.fresh_op(),
        }
    }

    /// Registers the member. Writes the lock first, so that the leader does not take the entry for
    /// that of a dead member.
    pub(crate) async fn join(
        &mut self,
        client: &ClusterClient,
        name: &str,
        workers: usize,
    ) -> Result<(), ClusterError> {
        let key = client.keys.member(&self.me);
        let lock = self.body(client, 1, workers, false);
        match client.store().put(&key, Expect::Absent, lock.encode()).await {
            Ok(Put::Stored(version)) => self.lock = Some((version, 1)),
            // The next refresh reads the lock.
            Ok(Put::Conflict) => {}
            Err(error) if error.fault == Fault::Indeterminate => {}
            Err(error) => return Err(error.into()),
        }
        let standing = enter(client, &self.me, name, workers).await?;
        self.nodes = Some(standing.nodes);
        self.refreshed = Some(client.backend.clock().now());
        Ok(())
    }

    /// Takes the entry out of the list, if the store answers.
    pub(super) async fn leave(&mut self, client: &ClusterClient) {
        let me = self.me.clone();
        let without = |nodes: Option<&Nodes>, op| {
            let Some(nodes) = nodes.filter(|nodes| nodes.position(&me).is_some()) else {
                return Ok(None);
            };
            let mut after = Nodes { revision: nodes.revision + 1, op, ..nodes.clone() };
            after.nodes.retain(|node| node.token != me);
            Ok(Some(after))
        };
        if let Err(error) = client.update(&client.keys.nodes(), |nodes| &nodes.op, without).await {
            tracing::warn!(%error, "this member could not leave the node list; the leader will see to it");
            return;
        }
        let key = client.keys.member(&self.me);
        let deleted = match client.store().get(&key).await {
            Ok(Some(document)) => client.store().delete(&key, document.version).await.map(drop),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = deleted {
            tracing::debug!(%error, "this member's lock was left behind; the leader will see to it");
        }
    }

    /// The time of the next beat or refresh.
    pub(super) fn wake(&self, now: Moment) -> Option<Moment> {
        let heartbeat = self.timing.heartbeat();
        let beat = self.sent.map(|sent| sent + heartbeat);
        let refresh = self.refreshed.map(|refreshed| refreshed + heartbeat);
        [beat, refresh].into_iter().flatten().filter(|wake| wake.boot > now.boot).min()
    }

    /// Returns true if this member was declared dead, or was asked to finish.
    pub(super) fn is_retired(&self) -> bool {
        self.is_draining() || self.nodes.as_ref().is_some_and(|nodes| nodes.dead.contains(&self.me))
    }

    pub(super) fn is_draining(&self) -> bool {
        let entry = |nodes: &Nodes| nodes.nodes.iter().any(|n| n.token == self.me && n.draining);
        self.nodes.as_ref().is_some_and(entry)
    }

    /// Takes a newer node list. Returns true if it differs.
    pub(super) fn saw(&mut self, nodes: &Nodes) -> bool {
        let differs = self.nodes.as_ref().is_none_or(|known| known.revision < nodes.revision);
        if differs {
            self.nodes = Some(nodes.clone());
        }
        differs
    }

    pub(super) fn refreshed(&mut self, now: Moment, standing: Standing) -> bool {
        (self.refreshed, self.refreshing) = (Some(now), false);
        self.saw(&standing.nodes)
    }

    pub(super) fn failed(&mut self, now: Moment) {
        (self.refreshed, self.refreshing) = (Some(now), false);
    }

    /// The member's place among the others; `None` while it is not in the list.
    pub(super) fn place(&self, me: &MemberId, workers: usize) -> Option<Place> {
        let nodes = self.nodes.as_ref()?;
        let position = nodes.position(me)?;
        let members = nodes.nodes.iter().map(|node| node.token.clone()).collect();
        let sum = |nodes: &[NodeEntry]| nodes.iter().map(|node| node.workers as usize).sum();
        let (before, all): (usize, usize) = (sum(&nodes.nodes[..position]), sum(&nodes.nodes));
        Some(Place { before, members, workers, all_workers: all.max(workers) })
    }

    /// The next beat, if one is due soon: it goes out together with other writes.
    pub(super) fn beat_along(
        &mut self,
        client: &ClusterClient,
        now: Moment,
        idle: usize,
    ) -> Option<Write> {
        let heartbeat = self.timing.heartbeat();
        let due = self.sent.is_none_or(|sent| now.at_most_since(sent) >= heartbeat / 2);
        if due { self.beat(client, now, idle) } else { None }
    }

    /// The next beat, if it is due.
    pub(super) fn beat_alone(
        &mut self,
        client: &ClusterClient,
        now: Moment,
        idle: usize,
    ) -> Option<Write> {
        let heartbeat = self.timing.heartbeat();
        let due = self.sent.is_none_or(|sent| now.at_most_since(sent) >= heartbeat);
        if due { self.beat(client, now, idle) } else { None }
    }

    fn beat(&mut self, client: &ClusterClient, now: Moment, idle: usize) -> Option<Write> {
        let lost = self.sent.is_some_and(|sent| now.at_most_since(sent) >= self.timing.ttl());
        if self.flying.is_some() && !lost {
            return None;
        }
        let (version, revision) = self.lock.clone()?;
        self.sent = Some(now);
        self.flying = Some(revision + 1);
        let body = Some(self.body(client, revision + 1, idle, false).encode());
        let (key, expect) = (client.keys.member(&self.me), Expect::At(version));
        Some(Write { key, expect, body, durability: Durability::UntilPowerCut })
    }

    pub(super) fn beaten(&mut self, put: Result<Put, StoreError>) {
        let revision = self.flying.take().unwrap_or(1);
        // The next refresh reads the lock again if its version is unknown.
        self.lock = match put {
            Ok(Put::Stored(version)) => Some((version, revision)),
            Ok(Put::Conflict) | Err(_) => None,
        };
    }

    /// Returns true if it is time to read the list and to restore lost documents.
    pub(super) fn start_refresh(&mut self, now: Moment) -> bool {
        let heartbeat = self.timing.heartbeat();
        let since = |refreshed: Moment| now.at_most_since(refreshed);
        let due = self.refreshed.is_none_or(|refreshed| since(refreshed) >= heartbeat);
        let start = due && !self.refreshing && !self.is_retired();
        self.refreshing |= start;
        start
    }

    /// Takes the lock found in the store, if the lock is not known.
    pub(super) fn found_lock(&mut self, found: Option<(Version, u64)>) {
        if self.lock.is_none() && self.flying.is_none() {
            self.lock = found;
        }
    }

    /// A new document for the lock, for when it is gone.
    pub(super) fn fresh_lock(&self, client: &ClusterClient, idle: usize) -> MemberLock {
        self.body(client, 1, idle, false)
    }
}

/// Puts a member into the node list, unless it is there or was declared dead.
pub(super) async fn enter(
    client: &ClusterClient,
    me: &MemberId,
    name: &str,
    workers: usize,
) -> Result<Standing, ClusterError> {
    let workers = u32::try_from(workers).unwrap_or(u32::MAX);
    let entry = NodeEntry { token: me.clone(), workers, name: name.into(), draining: false };
    let with = |nodes: Option<&Nodes>, op| {
        let Some(nodes) = nodes else {
            let nodes = vec![entry.clone()];
            return Ok(Some(Nodes { nodes, dead: Vec::new(), revision: 1, op }));
        };
        if nodes.position(me).is_some() || nodes.dead.contains(me) {
            return Ok(None);
        }
        if nodes.nodes.len() >= MOST_NODES {
            return Err(ClusterError::Full { most: MOST_NODES });
        }
        let mut after = Nodes { revision: nodes.revision + 1, op, ..nodes.clone() };
        after.nodes.push(entry.clone());
        Ok(Some(after))
    };
    let nodes = client.update(&client.keys.nodes(), |nodes| &nodes.op, with).await?;
    nodes.map(|nodes| Standing { nodes }).ok_or(ClusterError::Vanished)
}

/// Finds the lock in the store, and writes it anew if it is gone.
pub(super) async fn find_lock(
    client: &ClusterClient,
    me: &MemberId,
    fresh: &MemberLock,
) -> Result<Option<(Version, u64)>, ClusterError> {
    let key = client.keys.member(me);
    match client.read::<MemberLock>(&key).await? {
        Some((version, lock)) => Ok(Some((version, lock.revision))),
        None => match client.store().put(&key, Expect::Absent, fresh.encode()).await? {
            Put::Stored(version) => Ok(Some((version, fresh.revision))),
            Put::Conflict => Ok(None),
        },
    }
}

impl Node {
    /// Sends a beat or a refresh if it is due.
    pub(super) fn beat(&mut self, now: Moment) {
        let idle = self.set.workers.saturating_sub(self.busy);
        if let Some(write) = self.membership.beat_alone(&self.set.client, now, idle) {
            let client = self.set.client.clone();
            self.requests
                .push(Box::pin(async move { Answer::Beat(client.store().put_one(write).await) }));
        }
        if self.membership.start_refresh(now) {
            self.request(Node::refresh);
        }
    }

    /// Reads the node list, and restores the entry and the lock if they were lost.
    pub(super) fn refresh(&mut self) -> Request {
        let idle = self.set.workers.saturating_sub(self.busy);
        let fresh = self.membership.fresh_lock(&self.set.client, idle);
        let unknown = self.membership.lock.is_none();
        let (client, me) = (self.set.client.clone(), self.set.me.clone());
        let (name, workers) = (self.set.name.clone(), self.set.workers);
        Box::pin(async move {
            let refreshed = async {
                let lock = if unknown { find_lock(&client, &me, &fresh).await? } else { None };
                Ok((enter(&client, &me, &name, workers).await?, lock))
            };
            Answer::Refreshed(refreshed.await)
        })
    }

    pub(super) fn beaten(&mut self, put: Result<Put, StoreError>) {
        if let Err(error) = &put {
            tracing::debug!(%error, "the member's lock was not renewed");
        }
        self.membership.beaten(put);
    }
}
