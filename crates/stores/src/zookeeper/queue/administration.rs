//! Making, ending and removing elections.

use std::time::Duration;

use bytes::Bytes;
use tenure::StoreError;
use tokio::time::{Instant, timeout_at};

use super::super::client::Error;
use super::super::fault::{Kind, failed, unsent};
use super::super::wire::{self, Lifetime, Request, Stat};
use super::ZookeeperQueue;
use super::root::{self, Root};
use super::tenures::Tenure;

/// Somebody else may be making, ending or removing it at the same time; not for ever.
const MOST_ATTEMPTS: usize = 8;

impl ZookeeperQueue {
    pub(super) async fn make(&self, root: &Root) -> Result<u64, StoreError> {
        let doing = || format!("creating {}", root.path);
        let deadline = Instant::now() + self.request;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let made = match self.client.data(&root.path).await {
                Ok((data, stat)) if !root::has_ended(&data, &stat) => {
                    // One without a record is recorded by whoever joins first.
                    return match root::recorded(&data) {
                        Some(other) if !other.is_like(&self.recipe) => {
                            Err(self.other_recipe(root, &other))
                        }
                        Some(_) | None => Ok(root::generation(&stat)),
                    };
                }
                Ok((_, stat)) => self.make_anew(root, &stat).await,
                Err(Error::NoNode) => self.make_first(root).await,
                Err(error) => Err(error),
            };
            match made {
                Ok(Some(generation)) => return Ok(generation),
                // The candidates of the ended one have not all left.
                Err(Error::NotEmpty) if self.changes_by(root, deadline).await => {}
                Err(Error::NotEmpty) => {
                    return Err(unsent(doing(), "candidates of the ended election still stand"));
                }
                Ok(None) if attempts < MOST_ATTEMPTS => {}
                Ok(None) => return Err(unsent(doing(), "others make and remove it all the time")),
                Err(error) => return Err(failed(error, Kind::Write, doing())),
            }
        }
    }

    /// Creates its node and those above that are missing; nothing if somebody else was faster.
    async fn make_first(&self, root: &Root) -> Result<Option<u64>, Error> {
        let levels: Vec<&str> = root.levels().collect();
        let data = |level: &str| match level == &*root.path {
            true => Bytes::from(root::open(&self.recipe)),
            false => Bytes::new(),
        };
        // All of them are sent before the first is answered, in this order.
        let created: Vec<_> = levels
            .iter()
            .map(|level| self.client.create(level, data(level), Lifetime::Lasting, &self.acl))
            .collect();
        let (mut last, mut above) = (Err(Error::Lost), None);
        for created in created {
            if let Err(error @ Error::Denied) = &last {
                above = Some(error.clone());
            }
            last = created.await;
        }
        match last {
            Ok((_, stat)) => Ok(Some(root::generation(&stat))),
            Err(Error::NodeExists) => Ok(None),
            // One above could not be created: say why.
            Err(Error::NoNode) => above.map_or(Ok(None), Err),
            Err(error) => Err(error),
        }
    }

    /// Puts a new node in the place of one that has ended; nothing if it changed meanwhile.
    async fn make_anew(&self, root: &Root, stat: &Stat) -> Result<Option<u64>, Error> {
        let path = root.path.to_string();
        let delete = Request::Delete { path: path.clone(), version: stat.version };
        let (data, acl) = (root::open(&self.recipe).into(), self.acl.clone());
        let create = Request::Create { path, data, lifetime: Lifetime::Lasting, acl };
        let parts = vec![delete, create];
        match self.client.transaction(parts).await? {
            // Servers before 3.9 do not say which it is; then it is to be read.
            Ok(results) => {
                let made = results.into_iter().flatten().next();
                Ok(made.map(|(_, stat)| root::generation(&stat)))
            }
            Err((_, wire::Code::NoNode | wire::Code::BadVersion)) => Ok(None),
            Err((_, code)) => Err(code.into()),
        }
    }

    /// Waits until somebody has come or gone; not longer than this.
    async fn changes_by(&self, root: &Root, deadline: Instant) -> bool {
        let request = Request::Children { path: root.path.clone(), watch: true };
        let (listed, watching) = self.client.watch(request, wire::children);
        match listed.await {
            // Somebody has left since.
            Ok((names, _)) if names.is_empty() => return true,
            Ok(_) => {}
            Err(_) => return Instant::now() < deadline,
        }
        // A notification that is lost costs a moment.
        let soon = (Instant::now() + Duration::from_secs(1)).min(deadline);
        let _ = timeout_at(soon, watching.event()).await;
        Instant::now() < deadline
    }

    pub(super) async fn finish(&self, root: &Root, generation: u64) -> Result<(), StoreError> {
        let doing = || format!("ending {}", root.path);
        for _ in 0..MOST_ATTEMPTS {
            let (data, stat) = match self.client.data(&root.path).await {
                Ok(read) => read,
                Err(Error::NoNode) => return Ok(()),
                Err(error) => return Err(failed(error, Kind::Read, doing())),
            };
            if root::generation(&stat) != generation || root::has_ended(&data, &stat) {
                return Ok(());
            }
            // The mark names its generation: if the election is made anew just now, it means nothing.
            let mark = root::mark(generation, root::recorded(&data).as_ref());
            match self.client.set_data(&root.path, mark, Some(stat.version)).await {
                Ok(_) | Err(Error::NoNode) => return Ok(()),
                Err(Error::BadVersion) => {}
                Err(error) => return Err(failed(error, Kind::Write, doing())),
            }
        }
        Err(unsent(doing(), "somebody writes to it all the time"))
    }

    pub(super) async fn clear(&self, root: &Root) -> Result<bool, StoreError> {
        let doing = || format!("removing {}", root.path);
        let fail = |error| failed(error, Kind::Write, doing());
        let (data, stat) = match self.client.data(&root.path).await {
            Ok(read) => read,
            Err(Error::NoNode) => return Ok(true),
            Err(error) => return Err(failed(error, Kind::Read, doing())),
        };
        if !root::has_ended(&data, &stat) {
            return Ok(false);
        }
        let version = stat.version;
        let mut parts = vec![Request::Delete { path: root.path.to_string(), version }];
        // What is deleted needs no lock delay. Its token is kept.
        match self.client.data(&root.tenure).await {
            Ok((data, stat)) => {
                if let Some(token) = Tenure::read(&data, &stat).unclean() {
                    let (path, data) = (root.tenure.to_string(), Tenure::Left(token).data());
                    parts.push(Request::SetData { path, data, version: stat.version });
                }
            }
            Err(Error::NoNode) => {}
            Err(error) => return Err(failed(error, Kind::Read, doing())),
        }
        match self.client.transaction(parts).await.map_err(fail)? {
            Ok(_) => Ok(true),
            Err((_, wire::Code::NotEmpty | wire::Code::NoNode | wire::Code::BadVersion)) => {
                Ok(false)
            }
            Err((_, code)) => Err(fail(code.into())),
        }
    }
}
