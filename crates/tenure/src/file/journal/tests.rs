use std::fs;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tempfile::TempDir;

use super::super::power::{Luck, cut, watch};
use super::super::step::{Script, run};
use super::super::{FileOptions, FileStore};
use super::*;
use crate::Key;
use crate::store::{Durability, Expect, MAX_DOCUMENT_BYTES, Put, StoreError, Version, Write};

/// Enough for a journal, and few enough to try every step.
const MANY: usize = 9;

/// In memory where that is possible: power cuts are simulated, and there are thousands of syncs.
fn directory() -> TempDir {
    let made = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    made.expect("a directory")
}

fn open(at: &TempDir, boot: &str) -> Result<FileStore, StoreError> {
    let options = FileOptions { boot_id: Some(boot.to_owned()), ..FileOptions::default() };
    FileStore::open(&at.path().join("store"), options)
}

fn opened(at: &TempDir, boot: &str) -> FileStore {
    open(at, boot).expect("opened")
}

fn key(number: usize) -> Key {
    Key::parse(&format!("a/{number}")).expect("a key")
}

fn write(number: usize, expect: Expect, body: Option<&str>, durability: Durability) -> Write {
    let body = body.map(|body| Bytes::from(body.to_owned()));
    Write { key: key(number), expect, body, durability }
}

fn lasting(number: usize, expect: Expect, body: &str) -> Write {
    write(number, expect, Some(body), Durability::Lasting)
}

type Outcome = Result<Put, StoreError>;

fn put(store: &FileStore, writes: &[Write]) -> Vec<Outcome> {
    store.shared.put_many(writes, Instant::now() + Duration::from_secs(5))
}

fn stored(outcomes: Vec<Outcome>) -> Vec<Version> {
    let version = |outcome| match outcome {
        Ok(Put::Stored(version)) => version,
        other => panic!("{other:?}"),
    };
    outcomes.into_iter().map(version).collect()
}

fn try_body(store: &FileStore, number: usize) -> Result<Option<String>, StoreError> {
    let deadline = Instant::now() + Duration::from_secs(1);
    let read = store.shared.get_many(&[key(number)], deadline)?.pop().flatten();
    Ok(read.map(|document| String::from_utf8(document.body.to_vec()).expect("text")))
}

fn body(store: &FileStore, number: usize) -> Option<String> {
    try_body(store, number).expect("read")
}

fn path(at: &TempDir, name: &str) -> std::path::PathBuf {
    at.path().join("store").join(name)
}

/// Creates documents `0..MANY` through a journal.
fn create(store: &FileStore, body: &str) -> Vec<Version> {
    let writes: Vec<Write> = (0..MANY).map(|n| lasting(n, Expect::Absent, body)).collect();
    stored(put(store, &writes))
}

/// Replaces most, deletes one and creates one, all in one batch.
fn mixed_batch(versions: &[Version], body: &str) -> Vec<Write> {
    let mut writes: Vec<Write> = versions
        .iter()
        .enumerate()
        .map(|(n, version)| lasting(n, Expect::At(version.clone()), body))
        .collect();
    writes[1].body = None;
    writes.push(lasting(MANY, Expect::Absent, body));
    writes
}

#[test]
fn many_lasting_writes_of_one_directory_are_synced_together() {
    let at = directory();
    let store = opened(&at, "first");
    let versions = create(&store, "old");
    assert!(path(&at, "a/.journal").exists());
    assert!(!path(&at, "a/.0.json.kept").exists(), "no file of its own for what lasts");
    // From now on a single write goes through the journal too.
    stored(put(&store, &[lasting(0, Expect::At(versions[0].clone()), "new")]));
    assert!(!path(&at, "a/.0.json.kept").exists());
    drop(store);
    fs::write(path(&at, "a/0.json"), "").expect("torn");
    assert_eq!(body(&opened(&at, "second"), 0).as_deref(), Some("new"));
}

#[test]
fn a_few_lasting_writes_need_no_journal() {
    let at = directory();
    let store = opened(&at, "first");
    let few: Vec<Write> = (0..MANY - 1).map(|n| lasting(n, Expect::Absent, "x")).collect();
    stored(put(&store, &few));
    assert!(!path(&at, "a/.journal").exists());
}

/// The contents that may be read of a document of a batch, by its outcome.
fn allowed<'a>(
    outcome: &Outcome,
    old: Option<&'a str>,
    new: Option<&'a str>,
) -> Vec<Option<&'a str>> {
    match outcome {
        Ok(Put::Stored(_)) => vec![new],
        Ok(Put::Conflict) => panic!("nobody contended"),
        Err(error) => match error.fault {
            Fault::Indeterminate => vec![old, new],
            Fault::Unavailable | Fault::Permanent | Fault::Denied => vec![old],
        },
    }
}

/// The events after a batch was interrupted.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// The power is cut at once.
    Cut,
    /// Another process reads, renews documents, and then the power is cut.
    RenewAndCut,
    /// Another process writes lastingly, and then the power is cut.
    WriteAndCut,
}

const NEXT: [Next; 3] = [Next::Cut, Next::RenewAndCut, Next::WriteAndCut];
/// The kinds of luck to try, with another mixture for each step.
fn lucks(steps: usize) -> [Luck; 3] {
    [Luck::Bad, Luck::Good, Luck::Mixed { seed: steps as u64 }]
}

/// Runs a batch with a failure at one of its steps, and checks all later reads.
///
/// Returns false when there are fewer steps.
fn interrupted(script: Script, next: Next, luck: Luck, journal: bool) -> bool {
    let context = format!("{script:?} {next:?} {luck:?} {journal}");
    let at = directory();
    watch();
    let store = opened(&at, "first");
    let versions = if journal {
        create(&store, "old")
    } else {
        // There is no journal yet: the batch makes it, and kept copies are older than it.
        (0..MANY).flat_map(|n| stored(put(&store, &[lasting(n, Expect::Absent, "old")]))).collect()
    };
    let batch = mixed_batch(&versions, "new");
    let (outcomes, came) = run(script, || put(&store, &batch));
    let old = |number: usize| (number < MANY).then_some("old");
    let new = |number: usize| (number != 1).then_some("new");
    let may = |number: usize| allowed(&outcomes[number], old(number), new(number));

    // Read in the process that had the failure, if it lives, and in another one.
    let alive = matches!(script, Script::Fails(_));
    let reader = if alive { store } else { opened(&at, "first") };
    let mut shown = Vec::new();
    for number in 0..=MANY {
        let now = body(&reader, number);
        assert!(may(number).contains(&now.as_deref()), "{context}: {number} is {now:?}");
        assert_eq!(body(&opened(&at, "first"), number), now, "{context}: {number}");
        shown.push(now);
    }
    // After the cut, a read may find the content shown before. If the writer died and no process
    // has locked the directory since, a read may also find the writer's content.
    let mut after: Vec<Vec<Option<String>>> = shown.iter().map(|now| vec![now.clone()]).collect();
    let other = opened(&at, "first");
    match next {
        Next::Cut if alive => {}
        Next::Cut => {
            for (number, after) in after.iter_mut().enumerate() {
                after.extend(may(number).into_iter().map(|body| body.map(str::to_owned)));
            }
        }
        Next::RenewAndCut => renew_all(&other, &shown, &mut after),
        Next::WriteAndCut => {
            if let Some(body) = &shown[2] {
                let expect = Expect::At(document::version(body.as_bytes()));
                stored(put(&other, &[lasting(2, expect, "newer")]));
                after[2] = vec![Some("newer".to_owned())];
            }
        }
    }
    drop((reader, other));
    cut(&at.path().join("store"), luck);

    let store = opened(&at, "second");
    for (number, after) in after.iter().enumerate() {
        let now = body(&store, number);
        assert!(after.contains(&now), "{context}: {number} was {after:?}, is {now:?}");
    }
    // Writes still work, and survive the next cut too.
    for number in 0..=MANY {
        let expect = match body(&store, number) {
            Some(body) => Expect::At(document::version(body.as_bytes())),
            None => Expect::Absent,
        };
        stored(put(&store, &[lasting(number, expect, "last")]));
    }
    drop(store);
    let store = opened(&at, "third");
    assert!((0..=MANY).all(|number| body(&store, number).as_deref() == Some("last")), "{context}");
    came
}

/// Renews the existing documents. After a cut, a read finds either the renewal or the former
/// content.
fn renew_all(store: &FileStore, shown: &[Option<String>], after: &mut [Vec<Option<String>>]) {
    for (number, shown) in shown.iter().enumerate() {
        let Some(body) = shown else { continue };
        let expect = Expect::At(document::version(body.as_bytes()));
        let renewal = write(number, expect, Some("renewed"), Durability::UntilPowerCut);
        stored(put(store, &[renewal]));
        after[number].push(Some("renewed".to_owned()));
    }
}

fn at_every_step(script: fn(usize) -> Script, journal: bool) {
    let mut steps = 0;
    loop {
        let mut came = false;
        for next in NEXT {
            for luck in lucks(steps) {
                came |= interrupted(script(steps), next, luck, journal);
            }
        }
        if !came {
            break;
        }
        steps += 1;
    }
    assert!(steps > 3 * MANY, "there were steps");
}

#[test]
fn a_batch_whose_process_dies_at_any_step_lasts_as_far_as_it_was_read() {
    at_every_step(Script::Dies, true);
}

#[test]
fn the_first_batch_may_die_at_any_step_too() {
    at_every_step(Script::Dies, false);
}

#[test]
fn a_batch_with_a_failure_at_any_step_lasts_as_far_as_it_was_acknowledged() {
    at_every_step(Script::Fails, true);
}

#[test]
fn the_first_batch_may_fail_at_any_step_too() {
    at_every_step(Script::Fails, false);
}

#[test]
fn a_write_that_nobody_can_settle_is_not_read_as_the_old_document() {
    let mut unsure = 0;
    for number in 0.. {
        let at = directory();
        let store = opened(&at, "first");
        let versions = create(&store, "old");
        let batch = mixed_batch(&versions, "new");
        let ((outcomes, reads), came) = run(Script::Dies(number), || {
            let outcomes = put(&store, &batch);
            let reads: Vec<_> = (0..=MANY).map(|number| try_body(&store, number)).collect();
            (outcomes, reads)
        });
        for (outcome, read) in outcomes.iter().zip(reads) {
            if matches!(outcome, Err(error) if error.fault == Fault::Indeterminate) {
                unsure += 1;
                assert!(read.is_err(), "step {number}: {read:?}");
            }
        }
        if !came {
            break;
        }
    }
    assert!(unsure > 0);
}

#[test]
fn a_journal_torn_at_any_byte_gives_back_every_record_before() {
    let at = directory();
    let store = opened(&at, "first");
    let versions = create(&store, "old");
    let before = tail(&at);
    stored(put(&store, &mixed_batch(&versions, "new")));
    let after = tail(&at);
    drop(store);
    let whole = fs::read(path(&at, "a/.journal")).expect("read");
    for torn in before..=after {
        let mut bytes = whole.clone();
        bytes[torn as usize..].fill(0);
        // The cursor as it was on the disk: from before the last record.
        let cursor = Cursor { tail: before, state: State::Idle };
        bytes[CURSOR_AT as usize..][..format::CURSOR_BYTES].copy_from_slice(&cursor.bytes());
        fs::write(path(&at, "a/.journal"), bytes).expect("written");
        for number in 0..=MANY {
            let _ = fs::write(path(&at, &format!("a/{number}.json")), "");
        }
        let store = opened(&at, &format!("torn at {torn}"));
        let expected = if torn == after { "new" } else { "old" };
        for number in [0, 2, MANY - 1] {
            assert_eq!(body(&store, number).as_deref(), Some(expected), "torn at {torn}");
        }
        assert_eq!(body(&store, 1).as_deref(), (torn < after).then_some("old"), "torn at {torn}");
    }
}

fn tail(at: &TempDir) -> u64 {
    let directory = OwnedFd::from(fs::File::open(path(at, "a")).expect("opened"));
    Journal::open(&directory).expect("read").expect("there").cursor.tail
}

#[test]
fn a_record_that_the_disk_lost_is_noticed() {
    let at = directory();
    let store = opened(&at, "first");
    create(&store, "old");
    drop(store);
    let mut bytes = fs::read(path(&at, "a/.journal")).expect("read");
    bytes[FIRST as usize + 40] ^= 1;
    fs::write(path(&at, "a/.journal"), bytes).expect("written");
    let error = open(&at, "second").expect_err("refused");
    assert_eq!(error.fault, Fault::Permanent);
    assert!(error.source.to_string().contains(".journal"), "{}", error.source);
    fs::remove_file(path(&at, "a/.journal")).expect("moved away");
    assert_eq!(body(&opened(&at, "second"), 0).as_deref(), Some("old"), "as it happens");
}

#[test]
fn garbage_in_place_of_a_journal_is_refused_and_followed_nowhere() {
    let at = directory();
    drop(opened(&at, "first"));
    fs::create_dir(path(&at, "a")).expect("made");
    let journal = path(&at, "a/.journal");
    let garbage = |plant: &dyn Fn()| {
        plant();
        let store = opened(&at, "first");
        let outcome = put(&store, &[lasting(0, Expect::Absent, "x")]).pop().expect("one");
        assert_eq!(outcome.expect_err("refused").fault, Fault::Permanent);
        drop(store);
        assert_eq!(open(&at, "second").expect_err("refused").fault, Fault::Permanent);
        let _ = fs::remove_file(&journal).or_else(|_| fs::remove_dir(&journal));
    };
    garbage(&|| fs::write(&journal, "").expect("written"));
    garbage(&|| fs::write(&journal, vec![7; 10_000]).expect("written"));
    garbage(&|| std::os::unix::fs::symlink("/etc/passwd", &journal).expect("linked"));
    garbage(&|| fs::create_dir(&journal).expect("made"));
    garbage(&|| {
        let huge = fs::File::create(&journal).expect("made");
        huge.set_len(MOST_BYTES + 1).expect("sparse");
    });
    for cursor in [
        Cursor { tail: 0, state: State::Idle },
        Cursor { tail: u64::MAX, state: State::Idle },
        Cursor { tail: FIRST + 100, state: State::Idle },
        Cursor { tail: FIRST + 100, state: State::Applying { from: FIRST } },
        Cursor { tail: FIRST + 100, state: State::Applying { from: 1 } },
    ] {
        garbage(&|| {
            let mut bytes = vec![0; 10_000];
            bytes[..TOP_BYTES].copy_from_slice(&format::top(1, cursor));
            fs::write(&journal, bytes).expect("written");
        });
    }
}

#[test]
fn a_forged_name_leads_nowhere() {
    for name in ["../../x.json", "a/b.json", ".boot", ".journal", "x", "..json", ".x.json.kept", ""]
    {
        let mut record = Record::new();
        assert!(record.add(name, Change::Written(b"forged")));
        let bytes = record.seal(1, FIRST).to_vec();
        let entries: Result<Vec<_>, _> = format::entries(&bytes[HEAD_BYTES..]).collect();
        assert_eq!(entries, Err(DAMAGED), "{name}");
    }
}

#[test]
fn what_a_full_journal_holds_is_carried_over_and_it_stays_small() {
    let at = directory();
    let store = opened(&at, "first");
    let large = "x".repeat(MAX_DOCUMENT_BYTES - 10);
    let mut versions = create(&store, "old");
    stored(put(&store, &[write(1, Expect::At(versions[1].clone()), None, Durability::Lasting)]));
    // Write each of these once, then never again.
    for number in 100..110 {
        stored(put(&store, &[lasting(number, Expect::Absent, "quiet")]));
    }
    for round in 0..60 {
        for number in [0, 2] {
            let expect = Expect::At(versions[number].clone());
            let body = format!("{round:03} {large}");
            versions[number] = stored(put(&store, &[lasting(number, expect, &body)])).remove(0);
        }
    }
    let size = fs::metadata(path(&at, "a/.journal")).expect("there").len();
    assert!((200_000..9_000_000).contains(&size), "{size}");
    drop(store);
    fs::remove_file(path(&at, "a/105.json")).expect("removed");
    fs::write(path(&at, "a/1.json"), "a deletion that was not synced").expect("written");
    let store = opened(&at, "second");
    assert!((100..110).all(|number| body(&store, number).as_deref() == Some("quiet")));
    assert!(body(&store, 0).is_some_and(|body| body.starts_with("059")));
    assert_eq!(body(&store, 3).as_deref(), Some("old"));
}

/// Fills the journal, and returns a batch that does not fit any more.
fn fill(store: &FileStore) -> Vec<Write> {
    // The document's name and its kept copy reach the disk before there is a journal that says that
    // it is deleted.
    let kept = stored(put(store, &[lasting(MANY, Expect::Absent, "kept")])).remove(0);
    let mut versions = create(store, "old");
    stored(put(store, &[write(MANY, Expect::At(kept), None, Durability::Lasting)]));
    let long = "x".repeat(60_000);
    for number in 0..4 {
        let expect = Expect::At(versions[2].clone());
        let next = stored(put(store, &[lasting(2, expect, &format!("{number}{long}"))]));
        versions[2] = next.into_iter().next().expect("one");
    }
    vec![
        lasting(0, Expect::At(versions[0].clone()), "new"),
        lasting(2, Expect::At(versions[2].clone()), &format!("new{long}")),
    ]
}

#[test]
fn a_journal_that_is_replaced_may_die_at_any_step() {
    for script in [Script::Dies, Script::Fails] {
        let replaced = |steps: usize| {
            let settled = lucks(steps).map(|luck| replaced(script(steps), luck, true));
            // Some of the names in a directory may reach the disk before others.
            let mixed = |number| Luck::Mixed { seed: (steps * 4 + number) as u64 };
            let at_once = [0, 1, 2, 3].map(|number| replaced(script(steps), mixed(number), false));
            settled.contains(&true) || at_once.contains(&true)
        };
        let steps = (0..).take_while(|steps| replaced(*steps)).count();
        assert!(steps > 12, "it was replaced");
    }
}

/// Replaces a journal with a failure at a step, and then cuts the power.
///
/// With `settled`, other processes settle the journal before the cut. Returns false when there are
/// fewer steps.
fn replaced(script: Script, luck: Luck, settled: bool) -> bool {
    let context = format!("{script:?} {luck:?} {settled}");
    let at = directory();
    watch();
    let store = opened(&at, "first");
    let batch = fill(&store);
    let size = || fs::metadata(path(&at, "a/.journal")).expect("there").len();
    let before = size();
    let (outcomes, came) = run(script, || put(&store, &batch));
    drop(store);
    assert!(came || size() > before, "it was replaced");
    let store = opened(&at, "first");
    let now: Vec<Option<String>> = (0..=MANY).map(|n| body(&store, n)).collect();
    for (outcome, number) in outcomes.iter().zip([0, 2]) {
        let is_new = now[number].as_ref().is_some_and(|body| body.starts_with("new"));
        match outcome {
            Ok(_) => assert!(is_new, "{context}"),
            Err(error) if error.fault == Fault::Indeterminate => {}
            Err(_) => assert!(!is_new, "{context}"),
        }
    }
    if settled {
        // This locks the directory, and so settles everything.
        let renewal = write(3, Expect::Absent, Some("x"), Durability::UntilPowerCut);
        assert!(matches!(put(&store, &[renewal])[..], [Ok(Put::Conflict)]));
    }
    drop(store);
    cut(&at.path().join("store"), luck);
    let store = opened(&at, "second");
    let later: Vec<Option<String>> = (0..=MANY).map(|n| body(&store, n)).collect();
    for (number, (now, later)) in now.into_iter().zip(later).enumerate() {
        // The interrupted write may still take effect, as long as no process has settled it.
        assert!(now == later || (!settled && [0, 2].contains(&number)), "{context}: {number}");
    }
    came
}

#[test]
fn a_recovery_that_dies_at_any_step_is_done_again() {
    for number in 0.. {
        let at = directory();
        let store = opened(&at, "first");
        let versions = create(&store, "old");
        stored(put(&store, &mixed_batch(&versions, "new")));
        drop(store);
        for number in 0..=MANY {
            fs::write(path(&at, &format!("a/{number}.json")), "").expect("torn");
        }
        let (_, came) = run(Script::Dies(number), || open(&at, "second"));
        let store = opened(&at, "second");
        for number in 0..=MANY {
            assert_eq!(body(&store, number).as_deref(), (number != 1).then_some("new"));
        }
        if !came {
            break;
        }
    }
}

#[test]
fn a_document_deleted_by_hand_is_put_back_from_the_journal() {
    let at = directory();
    let store = opened(&at, "first");
    let versions = create(&store, "old");
    stored(put(&store, &[lasting(0, Expect::At(versions[0].clone()), "token 7")]));
    for other in [false, true] {
        fs::remove_file(path(&at, "a/0.json")).expect("removed");
        assert_eq!(body(&store, 0), None, "whoever led by it must know");
        let asked = if other { &opened(&at, "first") } else { &store };
        let anew = lasting(0, Expect::Absent, "token 1");
        assert!(matches!(put(asked, &[anew])[..], [Ok(Put::Conflict)]));
        assert_eq!(body(&store, 0).as_deref(), Some("token 7"));
    }
}

#[test]
fn a_document_deleted_through_the_store_may_be_created_anew() {
    for durability in [Durability::Lasting, Durability::UntilPowerCut] {
        let at = directory();
        let store = opened(&at, "first");
        // Write a kept copy first, which must not be put back either.
        let first = stored(put(&store, &[lasting(0, Expect::Absent, "kept")])).remove(0);
        stored(put(
            &store,
            &(1..=MANY).map(|n| lasting(n, Expect::Absent, "x")).collect::<Vec<_>>(),
        ));
        stored(put(&store, &[write(0, Expect::At(first), None, durability)]));
        let anew = stored(put(&store, &[lasting(0, Expect::Absent, "anew")])).remove(0);
        stored(put(&store, &[write(0, Expect::At(anew), None, durability)]));
        drop(store);
        assert_eq!(body(&opened(&at, "second"), 0), None);
    }
}

#[test]
fn batches_of_several_handles_in_one_directory_lose_nothing() {
    const ROUNDS: usize = 60;
    let at = directory();
    let first = opened(&at, "first");
    let start: Vec<Write> = (0..20).map(|n| lasting(n, Expect::Absent, "0")).collect();
    stored(put(&first, &start));
    let count = |shared: Option<&FileStore>| {
        let own = shared.cloned().unwrap_or_else(|| opened(&at, "first"));
        let mut won = 0;
        for _ in 0..ROUNDS {
            let next = |number: usize| {
                let now = body(&own, number).expect("there");
                let next = now.parse::<usize>().expect("a number") + 1;
                lasting(number, Expect::At(document::version(now.as_bytes())), &next.to_string())
            };
            let outcomes = put(&own, &(0..20).map(next).collect::<Vec<_>>());
            assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
            won += outcomes.iter().filter(|one| matches!(one, Ok(Put::Stored(_)))).count();
        }
        won
    };
    let won = std::thread::scope(|scope| {
        // Two threads share one handle, and two have their own, as other processes would.
        let handles = [Some(&first), Some(&first), None, None];
        let threads: Vec<_> =
            handles.into_iter().map(|handle| scope.spawn(move || count(handle))).collect();
        threads.into_iter().map(|thread| thread.join().expect("joined")).sum::<usize>()
    });
    let sum = |store: &FileStore| {
        let counts = (0..20).map(|number| body(store, number).expect("there"));
        counts.map(|count| count.parse::<usize>().expect("a number")).sum::<usize>()
    };
    assert_eq!(sum(&first), won);
    drop(first);
    for number in 0..20 {
        fs::write(path(&at, &format!("a/{number}.json")), "").expect("torn");
    }
    assert_eq!(sum(&opened(&at, "second")), won);
}

#[test]
fn what_is_known_of_a_journal_is_what_it_says() {
    let at = directory();
    let (store, other) = (opened(&at, "first"), opened(&at, "first"));
    let mut versions = create(&store, "0");
    for round in 1..200 {
        let writer = if round % 3 == 0 { &other } else { &store };
        let number = round % MANY;
        let expect = Expect::At(versions[number].clone());
        let body = format!("{round} {}", "x".repeat(5000));
        versions[number] = stored(put(writer, &[lasting(number, expect, &body)])).remove(0);
        // Creating a document makes each store read the journal.
        for (store, base) in [(&store, 1000), (&other, 2000)] {
            stored(put(store, &[lasting(base + round, Expect::Absent, "x")]));
            let expect = Expect::At(document::version(b"x"));
            let gone = write(base + round, expect, None, Durability::Lasting);
            stored(put(store, &[gone]));
        }
    }
    let descriptor = OwnedFd::from(fs::File::open(path(&at, "a")).expect("opened"));
    let journal = Journal::open(&descriptor).expect("read").expect("there");
    let afresh = Contents::of(&journal, None).expect("read");
    let known = store.shared.known.take(&["a".to_owned()]);
    let known = Contents::of(&journal, known).expect("read");
    let sorted = |contents: &Contents| {
        let mut all: Vec<_> = contents
            .all()
            .map(|(name, lasting)| (name.to_owned(), format!("{lasting:?}")))
            .collect();
        all.sort();
        all
    };
    assert_eq!(sorted(&known), sorted(&afresh));
    assert!(sorted(&afresh).len() < 1000, "deletions are not carried over for ever");
}
