//! Standing, leading, leaving.

use tenure::{Election, Error};
use tenure_harness::require;

use crate::world::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_comes_first_leads_first() {
    let server = require!(single().await);
    let mut referee = Referee::default();
    let programs = [
        Program::at(&server.addresses()).await,
        Program::at(&server.addresses()).await,
        Program::at(&server.addresses()).await,
    ];
    let mut waiting = Vec::new();
    for (number, program) in programs.iter().enumerate() {
        let election = program.election().await;
        waiting.push(election.stand(candidate(&format!("c{number}"))).expect("it stands"));
        until("it is in line", || async { program.line().await.len() == number + 1 }).await;
    }
    for (number, candidacy) in waiting.into_iter().enumerate() {
        let leader = soon("elected", candidacy.elected()).await.expect("elected");
        referee.saw(&leader);
        assert_eq!(programs[0].line().await[0], format!("c{number}"));
        println!("{number}: {:?}", leader.resign().await);
    }
    assert_eq!(programs[0].line().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_election_is_not_made_unless_asked_for() {
    let server = require!(single().await);
    let program = Program::at(&server.addresses()).await;
    let refused = Election::open(&program.backend, NAME).await.expect_err("there is none");
    assert!(matches!(refused, Error::Missing { .. }), "{refused:?}");
    let deep = "a/b/c/d/e/f/g/h";
    let made = Election::builder(&program.backend, deep).create_if_missing(true).open().await;
    made.expect("any depth");
    Election::open(&program.backend, deep).await.expect("now it is there");
}
