//! Tests of journals that are torn, damaged or forged, and of their recovery.

use std::fs;

use super::super::super::step::{Script, run};
use super::*;

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
