//! Removes members that are gone, conservatively.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure::Moment;
use tenure::lease::record::Op;
use tenure::store::{Durability, Expect, Mark, Put, Version, Write};

use super::Output;
use super::look::{Look, Sight};
use super::request::{Answer, Common, Request};
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
#[derive(Debug)]
pub(super) struct Members {
    sightings: BTreeMap<MemberId, Sighting>,
    /// The version of each held slot, and since when it was seen.
    held: BTreeMap<usize, (Version, Moment)>,
    /// Members that are proven dead.
    gone: BTreeSet<MemberId>,
    /// Members whose death is watched for.
    watched: BTreeSet<MemberId>,
    count: Option<usize>,
    /// When to look at the locks of members again.
    due: Moment,
}

/// Removes members that are gone.
#[derive(Debug)]
pub(super) enum Minding {
    /// The locks of these members are read.
    Reading(BTreeSet<MemberId>),
    /// The locks of the members in the second list are deleted. Those in the first have none.
    Deleting(BTreeSet<MemberId>, Vec<MemberId>),
    /// These members are taken from the node list.
    Removing(BTreeSet<MemberId>),
}

impl Members {
    pub(super) fn new(now: Moment) -> Members {
        Members {
            sightings: BTreeMap::new(),
            held: BTreeMap::new(),
            gone: BTreeSet::new(),
            watched: BTreeSet::new(),
            count: None,
            due: now,
        }
    }

    pub(super) fn due(&self) -> Moment {
        self.due
    }

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

    /// Reads the locks of all members, every heartbeat.
    pub(super) fn mind(&mut self, common: &mut Common, look: &Look) -> Option<(Minding, Request)> {
        if common.now.boot < self.due.boot {
            return None;
        }
        self.due = common.now + common.settings.timing.heartbeat();
        let nodes = look.nodes.content()?.nodes.iter();
        let ids = nodes.map(|node| node.token.clone());
        let others: BTreeSet<MemberId> = ids.filter(|id| *id != common.settings.me).collect();
        self.forget_all_but(common, &others);
        if others.is_empty() {
            return None;
        }
        let keys = others.iter().map(|id| common.settings.keys.member(id)).collect();
        Some((Minding::Reading(others), Request::Look(keys)))
    }

    /// Takes in an answer. Returns the next request, if there is one.
    pub(super) fn answer(
        &mut self,
        common: &mut Common,
        look: &Look,
        minding: Minding,
        answer: Answer,
    ) -> Result<Option<(Minding, Request)>, ClusterError> {
        match minding {
            Minding::Reading(others) => {
                let found = answer.found::<MemberLock>()?;
                for (id, found) in others.iter().zip(found) {
                    let lock = found.as_ref().and_then(|found| found.content.as_ref().ok());
                    self.watch(common, id, lock.and_then(|lock| lock.presence.as_ref()));
                    let found = found.as_ref().map(|found| (found.version.clone(), lock));
                    let (before, ttl) = (self.sightings.get(id), common.settings.timing.ttl());
                    let sighting = Sighting::of(before, found, common.now, ttl);
                    self.sightings.insert(id.clone(), sighting);
                }
                Ok(self.delete_locks(common, look))
            }
            Minding::Deleting(mut removed, deleted) => {
                for (member, outcome) in deleted.into_iter().zip(answer.wrote()) {
                    match outcome {
                        Ok(Put::Stored(_)) => {
                            removed.insert(member);
                        }
                        Ok(Put::Conflict) => {}
                        Err(error) => common.warn_of("a member was not removed", &member, &error),
                    }
                }
                Ok(remove(removed))
            }
            Minding::Removing(removed) => {
                answer.done()?;
                for member in removed {
                    self.sightings.remove(&member);
                    common.outputs.push(Output::Removed(member));
                }
                Ok(None)
            }
        }
    }

    /// Deletes the locks of members that are gone and hold no slot.
    ///
    /// Their locks go first, each at the version that did not change, so that a member that is
    /// alive after all stays. Then their entries in the list go.
    fn delete_locks(&self, common: &Common, look: &Look) -> Option<(Minding, Request)> {
        let (mut without, mut deleted, mut writes) = (BTreeSet::new(), Vec::new(), Vec::new());
        for (member, sighting) in &self.sightings {
            let is_over = self.gone.contains(member) || sighting.is_over(common.now);
            if !is_over || self.still_holds(look, member) {
                continue;
            }
            let Some(version) = sighting.version.clone() else {
                without.insert(member.clone());
                continue;
            };
            let (key, expect) = (common.settings.keys.member(member), Expect::At(version));
            writes.push(Write { key, expect, body: None, durability: Durability::Lasting });
            deleted.push(member.clone());
        }
        if writes.is_empty() {
            return remove(without);
        }
        Some((Minding::Deleting(without, deleted), Request::Write(writes)))
    }

    fn forget_all_but(&mut self, common: &mut Common, members: &BTreeSet<MemberId>) {
        self.sightings.retain(|id, _| members.contains(id));
        self.gone.retain(|id| members.contains(id));
        let before = self.watched.len();
        self.watched.retain(|id| members.contains(id));
        if self.watched.len() < before {
            // The watches of members that left would wait for ever; the others are set up again.
            self.watched.clear();
            common.outputs.push(Output::Unwatch);
        }
    }

    fn watch(&mut self, common: &mut Common, id: &MemberId, mark: Option<&Mark>) {
        if let Some(mark) = mark
            && self.watched.insert(id.clone())
        {
            common.outputs.push(Output::Watch(id.clone(), mark.clone()));
        }
    }

    /// Notes that a member is proven dead.
    pub(super) fn proven_gone(&mut self, id: MemberId, now: Moment) {
        self.gone.insert(id);
        self.due = now;
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
}

fn remove(removed: BTreeSet<MemberId>) -> Option<(Minding, Request)> {
    let request = Request::RemoveMembers(removed.clone());
    (!removed.is_empty()).then_some((Minding::Removing(removed), request))
}

/// The node list without these members, or `None` if it has none of them.
pub fn without(nodes: &Nodes, members: &BTreeSet<MemberId>, op: Op) -> Option<Nodes> {
    let mut after = Nodes { revision: nodes.revision + 1, op, ..nodes.clone() };
    after.nodes.retain(|node| !members.contains(&node.token));
    (after.nodes.len() < nodes.nodes.len()).then_some(after)
}
