//! Leaders and followers with connections that fail.

use std::time::{Duration, Instant};

use tenure::queue::Life;
use tenure::{Loss, Resignation, Role};
use tenure_harness::{Direction, require};
use tenure_stores::Reconnect;
use tenure_stores::zookeeper::{Client, ClientOptions, Error};

use crate::world::*;

#[allow(dead_code, unreachable_pub, reason = "its main function is for the command line")]
#[path = "../../../examples/own_connection.rs"]
mod own_connection;

#[tokio::test]
async fn the_example_of_an_own_connection_leads_and_keeps_its_session() {
    let server = require!(single().await);
    let example = own_connection::run(server.addresses()[0].to_string());
    soon("the example has ended", example).await.expect("it did what it says");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unusable_connection_is_told_when_opening() {
    let options = open_options(CALM).with_request(Duration::from_millis(700));
    // Nothing listens on the discard port of this machine.
    for url in ["zookeeper://127.0.0.1:9/tests", "zookeeper://no.such.host.invalid:1/tests"] {
        let began = Instant::now();
        let error = tenure_stores::open(url, &options).await.expect_err("nobody is there");
        println!("{error}: {:?}", std::error::Error::source(&error).map(ToString::to_string));
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
    // Another program listens: its reply is no answer, and nothing is read beyond it.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten().take(3) {
            let _ = std::io::Write::write_all(&mut &stream, b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    tenure_stores::open(&url(&[address]), &options).await.expect_err("that is no ZooKeeper");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_down_at_open_is_told_and_one_that_is_down_at_campaign_is_waited_for() {
    let server = require!(single().await);
    let program = Program::at(&server.addresses(), CALM).await;
    let election = program.election().await;
    server[0].kill().await.expect("it ran");
    let options = open_options(CALM).with_request(Duration::from_secs(1));
    let opened = tenure_stores::open(&url(&server.addresses()), &options).await;
    opened.expect_err("nobody is there");
    let mut waiting = election.stand(candidate("a")).expect("it stands");
    tokio::time::sleep(Duration::from_millis(500)).await;
    server[0].restart().await.expect("it starts again");
    let _leader = soon("elected", waiting.elected()).await.expect("elected");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_lost_and_back_in_time_costs_nothing() {
    let server = require!(single().await);
    let proxy = proxy(server[0].address());
    let program = Program::at(&[proxy.address()], CALM).await;
    let leader = program.lead("a").await;
    let token = leader.mandate().token();
    let follower = Program::at(&[proxy.address()], CALM).await;
    let mut waiting = follower.stand("b", 1).await;
    for _ in 0..3 {
        let mut statuses = leader.statuses();
        proxy.cut().await;
        sees(
            "suspended",
            &mut statuses,
            |role| matches!(role, Role::Suspended { remaining, .. } if *remaining > Duration::ZERO),
        )
        .await;
        assert!(leader.mandate().is_leader(), "the proof still runs");
        proxy.heal().await;
        sees("resumed", &mut statuses, |role| *role == Role::Leading { token }).await;
        soon("extended", leader.mandate().renewed()).await;
    }
    assert_eq!(program.standing().await, ["a", "b"], "same sessions, same entries");
    leader.resign().await;
    let _leader = soon("the follower leads", waiting.elected()).await.expect("elected");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_falls_silent_is_given_up_and_the_session_goes_on() {
    let server = require!(single().await);
    let proxy = proxy(server[0].address());
    let program = Program::at(&[proxy.address()], CALM).await;
    let leader = program.lead("a").await;
    let token = leader.mandate().token();
    let session = program.queue().session().borrow().number;
    let mut statuses = leader.statuses();
    let began = Instant::now();
    proxy.blackhole(Direction::ToClient);
    sees("suspended", &mut statuses, |role| matches!(role, Role::Suspended { .. })).await;
    // T/16 until the next heartbeat, T/10 for its answer, and room for a busy machine.
    println!("noticed after {:?}", began.elapsed());
    proxy.heal().await;
    sees("resumed", &mut statuses, |role| *role == Role::Leading { token }).await;
    assert_eq!(program.queue().session().borrow().number, session);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_expires_is_lost_and_another_stands_again() {
    let server = require!(single().await);
    let proxy = proxy(server[0].address());
    let mut referee = Referee::default();
    let program = Program::at(&[proxy.address()], BRISK).await;
    let leader = program.lead("a").await;
    referee.saw(&leader);
    let other = Program::at(&server.addresses(), BRISK).await;
    let mut waiting = other.stand("b", 1).await;
    proxy.cut().await;
    let mandate = leader.mandate();
    let second = soon("the other leads", waiting.elected()).await.expect("elected");
    referee.saw(&second);
    assert!(!mandate.is_leader(), "it stopped by itself before");
    proxy.heal().await;
    assert_eq!(soon("it is told", leader.lost()).await, Loss::Expired);
    let operator = operator(server[0].address()).await;
    let regained = tokio::spawn(leader.regain());
    until("it stands again", || async { other.standing().await == ["b", "a"] }).await;
    // A new node of a new session. A search for the old one does not find it.
    let node = nodes(&operator).await[1].clone();
    assert!(node.contains("-2-n-"), "{node}");
    second.resign().await;
    let third = soon("elected again", regained).await.expect("no panic").expect("elected");
    referee.saw(&third);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_whose_creation_was_never_answered_is_found_and_no_ghost_stays() {
    let server = require!(single().await);
    let proxy = proxy(server[0].address());
    let program = Program::at(&[proxy.address()], CALM).await;
    let election = program.election().await;
    proxy.lose_answer_of(creates_an_entry);
    let leader = soon("elected", election.campaign(candidate("a"))).await.expect("elected");
    assert_eq!(proxy.answers_lost(), 1);
    let operator = operator(server[0].address()).await;
    let nodes = nodes(&operator).await;
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    let (_, stat) = operator.data(&nodes[0]).await.expect("it stands");
    assert_eq!(stat.created as u64, leader.mandate().token());
    assert!(nodes[0].contains("-n-"), "the first attempt's own: {}", nodes[0]);
    // The same for a candidate that has to wait.
    proxy.lose_answer_of(creates_an_entry);
    let mut waiting = program.stand("b", 1).await;
    assert_eq!(proxy.answers_lost(), 2);
    assert_eq!(program.standing().await, ["a", "b"]);
    leader.resign().await;
    let _leader = soon("elected", waiting.elected()).await.expect("elected");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_creation_that_never_arrived_is_tried_again() {
    let server = require!(single().await);
    let proxy = proxy(server[0].address());
    let program = Program::at(&[proxy.address()], CALM).await;
    let election = program.election().await;
    proxy.blackhole(Direction::ToServer);
    let mut waiting = election.stand(candidate("a")).expect("it stands");
    tokio::time::sleep(CALM / 6).await;
    proxy.sever().await;
    proxy.heal().await;
    let _leader = soon("elected", waiting.elected()).await.expect("elected");
    assert_eq!(program.standing().await, ["a"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resignation_that_the_store_never_saw_is_finished_on_reconnect() {
    let server = require!(single().await);
    let proxy = proxy(server[0].address());
    let program = Program::at(&[proxy.address()], CALM).await;
    let leader = program.lead("a").await;
    let other = Program::at(&server.addresses(), CALM).await;
    let mut waiting = other.stand("b", 1).await;
    proxy.blackhole(Direction::ToServer);
    let resigning = tokio::spawn(async move { leader.resign().await });
    tokio::time::sleep(CALM / 6).await;
    assert_eq!(other.standing().await, ["a", "b"], "a zombie");
    proxy.sever().await;
    proxy.heal().await;
    assert_eq!(soon("resigned", resigning).await.expect("no panic"), Resignation::Released);
    let _leader = soon("elected", waiting.elected()).await.expect("elected");
    assert_eq!(other.standing().await, ["b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resignation_whose_answer_is_lost_frees_the_election_once() {
    let server = require!(single().await);
    let proxy = proxy(server[0].address());
    let program = Program::at(&[proxy.address()], CALM).await;
    let leader = program.lead("a").await;
    let other = Program::at(&server.addresses(), CALM).await;
    let mut waiting = other.stand("b", 1).await;
    proxy.lose_answer_of(|request| request.get(8..12) == Some(&[0, 0, 0, 2]));
    assert_eq!(soon("resigned", leader.resign()).await, Resignation::Released);
    assert_eq!(proxy.answers_lost(), 1);
    let _leader = soon("elected", waiting.elected()).await.expect("elected");
    assert_eq!(other.standing().await, ["b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_notification_is_made_good_by_looking_again() {
    let server = require!(single().await);
    let proxy = proxy(server[0].address());
    let leading = Program::at(&server.addresses(), BRISK).await;
    let leader = leading.lead("a").await;
    let program = Program::at(&[proxy.address()], BRISK).await;
    let mut waiting = program.stand("b", 1).await;
    // The notification is lost, together with its connection.
    proxy.lose_answers(1);
    leader.resign().await;
    let _leader = soon("elected", waiting.elected()).await.expect("elected");
    assert_eq!(proxy.answers_lost(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_long_a_connection_is_tried_for_is_the_callers_choice() {
    let server = require!(single().await);
    let proxy = proxy(server[0].address());
    let base = || ClientOptions::new([proxy.address().to_string()]).with_session(CALM);
    let patient = Client::new(base());
    let bounded = Client::new(base().with_reconnect(Reconnect::For(Duration::from_millis(300))));
    let giving_up = Client::new(base().with_reconnect(Reconnect::Never));
    for client in [&patient, &bounded, &giving_up] {
        client.connected(Duration::from_secs(30)).await.expect("it connects");
    }
    proxy.cut().await;
    for client in [&bounded, &giving_up] {
        let mut session = client.session();
        let closed = session.wait_for(|session| session.life == Life::Closed);
        soon("it gives up", closed).await.expect("the client lives");
        let asked = client.exists("/").await;
        assert!(matches!(asked, Err(Error::Unsent | Error::Closed)), "{asked:?}");
    }
    proxy.heal().await;
    patient.connected(Duration::from_secs(30)).await.expect("it tries for ever");
    assert!(bounded.connected(Duration::from_millis(100)).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_shares_its_session_with_elections() {
    use tenure::{Backend, Election};
    use tenure_stores::zookeeper::{Acl, Lifetime, ZookeeperQueue, ZookeeperStore};
    let server = require!(single().await);
    let proxy = proxy(server[0].address());
    let client = Client::new(ClientOptions::new([proxy.address().to_string()]).with_session(CALM));
    client.connected(Duration::from_secs(30)).await.expect("it connects");
    let request = Duration::from_secs(5);
    let store = std::sync::Arc::new(ZookeeperStore::new(client.clone(), "/tests", request));
    let queue = std::sync::Arc::new(ZookeeperQueue::new(client.clone(), "/tests", request));
    let backend = Backend::new(store).with_queue(queue);
    let election = Election::open(&backend, NAME).await.expect("it is made");
    let leader = soon("elected", election.campaign(candidate("a"))).await.expect("elected");
    let made = client.create("/own", "mine", Lifetime::Ephemeral, &Acl::open()).await;
    let (_, stat) = made.expect("created");
    let operator = operator(server[0].address()).await;
    let (_, entry) = operator.data(&nodes(&operator).await[0]).await.expect("it stands");
    assert_eq!(entry.owner, stat.owner, "one session");
    assert_eq!(proxy.connections().len(), 1, "one connection");
    drop(leader);
}

/// A session is proven alive when a quorum takes a write, even one that is refused.
///
/// Our heartbeats are refused writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_deletion_is_a_transaction_like_any_other() {
    use tenure_stores::zookeeper::{Acl, Lifetime};
    let servers = require!(three().await);
    let client = operator(servers[0].address()).await;
    let make = |path: &'static str| {
        let made = client.create(path, "", Lifetime::Lasting, &Acl::open());
        async { made.await.expect("created").1.created }
    };
    let before = make("/before").await;
    for _ in 0..5 {
        assert_eq!(client.delete("/=tenure", None).await, Err(Error::NoNode));
    }
    let after = make("/after").await;
    assert!(after >= before + 6, "{before:x} {after:x}");
    // Without a quorum there is no answer.
    let (cut, others) = (0, [1, 2]);
    for other in others {
        servers[other].stop().await.expect("it ran");
    }
    let asked = client.delete("/=tenure", None);
    let answered = tokio::time::timeout(Duration::from_secs(3), asked).await;
    assert!(!matches!(answered, Ok(Ok(()) | Err(Error::NoNode))), "{answered:?} by server {cut}");
    for other in others {
        servers[other].cont().await.expect("it is there");
    }
}

/// Request code 15 of ZooKeeper creates a node.
fn creates_an_entry(request: &[u8]) -> bool {
    let entry = b"/_c_";
    request.get(8..12) == Some(&[0, 0, 0, 15])
        && request.windows(entry.len()).any(|window| window == entry)
}
