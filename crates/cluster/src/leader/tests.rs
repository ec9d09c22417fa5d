//! The leader's decisions in isolation.

use std::sync::Arc;
use std::time::Duration;

use tenure::lease::record::{MAX_NUMBER, Op};
use tenure::store::{Expect, MAX_DOCUMENT_BYTES, Version};
use tenure::{CandidateId, Moment};

use super::apply::{Ruling, intended, ruling};
use super::collect::{Ended, choose, report};
use super::draft::{Draft, Fit, draft};
use super::held_cursor::has_serials;
use super::look::{Look, Sight, wanted_slots};
use super::members::Sighting;
use super::pages::{Item, Place, What, place};
use super::source;
use super::sweep::is_old;
use crate::documents::{
    Assignment, Cursor, Format as _, Intent, MAX_NOTE_BYTES, MAX_TASK_BYTES, MemberLock, NodeEntry,
    Nodes, Order, Outcome, OutcomeState, Page, Progress, Slot, first_token,
};
use crate::input::Window;
use crate::planner::tests::parts::{Chance, member, order};

const TTL: Duration = Duration::from_secs(6);

fn op(number: u64) -> Op {
    Op::new(&CandidateId::from_bits(1), number)
}

fn version(name: &str) -> Version {
    Version::new(name)
}

fn task(serial: u64) -> Assignment {
    order(&format!("task-{serial}")).numbered(serial)
}

fn intent(slot: usize, serial: u64) -> Intent {
    Intent { slot, serial, task: Some(task(serial)), letter: None }
}

fn slot(serial: u64, progress: Progress) -> Slot {
    let outstanding = intended(&intent(0, serial), 1, TTL, op(0));
    let attempt = 1;
    Slot { token: outstanding.token + 1, attempt, ..outstanding.following(op(1), progress) }
}

fn done(serial: u64) -> Slot {
    slot(serial, Progress::Done { result: None })
}

fn ended(number: usize, slot: Slot) -> Ended {
    let report = report(&slot).expect("it is at its end");
    Ended { number, slot: Arc::new(slot), report }
}

fn item(what: What, page: u64, taken: usize) -> Item {
    Item { what, page, taken }
}

fn cursor() -> Cursor {
    Cursor { next: 100, accepted: 50, done: 20, dead: 5, ..Cursor::new(op(0)) }
}

fn draft_of(ended: &[Ended], free: &[usize], items: Vec<Item>, window: Option<&Window>) -> Draft {
    draft(&cursor(), ended, free, items, window, op(9))
}

#[test]
fn an_intent_is_applied_once_its_slot_has_a_token_of_its_serial_or_a_later_one() {
    let decide = |sight: &Sight<Slot>, weak| ruling(&intent(3, 50), sight, weak, TTL, || op(7));
    let seen = |serial| Sight::Found(version("v"), Arc::new(done(serial)));
    assert_eq!(decide(&seen(50), false), Ruling::Seen);
    assert_eq!(decide(&seen(51), false), Ruling::Seen);
    let Ruling::Write(expect, after) = decide(&seen(49), false) else { panic!("it is missing") };
    assert_eq!(expect, Expect::At(version("v")));
    assert_eq!((after.token, after.attempt), (first_token(50), 0));
    assert_eq!((after.revision, after.op.clone()), (3, op(7)));
    assert!(after.is_live());
}

#[test]
fn where_reads_prove_nothing_an_intent_is_applied_by_an_acknowledged_write_only() {
    let sight = Sight::Found(version("v"), Arc::new(done(50)));
    let decided = ruling(&intent(3, 50), &sight, true, TTL, || op(7));
    let Ruling::Write(expect, again) = decided else { panic!("a read proved something") };
    assert_eq!(expect, Expect::At(version("v")));
    assert_eq!(Slot { op: op(1), revision: 2, ..again }, done(50));
}

#[test]
fn what_makes_no_sense_is_overwritten_by_an_intent_and_what_cannot_be_read_is_waited_for() {
    let error = Slot::decode(b"{}").expect_err("no slot");
    let garbled = Sight::Garbled(version("v"), error);
    let decided = ruling(&intent(3, 50), &garbled, false, TTL, || op(7));
    assert!(matches!(decided, Ruling::Write(Expect::At(_), _)));
    let decided = ruling(&intent(3, 50), &Sight::Absent, false, TTL, || op(7));
    assert!(matches!(decided, Ruling::Write(Expect::Absent, _)));
    let decided = ruling(&intent(3, 50), &Sight::Unreadable, false, TTL, || op(7));
    assert_eq!(decided, Ruling::Wait);
}

#[test]
fn an_intent_without_a_task_makes_a_slot_vacant_that_reads_back_so() {
    let vacating = Intent { slot: 3, serial: 50, task: None, letter: None };
    let vacant = intended(&vacating, 4, TTL, op(1));
    assert_eq!(Slot::decode(&vacant.encode()).expect("a slot"), vacant);
    assert_eq!((vacant.progress, vacant.token), (Progress::Vacant, first_token(50)));
}

#[test]
fn a_counted_slot_that_is_not_used_again_becomes_vacant() {
    let draft = draft_of(&[ended(4, done(80)), ended(5, done(81))], &[], Vec::new(), None);
    assert!(draft.changed);
    assert_eq!((draft.cursor.done, draft.cursor.pieces, draft.cursor.next), (22, 1, 102));
    let intents = draft.cursor.intents.iter().map(|i| (i.slot, i.serial, i.task.is_none()));
    assert_eq!(intents.collect::<Vec<_>>(), [(4, 100, true), (5, 101, true)]);
    assert_eq!(draft.reports.len(), 2);
}

#[test]
fn a_counted_slot_is_used_again_before_a_free_one() {
    let items = (1..=3).map(|n| item(What::Task(order(&format!("new-{n}"))), 0, n)).collect();
    let draft = draft_of(&[ended(4, done(80))], &[9, 2], items, None);
    let intents = draft.cursor.intents.iter().map(|i| (i.slot, i.serial));
    assert_eq!(intents.collect::<Vec<_>>(), [(4, 100), (9, 101), (2, 102)]);
    assert_eq!((draft.cursor.accepted, draft.cursor.page, draft.cursor.taken), (53, 0, 3));
}

#[test]
fn what_finds_no_slot_stays_in_the_inbox() {
    let items = (1..=3).map(|n| item(What::Task(order(&format!("new-{n}"))), 0, n)).collect();
    let draft = draft_of(&[], &[9, 2], items, None);
    assert_eq!((draft.cursor.intents.len(), draft.cursor.taken), (2, 2));
    assert!(!draft_of(&[], &[], vec![item(What::Task(order("a")), 0, 1)], None).changed);
}

#[test]
fn a_dead_letter_is_brought_back_once_however_often_that_is_asked_for() {
    let again = || What::Again { letter: 33, task: task(33) };
    let items = vec![item(again(), 0, 1), item(again(), 0, 2), item(What::Nothing, 1, 0)];
    let draft = draft_of(&[], &[1, 2, 3], items, None);
    let [intent] = &draft.cursor.intents[..] else { panic!("{:?}", draft.cursor.intents) };
    assert_eq!((intent.serial, intent.letter), (100, Some(33)));
    assert_eq!(intent.task.as_ref().map(|task| task.serial), Some(100));
    assert_eq!((draft.cursor.accepted, draft.cursor.dead), (50, 4));
    assert_eq!((draft.cursor.page, draft.cursor.taken), (1, 0));
}

#[test]
fn a_retry_that_nobody_looked_up_is_not_passed_over() {
    let items = vec![item(What::Retry(3), 0, 1), item(What::Task(order("a")), 0, 2)];
    assert!(!draft_of(&[], &[1, 2], items, None).changed);
}

#[test]
fn a_cancelled_task_is_counted_as_that_and_the_books_add_up() {
    let dead = |serial| slot(serial, Progress::Dead { error: "no".into() });
    let cancelled = Slot { cancel: true, ..dead(80) };
    let draft = draft_of(&[ended(1, cancelled), ended(2, dead(81))], &[], Vec::new(), None);
    let cursor = draft.cursor;
    assert_eq!((cursor.done, cursor.dead, cursor.cancelled, cursor.open()), (20, 6, 1, 23));
    let states = draft.reports.iter().map(|report| report.state).collect::<Vec<_>>();
    assert_eq!(states, [OutcomeState::Cancelled, OutcomeState::Dead]);
}

#[test]
fn a_window_is_taken_whole_with_its_position_or_not_at_all() {
    let orders: Vec<Order> = (0..5).map(|n| order(&format!("listed-{n}"))).collect();
    let window = Window { orders, position: Some("5".into()), drained: true };
    let draft = draft_of(&[], &[0, 1, 2], Vec::new(), Some(&window));
    assert_eq!((draft.window, draft.changed), (Fit::Only(3), false));
    assert_eq!((draft.cursor.position, draft.cursor.drained), (None, false));
    let draft = draft_of(&[], &[0, 1, 2, 3, 4], Vec::new(), Some(&window));
    assert_eq!((draft.window, draft.cursor.accepted), (Fit::Wholly, 55));
    assert_eq!((draft.cursor.position.as_deref(), draft.cursor.drained), (Some("5"), true));
}

#[test]
fn an_empty_window_that_says_the_source_is_drained_is_recorded() {
    let window = Window { position: None, drained: true, ..Window::default() };
    let draft = draft_of(&[], &[0], Vec::new(), Some(&window));
    assert!(draft.changed && draft.cursor.drained);
}

#[test]
fn what_no_cluster_takes_is_counted_as_dead_and_reported_without_a_slot() {
    let bad = Order { id: String::new(), ..order("bad") };
    let window = Window { orders: vec![bad], position: Some("1".into()), drained: false };
    let draft = draft_of(&[], &[], Vec::new(), Some(&window));
    assert_eq!((draft.window, draft.cursor.intents.len()), (Fit::Wholly, 0));
    assert_eq!((draft.cursor.accepted, draft.cursor.dead, draft.cursor.next), (51, 6, 101));
    assert_eq!((draft.reports.len(), draft.refused.len()), (1, 1));
    assert_eq!(draft.reports[0].state, OutcomeState::Dead);
}

#[test]
fn neither_the_cursor_nor_a_slot_nor_a_piece_outgrows_a_document() {
    let chance = Chance::new(7);
    for _ in 0..60 {
        // The escapes of JSON make text up to six times as long.
        let text = |most: usize| "\u{1}".repeat(1 + chance.below(most));
        let big = |id: String| {
            let payload = vec![7; chance.below(MAX_TASK_BYTES + 1)];
            Order { id, payload: payload.into(), ..order("") }
        };
        let before = Cursor { position: Some(text(4 * 1024)), ..cursor() };
        let results = (0..chance.below(600)).map(|number| {
            let result = chance.one_in(2).then(|| text(MAX_NOTE_BYTES));
            (number, Arc::new(slot(1 + number as u64, Progress::Done { result })))
        });
        let ended = choose(results.collect(), |_| false);
        let items = (0..chance.below(20)).map(|n| item(What::Task(big(text(1024))), 0, n + 1));
        let orders = (0..chance.below(20)).map(|_| big(text(1024))).collect();
        let window = Window { orders, position: Some(text(4 * 1024)), drained: false };
        let free: Vec<usize> = (1_000..1_050).collect();
        let draft = draft(&before, &ended, &free, items.collect(), Some(&window), op(1));
        let encoded = draft.cursor.encode();
        assert!(encoded.len() <= MAX_DOCUMENT_BYTES, "{}", encoded.len());
        Cursor::decode(&encoded).expect("a cursor");
        for intent in &draft.cursor.intents {
            let slot = intended(intent, 1, TTL, op(1)).encode();
            assert!(slot.len() <= MAX_DOCUMENT_BYTES, "{}", slot.len());
        }
        let piece = crate::documents::Piece { reports: draft.reports, op: op(1) };
        assert!(piece.encode().len() <= MAX_DOCUMENT_BYTES);
    }
}

#[test]
fn one_task_of_the_largest_size_goes_in_by_itself() {
    let id = "\u{1}".repeat(1024);
    let payload = vec![7; MAX_TASK_BYTES].into();
    let huge = Order { kind: id.clone(), id, payload, ..order("") };
    huge.check().expect("a task");
    let before = Cursor { position: Some("\u{1}".repeat(4 * 1024)), ..cursor() };
    let items = vec![item(What::Task(huge), 0, 1)];
    assert!(draft(&before, &[], &[0], items, None, op(1)).changed);
}

#[test]
fn what_is_collected_goes_into_one_piece_oldest_first_and_without_those_that_wait() {
    let slots = [9, 3, 7].map(|serial| (serial as usize, Arc::new(done(serial))));
    let mut look = Look::default();
    look.slots = vec![Sight::Absent; 10];
    for (number, slot) in slots {
        look.slots[number] = Sight::Found(version("v"), slot);
    }
    let chosen = choose(look.ended(&cursor()), |serial| serial == 7);
    assert_eq!(chosen.iter().map(|ended| ended.number).collect::<Vec<_>>(), [3, 9]);
    let late = Cursor { next: 8, ..cursor() };
    let chosen = choose(look.ended(&late), |_| false);
    assert_eq!(chosen.iter().map(|ended| ended.number).collect::<Vec<_>>(), [3, 7]);
}

#[test]
fn free_slots_are_given_out_all_over_the_ring() {
    let mut look = Look::default();
    look.slots = vec![Sight::Absent; 256];
    let free = look.free();
    let thirds = |from: usize| free[..12].iter().filter(|n| **n / 86 == from).count();
    assert_eq!((thirds(0), thirds(1), thirds(2)), (4, 4, 4), "{:?}", &free[..12]);
    let mut all = free;
    all.sort_unstable();
    assert_eq!(all, (0..256).collect::<Vec<_>>());
}

#[test]
fn there_are_twenty_slots_a_worker_within_bounds() {
    let nodes = |workers| Nodes {
        nodes: vec![NodeEntry { token: member(1), workers, name: String::new(), draining: false }],
        dead: Vec::new(),
        revision: 1,
        op: op(1),
    };
    assert_eq!(wanted_slots(None, 256), 256);
    assert_eq!(wanted_slots(Some(&nodes(12)), 256), 256);
    assert_eq!(wanted_slots(Some(&nodes(50)), 256), 1000);
    assert_eq!(wanted_slots(Some(&nodes(u32::MAX)), 256), 16 * 1024);
}

#[test]
fn a_place_of_the_inbox_is_compared_with_the_page_that_is_due() {
    use crate::documents::Entry;
    let empty = |number| Page::empty(number, op(1));
    let written = |number| Page::filling(number, None, vec![Entry::NOTHING], op(1));
    assert_eq!(place(300, &empty(300)), Place::Empty);
    assert_eq!(place(300, &written(300)), Place::Written);
    assert_eq!(place(300, &written(44)), Place::Behind);
    assert_eq!(place(300, &empty(556)), Place::Ahead);
}

#[test]
fn a_member_is_over_when_its_lock_stood_still_for_its_own_ttl_or_says_so() {
    let at = |seconds| Moment::default() + Duration::from_secs(seconds);
    let lock = |expire, seconds| MemberLock {
        holder: member(1),
        expire,
        ttl: Duration::from_secs(seconds),
        idle: 0,
        finished: 0,
        lists: false,
        presence: None,
        revision: 1,
        op: op(1),
    };
    let long = lock(1, 20);
    let found = |name: &str| Some((version(name), Some(&long)));
    let first = Sighting::of(None, found("a"), at(10), TTL);
    assert!(!first.is_over(at(29)), "its ttl is longer than ours");
    let same = Sighting::of(Some(&first), found("a"), at(29), TTL);
    assert!(same.is_over(at(30)));
    let renewed = Sighting::of(Some(&same), found("b"), at(30), TTL);
    assert!(!renewed.is_over(at(49)));
    let absent = Sighting::of(Some(&renewed), None, at(31), TTL);
    assert!(!absent.is_over(at(36)) && absent.is_over(at(37)), "an absent lock has our ttl");
    let left = lock(0, 20);
    assert!(Sighting::of(None, Some((version("c"), Some(&left))), at(40), TTL).is_over(at(40)));
}

#[test]
fn a_source_that_would_be_asked_for_the_same_for_ever_is_refused() {
    let at = |position: &str| Some(position.to_owned());
    let window =
        |position, many| Window { orders: vec![order("a"); many], position, drained: false };
    assert!(source::check(&at("1"), 5, window(at("2"), 2)).is_ok());
    assert!(source::check(&at("1"), 5, window(at("2"), 0)).is_ok());
    assert!(source::check(&at("1"), 5, window(at("1"), 2)).is_err());
    assert!(source::check(&at("1"), 5, window(at("1"), 0)).is_err());
    assert!(source::check(&at("1"), 1, window(at("2"), 2)).is_err());
    assert!(source::check(&at("1"), 5, window(at(&"x".repeat(5000)), 1)).is_err());
    let last = Window { drained: true, ..window(None, 2) };
    assert!(source::check(&None, 5, last).is_ok(), "it is never asked again");
}

#[test]
fn serial_numbers_end_before_tokens_do() {
    assert!(has_serials(&cursor(), 1_000_000));
    let last = Cursor { next: MAX_NUMBER / 1024 - 10, ..cursor() };
    assert!(has_serials(&last, 5));
    assert!(!has_serials(&last, 50));
}

#[test]
fn an_outcome_is_kept_for_an_hour() {
    let outcome = |at| Outcome { serial: 1, state: OutcomeState::Done, note: None, at, op: op(1) };
    let hour = 60 * 60 * 1000;
    assert!(!is_old(&outcome(1_000), 1_000 + hour));
    assert!(is_old(&outcome(1_000), 1_001 + hour));
    assert!(!is_old(&outcome(1_000), 0), "a wall clock that went back removes nothing");
}
