//! Deletes entries that no candidacy claims.
//!
//! A join that was given up may still arrive, and etcd gives no sign when it no longer can. So its
//! key is watched as long as its lease lives, and an entry that appears there without being claimed
//! is deleted. Otherwise the queue would wait for a candidate that does not know that it leads.

use std::sync::Arc;
use std::time::Duration;

use tenure::Key;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::batch::{Change, Grouping};
use super::claims::Claimed;
use super::contents::{entry, only, stood};
use super::{Shared, requests};
use crate::etcd::waits::Topic;

/// The pause after a failed request, or while a claim is in doubt.
const PAUSE: Duration = Duration::from_millis(500);

/// Looks after every orphan key, for as long as it is polled.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut keys = JoinSet::new();
    loop {
        for (election, seat) in shared.claims.newly_orphaned() {
            keys.spawn(look_after(shared.clone(), election, seat));
        }
        tokio::select! {
            () = shared.claims.given_up.notified() => {}
            Some(_) = keys.join_next(), if !keys.is_empty() => {}
        }
    }
}

/// Looks after one key, until its seat is no longer ours.
async fn look_after(shared: Arc<Shared>, election: Key, seat: i64) {
    let key = shared.keys.entry(&election, seat);
    let topic = Topic::one(key.clone());
    while shared.claims.owns(seat) {
        let ranges =
            vec![requests::one(key.clone()), requests::one(shared.keys.holder(&election, seat))];
        let doing = || format!("looking for a late join of {election}");
        let Ok(mut read) = shared.read(ranges, doing).await else {
            sleep(PAUSE).await;
            continue;
        };
        let (found, record) = (only(read.next()), only(read.next()));
        shared.saw(&[(key.clone(), found.as_ref())], read.revision);
        let Some(found) = found else {
            until_changed(&shared, seat, &topic, None).await;
            continue;
        };
        let token = entry(&found).token;
        let made_by = stood(&shared.keys, &election, &found, record.as_ref());
        let claimed = shared.claims.claimed(&election, seat, shared.ttl);
        let awaited = shared.claims.at(&election, seat).map(|own| own.ticket);
        match claimed {
            None => return,
            Some(Claimed::Nothing) => {}
            Some(Claimed::Entry { token: own }) if own == token => {
                until_changed(&shared, seat, &topic, Some(found.mod_revision)).await;
                continue;
            }
            Some(Claimed::Entry { .. }) => {}
            // This entry was made by another join than the one that is awaited.
            Some(Claimed::InDoubt)
                if made_by.is_some_and(|stood| Some(stood.ticket) != awaited) => {}
            Some(Claimed::InDoubt) => {
                sleep(PAUSE).await;
                continue;
            }
        }
        tracing::debug!(%election, token, "etcd: deleting an entry that nobody claims");
        let txn = requests::leave(&shared.keys, &election, seat, token, false);
        let change = Change { election: election.clone(), grouping: Grouping::Alike, txn };
        if shared.changes.send(change).await.is_err() {
            sleep(PAUSE).await;
        }
    }
}

/// Waits until the key may have changed, or its seat is no longer ours.
async fn until_changed(shared: &Shared, seat: i64, topic: &Topic, seen: Option<i64>) {
    shared.core.listen();
    let mut session = shared.session.subscribe();
    let over = async { while shared.claims.owns(seat) && session.changed().await.is_ok() {} };
    tokio::select! {
        () = shared.core.waits.changed(topic, seen) => {}
        () = over => {}
    }
}
