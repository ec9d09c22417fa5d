//! One queue with the candidates of other clients.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use futures_util::StreamExt;
use tenure::queue::Queue;
use tenure::store::Fault;
use tenure::{Election, Error};
use tenure_harness::{Zookeeper, require};
use tenure_stores::zookeeper::{Acl, Lifetime};
use tokio::sync::mpsc;

use crate::world::*;

/// The directory of the downloads of `scripts/servers`.
fn downloads() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.servers");
    std::env::var_os("TENURE_SERVERS").map_or(here, PathBuf::from)
}

fn recipes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../harness/servers")
}

/// A candidate of another client.
struct Foreign {
    child: Child,
    stdin: ChildStdin,
    says: mpsc::UnboundedReceiver<String>,
}

impl Foreign {
    fn start(command: &mut Command) -> Foreign {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the other client starts");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (tell, says) = mpsc::unbounded_channel();
        let stdout = stdout.expect("it is piped");
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                println!("the other client: {line}");
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Foreign { child, stdin: stdin.expect("it is piped"), says }
    }

    async fn says(&mut self, word: &str) {
        let said = soon(word, self.says.recv()).await;
        assert_eq!(said.as_deref(), Some(word));
    }

    fn has_said_nothing(&mut self) -> bool {
        self.says.try_recv().is_err()
    }

    fn leave(&mut self) {
        writeln!(self.stdin).expect("it listens");
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ours, theirs, ours, theirs: each leads in its turn, and never two.
async fn take_turns(
    server: &Zookeeper,
    recipe: &str,
    theirs: impl Fn(SocketAddr, &str) -> Foreign,
) {
    let address = server[0].address();
    let program = Program::of(&format!("{}?{recipe}", url(&[address])), CALM).await;
    let mut referee = Referee::default();
    let ours = program.lead("ours-0").await;
    referee.saw(&ours);
    let operator = operator(address).await;
    let in_the_queue = |count| {
        let operator = operator.clone();
        async move {
            until("it is in the queue", || async { nodes(&operator).await.len() == count }).await
        }
    };
    let mut first = theirs(address, "theirs-1");
    first.says("stands").await;
    in_the_queue(2).await;
    let mut between = program.stand("ours-2", 2).await;
    let mut last = theirs(address, "theirs-3");
    last.says("stands").await;
    in_the_queue(4).await;
    assert_eq!(program.standing().await, ["ours-0", "theirs-1", "ours-2", "theirs-3"]);
    assert!(first.has_said_nothing(), "ours leads");
    ours.resign().await;
    first.says("leads").await;
    // Ours waits for theirs.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(between.status().role.token(), None);
    assert!(last.has_said_nothing());
    first.leave();
    let between = soon("elected", between.elected()).await.expect("elected");
    referee.saw(&between);
    assert!(last.has_said_nothing(), "ours leads");
    between.resign().await;
    last.says("leads").await;
    last.leave();
    last.says("left").await;
    assert!(!ours.mandate().is_leader() && !between.mandate().is_leader());
}

fn kazoo(recipe: &'static str) -> impl Fn(SocketAddr, &str) -> Foreign {
    move |address, name| {
        let mut command = Command::new("python3");
        command.arg(recipes().join("kazoo/candidate.py")).args([
            &address.to_string(),
            NODE,
            name,
            recipe,
        ]);
        Foreign::start(command.env("PYTHONPATH", downloads().join("python")))
    }
}

fn has_kazoo() -> bool {
    let there = downloads().join("python/kazoo").is_dir();
    if !there {
        println!("skipped: kazoo is not on this machine; scripts/servers kazoo brings it");
    }
    there
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn candidates_stand_in_one_queue_with_locks_of_kazoo() {
    let server = require!(single().await);
    if has_kazoo() {
        take_turns(&server, "recipe=kazoo", kazoo("lock")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn candidates_stand_in_one_queue_with_elections_of_kazoo() {
    let server = require!(single().await);
    if has_kazoo() {
        take_turns(&server, "node-prefix=__lock__", kazoo("election")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn candidates_stand_in_one_queue_with_latches_of_curator() {
    let server = require!(single().await);
    let library = downloads().join("curator-5.9.0/lib");
    if !library.is_dir() {
        println!(
            "skipped: Curator is not on this machine; scripts/servers curator-5.9.0 brings it"
        );
        return;
    }
    let curator = |address: SocketAddr, name: &str| {
        let mut command = Command::new("java");
        command
            .args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
            .arg("-cp")
            .arg(format!("{}/*", library.display()))
            .arg(recipes().join("curator/Candidate.java"))
            .args([&address.to_string(), NODE, name]);
        Foreign::start(&mut command)
    };
    take_turns(&server, "recipe=curator-latch", curator).await;
}

/// A process of ours with this recipe.
async fn with(server: &Zookeeper, recipe: &str) -> Program {
    Program::of(&format!("{}?{recipe}", url(&server.addresses())), CALM).await
}

/// Regression: each pair ignored the other's nodes, and both led (issue 13, point 1).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_candidate_of_another_recipe_is_refused_in_words_that_name_both() {
    let server = require!(single().await);
    let latch = with(&server, "recipe=curator-latch").await;
    let leader = latch.lead("latch").await;
    for (recipe, theirs) in [("ttl=12s", "`n-`"), ("node-prefix=x-", "`x-`")] {
        let other = with(&server, recipe).await;
        let builder = || Election::builder(&other.backend, NAME);
        for refused in [
            builder().create_if_missing(true).open().await.map(drop),
            builder().create().await.map(drop),
            Election::open(&other.backend, NAME).await.map(drop),
        ] {
            let Err(Error::Store(refused)) = refused else { panic!("{refused:?}") };
            assert_eq!(refused.fault, Fault::Permanent);
            let says = std::error::Error::source(&refused).map(ToString::to_string);
            let says = says.unwrap_or_else(|| refused.to_string());
            assert!(says.contains("`latch-`") && says.contains(theirs), "{says}");
            assert!(says.contains("`recipe=curator-latch`"), "the remedy: {says}");
        }
        // A process that only looks needs no recipe.
        assert_eq!(other.standing().await, ["latch"]);
        let election = builder().build().expect("a good name");
        let observed = election.observe().expect("a runtime").into_future();
        let observed = soon("a look", observed).await.0.expect("the first").expect("shown");
        for shown in [observed, election.standing().await.expect("shown")] {
            let leader = shown.leader.map(|leader| leader.name.to_string());
            assert_eq!(leader.as_deref(), Some("latch"));
        }
        assert_eq!(election.candidates().await.expect("shown").len(), 1);
    }
    assert!(leader.mandate().is_leader());
    leader.resign().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_recipes_that_make_an_election_at_once_only_one_stands_in_it() {
    let server = require!(single().await);
    let (one, other) = (with(&server, "recipe=kazoo").await, with(&server, "ttl=12s").await);
    for round in 0..20 {
        let name = format!("round-{round}");
        let first = Election::builder(&one.backend, &name).create_if_missing(true).open();
        let second = Election::builder(&other.backend, &name).create_if_missing(true).open();
        let (one, other) = tokio::join!(first, second);
        let refused = [&one, &other].iter().filter(|opened| opened.is_err()).count();
        assert_eq!(refused, 1, "round {round}: {one:?}, {other:?}");
    }
}

/// An election made by another client records no recipe: the first of our candidates there does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_an_election_of_another_client_two_recipes_of_ours_never_both_stand() {
    let server = require!(single().await);
    let operator = operator(server[0].address()).await;
    let acl = Acl::open();
    for path in ["/tests", "/tests/jobs"] {
        operator.create(path, "", Lifetime::Lasting, &acl).await.expect("made");
    }
    let (kazoo, own) = (with(&server, "recipe=kazoo").await, with(&server, "ttl=12s").await);
    for round in 0..20 {
        let name = format!("jobs/nightly-{round}");
        let node = format!("/tests/{name}");
        operator.create(&node, "theirs", Lifetime::Lasting, &acl).await.expect("made");
        // Both find it open and without a recorded prefix.
        let kazoo = Election::open(&kazoo.backend, &name).await.expect("it is open");
        let own = Election::open(&own.backend, &name).await.expect("it is open");
        let campaigns = async {
            tokio::join!(kazoo.campaign(candidate("kazoo")), own.campaign(candidate("own")))
        };
        let outcomes = <[_; 2]>::from(soon("elected or refused", campaigns).await);
        let elected = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        assert_eq!(elected, 1, "round {round}: {outcomes:?}");
        let refused = outcomes.iter().find_map(|outcome| outcome.as_ref().err());
        let Some(Error::Store(refused)) = refused else { panic!("{refused:?}") };
        assert_eq!(refused.fault, Fault::Permanent);
        let (data, _) = operator.data(&node).await.expect("it is there");
        assert!(data.starts_with(b"theirs\ntenure: prefix "), "their data stays: {data:?}");
    }
}

/// Regression: the entry stood there until its session ended, and other clients waited for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_whose_join_was_not_answered_is_taken_back_where_it_may_not_stand() {
    let server = require!(single().await);
    let proxy = proxy(server[0].address());
    let program = Program::at(&[proxy.address()], CALM).await;
    let election = program.election().await;
    let operator = operator(server[0].address()).await;
    // The election was opened before.
    operator.set_data(NODE, "tenure: prefix __lock__", None).await.expect("written");
    proxy.lose_answer_of(|request| request.windows(3).any(|bytes| bytes == b"_c_"));
    let refused = soon("told", election.campaign(candidate("a"))).await.expect_err("refused");
    assert_eq!(proxy.answers_lost(), 1);
    let Error::Store(refused) = refused else { panic!("{refused:?}") };
    assert_eq!(refused.fault, Fault::Permanent);
    assert_eq!(nodes(&operator).await, Vec::<String>::new(), "while its session lives");
    assert!(program.queue().session().borrow().is_live());
}

/// go-zookeeper's lock fails at a child without a number at the end of its name.
///
/// Other clients wait for a node that never goes (issue 13, point 1).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_ours_but_candidates_is_in_a_queue_with_a_lock_delay() {
    let server = require!(single().await);
    let program = with(&server, "node-prefix=lock-").await;
    let delay = Duration::from_millis(500);
    let builder = Election::builder(&program.backend, NAME).lock_delay(delay);
    let election = builder.create_if_missing(true).open().await.expect("it opens");
    let operator = operator(server[0].address()).await;
    let is_a_number =
        |name: &String| name.rsplit('-').next().is_some_and(|number| number.parse::<u32>().is_ok());
    for round in 0..2 {
        let leader = soon("elected", election.campaign(candidate("a"))).await.expect("elected");
        let (names, _) = operator.children(NODE).await.expect("the election exists");
        assert!(names.len() == 1 && names.iter().all(is_a_number), "round {round}: {names:?}");
        operator.delete(&nodes(&operator).await[0], None).await.expect("deleted");
        soon("told", leader.lost()).await;
        drop(leader);
    }
    until("everybody has left", || async { nodes(&operator).await.is_empty() }).await;
    let (names, _) = operator.children(NODE).await.expect("the election exists");
    assert_eq!(names, Vec::<String>::new(), "the record of the last tenure is elsewhere");
    let Queue::Open { unclean, .. } = program.look().await else { panic!("it is open") };
    assert!(unclean.is_some(), "and it is there");
}

/// The same with another client, after a tenure of ours that ended badly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_of_kazoo_follows_a_tenure_of_ours_that_ended_badly() {
    let server = require!(single().await);
    if !has_kazoo() {
        return;
    }
    let program = with(&server, "recipe=kazoo").await;
    let builder = Election::builder(&program.backend, NAME).lock_delay(Duration::from_secs(1));
    let election = builder.create_if_missing(true).open().await.expect("it opens");
    let leader = soon("elected", election.campaign(candidate("ours"))).await.expect("elected");
    let operator = operator(server[0].address()).await;
    let mut theirs = kazoo("lock")(server[0].address(), "theirs");
    theirs.says("stands").await;
    until("it is in the queue", || async { nodes(&operator).await.len() == 2 }).await;
    operator.delete(&nodes(&operator).await[0], None).await.expect("deleted");
    theirs.says("leads").await;
    soon("told", leader.lost()).await;
    theirs.leave();
    theirs.says("left").await;
}
