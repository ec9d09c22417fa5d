//! What a leader does beside planning: it keeps the documents of the cluster tidy.

use std::time::Duration;

use super::held_cursor::{HeldCursor, Stop};
use super::look::Look;
use super::{LeaderState, cause};
use crate::documents::Cursor;
use crate::error::ClusterError;

/// How often to search the inbox for a gap, on a store that should have none.
const MENDING: Duration = Duration::from_secs(60);

impl LeaderState<'_> {
    /// Keeps the store tidy. A failure here must not hold up the work.
    pub(super) async fn keep_house(&mut self, held_cursor: &HeldCursor, look: &Look) {
        let client = self.client();
        let pages = self.pages.tidy(client, held_cursor.cursor()).await;
        let members = self.mind_members(look).await;
        let outcomes = self.sweep.turn(client).await;
        for error in [pages, members, outcomes].into_iter().filter_map(Result::err) {
            let cause = cause(&error);
            tracing::warn!(%error, cause, "keeping house failed; it is tried again");
        }
    }

    /// Removes members that are gone, checked every heartbeat.
    async fn mind_members(&mut self, look: &Look) -> Result<(), ClusterError> {
        let now = self.now();
        if now.boot < self.members_due.boot {
            return Ok(());
        }
        let (client, timing) = (self.client(), self.planner.timing);
        self.members_due = now + timing.heartbeat();
        let Some(nodes) = look.nodes.content() else { return Ok(()) };
        let me = &self.planner.me;
        let suspects = self.members.suspects(client, me, timing.ttl(), nodes).await?;
        if !suspects.is_empty() {
            self.members.remove(client, look, suspects).await?;
        }
        Ok(())
    }

    /// Now and then, looks for inbox entries after a page that was never written.
    pub(super) async fn mend_inbox(&mut self, cursor: &Cursor) -> Result<(), Stop> {
        let now = self.now();
        if !self.pages.is_empty() || now.boot < self.mending_due.boot {
            return Ok(());
        }
        let ttl = self.planner.timing.ttl();
        self.mending_due = now + if self.client().is_weak() { ttl } else { ttl.max(MENDING) };
        if self.client().mend_inbox(cursor.page).await? {
            tracing::warn!(
                page = cursor.page,
                "a page of the inbox was never written; it is passed"
            );
            let garbled = self.pages.read(self.client(), cursor).await?;
            garbled.into_iter().for_each(|(key, error)| self.garbled(key, error));
        }
        Ok(())
    }
}
