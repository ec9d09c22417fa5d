//! Tests of writes and recoveries that die or fail at any step, and of the files left behind.

use std::fs;

use super::super::step::{Script, run};
use super::*;

/// Runs one write with a script for each of its steps, and checks the content afterwards.
fn at_every_step(script: fn(usize) -> Script, durability: Durability, body: Option<&str>) {
    for number in 0.. {
        let at = directory();
        let store = open_at_boot(&at, "first");
        let version =
            stored(put_here(&store, write("a/b", Expect::Absent, "old", Durability::Lasting)));
        let change = Write {
            key: key("a/b"),
            expect: Expect::At(version),
            body: body.map(|body| Bytes::from(body.to_owned())),
            durability,
        };
        let (outcome, came) = run(script(number), || put_here(&store, change));
        drop(store);
        let store = open_at_boot(&at, "first");
        let now = body_here(&store, "a/b");
        let (old, new) = (Some("old"), body);
        let allowed = match &outcome {
            Ok(Put::Stored(_)) => vec![new],
            Ok(Put::Conflict) => panic!("nobody contended"),
            Err(error) => match error.fault {
                Fault::Indeterminate => vec![old, new],
                Fault::Unavailable | Fault::Permanent | Fault::Denied => vec![old],
            },
        };
        assert!(allowed.contains(&now.as_deref()), "step {number}: {outcome:?} {now:?}");
        drop(store);
        let later = body_here(&open_at_boot(&at, "second"), "a/b");
        let after_cut = match durability {
            Durability::Lasting => allowed,
            Durability::UntilPowerCut => vec![old, new],
        };
        assert!(after_cut.contains(&later.as_deref()), "step {number}: {outcome:?} {later:?}");
        if !came {
            assert!(number > 1, "there were steps");
            return;
        }
    }
}

#[test]
fn a_process_that_dies_at_any_step_leaves_the_old_or_the_new_document() {
    at_every_step(Script::Dies, Durability::Lasting, Some("new"));
    at_every_step(Script::Dies, Durability::UntilPowerCut, Some("new"));
    at_every_step(Script::Dies, Durability::Lasting, None);
}

#[test]
fn a_failure_at_any_step_leaves_the_old_or_the_new_document() {
    at_every_step(Script::Fails, Durability::Lasting, Some("new"));
    at_every_step(Script::Fails, Durability::UntilPowerCut, Some("new"));
    at_every_step(Script::Fails, Durability::Lasting, None);
}

#[test]
fn a_recovery_that_dies_at_any_step_is_done_again() {
    for number in 0.. {
        let at = directory();
        let store = open_at_boot(&at, "first");
        let version =
            stored(put_here(&store, write("a/b", Expect::Absent, "old", Durability::Lasting)));
        stored(put_here(&store, write("a/b", Expect::At(version), "x", Durability::UntilPowerCut)));
        fs::write(file(&at, "a/b.json"), "").expect("torn");
        let options = FileOptions { boot_id: Some("second".to_owned()), ..Default::default() };
        let (_, came) = run(Script::Dies(number), || FileStore::open(&file(&at, ""), options));
        assert_eq!(body_here(&open_at_boot(&at, "second"), "a/b").as_deref(), Some("old"));
        if !came {
            break;
        }
    }
}

#[test]
fn a_write_that_may_vanish_in_a_power_cut_is_synced_before_it_is_read() {
    let at = directory();
    let store = open(&at);
    let version = stored(put_here(&store, write("a/b", Expect::Absent, "1", Durability::Lasting)));
    assert!(!store.shared.unsynced.contains(&key("a/b")));
    // The last step of the write is the sync of its directory.
    for number in 0.. {
        let change = write("a/b", Expect::At(version.clone()), "2", Durability::Lasting);
        let (outcome, came) = run(Script::Fails(number), || put_here(&store, change));
        let now = body_here(&store, "a/b");
        if now.as_deref() == Some("2") {
            assert!(came && outcome.is_err());
            assert!(store.shared.unsynced.contains(&key("a/b")));
            return;
        }
    }
}

#[test]
fn stale_temporary_files_are_swept_and_fresh_ones_are_not() {
    let at = directory();
    drop(open(&at));
    fs::create_dir(file(&at, "a")).expect("made");
    let (stale, fresh) =
        (file(&at, &format!("a/{}", path::temporary())), file(&at, &path::temporary()));
    fs::write(&stale, "x").expect("written");
    fs::write(&fresh, "x").expect("written");
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(2 * 60 * 60);
    let opened = fs::File::options().write(true).open(&stale).expect("opened");
    opened.set_modified(long_ago).expect("aged");
    drop(open(&at));
    assert!(!stale.exists() && fresh.exists());
}
