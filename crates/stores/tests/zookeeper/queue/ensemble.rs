//! Three servers, one of which fails.

use std::net::SocketAddr;
use std::time::Duration;

use tenure::{Election, Leadership, Role};
use tenure_harness::{Proxy, Zookeeper, require};

use crate::world::*;

/// Waits for two more proofs of life, because one may have been under way.
async fn extended(leader: &Leadership) {
    soon("extended", leader.mandate().renewed()).await;
    soon("extended again", leader.mandate().renewed()).await;
}

/// A program that connects to this server first. (The order is random otherwise.)
async fn program_at(servers: &Zookeeper, index: usize) -> (Program, Vec<Proxy>) {
    let proxies: Vec<Proxy> = servers.addresses().into_iter().map(proxy).collect();
    for (other, proxy) in proxies.iter().enumerate() {
        if other != index {
            proxy.cut().await;
        }
    }
    let addresses: Vec<SocketAddr> = proxies.iter().map(Proxy::address).collect();
    let program = Program::at(&addresses, CALM).await;
    for proxy in &proxies {
        proxy.heal().await;
    }
    (program, proxies)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_lost_of_three_costs_nobody_anything() {
    let servers = require!(three().await);
    for lost in 0..2 {
        let lost =
            if lost == 0 { servers.settled(None).await.expect("somebody leads") } else { lost };
        let (leading, _proxies) = program_at(&servers, lost).await;
        let leader = leading.lead("a").await;
        let (following, _others) = program_at(&servers, lost).await;
        let mut waiting = following.stand("b", 1).await;
        let (token, session) =
            (leader.mandate().token(), leading.queue().session().borrow().number);
        servers[lost].kill().await.expect("it ran");
        servers.settled(Some(lost)).await.expect("two are enough");
        extended(&leader).await;
        assert_eq!(leader.mandate().token(), token, "the leader keeps");
        assert_eq!(leading.queue().session().borrow().number, session, "in the same session");
        assert_eq!(leading.standing().await, ["a", "b"], "followers follow");
        leader.resign().await;
        let second = soon("the next leads", waiting.elected()).await.expect("elected");
        assert!(second.mandate().token() > token);
        let builder = Election::builder(&following.backend, "another").create_if_missing(true);
        let another = builder.open().await.expect("the next election works");
        let third = soon("elected", another.campaign(candidate("c"))).await.expect("elected");
        third.resign().await;
        second.resign().await;
        servers[lost].restart().await.expect("it comes back");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_is_left_for_another() {
    let servers = require!(three().await);
    let first = servers.settled(None).await.expect("somebody leads");
    for stopped in [first, (first + 1) % 3] {
        let (program, _proxies) = program_at(&servers, stopped).await;
        let leader = program.lead("a").await;
        let token = leader.mandate().token();
        servers[stopped].stop().await.expect("it ran");
        extended(&leader).await;
        assert_eq!(leader.mandate().token(), token);
        servers[stopped].cont().await.expect("it is there");
        extended(&leader).await;
        assert!(leader.mandate().is_leader());
        leader.resign().await;
        servers.settled(None).await.expect("somebody leads");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_on_the_minority_side_is_left_for_another() {
    let partitions = tenure_harness::zookeeper::Options { partitions: true, ..options() };
    let servers = require!(Zookeeper::ensemble(3, partitions).await);
    for round in 0..2 {
        let cut = servers.settled(None).await.expect("somebody leads");
        // First the leading server, then another.
        let cut = if round == 0 { cut } else { (cut + 1) % 3 };
        let (program, _proxies) = program_at(&servers, cut).await;
        let leader = program.lead("a").await;
        let token = leader.mandate().token();
        let other = Program::at(&[servers[(cut + 1) % 3].address()], CALM).await;
        let mut waiting = other.stand("b", 1).await;
        servers.isolate(cut).expect("it is cut off");
        let mut statuses = leader.statuses();
        sees("suspended", &mut statuses, |role| matches!(role, Role::Suspended { .. })).await;
        sees("resumed", &mut statuses, |role| *role == Role::Leading { token }).await;
        extended(&leader).await;
        assert_eq!(leader.mandate().token(), token, "the session went on elsewhere");
        servers.rejoin(cut).expect("it is back");
        leader.resign().await;
        soon("elected", waiting.elected()).await.expect("elected").resign().await;
        servers.ready().await.expect("all of them are back");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_only_reaches_the_minority_stops_before_the_next_leads() {
    let partitions = tenure_harness::zookeeper::Options { partitions: true, ..options() };
    let servers = require!(Zookeeper::ensemble(3, partitions).await);
    let cut = servers.settled(None).await.expect("somebody leads");
    let mut referee = Referee::default();
    let program = Program::at(&[servers[cut].address()], BRISK).await;
    let leader = program.lead("a").await;
    referee.saw(&leader);
    let others: Vec<SocketAddr> =
        (0..3).filter(|index| *index != cut).map(|index| servers[index].address()).collect();
    let other = Program::at(&others, BRISK).await;
    let mut waiting = other.stand("b", 1).await;
    servers.isolate(cut).expect("it is cut off");
    let second = soon("the other leads", waiting.elected()).await.expect("elected");
    referee.saw(&second);
    servers.rejoin(cut).expect("it is back");
    soon("it is told", leader.lost()).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(second.mandate().is_leader());
}
