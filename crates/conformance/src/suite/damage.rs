//! Records that a user deleted, overwrote or restored from a backup.

use std::time::Instant;

use tenure::store::{Expect, Put, StoreExt};
use tenure::{Election, ElectionState, Error, Loss, Role};

use super::Case;
use super::case::{candidate, found, overwrite, reads_prove, soon, stored, until};

/// A record that a user deletes ends the tenure, with its own error.
pub async fn a_deleted_record_is_noticed_by_its_leader(case: &Case) {
    case.on_leases();
    let backend = case.open().await;
    let (store, key) = (case.store().await, case.record());
    let leader = case.lead_briskly(&backend, "a").await;
    until("it is deleted", async || {
        let version = found(&*store, &key).await.version;
        matches!(store.delete(&key, version).await, Ok(Put::Stored(_)))
    })
    .await;
    assert_eq!(soon("the loss", leader.lost()).await, Loss::Vanished);
    let refused = leader.regain().await;
    assert!(matches!(refused, Err(Error::Vanished)), "{refused:?}");
}

/// A waiting candidate notices it too. It neither waits on nor begins again at token 1.
pub async fn a_deleted_record_is_noticed_by_who_waits(case: &Case) {
    case.on_leases();
    let (one, other) = (case.open().await, case.open().await);
    let (store, key) = (case.store().await, case.record());
    let leader = case.lead(&one, "a").await;
    let mut waiting = case.enter(&other).await.stand(candidate("b")).expect("it stands");
    until("it follows", async || waiting.status().follows.is_some()).await;
    if !reads_prove(&*store) {
        return case.skip("a weak read of a token proves nothing");
    }
    let version = found(&*store, &key).await.version;
    let deleted = store.delete(&key, version).await.expect("an answer");
    assert!(matches!(deleted, Put::Stored(_)), "nobody renews so early");
    let refused = soon("the refusal", waiting.elected()).await;
    assert!(matches!(refused, Err(Error::Vanished)), "{refused:?}");
    drop(leader);
}

/// A record that a user deletes takes neither its token nor its lock delay along.
///
/// The next leader waits until the last one cannot lead any more, and the delay as well, and has a
/// greater token.
pub async fn a_deleted_records_token_and_delay_are_not_forgotten(case: &Case) {
    let ((one, cut_off), (other, _)) = (case.faulty().await, case.faulty().await);
    let (store, key) = (case.store().await, case.record());
    if !store.forgets_deleted() {
        return case.skip("the store puts back what is deleted behind its back");
    }
    let (name, timing) = (case.election(), case.brisk());
    let delay = timing.ttl() / 2;
    let first = Election::builder(&one, &name).timing(timing).lock_delay(delay);
    let first = first.create_if_missing(true).open().await.expect("the election opens");
    let resigned = soon("the first tenure", first.campaign(candidate("a"))).await.expect("elected");
    resigned.resign().await;
    let leader = soon("the second tenure", first.campaign(candidate("a"))).await.expect("elected");
    cut_off.cut();
    until("it is deleted", async || {
        let version = found(&*store, &key).await.version;
        matches!(store.delete(&key, version).await, Ok(Put::Stored(_)))
    })
    .await;
    let deleted = Instant::now();
    let next = Election::builder(&other, &name).timing(timing).create_if_missing(true);
    let next = next.open().await.expect("the election opens").campaign(candidate("b")).await;
    let (next, waited) = (next.expect("elected"), deleted.elapsed());
    assert!(!leader.mandate().is_leader(), "both lead, {waited:?} after the deletion");
    assert!(waited >= timing.ttl() + delay, "it waited only {waited:?}");
    let (before, after) = (leader.mandate().token(), next.mandate().token());
    assert!(after > before, "token {after} after token {before}");
}

/// Garbage in place of the record is reported by every call that reads it.
pub async fn garbage_in_the_record_is_reported(case: &Case) {
    case.on_leases();
    let (backend, store) = (case.open().await, case.store().await);
    let election = case.enter(&backend).await;
    for garbage in [&b""[..], b"{}", b"null", b"\xff\xff", b"{\"holder\":", &[b'['; 9000]] {
        overwrite(&*store, &case.record(), garbage.to_vec()).await;
        let standing = election.standing().await;
        assert!(matches!(standing, Err(Error::Record { .. })), "{standing:?}");
        let name = case.election();
        let opened = super::case::opened(&backend, &name).await;
        assert!(matches!(opened, Err(Error::Record { .. })), "{opened:?}");
        let ended = election.end().await;
        assert!(matches!(ended, Err(Error::Record { .. })), "{ended:?}");
    }
}

/// A candidate waits until the garbage is mended, and then leads.
///
/// It reports the garbage in its status.
pub async fn a_candidate_waits_until_garbage_is_mended(case: &Case) {
    case.on_leases();
    let (backend, store) = (case.open().await, case.store().await);
    let election = case.enter(&backend).await;
    let good = found(&*store, &case.record()).await.body;
    overwrite(&*store, &case.record(), "garbage").await;
    let mut candidacy = election.stand(candidate("a")).expect("it stands");
    until("it reports the garbage", async || {
        matches!(candidacy.status().error, Some(Error::Record { .. }))
    })
    .await;
    overwrite(&*store, &case.record(), good).await;
    let leader = soon("the leadership", candidacy.elected()).await.expect("elected");
    assert!(leader.status().error.is_none(), "{:?}", leader.status());
}

/// A leader stops at once when its record is overwritten.
///
/// It may lead again once the record is mended.
pub async fn a_leader_whose_record_is_garbage_stops(case: &Case) {
    case.on_leases();
    let (backend, store) = (case.open().await, case.store().await);
    let leader = case.lead_briskly(&backend, "a").await;
    let good = found(&*store, &case.record()).await.body;
    overwrite(&*store, &case.record(), "garbage").await;
    let loss = soon("the loss", leader.lost()).await;
    assert!(matches!(loss, Loss::Vanished | Loss::Expired), "{loss:?}");
    until("the mandate is over", async || !leader.mandate().is_leader()).await;
    let token = leader.mandate().token();
    let mending = async {
        until("it reports the garbage", async || {
            overwrite(&*store, &case.record(), good.clone()).await;
            true
        })
        .await;
    };
    let (again, ()) =
        soon("the leadership", futures_util::future::join(leader.regain(), mending)).await;
    assert!(again.expect("elected again").mandate().token() > token);
}

/// A leader refuses a record that went back to an earlier token, and stops.
pub async fn a_rolled_back_record_is_refused_by_its_leader(case: &Case) {
    case.on_leases();
    let (backend, store) = (case.open().await, case.store().await);
    let election = case.enter_briskly(&backend).await;
    let old = found(&*store, &case.record()).await.body;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    let token = leader.mandate().token();
    overwrite(&*store, &case.record(), old).await;
    let loss = soon("the loss", leader.lost()).await;
    if reads_prove(&*store) {
        assert_eq!(loss, Loss::Regressed);
    }
    let refused = soon("the refusal", leader.regain()).await;
    let told = matches!(refused, Err(Error::Regressed { found: 0, known }) if known == token);
    assert!(told, "{refused:?}");
}

/// A waiting candidate refuses it too: no token is given out twice.
pub async fn a_rolled_back_record_is_refused_by_who_waits(case: &Case) {
    case.on_leases();
    let (one, other) = (case.open().await, case.open().await);
    let store = case.store().await;
    let election = case.enter(&one).await;
    let old = found(&*store, &case.record()).await.body;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    let mut waiting = case.enter(&other).await.stand(candidate("b")).expect("it stands");
    until("it follows", async || waiting.status().follows.is_some()).await;
    if !reads_prove(&*store) {
        return case.skip("a weak read of a token proves nothing");
    }
    overwrite(&*store, &case.record(), old).await;
    let refused = soon("the refusal", waiting.elected()).await;
    assert!(matches!(refused, Err(Error::Regressed { .. })), "{refused:?}");
    drop(leader);
}

/// Documents that are no elections disturb no list of elections or candidates.
pub async fn foreign_documents_are_left_out_of_lists(case: &Case) {
    case.on_leases();
    let (backend, store) = (case.open().await, case.store().await);
    let election = case.enter(&backend).await;
    let beside = format!("elections/{}/foreign", case.prefix()).parse_key();
    stored(&*store, &beside, Expect::Absent, "not a record").await;
    let among = format!("candidates/{}/foreign", case.election()).parse_key();
    stored(&*store, &among, Expect::Absent, "not an entry").await;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    until("the candidate is listed", async || {
        let listed = election.candidates().await.expect("a list");
        assert!(listed.iter().all(|entry| entry.id.as_str() != "foreign"), "{listed:?}");
        listed.len() == 1
    })
    .await;
    until("the election is listed", async || {
        let listed = Election::list(&backend).await.expect("a list");
        assert!(!listed.iter().any(|standing| standing.election.as_str().ends_with("/foreign")));
        listed.iter().any(|standing| standing.election == *election.name())
    })
    .await;
    assert!(matches!(leader.status().role, Role::Leading { .. }));
    assert_eq!(election.standing().await.expect("readable").state, ElectionState::Led);
}

trait ParseKey {
    fn parse_key(&self) -> tenure::Key;
}

impl ParseKey for String {
    fn parse_key(&self) -> tenure::Key {
        tenure::Key::parse(self).expect("a good key")
    }
}
