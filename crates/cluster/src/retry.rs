//! Bringing dead letters back.

use tenure::Key;
use tenure::store::StoreExt;

use super::client::ClusterClient;
use super::documents::Entry;
use crate::error::ClusterError;

/// How many letters are read at a time.
const LETTERS: usize = 256;

impl ClusterClient {
    /// Brings these dead letters back.
    ///
    /// Each is done again from its first attempt, under a new serial number.
    ///
    /// The request is in the store when this returns. Serial numbers without a dead letter are
    /// returned, and nothing is done about them.
    ///
    /// # Errors
    /// As for [`ClusterClient::submit`].
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves it open which letters come back.
    pub async fn retry(&self, serials: &[u64]) -> Result<Vec<u64>, ClusterError> {
        let mut missing = Vec::new();
        let mut entries = Vec::new();
        for serials in serials.chunks(LETTERS) {
            let keys: Vec<Key> = serials.iter().map(|serial| self.keys.letter(*serial)).collect();
            for (serial, letter) in serials.iter().zip(self.store().get_many(&keys).await?) {
                match letter {
                    Some(_) => entries.push(Entry::Retry(*serial)),
                    None => missing.push(*serial),
                }
            }
        }
        self.enter(entries).await?;
        Ok(missing)
    }

    /// Brings back all dead letters that there are now, and returns their number.
    ///
    /// # Errors
    /// As for [`ClusterClient::retry`].
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves it open which letters come back.
    pub async fn retry_all(&self) -> Result<usize, ClusterError> {
        let (mut asked, mut after) = (0, None);
        loop {
            let letters = self.letters(after.as_ref(), LETTERS).await?;
            let serials = letters.items.iter().map(|letter| letter.task.serial);
            let entries: Vec<Entry> = serials.map(Entry::Retry).collect();
            asked += entries.len();
            self.enter(entries).await?;
            match letters.next {
                Some(next) => after = Some(next),
                None => return Ok(asked),
            }
        }
    }

    /// Brings one dead letter back. Returns false if there is none.
    ///
    /// The request is in the store when this returns.
    ///
    /// # Errors
    /// As for [`ClusterClient::retry`].
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves it open whether the letter comes back.
    pub async fn re_enqueue(&self, serial: u64) -> Result<bool, ClusterError> {
        if self.store().get(&self.keys.letter(serial)).await?.is_none() {
            return Ok(false);
        }
        self.enter(vec![Entry::Retry(serial)]).await?;
        Ok(true)
    }
}
