//! Makes, ends and removes elections.

use std::time::Duration;

use bytes::Bytes;
use tenure::store::{Fault, StoreError};
use tokio::time::{Instant, timeout_at};

use super::super::client::Error;
use super::super::fault::{Kind, failed, unsent};
use super::super::wire::{self, Lifetime, Request, Stat};
use super::ZookeeperQueue;
use super::reading::has_session;
use super::root::{self, Root};
use super::tenures::Tenure;

/// How often a change is tried while other processes change the same election.
const MOST_ATTEMPTS: usize = 8;

impl ZookeeperQueue {
    pub(super) async fn make(&self, root: &Root) -> Result<u64, StoreError> {
        let doing = || format!("creating {}", root.path);
        let deadline = Instant::now() + self.request;
        let (mut attempts, mut proven) = (0, false);
        loop {
            attempts += 1;
            let read = match proven {
                true => self.client.proven_data(&root.path),
                false => self.client.data(&root.path),
            };
            let made = match read.await {
                Ok((data, stat)) if !root::has_ended(&data, &stat) => {
                    match root::recorded(&data).filter(|other| !other.is_like(&self.recipe)) {
                        // A server that lags behind may show an earlier generation, for others.
                        Some(_) if !proven => {
                            proven = true;
                            continue;
                        }
                        Some(other) => return Err(self.other_recipe(root, &other)),
                        // Without a recorded prefix, the first candidate to join records it.
                        None => return Ok(root::generation(&stat)),
                    }
                }
                Ok((_, stat)) => self.make_anew(root, &stat).await,
                Err(Error::NoNode) => self.make_first(root).await,
                Err(error) => Err(error),
            };
            match made {
                Ok(Some(generation)) => return Ok(generation),
                Err(Error::NotEmpty) => {
                    self.check_obstacles(root, doing()).await?;
                    // Candidates of the ended election still stand.
                    if !self.changes_by(root, deadline).await {
                        return Err(unsent(
                            doing(),
                            "candidates of the ended election still stand",
                        ));
                    }
                }
                Ok(None) if attempts < MOST_ATTEMPTS => {}
                Ok(None) => return Err(unsent(doing(), "others make and remove it all the time")),
                Err(error) => return Err(failed(error, Kind::Write, doing())),
            }
        }
    }

    /// Creates the election's node and the missing ones above; `None` if another process was
    /// faster.
    async fn make_first(&self, root: &Root) -> Result<Option<u64>, Error> {
        let levels: Vec<&str> = root.levels().collect();
        let data = |level: &str| match level == &*root.path {
            true => Bytes::from(root::open(&self.recipe)),
            false => Bytes::new(),
        };
        // All of them are sent, in this order, before the first is answered.
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
            // A node above could not be created: report why.
            Err(Error::NoNode) => above.map_or(Ok(None), Err),
            Err(error) => Err(error),
        }
    }

    /// Replaces the node of an ended election with a new one; `None` if it changed meanwhile.
    async fn make_anew(&self, root: &Root, stat: &Stat) -> Result<Option<u64>, Error> {
        let path = root.path.to_string();
        let delete = Request::Delete { path: path.clone(), version: stat.version };
        let (data, acl) = (root::open(&self.recipe).into(), self.acl.clone());
        let create = Request::Create { path, data, lifetime: Lifetime::Lasting, acl };
        let parts = vec![delete, create];
        match self.client.transaction(parts).await? {
            // Servers before 3.9 do not return the new generation; then it must be read.
            Ok(results) => {
                let made = results.into_iter().flatten().next();
                Ok(made.map(|(_, stat)| root::generation(&stat)))
            }
            Err((_, wire::Code::NoNode | wire::Code::BadVersion)) => Ok(None),
            Err((_, code)) => Err(code.into()),
        }
    }

    /// Fails if only nodes are left that never go by themselves.
    ///
    /// They may be anything, so people must decide on them.
    async fn check_obstacles(&self, root: &Root, doing: String) -> Result<(), StoreError> {
        let Some(node) = self.obstacle(root).await.unwrap_or_default() else { return Ok(()) };
        let says = format!(
            "the node {node} is below it and goes with no session, so the election's node cannot be deleted. If it is no \
             other election, delete it by hand"
        );
        Err(StoreError::new(Fault::Permanent, "zookeeper", doing, says))
    }

    /// A node below an election without a session, if all nodes there have none.
    async fn obstacle(&self, root: &Root) -> Result<Option<String>, Error> {
        let (mut names, _) = self.client.children(&root.path).await?;
        names.sort_unstable();
        let asked: Vec<_> = names
            .iter()
            .map(|name| root.child(name))
            .map(|node| (self.client.exists(&node), node))
            .collect();
        let mut first = None;
        for (asked, node) in asked {
            match asked.await {
                Ok(stat) if has_session(&stat) => return Ok(None),
                Ok(_) => first = first.or(Some(node)),
                Err(Error::NoNode) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(first)
    }

    /// Waits until candidates come or go. Returns false once the deadline has passed.
    async fn changes_by(&self, root: &Root, deadline: Instant) -> bool {
        let request = Request::Children { path: root.path.clone(), watch: true };
        let (listed, watching) = self.client.watch(request, wire::children);
        match listed.await {
            // The last candidate has left since.
            Ok((names, _)) if names.is_empty() => return true,
            Ok(_) => {}
            Err(_) => return Instant::now() < deadline,
        }
        // A lost notification costs a moment.
        let soon = (Instant::now() + Duration::from_secs(1)).min(deadline);
        let _ = timeout_at(soon, watching.event()).await;
        Instant::now() < deadline
    }

    /// Reads the election's own node; nothing if there is none.
    ///
    /// With a node that is `usable` the caller goes on to a write, which finds out by itself if the
    /// node was old. Any other answer is final, so it is read again behind a write that a quorum
    /// takes.
    async fn read_root(
        &self,
        root: &Root,
        usable: impl Fn(&[u8], &Stat) -> bool,
    ) -> Result<Option<(Vec<u8>, Stat)>, Error> {
        match self.client.data(&root.path).await {
            Ok((data, stat)) if usable(&data, &stat) => return Ok(Some((data, stat))),
            Ok(_) | Err(Error::NoNode) => {}
            Err(error) => return Err(error),
        }
        match self.client.proven_data(&root.path).await {
            Ok(read) => Ok(Some(read)),
            Err(Error::NoNode) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn finish(&self, root: &Root, generation: u64) -> Result<(), StoreError> {
        let doing = || format!("ending {}", root.path);
        let is_open = |data: &[u8], stat: &Stat| {
            root::generation(stat) == generation && !root::has_ended(data, stat)
        };
        for _ in 0..MOST_ATTEMPTS {
            let read = self.read_root(root, is_open).await;
            let read = read.map_err(|error| failed(error, Kind::Read, doing()))?;
            let Some((data, stat)) = read.filter(|(data, stat)| is_open(data, stat)) else {
                return Ok(());
            };
            // The mark names its generation: if the election is made anew just now, it means
            // nothing.
            let mark = root::mark(generation, &data);
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
        let read = self.read_root(root, |_, _| true).await;
        let read = read.map_err(|error| failed(error, Kind::Read, doing()))?;
        let Some((data, stat)) = read else { return Ok(true) };
        if !root::has_ended(&data, &stat) {
            return Ok(false);
        }
        let version = stat.version;
        let mut parts = vec![Request::Delete { path: root.path.to_string(), version }];
        // A deleted election needs no lock delay. Its token is kept.
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
            Err((_, wire::Code::NotEmpty)) => {
                self.check_obstacles(root, doing()).await?;
                Ok(false)
            }
            Err((_, wire::Code::NoNode | wire::Code::BadVersion)) => Ok(false),
            Err((_, code)) => Err(fail(code.into())),
        }
    }
}
