//! Reading a line.

use std::sync::Arc;

use tenure::StoreError;
use tenure::lease::record::Holder;
use tenure::queue::{Entry, Line, Place, Ticket};
use tokio::sync::oneshot;

use super::super::client::{Answer, Client, Error, Outcome, Pending, read_answer};
use super::super::fault::{Kind, failed, unsent};
use super::super::wire::{self, Reader, Stat};
use super::names::{Recipe, Stem};
use super::root::{self, Root};
use super::{ZookeeperQueue, entry};

/// Whoever is read about may leave meanwhile; more often than this the line moves faster than it can be read.
const MOST_ATTEMPTS: usize = 8;

/// Whose line is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Whose<'a> {
    /// What concerns this candidacy; with its entry, if that was just made.
    Candidacy { ticket: &'a Ticket, own: Option<(&'a Entry, &'a Arc<Holder>)> },
    /// Everyone's.
    Everyone,
}

/// The answers from which a line is read.
pub(super) type Listed = [oneshot::Receiver<Outcome>; 2];

impl ZookeeperQueue {
    /// Reads a line, from these answers at first.
    pub(super) async fn read_line(
        &self,
        root: &Root,
        whose: Whose<'_>,
        first: Option<Listed>,
    ) -> Result<Line, StoreError> {
        let doing = || format!("reading the line of {}", root.path);
        let fail = |error| failed(error, Kind::Read, doing());
        let mut answers = first;
        for _ in 0..MOST_ATTEMPTS {
            let asked = answers.take().unwrap_or_else(|| self.client.list(&root.path, false));
            let Some(answers) = both(asked).await.map_err(fail)? else {
                return Ok(Line::Missing);
            };
            let line = self.read_places(root, whose, &answers).await.map_err(fail)?;
            if let Some(line) = line {
                return Ok(line);
            }
        }
        Err(unsent(doing(), "it moves faster than it can be read"))
    }

    /// Reads those whom it is about; nothing when one of them has left, or the election was made anew meanwhile.
    async fn read_places(
        &self,
        root: &Root,
        whose: Whose<'_>,
        [listed, own]: &[Answer; 2],
    ) -> Result<Option<Line>, Error> {
        let (data, stat) = read_answer(own, wire::data)?;
        let (names, same) = wire::names(&mut Reader::new(&listed.body))?;
        if stat.created != same.created {
            return Ok(None);
        }
        let (generation, ended) = (root::generation(&stat), root::has_ended(&data, &stat));
        let unclean = names.iter().any(|name| root::is_unclean(name));
        let unclean = unclean.then(|| self.client.data(&root.unclean()));
        let asked = match self.ask_places(root, whose, names, ended) {
            Some(asked) => asked,
            // Read before the entry was made, or it is gone already: the next look tells.
            None => return Ok(None),
        };
        let mut places = Vec::with_capacity(asked.len());
        for asked in asked {
            match asked.place(&self.recipe, whose).await {
                Ok(place) => {
                    if place.ticket.is_some() {
                        self.client.stands(&place.entry.name, true);
                    }
                    places.push(place);
                }
                // Of everyone's line it is enough to leave out who has left.
                Err(Error::NoNode) if matches!(whose, Whose::Everyone) => {}
                Err(Error::NoNode) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        if ended {
            return Ok(Some(Line::Ended { generation, places }));
        }
        let unclean = match unclean {
            None => None,
            Some(read) => match read.await {
                Ok((data, stat)) => Some(tenure_of(&data, &stat)),
                Err(Error::NoNode) => None,
                Err(error) => return Err(error),
            },
        };
        Ok(Some(Line::Open { generation, places, unclean }))
    }

    /// Asks about those whom it concerns, in the order of the line; nothing if an entry that was made is not in it.
    fn ask_places(
        &self,
        root: &Root,
        whose: Whose<'_>,
        names: Vec<&str>,
        ended: bool,
    ) -> Option<Vec<Asked>> {
        let number = |name| Some((self.recipe.sequence(name)?, name));
        let mut line: Vec<(u64, &str)> = names.into_iter().filter_map(number).collect();
        line.sort_unstable();
        let (candidacy, own) = match whose {
            Whose::Everyone => (None, None),
            Whose::Candidacy { ticket, own } => (Some(Stem::of(&ticket.candidate)), own),
        };
        let shown =
            own.is_none_or(|(own, _)| line.iter().any(|(_, name)| own.name.ends_with(name)));
        let wanted = |at: usize| match &candidacy {
            None => true,
            Some(stem) => {
                let ours = |at: usize| {
                    line.get(at).is_some_and(|(_, name)| self.recipe.attempt(name, stem).is_some())
                };
                // The first, our own, and those before our own.
                ours(at) || !ended && (at == 0 || ours(at + 1))
            }
        };
        let asked = (0..line.len()).filter(|at| wanted(*at));
        shown.then(|| asked.map(|at| Asked::new(&self.client, root, whose, line[at].1)).collect())
    }
}

/// Awaits the two answers; nothing for a missing election.
async fn both(asked: Listed) -> Result<Option<[Answer; 2]>, Error> {
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

/// A place that is being read, or is known already.
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
        let ticket = match whose {
            Whose::Everyone => None,
            Whose::Candidacy { ticket, .. } => recipe
                .attempt(&node, &Stem::of(&ticket.candidate))
                .map(|attempt| Ticket { attempt, ..ticket.clone() }),
        };
        let entry = Entry { name, token: root::number(stat.created) };
        Ok(Place { entry, ticket, holder: Some(Arc::new(holder)) })
    }
}

/// The tenure that was not left cleanly. One that cannot be read counts as the newest there can have been.
fn tenure_of(data: &[u8], stat: &Stat) -> u64 {
    let text = std::str::from_utf8(data).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(root::number(stat.modified))
}
