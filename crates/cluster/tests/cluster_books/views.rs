//! Views of a cluster.

use std::sync::Arc;
use std::time::Duration;

use tenure::MemoryStore;
use tenure_cluster::ClusterError;
use tenure_cluster::documents::{
    ClusterConfig, Cursor, Entry, Holding, Letter, MemberLock, NodeEntry, Nodes, OutcomeState,
    Page, Piece, Progress, Report, Slot, first_token,
};
use tenure_cluster::{ClusterClient, Life, Stage, Totals};

use crate::stage::{member, op, order, stage, write, write_body};

/// The wall time at which the tests' clocks begin.
const WALL: u64 = 1_515_527_529_288;

fn slot(serial: u64, progress: Progress) -> Slot {
    Slot {
        task: Arc::new(order(&serial.to_string()).numbered(serial)),
        progress,
        cancel: false,
        token: first_token(serial) + 1,
        attempt: 1,
        ttl: Duration::from_secs(15),
        revision: 3,
        op: op(serial),
    }
}

fn held(status: &str) -> Progress {
    let status = Some(status.to_owned());
    Progress::Held(Arc::new(Holding { member: member(5), expire: 7, presence: None, status }))
}

async fn with_slots(client: &ClusterClient, store: &MemoryStore, paused: bool) {
    let cluster_config = ClusterConfig { slots: 256, paused, revision: 1, op: op(1000) };
    write(store, &client.keys().cluster_config(), &cluster_config).await;
    let failed = Progress::Outstanding { avoid: None, error: Some("no".into()) };
    for (number, slot) in [
        (0, slot(9, held("half"))),
        (1, slot(7, failed)),
        (2, slot(8, Progress::Done { result: None })),
        (200, slot(6, Progress::Dead { error: "no".into() })),
        (201, slot(5, Progress::Vacant)),
    ] {
        write(store, &client.keys().slot(number), &slot).await;
    }
    write_body(store, &client.keys().slot(3), "{".into()).await;
}

#[tokio::test]
async fn an_empty_store_shows_an_empty_cluster() {
    let (client, _) = stage();
    assert_eq!(client.totals().await.expect("it serves"), Totals::default());
    assert!(client.members().await.expect("it serves").items.is_empty());
    let work = client.tasks(10).await.expect("it serves");
    assert!(work.live.is_empty() && work.waiting == 0 && work.garbled.is_empty());
    assert!(client.letters(None, 10).await.expect("it serves").items.is_empty());
    let results = client.results(0).await.expect("it serves");
    assert!(results.reports.is_empty() && !results.more);
}

#[tokio::test(start_paused = true)]
async fn the_members_are_shown_with_what_they_say_of_themselves() {
    let (client, store) = stage();
    let node = |bits, draining| NodeEntry {
        token: member(bits),
        workers: 4,
        name: format!("host-{bits}"),
        draining,
    };
    let nodes = vec![node(1, false), node(2, true), node(3, false), node(4, false), node(5, false)];
    let nodes = Nodes { nodes, dead: vec![member(3)], revision: 1, op: op(1) };
    write(&store, &client.keys().nodes(), &nodes).await;
    let lock = |bits, expire| MemberLock {
        holder: member(bits),
        expire,
        ttl: Duration::from_secs(15),
        idle: 3,
        finished: 40,
        lists: false,
        presence: None,
        revision: 1,
        op: op(2),
    };
    for (bits, expire) in [(1, WALL + 9000), (2, WALL + 9000), (3, WALL - 1), (4, 0)] {
        write(&store, &client.keys().member(&member(bits)), &lock(bits, expire)).await;
    }
    let garbled = client.keys().member(&member(5));
    write_body(&store, &garbled, "{}".into()).await;
    let members = client.members().await.expect("it serves");
    let shown: Vec<_> = members
        .items
        .iter()
        .map(|view| {
            let life = match view.life {
                Life::Alive(_) => "alive",
                Life::Late(_) => "late",
                Life::Left(_) => "left",
                Life::Unknown => "unknown",
            };
            (view.name.as_str(), life, view.idle(), view.finished(), view.draining, view.dead)
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("host-1", "alive", 3, 40, false, false),
            ("host-2", "alive", 0, 40, true, false),
            ("host-3", "late", 0, 40, false, true),
            ("host-4", "left", 0, 40, false, false),
            ("host-5", "unknown", 0, 0, false, false),
        ]
    );
    let skipped: Vec<_> = members.garbled.iter().map(|(key, _)| key).collect();
    assert_eq!(skipped, [&garbled]);
}

#[tokio::test]
async fn the_totals_come_from_the_cursor_the_slots_and_the_inbox() {
    let (client, store) = stage();
    with_slots(&client, &store, true).await;
    let cursor = Cursor {
        accepted: 10,
        done: 4,
        dead: 2,
        cancelled: 1,
        drained: true,
        next: 11,
        ..Cursor::new(op(1))
    };
    write(&store, &client.keys().cursor(), &cursor).await;
    let totals = client.totals().await.expect("it serves");
    assert_eq!(
        totals,
        Totals {
            accepted: 10,
            done: 4,
            dead: 2,
            cancelled: 1,
            open: 3,
            drained: true,
            paused: true,
            waiting: false,
            running: 1,
            outstanding: 1,
        }
    );
    assert!(!totals.is_finished(), "three are open");
}

#[tokio::test]
async fn it_is_finished_only_when_nothing_waits_in_the_inbox_either() {
    let (client, store) = stage();
    let drained = Cursor { drained: true, ..Cursor::new(op(1)) };
    write(&store, &client.keys().cursor(), &drained).await;
    assert!(client.totals().await.expect("it serves").is_finished());
    client.submit(vec![order("a"), order("b")]).await.expect("accepted");
    assert!(!client.totals().await.expect("it serves").is_finished());
    // One task is taken in, then both. The second loop adds a task on the next page.
    for (page, taken, finished) in [(0, 1, false), (0, 2, true), (1, 0, true)] {
        let cursor = Cursor { page, taken, ..drained.clone() };
        write(&store, &client.keys().cursor(), &cursor).await;
        assert_eq!(client.totals().await.expect("it serves").is_finished(), finished);
    }
    client.submit(vec![order("c")]).await.expect("accepted");
    for (page, taken) in [(0, 2), (1, 0)] {
        let cursor = Cursor { page, taken, ..drained.clone() };
        write(&store, &client.keys().cursor(), &cursor).await;
        assert!(!client.totals().await.expect("it serves").is_finished());
    }
    write_body(&store, &client.keys().page(1), "{".into()).await;
    assert!(!client.totals().await.expect("it serves").is_finished(), "it must be passed first");
}

#[tokio::test]
async fn tasks_in_slots_are_shown_in_their_order_with_what_is_known_of_them() {
    let (client, store) = stage();
    with_slots(&client, &store, false).await;
    let work = client.tasks(10).await.expect("it serves");
    let serials: Vec<u64> = work.live.iter().map(|task| task.serial).collect();
    assert_eq!(serials, [7, 9]);
    assert_eq!(work.live[0].stage, Stage::Outstanding { error: Some("no".into()) });
    let (member, expire, status) = (member(5), 7, Some("half".into()));
    assert_eq!(work.live[1].stage, Stage::Running { member, expire, status });
    let task = &work.live[1];
    assert_eq!(
        (task.id.as_str(), task.kind.as_str(), task.attempt, task.attempts),
        ("9", "sell", 1, 3)
    );
    let skipped: Vec<_> = work.garbled.iter().map(|(key, _)| key.clone()).collect();
    assert_eq!(skipped, [client.keys().slot(3)]);
}

#[tokio::test]
async fn what_waits_in_the_inbox_is_counted_and_the_first_of_it_listed() {
    let (client, store) = stage();
    // One task a page, so that more pages are read than fit into one request.
    for number in 0..40 {
        client.submit(vec![order(&number.to_string())]).await.expect("accepted");
    }
    let entries = vec![Entry::Retry(3), Entry::NOTHING, Entry::Cancelled(member(1))];
    let page = Page::filling(40, None, entries, op(1));
    write(&store, &client.keys().page(40), &page).await;
    write_body(&store, &client.keys().page(41), "{".into()).await;
    let cursor = Cursor { page: 2, ..Cursor::new(op(1)) };
    write(&store, &client.keys().cursor(), &cursor).await;
    let work = client.tasks(3).await.expect("it serves");
    let next: Vec<&str> = work.next.iter().map(|order| order.id.as_str()).collect();
    assert_eq!((work.waiting, work.retries, next), (38, 1, vec!["2", "3", "4"]));
    assert_eq!(work.garbled.len(), 1);
}

#[tokio::test]
async fn dead_letters_are_shown_in_pages_and_garbage_beside_them() {
    let (client, store) = stage();
    for serial in 1..=5 {
        let error = "no".to_owned();
        let letter =
            Letter { task: order("a").numbered(serial), attempt: 3, error, at: 1, op: op(1) };
        write(&store, &client.keys().letter(serial), &letter).await;
    }
    write_body(&store, &client.keys().letters().child("!").expect("a key"), "{".into()).await;
    let (mut serials, mut garbled, mut after) = (Vec::new(), 0, None);
    loop {
        let letters = client.letters(after.as_ref(), 2).await.expect("it serves");
        assert!(letters.items.len() + letters.garbled.len() <= 2);
        serials.extend(letters.items.iter().map(|letter| letter.task.serial));
        garbled += letters.garbled.len();
        match letters.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!((serials, garbled), (vec![1, 2, 3, 4, 5], 1));
}

#[tokio::test]
async fn results_are_shown_as_far_as_the_cursor_counts_them() {
    let (client, store) = stage();
    let report = |serial: u64| Report {
        serial,
        id: serial.to_string(),
        state: OutcomeState::Done,
        attempt: 1,
        note: None,
    };
    for number in 0..41 {
        let piece = Piece { reports: vec![report(2 * number), report(2 * number + 1)], op: op(1) };
        write(&store, &client.keys().piece(number), &piece).await;
    }
    write_body(&store, &client.keys().piece(7), "{".into()).await;
    // A leader wrote the last piece, but did not count it.
    let cursor = Cursor { pieces: 40, ..Cursor::new(op(1)) };
    write(&store, &client.keys().cursor(), &cursor).await;
    let (mut serials, mut garbled, mut from) = (Vec::new(), Vec::new(), 0);
    loop {
        let results = client.results(from).await.expect("it serves");
        serials.extend(results.reports.iter().map(|report| report.serial));
        garbled.extend(results.garbled.into_iter().map(|(key, _)| key));
        from = results.next;
        if !results.more {
            break;
        }
    }
    assert_eq!(from, 40);
    let all: Vec<u64> = (0..80).filter(|serial| serial / 2 != 7).collect();
    assert_eq!((serials, garbled), (all, vec![client.keys().piece(7)]));
    let beyond = client.results(50).await.expect("it serves");
    assert!(beyond.reports.is_empty() && beyond.next == 50 && !beyond.more);
}

#[tokio::test]
async fn a_cursor_that_makes_no_sense_is_an_error_that_names_it() {
    let (client, store) = stage();
    write_body(&store, &client.keys().cursor(), "{".into()).await;
    let error = client.totals().await.expect_err("no totals");
    let ClusterError::Document { key, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*key, client.keys().cursor());
}

/// A regression: with a cursor that counted 9,007,199,254,740,991 pieces, reading all results never
/// ended.
#[tokio::test]
async fn results_end_although_the_cursor_counts_pieces_that_are_not_there() {
    let (client, store) = stage();
    let cursor = Cursor { pieces: (1 << 53) - 1, ..Cursor::new(op(1)) };
    write(&store, &client.keys().cursor(), &cursor).await;
    let report = |serial: u64| Report {
        serial,
        id: serial.to_string(),
        state: OutcomeState::Done,
        attempt: 1,
        note: None,
    };
    for number in [0, 5_000_000] {
        let piece = Piece { reports: vec![report(number)], op: op(number) };
        write(&store, &client.keys().piece(number), &piece).await;
    }
    let (mut from, mut found) = (0, Vec::new());
    for _ in 0..5 {
        let results = client.results(from).await.expect("it serves");
        found.extend(results.reports.into_iter().map(|report| report.serial));
        from = results.next;
        if !results.more {
            assert_eq!(found, [0, 5_000_000]);
            return;
        }
    }
    panic!("it goes on at piece {from}");
}
