//! Many candidates, many elections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tenure::Election;
use tenure_harness::{Direction, require, zookeeper};

use crate::world::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handover_among_a_thousand_notifies_two() {
    const PROGRAMS: usize = 10;
    const EACH: usize = 100;
    const HANDOVERS: usize = 5;
    let server = require!(single().await);
    let proxy = proxy(server[0].address());
    let session = Duration::from_secs(40);
    let addresses = [proxy.address()];
    let programs = join_all((0..PROGRAMS).map(|_| Program::at(&addresses, session))).await;
    // The first in the queue come one after the other, then the crowd.
    let mut queue = std::collections::VecDeque::new();
    for number in 0..=HANDOVERS {
        queue
            .push_back(programs[number % PROGRAMS].stand(&format!("first-{number}"), number).await);
    }
    let mut crowd = Vec::new();
    for program in &programs {
        let election = program.election().await;
        for _ in 0..EACH {
            crowd.push(election.stand(candidate("crowd")).expect("it stands"));
        }
    }
    until("all are in the queue", || async {
        programs[0].standing().await.len() == HANDOVERS + 1 + PROGRAMS * EACH
    })
    .await;
    let notified = Arc::new(AtomicUsize::new(0));
    let count = notified.clone();
    proxy.observe(move |message| {
        let says = message.direction == Direction::ToClient
            && zookeeper::number(message.bytes) == Some(-1);
        count.fetch_add(usize::from(says), Ordering::SeqCst);
    });
    let mut referee = Referee::default();
    for number in 0..HANDOVERS {
        let mut leader = queue.pop_front().expect("one for each handover");
        let leader = soon("elected", leader.elected()).await.expect("elected");
        referee.saw(&leader);
        // All candidates watch by now. A watch that is set late reports nothing.
        let before = notified.load(Ordering::SeqCst);
        leader.resign().await;
        let next = queue.front().expect("one more than handovers");
        until("the next leads", || async { next.status().role.token().is_some() }).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let told = notified.load(Ordering::SeqCst) - before;
        println!("handover {number}: {told} notifications");
        assert!(told <= 2, "{told} notifications");
    }
}

/// For the figures, run `cargo test --release … -- --ignored --nocapture`; here it only has to
/// hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_elections_on_one_connection_are_led_together_and_are_quiet() {
    const ELECTIONS: usize = 500;
    let server = require!(single().await);
    let proxy = proxy(server[0].address());
    let program = Program::at(&[proxy.address()], Duration::from_secs(40)).await;
    let began = Instant::now();
    let opened = join_all((0..ELECTIONS).map(|number| {
        let backend = program.backend.clone();
        async move {
            let name = format!("many/e{number}");
            let builder = Election::builder(&backend, &name).create_if_missing(true);
            builder.open().await.expect("it opens")
        }
    }))
    .await;
    let campaigns = opened.iter().map(|election| election.campaign(candidate("one")));
    let leaders = soon("all led", join_all(campaigns)).await;
    let leaders: Vec<_> = leaders.into_iter().map(|leader| leader.expect("elected")).collect();
    println!("{ELECTIONS} elections opened and led after {:?}", began.elapsed());
    assert_eq!(proxy.connections().len(), 1);
    // A tenure's token is recorded once, an eighth of the session's time after the tenure began.
    let operator = operator(server[0].address()).await;
    until("all tokens are recorded", || async {
        let recorded = operator.children("/tests/=tenures").await;
        recorded.is_ok_and(|(names, _)| names.len() == ELECTIONS)
    })
    .await;
    // Only the session sends heartbeats, not the elections. The last records may still be on their
    // way.
    until("it is quiet", || async {
        let before = proxy.forwarded(Direction::ToServer).messages;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let sent = proxy.forwarded(Direction::ToServer).messages - before;
        println!("{sent} requests in 5 s");
        sent < 20
    })
    .await;
    assert!(leaders.iter().all(|leader| leader.mandate().is_leader()));
}
