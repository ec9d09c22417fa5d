//! Reads a queue.

use std::sync::Arc;

use tenure::protocol::Holder;
use tenure::queue::{Entry, Place, Queue, Ticket};
use tenure::store::{Fault, StoreError};
use tokio::sync::oneshot;

use super::super::client::{Answer, Client, Error, Outcome, Pending, read_answer};
use super::super::fault::{Kind, failed, unsent};
use super::super::wire::{self, Reader, Stat};
use super::names::{Recipe, Stem};
use super::root::{self, Root};
use super::tenures::Tenure;
use super::{ZookeeperQueue, entry};

/// How often a queue is read if candidates leave meanwhile.
///
/// After this, the queue moves faster than it can be read.
const MOST_ATTEMPTS: usize = 8;

/// The part of a queue that is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Whose<'a> {
    /// The places that concern this candidacy; with its entry, if that was just made.
    Candidacy { ticket: &'a Ticket, own: Option<(&'a Entry, &'a Arc<Holder>)> },
    /// All candidates, whether or not their recipe is ours.
    Everyone,
    /// All candidates, provided that ours may stand there.
    Ours,
}

/// The answers that make up a queue, in the order they were asked for.
pub(super) struct Reading {
    /// The candidates, and the data of the election's own node.
    pub(super) listed: [oneshot::Receiver<Outcome>; 2],
    /// The record of the election's tenures. It is as new as the queue, because it is asked for
    /// after it.
    pub(super) tenure: Pending<(Vec<u8>, Stat)>,
}

/// The result of one attempt to read a queue.
enum Read {
    Queue(Queue),
    /// A candidate has left, or the election was made anew meanwhile.
    Moved,
    /// The election's node has this data at this version, and records no prefix yet.
    Unrecorded(Vec<u8>, i32),
    /// The recorded recipe is another. These entries come from our unanswered joins.
    Other(Recipe, Vec<Entry>),
}

impl ZookeeperQueue {
    /// Sends the requests for a queue.
    pub(super) fn ask_queue(&self, root: &Root, barrier: bool) -> Reading {
        let listed = self.client.list(&root.path, barrier);
        Reading { listed, tenure: self.client.data(&root.tenure) }
    }

    /// Reads a queue, at first from these answers.
    pub(super) async fn read_queue(
        &self,
        root: &Root,
        whose: Whose<'_>,
        first: Option<Reading>,
    ) -> Result<Queue, StoreError> {
        let doing = || format!("reading the queue of {}", root.path);
        let fail = |error| failed(error, Kind::Read, doing());
        let mut reading = first;
        for _ in 0..MOST_ATTEMPTS {
            let asked = reading.take().unwrap_or_else(|| self.ask_queue(root, false));
            let Some(answers) = both(asked.listed).await.map_err(fail)? else {
                return Ok(Queue::Missing);
            };
            match self.read_places(root, whose, &answers, asked.tenure).await.map_err(fail)? {
                Read::Queue(queue) => return Ok(queue),
                Read::Moved => {}
                Read::Unrecorded(data, version) => self.record_recipe(root, &data, version).await?,
                Read::Other(recorded, unanswered) => {
                    self.retract_all(&unanswered).await?;
                    return Err(self.other_recipe(root, &recorded));
                }
            }
        }
        Err(unsent(doing(), "it moves faster than it can be read"))
    }

    /// Reads all candidates, if ours may stand there.
    ///
    /// A server that lags behind may show an old state: the election is missing, has ended, or is
    /// for others. All three are final to the caller, so they are read again behind a write that a
    /// quorum takes.
    pub(super) async fn survey_queue(&self, root: &Root) -> Result<Queue, StoreError> {
        match self.read_queue(root, Whose::Ours, None).await {
            Ok(queue @ Queue::Open { .. }) => Ok(queue),
            Err(error) if error.fault != Fault::Permanent => Err(error),
            Ok(Queue::Ended { .. } | Queue::Missing) | Err(_) => {
                let asked = self.ask_queue(root, true);
                self.read_queue(root, Whose::Ours, Some(asked)).await
            }
        }
    }

    /// Deletes entries that must not stand in this queue.
    async fn retract_all(&self, entries: &[Entry]) -> Result<(), StoreError> {
        for entry in entries {
            if !self.retract(entry).await {
                let doing = format!("taking {} back", entry.name);
                return Err(unsent(doing, "it is not known to be gone"));
            }
        }
        Ok(())
    }

    /// Records our prefix after the data of the election's node.
    ///
    /// It has no effect if another process was faster. The next read of the queue shows which.
    async fn record_recipe(
        &self,
        root: &Root,
        data: &[u8],
        version: i32,
    ) -> Result<(), StoreError> {
        let data = root::recording(data, &self.recipe);
        match self.client.set_data(&root.path, data, Some(version)).await {
            Ok(_) | Err(Error::BadVersion | Error::NoNode) => Ok(()),
            Err(error) => {
                let doing = format!("recording the prefix of the candidates in {}", root.path);
                // Nothing is in doubt: the next read shows whether it was written.
                Err(failed(error, Kind::Read, doing))
            }
        }
    }

    /// The error for a queue with another prefix.
    ///
    /// Candidates with different prefixes ignore each other, so two of them would lead.
    pub(super) fn other_recipe(&self, root: &Root, recorded: &Recipe) -> StoreError {
        let (recorded, wanted) = (recorded.prefix(), self.recipe.prefix());
        let says = format!(
            "the nodes of its candidates have the prefix `{recorded}`, and ours would have `{wanted}`: they would \
             ignore each other, and two would lead. Open the store with {}, or end the election and create it with \
             {}, or use another name",
            Recipe::option(recorded),
            Recipe::option(wanted),
        );
        let doing = format!("standing in the queue of {}", root.path);
        StoreError::new(Fault::Permanent, "zookeeper", doing, says)
    }

    /// Reads the places that concern `whose`.
    async fn read_places(
        &self,
        root: &Root,
        whose: Whose<'_>,
        [listed, own]: &[Answer; 2],
        tenure: Pending<(Vec<u8>, Stat)>,
    ) -> Result<Read, Error> {
        let (data, stat) = read_answer(own, wire::data)?;
        let (names, listed) = wire::names(&mut Reader::new(&listed.body))?;
        if !is_same_node(&stat, &listed) {
            return Ok(Read::Moved);
        }
        let (generation, ended) = (root::generation(&stat), root::has_ended(&data, &stat));
        let recipe = match (root::recorded(&data), whose) {
            (recorded, Whose::Everyone) => recorded.unwrap_or_else(|| self.recipe.clone()),
            // An ended election may have been for others: it can be made anew with our recipe.
            (Some(recorded), Whose::Ours) if ended => recorded,
            (Some(recorded), Whose::Candidacy { .. } | Whose::Ours)
                if !recorded.is_like(&self.recipe) =>
            {
                return Ok(Read::Other(recorded, self.unanswered(root, whose, &names)));
            }
            (None, Whose::Candidacy { .. }) if !ended => {
                return Ok(Read::Unrecorded(data, stat.version));
            }
            (_, Whose::Candidacy { .. } | Whose::Ours) => self.recipe.clone(),
        };
        let Some(places) = self.ask_all(&recipe, root, whose, names, ended).await? else {
            return Ok(Read::Moved);
        };
        if ended {
            return Ok(Read::Queue(Queue::Ended { generation, places }));
        }
        let tenure = match tenure.await {
            Ok((data, stat)) => Some(Tenure::read(&data, &stat)),
            Err(Error::NoNode) => None,
            Err(error) => return Err(error),
        };
        let (unclean, highest) =
            (tenure.and_then(Tenure::unclean), tenure.map_or(0, Tenure::token));
        Ok(Read::Queue(Queue::Open { generation, places, unclean, highest }))
    }

    /// The entries of this candidacy with our recipe that come from unanswered joins.
    ///
    /// The candidacy knows its other entries, and may be leading with one of them.
    fn unanswered(&self, root: &Root, whose: Whose<'_>, names: &[&str]) -> Vec<Entry> {
        let Whose::Candidacy { ticket, .. } = whose else { return Vec::new() };
        let stem = Stem::of(&ticket.candidate);
        let ours = names.iter().filter(|name| self.recipe.attempt(name, &stem).is_some());
        let ours = ours.map(|name| Entry { name: root.child(name).into(), token: 0 });
        ours.filter(|entry| self.is_in_doubt(entry)).collect()
    }

    /// Reads the places that concern `whose`.
    ///
    /// Returns `None` if one of them has left, or if an entry that was just made is not in the
    /// queue.
    ///
    /// A node without a session is no candidate. It never leads and never goes, so a candidate
    /// behind it would wait for ever. Only a read of the node shows that. Then the nodes before it
    /// are read too, twice as many each time.
    async fn ask_all(
        &self,
        recipe: &Recipe,
        root: &Root,
        whose: Whose<'_>,
        mut names: Vec<&str>,
        ended: bool,
    ) -> Result<Option<Vec<Place>>, Error> {
        let mut reach = 1;
        loop {
            let asked = self.ask_places(recipe, root, whose, names.clone(), ended, reach);
            // The list was read before the entry was made, or the entry is already gone: the next
            // read tells.
            let Some(asked) = asked else { return Ok(None) };
            let (mut places, mut lasting) = (Vec::with_capacity(asked.len()), Vec::new());
            for asked in asked {
                match asked.place(recipe, whose).await {
                    Ok(place) => {
                        if place.ticket.is_some() {
                            self.client.stands(&place.entry.name, true);
                        }
                        if place.holder.is_none() {
                            lasting.push(place.entry.name.clone());
                        }
                        places.push(place);
                    }
                    // A read of all candidates may leave out those that have left.
                    Err(Error::NoNode) if matches!(whose, Whose::Everyone | Whose::Ours) => {}
                    Err(Error::NoNode) => return Ok(None),
                    Err(error) => return Err(error),
                }
            }
            for entry in lasting.iter().filter(|entry| self.is_news(entry)) {
                tracing::warn!(%entry, "this node has no session: it is no candidate, and is ignored");
            }
            if lasting.is_empty() || matches!(whose, Whose::Everyone | Whose::Ours) {
                return Ok(Some(places));
            }
            names.retain(|name| !lasting.iter().any(|entry| **entry == *root.child(name)));
            reach *= 2;
        }
    }

    /// Asks for the places that concern `whose`, in the order of the queue.
    ///
    /// Returns `None` if an entry that was just made is not in the queue. `reach` is how many
    /// places are read at the front, and before each of our own.
    fn ask_places(
        &self,
        recipe: &Recipe,
        root: &Root,
        whose: Whose<'_>,
        names: Vec<&str>,
        ended: bool,
        reach: usize,
    ) -> Option<Vec<Asked>> {
        let number = |name| Some((recipe.sequence(name)?, name));
        let mut queue: Vec<(u64, &str)> = names.into_iter().filter_map(number).collect();
        queue.sort_unstable();
        let (candidacy, own) = match whose {
            Whose::Everyone | Whose::Ours => (None, None),
            Whose::Candidacy { ticket, own } => (Some(Stem::of(&ticket.candidate)), own),
        };
        let shown =
            own.is_none_or(|(own, _)| queue.iter().any(|(_, name)| own.name.ends_with(name)));
        let wanted = |at: usize| match &candidacy {
            None => true,
            Some(stem) => {
                let ours = |at: usize| {
                    queue.get(at).is_some_and(|(_, name)| recipe.attempt(name, stem).is_some())
                };
                // The first places, our own, and those before our own.
                ours(at) || !ended && (at < reach || (1..=reach).any(|step| ours(at + step)))
            }
        };
        let asked = (0..queue.len()).filter(|at| wanted(*at));
        shown.then(|| asked.map(|at| Asked::new(&self.client, root, whose, queue[at].1)).collect())
    }
}

/// Awaits the two answers; `None` if the election is missing.
async fn both(asked: [oneshot::Receiver<Outcome>; 2]) -> Result<Option<[Answer; 2]>, Error> {
    let mut answers = Vec::with_capacity(2);
    for answer in asked {
        match answer.await.unwrap_or(Err(Error::Lost)) {
            Ok(answer) => answers.push(answer),
            Err(Error::NoNode) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    answers.try_into().map(Some).map_err(|_| Error::Lost)
}

/// A place that is being read, or is already known.
enum Asked {
    Known(Place),
    Reading { name: Arc<str>, node: String, read: Pending<(Vec<u8>, Stat)> },
}

impl Asked {
    fn new(client: &Client, root: &Root, whose: Whose<'_>, node: &str) -> Asked {
        let name: Arc<str> = root.child(node).into();
        if let Whose::Candidacy { ticket, own: Some((own, holder)) } = whose
            && own.name == name
        {
            let (entry, ticket) = (own.clone(), Some(ticket.clone()));
            return Asked::Known(Place { entry, ticket, holder: Some(holder.clone()) });
        }
        let read = client.data(&name);
        Asked::Reading { name, node: node.to_owned(), read }
    }

    async fn place(self, recipe: &Recipe, whose: Whose<'_>) -> Result<Place, Error> {
        let (name, node, read) = match self {
            Asked::Known(place) => return Ok(place),
            Asked::Reading { name, node, read } => (name, node, read),
        };
        let (data, stat) = read.await?;
        let holder = entry::decode(recipe.owner(&node), &node, &data);
        let holder = has_session(&stat).then(|| Arc::new(holder));
        let ticket = match whose {
            Whose::Everyone | Whose::Ours => None,
            Whose::Candidacy { ticket, .. } => recipe
                .attempt(&node, &Stem::of(&ticket.candidate))
                .map(|attempt| Ticket { attempt, ..ticket.clone() }),
        };
        let entry = Entry { name, token: root::number(stat.created) };
        Ok(Place { entry, ticket, holder })
    }
}

/// Returns true if a node belongs to a session: neither a lasting node nor a container.
///
/// (A node with a time to live also counts, because a server may number its sessions like that. It
/// goes by itself.)
pub(super) fn has_session(stat: &Stat) -> bool {
    const CONTAINER: i64 = i64::MIN;
    stat.owner != 0 && stat.owner != CONTAINER
}

/// Returns true if a list and a later read are of the same generation.
///
/// An election that was deleted and made anew in between has another queue.
fn is_same_node(own: &Stat, listed: &Stat) -> bool {
    own.created == listed.created
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::{BufMut, Bytes};

    use super::super::super::client::ClientOptions;
    use super::*;

    /// The stat of a node created by this transaction, as a server sends it.
    fn stat(created: i64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [created, created, 0, 0] {
            bytes.put_i64(number);
        }
        bytes.put_slice(&[0; 12]);
        bytes.put_i64(0);
        bytes.put_slice(&[0; 8]);
        bytes.put_i64(created);
        bytes
    }

    fn answer(parts: &[&[u8]]) -> Answer {
        Answer { body: Bytes::from(parts.concat()) }
    }

    fn is_moved(read: &Read) -> bool {
        match read {
            Read::Moved => true,
            Read::Queue(_) | Read::Unrecorded(..) | Read::Other(..) => false,
        }
    }

    /// An election may be made anew between the list and the read of its own node.
    #[tokio::test]
    async fn a_list_of_an_earlier_generation_is_not_taken_for_the_queue_of_a_later_one() {
        let client = Client::new(ClientOptions::new(["127.0.0.1:9"]));
        let queue = ZookeeperQueue::new(client, "/tenure", Duration::from_secs(1));
        let root = queue.root(&tenure::Key::parse("elections/a").expect("a good key"));
        let ended = root::mark(7, b"");
        let length = i32::try_from(ended.len()).expect("short").to_be_bytes();
        for (listed, moved) in [(7, false), (6, true), (8, true)] {
            let listed = answer(&[&0_i32.to_be_bytes(), &stat(listed)]);
            let own = answer(&[&length, &ended, &stat(7)]);
            let tenure = queue.client.data(&root.tenure);
            let read = queue.read_places(&root, Whose::Everyone, &[listed, own], tenure).await;
            let read = read.expect("both are good answers");
            assert_eq!(is_moved(&read), moved);
        }
    }

    #[test]
    fn nodes_that_stay_and_containers_are_no_candidates() {
        let with = |owner| Stat {
            created: 1,
            modified: 1,
            version: 0,
            children_version: 0,
            owner,
            children: 0,
        };
        assert!(has_session(&with(0x0100_0000_0000_0001)) && has_session(&with(-2)));
        assert!(!has_session(&with(0)) && !has_session(&with(i64::MIN)));
    }
}
