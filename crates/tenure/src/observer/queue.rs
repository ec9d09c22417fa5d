//! The view of a queue for observers and listings.

use std::sync::Arc;

use bytes::Bytes;

use super::{ElectionState, Standing};
use crate::candidate::CandidateId;
use crate::lease::record::Record;
use crate::queue::{Entry, Freshness, Place, Queue, SessionQueue};
use crate::registry::Registered;
use crate::status::Leader;
use crate::store::{Store, StoreExt};
use crate::{Error, Key, Name, Protocol};

/// An election as its queue shows it.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) standing: Standing,
    /// The first candidate's entry.
    pub(crate) first: Option<Entry>,
}

/// Reads an election that is a queue.
///
/// # Errors
/// [`Error::Store`], and [`Error::Protocol`] when this name belongs to a lease, not to a queue.
pub(crate) async fn look(
    store: &Arc<dyn Store>,
    queue: &Arc<dyn SessionQueue>,
    name: &Name,
    key: &Key,
    freshness: Freshness,
) -> Result<View, Error> {
    let seen = queue.look(key, freshness).await?;
    if seen == Queue::Missing {
        refuse_a_lease(store, name, key).await?;
    }
    Ok(view(name, &seen))
}

/// Refuses a lease of this name: a missing queue may be one.
async fn refuse_a_lease(store: &Arc<dyn Store>, name: &Name, key: &Key) -> Result<(), Error> {
    let Some(document) = store.get(key).await? else { return Ok(()) };
    let record = Record::decode(&document.body)
        .map_err(|source| Error::Record { name: name.clone(), source })?;
    if record.protocol == Protocol::Lease && !record.is_deleted() {
        let (recorded, wanted) = (Protocol::Lease, Protocol::Queue);
        return Err(Error::Protocol { name: name.clone(), recorded, wanted });
    }
    Ok(())
}

fn view(name: &Name, queue: &Queue) -> View {
    let standing = |state, leader: Option<&Place>, token| Standing {
        election: name.clone(),
        state,
        leader: leader.and_then(|place| place.holder.as_deref()).map(Leader::from),
        token,
        expire: 0,
    };
    match queue {
        Queue::Missing => View { standing: standing(ElectionState::Missing, None, 0), first: None },
        Queue::Ended { places, .. } => {
            let first = first_of(places);
            let token = first.map_or(0, |place| place.entry.token);
            View {
                standing: standing(ElectionState::Ended, None, token),
                first: first.map(|place| place.entry.clone()),
            }
        }
        Queue::Open { places, unclean, highest, .. } => {
            let first = first_of(places);
            let token = first.map_or(0, |place| place.entry.token);
            let standing = match (first, *unclean) {
                // A leader did not leave cleanly: the first candidate waits out the lock delay.
                (_, Some(unclean)) if unclean != token => {
                    standing(ElectionState::Lapsed, None, unclean)
                }
                (Some(_), _) => standing(ElectionState::Led, first, token),
                (None, _) => standing(ElectionState::Free, None, *highest),
            };
            View { standing, first: first.map(|place| place.entry.clone()) }
        }
    }
}

/// The first candidate. An entry without a session is no candidate.
fn first_of(places: &[Place]) -> Option<&Place> {
    places.iter().find(|place| place.holder.is_some())
}

/// The candidates in the queue, in order, and entries without a session, which have no position.
pub(crate) fn candidates(queue: &Queue) -> Vec<Registered> {
    let places: &[Place] = match queue {
        Queue::Missing => &[],
        Queue::Open { places, .. } | Queue::Ended { places, .. } => places,
    };
    let mut found = Vec::with_capacity(places.len());
    let mut position = 0;
    for place in places {
        let Some(holder) = &place.holder else {
            found.push(ignored(place));
            continue;
        };
        position += 1;
        found.push(Registered {
            id: holder.id.clone(),
            name: holder.name.clone(),
            value: holder.value.clone(),
            since: None,
            position: Some(position),
            stale: false,
        });
    }
    found
}

/// Describes an entry that belongs to no session, for people.
fn ignored(place: &Place) -> Registered {
    let entry = &place.entry.name;
    tracing::warn!(%entry, "this entry has no session: it is no candidate, and is ignored");
    let name = entry.rsplit('/').next().unwrap_or(entry);
    // An entry made by hand may have any name. Its token rarely equals another id, so that is no
    // problem.
    let unnamed = |_| CandidateId::from_bits(u128::from(place.entry.token));
    Registered {
        id: CandidateId::parse(name).unwrap_or_else(unnamed),
        name: name.into(),
        value: Bytes::new(),
        since: None,
        position: None,
        stale: true,
    }
}

/// The names of the candidates in the queue, for people.
pub(crate) fn names(queue: &Queue) -> String {
    const MOST: usize = 5;
    let all = candidates(queue);
    let mut names: Vec<&str> = all.iter().take(MOST).map(|candidate| &*candidate.name).collect();
    if all.len() > MOST {
        names.push("others");
    }
    if names.is_empty() { "somebody".into() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Includes entries with names that no candidate of ours could have (issue 13, point 15).
    #[test]
    fn all_entries_without_a_session_are_reported() {
        let names = ["by-hand", "..", "a\u{202e}b", ""];
        let places = names.iter().zip(1..).map(|(name, token)| {
            let entry = Entry { name: format!("/queue/{name}").into(), token };
            Place { entry, ticket: None, holder: None }
        });
        let places = places.collect();
        let queue = Queue::Open { generation: 1, places, unclean: None, highest: 0 };
        let found = candidates(&queue);
        assert_eq!(found.iter().map(|one| &*one.name).collect::<Vec<_>>(), names);
        assert!(found.iter().all(|one| one.stale && one.position.is_none()), "{found:?}");
    }
}
