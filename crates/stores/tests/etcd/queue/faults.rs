//! Leaders and waiters in the face of failures.

use std::time::Instant;

use super::referee::Referee;
use super::*;
use tenure::Resignation;
use tenure_harness::{Direction, Framing, Proxy, require};

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// The entries of the queue, and the records beside them.
fn left_behind(servers: &Etcd) -> Vec<String> {
    let mut keys = keys_under(servers, &format!("{PREFIX}/{NAME}/"));
    keys.extend(keys_under(servers, &format!("{PREFIX}//holders/{NAME}/")));
    keys
}

async fn nothing_is_left(servers: &Etcd) {
    soon("nothing is left in the queue", async {
        while !left_behind(servers).is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_down_is_told_when_opening() {
    let servers = require!(servers(1).await);
    let address = servers[0].address();
    servers[0].kill().await.expect("it runs");
    let options = OpenOptions::default().with_request(Duration::from_secs(1));
    let began = Instant::now();
    let opened = tenure_stores::open(&format!("etcd://{address}/{PREFIX}"), &options).await;
    let error = opened.expect_err("nobody is there");
    // A busy machine may need more than the second of the request.
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    println!("{}", crate::support::chain(&error));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_down_at_the_campaign_is_waited_for() {
    let servers = require!(servers(1).await);
    let backend = process(&servers.addresses(), TTL).await;
    let election = enter(&backend).await;
    servers[0].kill().await.expect("it runs");
    let mut candidacy = election.stand(candidate("a")).expect("it stands");
    soon("told that the store is away", async {
        while candidacy.status().error.is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(Election::open(&backend, "jobs/other").await.is_err());
    servers[0].restart().await.expect("it starts again");
    let leader = soon("elected", candidacy.elected()).await.expect("elected");
    assert!(leader.mandate().is_leader());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_and_back_in_time_costs_nothing() {
    let servers = require!(servers(1).await);
    let (_a, _, leader) = lead(&servers.addresses(), CALM, "a").await;
    let token = leader.mandate().token();
    servers[0].restart().await.expect("it starts again");
    for _ in 0..2 {
        soon("proven again", leader.mandate().renewed()).await;
    }
    assert!(leader.mandate().is_leader());
    assert_eq!(leader.mandate().token(), token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_break_suspend_at_once_and_cost_nothing() {
    let servers = require!(servers(1).await);
    let proxy = Proxy::start(servers[0].address(), Framing::Http2).expect("a proxy");
    let (_a, _, leader) = lead(&[proxy.address()], LONG, "a").await;
    let token = leader.mandate().token();
    for _ in 0..3 {
        proxy.cut().await;
        let began = Instant::now();
        soon("suspended", async {
            while !matches!(leader.status().role, Role::Suspended { .. }) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        println!("suspended after {:?}", began.elapsed());
        // A connection that is merely silent would be given up after a tenth of the ttl.
        assert!(began.elapsed() < LONG / 10, "{:?}", began.elapsed());
        assert!(leader.mandate().is_leader(), "what was proven holds");
        proxy.heal().await;
        soon("resumed", async {
            while !matches!(leader.status().role, Role::Leading { .. }) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }
    assert_eq!(leader.mandate().token(), token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_whose_answer_is_lost_leaves_no_ghost() {
    let servers = require!(servers(1).await);
    let proxy = Proxy::start(servers[0].address(), Framing::Http2).expect("a proxy");
    let backend = process(&[proxy.address()], LONG).await;
    let election = enter(&backend).await;
    proxy.lose_answer_of(|request| contains(request, b"\"attempt\":1"));
    let leader = soon("elected", election.campaign(candidate("a"))).await.expect("elected");
    assert_eq!(proxy.answers_lost(), 1);
    assert_eq!(names(&election).await, ["a"], "one entry, however often it was tried");
    assert!(matches!(leader.resign().await, Resignation::Released));
    nothing_is_left(&servers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_campaign_that_is_given_up_while_its_join_is_in_doubt_leaves_nothing() {
    let servers = require!(servers(1).await);
    let proxy = Proxy::start(servers[0].address(), Framing::Http2).expect("a proxy");
    let backend = process(&[proxy.address()], LONG).await;
    let election = enter(&backend).await;
    let direct = enter(&process(&servers.addresses(), LONG).await).await;
    for round in 0..5 {
        // A fresh session would have a fresh lease, and its own KeepAlive: only the join is held
        // up.
        let name = format!("a{round}");
        let candidacy = election.stand(candidate(&name)).expect("it stands");
        let span = Duration::from_millis(round * 3);
        proxy.delay(Direction::ToServer, Duration::from_millis(20));
        tokio::time::sleep(span).await;
        proxy.sever().await;
        drop(candidacy);
        proxy.heal().await;
    }
    let other = direct.campaign(candidate("b"));
    let leader = soon("the next leads", other).await.expect("elected");
    soon("the ghosts are gone", async {
        while names(&direct).await != ["b"] {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    leader.resign().await;
    nothing_is_left(&servers).await;
}

/// The candidacy that asked for the entry is gone. Only the backend looks for the entry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_no_candidacy_claims_is_deleted_while_the_session_lives() {
    use tenure::protocol::Holder;
    let servers = require!(servers(1).await);
    let proxy = Proxy::start(servers[0].address(), Framing::Http2).expect("a proxy");
    let backend = process(&[proxy.address()], TTL).await;
    let queue = backend.queue().expect("it has one").clone();
    queue.create(&key()).await.expect("it is made");
    let mut session = queue.session();
    soon("proven", session.wait_for(|session| session.proof().is_some())).await.expect("it lives");
    let (number, election) = (session.borrow().number, key());
    let id = tenure::CandidateId::from_bits(7);
    let ticket = tenure::queue::Ticket { candidate: id.clone(), attempt: 1 };
    let holder = Holder { id, name: "ghost".into(), value: Default::default(), presence: None };
    let holder = std::sync::Arc::new(holder);
    let arrived = std::sync::Arc::new(tokio::sync::Notify::new());
    let seen = arrived.clone();
    proxy.delay(Direction::ToClient, Duration::from_millis(150));
    proxy.observe(move |message| {
        if contains(message.bytes, b"\"ghost\"") {
            seen.notify_one();
        }
    });
    tokio::select! {
        joined = queue.join(&election, &ticket, &holder) => panic!("the answer is late: {joined:?}"),
        () = arrived.notified() => {}
    }
    proxy.delay(Direction::ToClient, Duration::ZERO);
    soon("it stands", async {
        while left_behind(&servers).is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    nothing_is_left(&servers).await;
    let session = *session.borrow();
    assert_eq!(session.number, number, "the session went on");
    assert!(session.is_live(), "{session:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leave_whose_answer_is_lost_is_found_out() {
    let servers = require!(servers(1).await);
    let proxy = Proxy::start(servers[0].address(), Framing::Http2).expect("a proxy");
    let (_a, _, leader) = lead(&[proxy.address()], LONG, "a").await;
    let (_b, _, mut waiting) = stand(&servers.addresses(), LONG, "b").await;
    let entry = keys_under(&servers, &format!("{PREFIX}//holders/{NAME}/")).len();
    assert_eq!(entry, 2);
    // A deletion names the record beside the entry. No other request does so while it leads.
    proxy.lose_answer_of(|request| contains(request, b"//holders/"));
    let resigned = soon("resigned", leader.resign()).await;
    assert_eq!(proxy.answers_lost(), 1);
    assert!(matches!(resigned, Resignation::Released), "{resigned:?}");
    let next = soon("elected", waiting.elected()).await.expect("elected");
    next.resign().await;
    nothing_is_left(&servers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_an_operator_revokes_costs_the_leadership_and_a_new_one_follows() {
    let servers = require!(servers(1).await);
    let referee = Referee::start();
    let (_a, election, leader) = lead(&servers.addresses(), LONG, "a").await;
    referee.elected("a", &leader);
    let (_b, _, mut waiting) = stand(&servers.addresses(), LONG, "b").await;
    let entry = keys_under(&servers, &format!("{PREFIX}/{NAME}/"))
        .into_iter()
        .find(|key| ask(&servers, &["get", "--print-value-only", key]).trim() == "a")
        .expect("its entry");
    let lease = entry.rsplit('/').next().expect("the key ends with it").to_owned();
    ask(&servers, &["lease", "revoke", &lease]);
    soon("lost", leader.mandate().lost()).await;
    assert!(!leader.mandate().is_leader());
    let next = soon("elected", waiting.elected()).await.expect("elected");
    referee.elected("b", &next);
    let again = leader.regain();
    let again = tokio::spawn(again);
    in_line(&election, "a").await;
    next.resign().await;
    let again = soon("elected again", again).await.expect("no panic").expect("elected");
    referee.elected("a again", &again);
    referee.done();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_an_operator_deletes_costs_the_leadership_at_once() {
    let servers = require!(servers(1).await);
    let (_a, election, leader) = lead(&servers.addresses(), LONG, "a").await;
    let entry = keys_under(&servers, &format!("{PREFIX}/{NAME}/")).remove(0);
    ask(&servers, &["del", &entry]);
    let loss = soon("lost", leader.mandate().lost()).await;
    assert!(!leader.mandate().is_leader(), "{loss:?}");
    let token = leader.mandate().token();
    let again = soon("elected again", leader.regain()).await.expect("elected");
    assert!(again.mandate().token() > token);
    assert_eq!(names(&election).await, ["a"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_was_overtaken_by_a_compaction_reads_again() {
    let servers = require!(servers(1).await);
    let proxy = Proxy::start(servers[0].address(), Framing::Http2).expect("a proxy");
    let (_a, _, leader) = lead(&servers.addresses(), LONG, "a").await;
    let (_b, _, mut waiting) = stand(&[proxy.address()], LONG, "b").await;
    proxy.cut().await;
    leader.resign().await;
    // The revision that the waiter was watching from is compacted when it comes back.
    let status = ask(&servers, &["put", "elsewhere", "1", "-w", "json"]);
    let revision = status.split("\"revision\":").nth(1).and_then(|rest| {
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u64>().ok()
    });
    let revision = revision.expect("a revision").to_string();
    ask(&servers, &["compact", &revision]);
    proxy.heal().await;
    let next = soon("elected", waiting.elected()).await.expect("elected");
    assert!(next.mandate().is_leader());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_falls_silent_costs_the_leadership_before_the_server_lets_go() {
    let servers = require!(servers(1).await);
    let referee = Referee::start();
    let proxy = Proxy::start(servers[0].address(), Framing::Http2).expect("a proxy");
    let (_a, _, leader) = lead(&[proxy.address()], TTL, "a").await;
    referee.elected("a", &leader);
    let (_b, _, mut waiting) = stand(&servers.addresses(), TTL, "b").await;
    let began = Instant::now();
    proxy.blackhole(Direction::ToClient);
    proxy.blackhole(Direction::ToServer);
    let next = soon("elected", waiting.elected()).await.expect("elected");
    println!("failover after {:?} of a silent connection, ttl {TTL:?}", began.elapsed());
    referee.elected("b", &next);
    assert!(!leader.mandate().is_leader());
    proxy.heal().await;
    referee.done();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_come_too_late_prove_nothing() {
    let servers = require!(servers(1).await);
    let referee = Referee::start();
    let proxy = Proxy::start(servers[0].address(), Framing::Http2).expect("a proxy");
    let (_a, _, leader) = lead(&[proxy.address()], TTL, "a").await;
    referee.elected("a", &leader);
    // Each round trip takes longer than Q, a tenth of the ttl.
    proxy.delay(Direction::ToClient, TTL / 4);
    let lost = soon("lost", leader.mandate().lost()).await;
    tokio::time::sleep(leader.mandate().remaining()).await;
    assert!(!leader.mandate().is_leader(), "{lost:?}");
    proxy.heal().await;
    let again = soon("elected again", leader.regain()).await.expect("elected");
    referee.elected("a again", &again);
    referee.done();
}

/// Not a test but the process that the next one kills.
#[tokio::test]
#[ignore = "a process of its own, started by the test below"]
async fn a_process_that_leads() {
    let Ok(address) = std::env::var("TENURE_TEST_ETCD") else { return };
    let address: SocketAddr = address.parse().expect("an address");
    let (_backend, _, leader) = lead(&[address], TTL, "victim").await;
    println!("LEADS {}", leader.mandate().token());
    std::future::pending::<()>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_process_is_killed_is_succeeded_when_its_lease_ends() {
    use std::io::{BufRead as _, BufReader};
    let servers = require!(servers(1).await);
    let mut victim = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "queue::faults::a_process_that_leads", "--ignored", "--nocapture"])
        .env("TENURE_TEST_ETCD", servers[0].address().to_string())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    let output = BufReader::new(victim.stdout.take().expect("it is piped"));
    let token: u64 = tokio::task::spawn_blocking(move || {
        let leads = output.lines().map_while(Result::ok);
        let mut tokens = leads.filter_map(|line| line.split("LEADS ").nth(1)?.trim().parse().ok());
        tokens.next().expect("it leads")
    })
    .await
    .expect("no panic");
    let (_b, _, mut waiting) = stand(&servers.addresses(), TTL, "b").await;
    let began = Instant::now();
    victim.kill().expect("it runs");
    victim.wait().expect("it is ours");
    let next = soon("elected", waiting.elected()).await.expect("elected");
    println!("failover after {:?} of kill -9, ttl {TTL:?}", began.elapsed());
    assert!(next.mandate().token() > token);
}
