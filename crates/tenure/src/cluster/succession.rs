//! The leaders' tokens go on after those that the books know.
//!
//! Whoever leads writes its token into the cursor, and gives way to a greater one. If somebody
//! deletes the document of the leadership, tokens begin at 1 again, and every leader would give way
//! to one that is long gone, until enough of them have.

use std::time::Duration;

use super::books::Books;
use super::documents::Cursor;
use crate::lease::record::{Record, State};
use crate::store::{Expect, Put, StoreExt as _};
use crate::{Error, Protocol};

impl Books {
    /// Sees to it that the next leader's token is greater than that of whoever led last.
    ///
    /// A leadership that is held is left alone: it is for its holder to give it up.
    ///
    /// # Errors
    /// [`Error::Store`] when the store does not serve, [`Error::Document`] when the cursor makes no
    /// sense.
    ///
    /// # Cancel safety
    /// Cancel safe: it is done, or not.
    pub(super) async fn uphold_succession(&self) -> Result<(), Error> {
        let Some((_, cursor)) = self.read::<Cursor>(&self.keys.cursor()).await? else {
            return Ok(());
        };
        let key = self.keys.leader();
        let (expect, before) = match self.store().get(&key).await? {
            None => (Expect::Absent, None),
            Some(document) => match Record::decode(&document.body) {
                Ok(record) => (Expect::At(document.version), Some(record)),
                // Whoever stands says what is wrong with it.
                Err(_) => return Ok(()),
            },
        };
        let Some(record) = raised(before, cursor.leader, self) else { return Ok(()) };
        match self.store().put(&key, expect, record.encode()).await? {
            Put::Stored(_) => tracing::warn!(
                cluster = %self.name, token = cursor.leader,
                "somebody deleted the document of the leadership; its token was put back"
            ),
            // Whoever was faster has made one; if that is too low as well, it is found the next
            // time.
            Put::Conflict => {}
        }
        Ok(())
    }
}

/// The record with this token, if it has a smaller one and nobody holds it.
fn raised(before: Option<Record>, token: u64, books: &Books) -> Option<Record> {
    let op = books.fresh_op();
    match before {
        Some(record) if record.token >= token => None,
        Some(record) if !matches!(record.state, State::Free { .. }) => None,
        Some(record) => Some(Record { token, revision: record.revision + 1, op, ..record }),
        None if token == 0 => None,
        None => Some(Record {
            protocol: Protocol::Lease,
            // How it ended nobody knows.
            state: State::Free { clean: false },
            expire: 0,
            token,
            ttl: books.timing.ttl(),
            delay: Duration::ZERO,
            next_delay: None,
            generation: 1,
            revision: 1,
            op,
            floor: None,
        }),
    }
}
