//! The rule for opening a table when several tables can have its name. Pure logic without I/O.
//!
//! The server checks the name of a new table and creates it in two steps. Processes that start
//! together may each create a table, and then every question about that name fails. The rule leaves
//! one table, and no process uses another one:
//!
//! - A creator looks after it has created. If its table is the only one of that name, the table
//!   stays for good. Two creators cannot both see only their own, because both tables were there
//!   before the later look.
//! - A creator that sees other tables gives way: it renames its own table, and never another's. The
//!   creator of the smallest id waits for the others first, so the smallest id stays unless one of
//!   the creators stalls. It gives way in the end because another table may be in use: that table's
//!   creator found it alone, and nothing about the name can be asked until one of them is gone.
//!   After [`Limits::yields_within`] no creator gives way any more.
//! - A creator drops its own table only if the table is set aside and empty. The server checks both
//!   in the question that drops it. A question that arrives late, when the table has its name back
//!   and is in use, drops nothing.
//! - A process that did not create the table uses it if the table has rows, or if it was the only
//!   one, and empty, for [`Limits::watches`]. That is longer than the time in which its creator may
//!   give way.
//! - Several tables that stay are repaired by renaming, never by dropping. All of them are set
//!   aside under names of their own, and the one with rows is put back. Two with rows are refused:
//!   only an operator knows which one counts.
//! - While a table with rows is set aside, no table is created, and no empty one is used.

use std::collections::BTreeMap;
use std::time::Duration;

/// The time limits of the rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// How long the creator of the smallest id waits before it gives way.
    pub(super) yields_after: Duration,
    /// A creator gives way only within this time after it asked for its table.
    pub(super) yields_within: Duration,
    /// How long a process watches another creator's empty table before it uses it.
    pub(super) watches: Duration,
    /// How long there must be several tables before they are repaired. By then writes under way
    /// have ended, and every process that uses one of the tables has met the ambiguity.
    pub(super) repairs_after: Duration,
}

impl Limits {
    /// Limits for real servers. Creating a table takes up to a second, and servers tell each other
    /// of it within one.
    pub(super) const REAL: Limits = Limits {
        yields_after: Duration::from_millis(2500),
        yields_within: Duration::from_secs(4),
        watches: Duration::from_secs(6),
        repairs_after: Duration::from_secs(8),
    };
}

/// Whether a table has rows; unknown if it could not be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Rows {
    None,
    Some,
    Unknown,
}

/// The tables of a name, and the tables set aside for it, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Looked {
    pub(super) named: BTreeMap<String, Rows>,
    pub(super) aside: BTreeMap<String, Rows>,
}

/// The next step of a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Step {
    /// Look again after a pause.
    Look,
    /// Create the table, and report it with [`Opening::created`].
    Create,
    /// Rename the process's own table to a name of its own.
    GiveWay(String),
    /// Drop the process's own table, if it is still set aside and empty.
    Drop(String),
    /// Rename these tables to names of their own.
    SetAside(Vec<String>),
    /// Give this table the name again.
    PutBack(String),
    /// Use this table: it is settled.
    Use(String),
    /// There is no table, and creating one was not asked for.
    Missing,
    /// Refuse: several tables have rows.
    Refuse(Vec<String>),
}

/// A process that is opening its table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Opening {
    creates: bool,
    own: Option<Own>,
    /// The only table, if it is empty, and the time since when it was seen so.
    watched: Option<(String, Duration)>,
    /// The time since when there are several tables.
    several: Option<Duration>,
    broken: Option<Mutant>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Own {
    id: String,
    /// The time when its creation was requested.
    since: Duration,
}

/// A part of the rule that is left out. Tests show the harm.
#[cfg_attr(not(test), allow(dead_code, reason = "no part is left out but in tests"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Mutant {
    /// A creator uses its table without looking.
    UsesAtOnce,
    /// An empty table is used as soon as it is seen.
    WatchesNot,
    /// A creator gives way, no matter how late it is.
    YieldsLate,
    /// The creator of the smallest id gives way first, and the others wait.
    SmallestYieldsFirst,
    /// A process drops any empty table that is set aside, even another's.
    DropsAnothers,
    /// A creator that gives way drops its table instead of renaming it.
    DropsAtOnce,
    /// The server drops a table without checking its place and its rows.
    DropsUnasked,
    /// A creator that is alone keeps its table although one with rows is set aside.
    ForgetsThoseAside,
    /// The first of several tables is put back, even if it has no rows.
    PutsBackTheSmallest,
}

impl Opening {
    /// Begins to look.
    pub(super) fn new(creates: bool) -> Opening {
        Opening { creates, own: None, watched: None, several: None, broken: None }
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.broken == Some(mutant)
    }

    /// Records the id of the table that was requested at `since`.
    pub(super) fn created(&mut self, id: String, since: Duration) {
        self.own = Some(Own { id, since });
    }

    /// Decides on the next step by a look that was sent at `now`.
    pub(super) fn step(&mut self, now: Duration, looked: &Looked, limits: &Limits) -> Step {
        let is_there = |id| looked.named.contains_key(id) || looked.aside.contains_key(id);
        if self.own.as_ref().is_some_and(|own| !is_there(&own.id)) {
            // We dropped it, or an operator did.
            self.own = None;
        }
        if let Some(own) = self.own.as_ref().filter(|_| self.is(Mutant::UsesAtOnce)) {
            return Step::Use(own.id.clone());
        }
        let lone = match looked.named.iter().next() {
            Some((id, rows)) if looked.named.len() == 1 => Some((id.clone(), *rows)),
            _ => None,
        };
        if lone.is_none() {
            self.watched = None;
        }
        if looked.named.len() < 2 {
            self.several = None;
        }
        if let Some(drop) = self.drops(looked) {
            return drop;
        }
        match lone {
            Some((id, rows)) => self.step_with_one(now, id, rows, looked, limits),
            None if looked.named.is_empty() => self.step_with_none(looked),
            None => self.step_with_several(now, looked, limits),
        }
    }

    /// Drops our own table if it is set aside for another one, and so not needed.
    fn drops(&self, looked: &Looked) -> Option<Step> {
        let own = |id: &str| self.own.as_ref().is_some_and(|own| own.id == id);
        let mut spare = looked.aside.iter().filter(|(_, rows)| **rows == Rows::None);
        let mine = spare.find(|(id, _)| own(id) || self.is(Mutant::DropsAnothers));
        mine.filter(|_| !looked.named.is_empty()).map(|(id, _)| Step::Drop(id.clone()))
    }

    fn step_with_one(
        &mut self,
        now: Duration,
        id: String,
        rows: Rows,
        looked: &Looked,
        limits: &Limits,
    ) -> Step {
        let aside = |rows| looked.aside.values().any(|aside| *aside == rows);
        let hidden = aside(Rows::Some) || aside(Rows::Unknown);
        let hidden = hidden && !self.is(Mutant::ForgetsThoseAside);
        match (rows, self.own.as_ref().filter(|own| own.id == id)) {
            (Rows::Some, _) => Step::Use(id),
            (_, Some(_)) if hidden => Step::SetAside(vec![id]),
            (_, None) if aside(Rows::Some) && hidden => Step::SetAside(vec![id]),
            (_, None) if hidden => Step::Look,
            (Rows::None | Rows::Unknown, Some(_)) => Step::Use(id),
            (Rows::Unknown, None) => Step::Look,
            (Rows::None, None) if self.is(Mutant::WatchesNot) => Step::Use(id),
            (Rows::None, None) => match &self.watched {
                Some((watched, since)) if *watched == id => {
                    match now.saturating_sub(*since) >= limits.watches {
                        true => Step::Use(id),
                        false => Step::Look,
                    }
                }
                Some(_) | None => {
                    self.watched = Some((id, now));
                    Step::Look
                }
            },
        }
    }

    fn step_with_none(&self, looked: &Looked) -> Step {
        if looked.aside.is_empty() {
            return if self.creates { Step::Create } else { Step::Missing };
        }
        let with = |wanted: Rows| {
            let aside = looked.aside.iter().filter(move |(_, rows)| **rows == wanted);
            aside.map(|(id, _)| id.clone()).collect::<Vec<_>>()
        };
        let smallest = looked.aside.keys().next().cloned();
        match (&with(Rows::Some)[..], smallest) {
            (_, Some(smallest)) if self.is(Mutant::PutsBackTheSmallest) => Step::PutBack(smallest),
            ([_, _, ..], _) => Step::Refuse(with(Rows::Some)),
            _ if !with(Rows::Unknown).is_empty() => Step::Look,
            ([only], _) => Step::PutBack(only.clone()),
            ([], Some(smallest)) => Step::PutBack(smallest),
            ([], None) => Step::Look,
        }
    }

    fn step_with_several(&mut self, now: Duration, looked: &Looked, limits: &Limits) -> Step {
        let several = *self.several.get_or_insert(now);
        let lasted = now.saturating_sub(several);
        if let Some(own) = self.own.as_ref().filter(|own| looked.named.contains_key(&own.id)) {
            let late = now.saturating_sub(own.since) >= limits.yields_within;
            if !late || self.is(Mutant::YieldsLate) {
                let smallest = looked.named.keys().next() == Some(&own.id);
                let waits = smallest != self.is(Mutant::SmallestYieldsFirst);
                return match waits && lasted < limits.yields_after {
                    true => Step::Look,
                    false => Step::GiveWay(own.id.clone()),
                };
            }
            // Too late: another process may use the table.
            self.own = None;
        }
        match lasted >= limits.repairs_after {
            true => Step::SetAside(looked.named.keys().cloned().collect()),
            false => Step::Look,
        }
    }
}

#[cfg(test)]
#[path = "creation_model.rs"]
mod model;
