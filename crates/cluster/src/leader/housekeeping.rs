//! What a leader does beside planning: it keeps the documents of the cluster tidy. A failure here
//! must not hold up the work.

use std::time::Duration;

use super::held_cursor::Stop;
use super::planning::Places;
use super::request::Request;
use super::{Activity, Leader, held};
use crate::error::ClusterError;

/// How often to search the inbox for a gap, on a store that should have none.
const MENDING: Duration = Duration::from_secs(60);

impl Leader {
    /// Keeps the store tidy.
    pub(super) fn keep_house(&mut self) -> Result<(), Stop> {
        let cursor = held(&mut self.cursor)?.cursor();
        match self.pages.tidy(&self.common, cursor) {
            Some((tidying, request)) => self.ask(Activity::TidyingPages(tidying), request),
            None => self.mind_members(),
        }
    }

    /// Removes members that are gone, checked every heartbeat.
    pub(super) fn mind_members(&mut self) -> Result<(), Stop> {
        match self.members.mind(&mut self.common, &self.look) {
            Some((minding, request)) => self.ask(Activity::MindingMembers(minding), request),
            None => self.sweep(),
        }
    }

    pub(super) fn sweep(&mut self) -> Result<(), Stop> {
        match self.sweep.turn(&self.common) {
            Some((sweeping, request)) => self.ask(Activity::Sweeping(sweeping), request),
            None => self.collect(),
        }
    }

    /// The next move of keeping house. There is none after an error.
    pub(super) fn tidy<T>(
        &mut self,
        next: Result<Option<T>, impl Into<ClusterError>>,
    ) -> Option<T> {
        next.unwrap_or_else(|error| {
            let says = "keeping house failed; it is tried again";
            self.common.warn_of(says, "", &error.into());
            None
        })
    }

    /// Now and then, looks for inbox entries after a page that was never written.
    pub(super) fn mend_inbox(&mut self, places: Places) -> Result<(), Stop> {
        let now = self.common.now;
        if !self.pages.is_empty() || now.boot < self.mending_due.boot {
            return self.choose_items(places);
        }
        let ttl = self.common.settings.timing.ttl();
        self.mending_due = now + if self.common.is_weak() { ttl } else { ttl.max(MENDING) };
        let page = held(&mut self.cursor)?.cursor().page;
        self.ask(Activity::MendingInbox(places), Request::MendInbox(page))
    }
}
