//! Cases about the values that candidates publish.

use futures_util::StreamExt;
use tenure::{ElectionState, Error, MAX_VALUE_BYTES};

use super::Case;
use super::case::{candidate, in_line, soon, until};

/// Waiting candidates, observers and readers all see the leader's value.
pub async fn a_leaders_value_is_read_by_everyone(case: &Case) {
    let (one, other) = (case.open().await, case.open().await);
    let with_value = candidate("a").with_value("10.0.0.7:80").expect("short");
    let _leader = case.enter(&one).await.campaign(with_value).await.expect("elected");
    let election = case.enter(&other).await;
    let standing = election.standing().await.expect("readable");
    assert_eq!(standing.leader.expect("somebody leads").value, "10.0.0.7:80");
    let waiting = election.stand(candidate("b")).expect("it stands");
    until("it follows", async || {
        waiting.status().follows.is_some_and(|leader| leader.value == "10.0.0.7:80")
    })
    .await;
    let mut observer = election.observe().expect("it observes");
    let seen = soon("a standing", observer.next()).await.expect("open").expect("readable");
    assert_eq!(seen.leader.expect("somebody leads").value, "10.0.0.7:80");
}

/// A changed value reaches all of them, and the tenure goes on.
pub async fn a_changed_value_reaches_everyone(case: &Case) {
    let (one, other) = (case.open().await, case.open().await);
    let leader = case.lead(&one, "a").await;
    let election = case.enter(&other).await;
    let mut observer = election.observe().expect("it observes");
    let waiting = election.stand(candidate("b")).expect("it stands");
    for number in 0..3 {
        let value = format!("value {number}");
        leader.publish(value.clone()).expect("short");
        let watching = async {
            loop {
                let seen = observer.next().await.expect("open").expect("readable");
                if seen.leader.is_some_and(|leader| leader.value == value) {
                    break;
                }
            }
        };
        soon("the observer to see it", watching).await;
        // In a line, a waiting candidate is told only when the entry before it goes. It sees the
        // new value when it looks again.
        if in_line(&other) {
            continue;
        }
        until("who waits sees it", async || {
            waiting.status().follows.is_some_and(|leader| leader.value == value)
        })
        .await;
    }
    let standing = election.standing().await.expect("readable");
    assert_eq!(standing.token, leader.mandate().token());
    assert!(leader.mandate().is_leader());
}

/// A value is bytes: none, all of them, as many as are allowed, and not one more.
pub async fn a_value_is_any_few_bytes(case: &Case) {
    let backend = case.open().await;
    let election = case.enter(&backend).await;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    let every_byte: Vec<u8> = (0..=255).collect();
    let values = [
        vec![0xff, 0, 0xfe],
        every_byte,
        Vec::new(),
        "\"\\\u{202e}😀".into(),
        vec![0; MAX_VALUE_BYTES],
    ];
    for value in values {
        leader.publish(value.clone()).expect("short");
        until("it can be read", async || {
            let standing = election.standing().await.expect("readable");
            standing.leader.expect("somebody leads").value == value
        })
        .await;
    }
    let refused = leader.publish(vec![0; MAX_VALUE_BYTES + 1]);
    assert!(matches!(refused, Err(Error::Candidate(_))), "{refused:?}");
}

/// Candidates are listed with name and value, on every handle, until they leave.
pub async fn candidates_are_listed_until_they_leave(case: &Case) {
    let backends = futures_util::future::join_all((0..4).map(|_| case.open())).await;
    let mut standing = Vec::new();
    for (number, backend) in backends.iter().enumerate() {
        let one = candidate(&format!("c{number}")).with_value(vec![0xff, number as u8]);
        let election = case.enter(backend).await;
        standing.push(election.stand(one.expect("short")).expect("it stands"));
    }
    let election = case.enter(&backends[0]).await;
    until("all are listed", async || {
        let listed = election.candidates().await.expect("a list");
        standing.iter().enumerate().all(|(number, candidacy)| {
            listed.iter().any(|entry| {
                entry.id == candidacy.id()
                    && *entry.name == format!("c{number}")
                    && entry.value == vec![0xff, number as u8]
                    && !entry.stale
            })
        })
    })
    .await;
    standing[2].publish("changed").expect("short");
    until("the change is listed", async || {
        let listed = election.candidates().await.expect("a list");
        listed.iter().any(|entry| entry.id == standing[2].id() && entry.value == "changed")
    })
    .await;
    for candidacy in standing {
        let id = candidacy.id();
        soon("the withdrawal", candidacy.withdraw()).await;
        until("it is no longer listed", async || {
            election.candidates().await.expect("a list").iter().all(|entry| entry.id != id)
        })
        .await;
    }
}

/// A candidate leads with the value that it published while waiting.
pub async fn a_value_published_while_waiting_is_led_with(case: &Case) {
    let backend = case.open().await;
    let election = case.enter(&backend).await;
    let first = election.campaign(candidate("a")).await.expect("elected");
    let mut waiting = election.stand(candidate("b")).expect("it stands");
    until("it follows", async || waiting.status().follows.is_some()).await;
    waiting.publish("new").expect("short");
    first.resign().await;
    let _second = soon("the leadership", waiting.elected()).await.expect("elected");
    let standing = election.standing().await.expect("readable");
    assert_eq!(standing.state, ElectionState::Led);
    assert_eq!(standing.leader.expect("somebody leads").value, "new");
}
