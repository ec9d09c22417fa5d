//! Settings of the cluster: versioned JSON that any process may put and read.

use serde_json::{Map, Value};
use tenure::lease::record::Op;

use super::client::ClusterClient;
use super::documents::{Format, Settings};
use crate::error::ClusterError;

/// The result of putting settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingsPut {
    /// They are stored, as this version.
    Stored(u64),
    /// They were not stored, because the present settings have another version. These are present.
    Conflict(Option<Settings>),
}

impl ClusterClient {
    /// The settings, if there are any.
    ///
    /// # Errors
    /// [`ClusterError::Store`] when the store does not serve, [`ClusterError::Document`] when they
    /// make no sense.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn settings(&self) -> Result<Option<Settings>, ClusterError> {
        Ok(self.read(&self.keys.settings()).await?.map(|(_, settings)| settings))
    }

    /// Replaces the settings of version `expected`; 0 means that there are none yet.
    ///
    /// # Errors
    /// [`ClusterError::Document`] when the settings are too large or the present ones make no
    /// sense, [`ClusterError::Store`] when the store does not serve.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves it open whether the settings were put.
    pub async fn put_settings(
        &self,
        settings: Map<String, Value>,
        expected: u64,
    ) -> Result<SettingsPut, ClusterError> {
        let key = self.keys.settings();
        let version = expected + 1;
        let mut sent: Vec<Op> = Vec::new();
        let mut is_conflict = false;
        let refused = |source| ClusterError::Document { key: key.clone(), source };
        let is_weak = self.is_weak();
        let change = |before: Option<&Settings>, op: Op| {
            // Where reads prove nothing, it proves nothing to find our own settings, or those of
            // another process; writing them again does. A read that finds none although there were
            // some is not believed: then the write conflicts, and `update` reads again.
            let is_mine = match before {
                Some(before) => sent.contains(&before.op),
                None => is_weak && expected > 0,
            };
            is_conflict = !is_mine && before.map_or(0, |before| before.version) != expected;
            if is_conflict {
                let again = before.filter(|_| is_weak);
                return Ok(again.map(|before| Settings { op, ..before.clone() }));
            }
            sent.push(op.clone());
            let next = Settings { version, settings: settings.clone(), op };
            next.check().map_err(refused)?;
            Ok(Some(next))
        };
        let found = self.update(&key, |settings: &Settings| &settings.op, change).await?;
        Ok(if is_conflict { SettingsPut::Conflict(found) } else { SettingsPut::Stored(version) })
    }
}
