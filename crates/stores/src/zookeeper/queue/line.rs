//! Reading a line.

use std::sync::Arc;

use tenure::StoreError;
use tenure::lease::record::Holder;
use tenure::queue::{Entry, Line, Place, Ticket};
use tokio::sync::oneshot;

use super::super::client::{Client, Error, Outcome, read_answer};
use super::super::fault::{Kind, failed, unsent};
use super::super::wire::{self, Request, Stat};
use super::names::Recipe;
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

/// What a line is read from.
pub(super) fn listing(root: &Root) -> Vec<Request> {
    let path = root.path.clone();
    vec![
        Request::Data { path: path.clone(), watch: false },
        Request::Children { path, watch: false },
    ]
}

impl ZookeeperQueue {
    /// Reads a line, from these answers at first.
    pub(super) async fn read_line(
        &self,
        root: &Root,
        whose: Whose<'_>,
        first: Option<Vec<oneshot::Receiver<Outcome>>>,
    ) -> Result<Line, StoreError> {
        let doing = || format!("reading the line of {}", root.path);
        let fail = |error| failed(error, Kind::Read, doing());
        let mut answers = first;
        for _ in 0..MOST_ATTEMPTS {
            let asked = answers.take().unwrap_or_else(|| self.client.ask_all(listing(root)));
            let Some((state, names)) = list(asked).await.map_err(fail)? else {
                return Ok(Line::Missing);
            };
            let Some(state) = state else { continue };
            let line = self.read_places(root, whose, state, names).await.map_err(fail)?;
            if let Some(line) = line {
                return Ok(line);
            }
        }
        Err(unsent(doing(), "it moves faster than it can be read"))
    }

    /// Reads those whom it is about; nothing when one of them has left.
    async fn read_places(
        &self,
        root: &Root,
        whose: Whose<'_>,
        State { generation, ended }: State,
        names: Vec<String>,
    ) -> Result<Option<Line>, Error> {
        let unclean = names.iter().any(|name| root::is_unclean(name));
        let unclean = unclean.then(|| self.client.data(&root.unclean()));
        let mut numbered: Vec<(u64, String)> = names
            .into_iter()
            .filter_map(|name| Some((self.recipe.sequence(&name)?, name)))
            .collect();
        numbered.sort_unstable();
        let line: Vec<String> = numbered.into_iter().map(|(_, name)| name).collect();
        let own = match whose {
            Whose::Candidacy { own: Some((own, _)), .. } => Some(own),
            Whose::Candidacy { own: None, .. } | Whose::Everyone => None,
        };
        if let Some(own) = own
            && !line.iter().any(|name| own.name.ends_with(name.as_str()))
        {
            // Read before the entry was made, or it is gone already: the next look tells.
            return Ok(None);
        }
        let asked: Vec<Asked> = line
            .iter()
            .enumerate()
            .filter(|(at, name)| wanted(whose, &self.recipe, &line, *at, name, ended))
            .map(|(_, name)| Asked::new(&self.client, root, whose, name))
            .collect();
        let mut places = Vec::with_capacity(asked.len());
        for asked in asked {
            match asked.place(&self.recipe, whose).await {
                Ok(place) => places.push(place),
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
}

/// What an election's own node says.
struct State {
    generation: u64,
    ended: bool,
}

type Listed = Option<(Option<State>, Vec<String>)>;

/// Reads the two answers; nothing for a missing election, no state for one that was made anew in between.
async fn list(asked: Vec<oneshot::Receiver<Outcome>>) -> Result<Listed, Error> {
    let mut answers = Vec::with_capacity(2);
    for answer in asked {
        match answer.await.unwrap_or(Err(Error::Lost)) {
            Ok(answer) => answers.push(answer),
            Err(Error::NoNode) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    let [data, children] = answers.as_slice() else { return Err(Error::Lost) };
    let (data, stat) = read_answer(data, wire::data)?;
    let (names, listed) = read_answer(children, wire::children)?;
    let same = stat.created == listed.created;
    let ended = root::has_ended(&data, &stat);
    let state = same.then(|| State { generation: root::generation(&stat), ended });
    Ok(Some((state, names)))
}

/// Whether this place must be read: the first, our own, and those before our own.
fn wanted(
    whose: Whose<'_>,
    recipe: &Recipe,
    line: &[String],
    at: usize,
    name: &str,
    ended: bool,
) -> bool {
    let Whose::Candidacy { ticket, .. } = whose else { return true };
    let ours = |name: &str| recipe.attempt(name, &ticket.candidate).is_some();
    if ended {
        return ours(name);
    }
    at == 0 || ours(name) || line.get(at + 1).is_some_and(|next| ours(next))
}

/// A place that is being read, or is known already.
enum Asked {
    Known(Place),
    Reading { name: Arc<str>, node: String, read: super::super::client::Pending<(Vec<u8>, Stat)> },
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
                .attempt(&node, &ticket.candidate)
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
