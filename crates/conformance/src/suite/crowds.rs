//! Hundreds at once.

use std::time::Duration;

use futures_util::future::join_all;
use tenure::{ElectionState, Error, Loss};

use super::Case;
use super::case::{candidate, reads_prove, soon};

/// The longest time for all candidates to get out.
///
/// Where reads are weak, each of the five hundred confirms the end by a write of its own, one after
/// another. That took a minute on a machine with twenty processes for two cores.
const EVERYONE: Duration = Duration::from_secs(150);

/// Five hundred candidates race an end. All get out, and none leads afterwards.
pub async fn five_hundred_candidates_racing_an_end_all_get_out(case: &Case) {
    let handles = join_all((0..5).map(|_| case.open())).await;
    let mut elections = Vec::new();
    for backend in &handles {
        elections.push(case.enter(backend).await);
    }
    let racing: Vec<_> = (0..500)
        .map(|number| {
            let election = elections[number % 5].clone();
            tokio::spawn(async move {
                match election.campaign(candidate(&format!("c{number}"))).await {
                    Ok(leader) => {
                        let loss = leader.lost().await;
                        Ok((loss, leader.mandate()))
                    }
                    Err(error) => Err(error),
                }
            })
        })
        .collect();
    // Some candidates stand by now, and some are about to.
    tokio::time::sleep(Duration::from_millis(20)).await;
    elections[0].end().await.expect("ended");
    let mut led = 0;
    let proven = reads_prove(&**handles[0].store());
    let everyone = tokio::time::timeout(EVERYONE, join_all(racing)).await;
    for racer in everyone.expect("waited in vain for everyone to get out") {
        match racer.expect("it ran") {
            Ok((loss, mandate)) => {
                // A leader that must confirm the end by a write may find no gap between the other
                // writes in time.
                let in_time = loss == Loss::Ended || !proven && loss == Loss::Expired;
                assert!(in_time, "{loss:?}");
                assert!(!mandate.is_leader());
                led += 1;
            }
            Err(Error::Ended { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!(led <= 1, "{led} were elected, and none resigned");
    let standing = elections[0].standing().await.expect("readable");
    assert_eq!(standing.state, ElectionState::Ended);
    join_all(handles.iter().map(|backend| backend.close())).await;
    let left = elections[0].candidates().await.expect("a list");
    assert!(left.is_empty(), "{} are still listed", left.len());
}

/// A hundred campaigns that are cancelled at any point leave nothing behind.
pub async fn cancelled_campaigns_leave_nothing_behind(case: &Case) {
    let (one, other) = (case.open().await, case.open().await);
    let election = case.enter(&one).await;
    for number in 0..100 {
        let campaign = election.campaign(candidate("a"));
        let _ = tokio::time::timeout(Duration::from_micros(number * 40), campaign).await;
    }
    let next = case.lead(&other, "b").await;
    next.resign().await;
    soon("the close", one.close()).await;
    soon("the close", other.close()).await;
    assert_eq!(election.candidates().await.expect("a list"), []);
    let standing = election.standing().await.expect("readable");
    assert_eq!(standing.state, ElectionState::Free);
}
