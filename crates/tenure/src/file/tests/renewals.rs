//! Tests of renewals, of deletions by hand, and of documents after a reboot.

use std::fs;

use super::*;

#[test]
fn a_document_deleted_by_hand_is_not_created_anew_but_put_back() {
    let at = directory();
    let store = open_at_boot(&at, "first");
    stored(put_here(&store, write("a/b", Expect::Absent, "token 7", Durability::Lasting)));
    fs::remove_file(file(&at, "a/b.json")).expect("removed");
    assert_eq!(body_here(&store, "a/b"), None, "whoever led by it must know");
    let anew = write("a/b", Expect::Absent, "token 1", Durability::Lasting);
    assert!(matches!(put_here(&store, anew), Ok(Put::Conflict)));
    assert_eq!(body_here(&store, "a/b").as_deref(), Some("token 7"));
}

#[test]
fn a_document_deleted_through_the_store_may_be_created_anew() {
    let at = directory();
    let store = open_at_boot(&at, "first");
    let version = stored(put_here(&store, write("a/b", Expect::Absent, "1", Durability::Lasting)));
    let key = key("a/b");
    let expect = Expect::At(version);
    let gone = Write { key, expect, body: None, durability: Durability::Lasting };
    stored(put_here(&store, gone));
    stored(put_here(&store, write("a/b", Expect::Absent, "2", Durability::Lasting)));
}

#[test]
fn after_a_reboot_documents_go_back_to_their_last_lasting_content() {
    let at = directory();
    let store = open_at_boot(&at, "first");
    let lasting = write("a/b", Expect::Absent, "lasting", Durability::Lasting);
    let mut version = stored(put_here(&store, lasting));
    // Several renewals, because each rewrites the file of the one before the last.
    for number in 0..5 {
        let body = format!("renewal {number}");
        let renewal = write("a/b", Expect::At(version), &body, Durability::UntilPowerCut);
        version = stored(put_here(&store, renewal));
        assert_eq!(fs::read_to_string(file(&at, "a/.b.json.kept")).expect("kept"), "lasting");
    }
    for (text, body) in [("a/whole", "whole"), ("a/torn", "")] {
        stored(put_here(&store, write(text, Expect::Absent, body, Durability::UntilPowerCut)));
    }
    fs::write(file(&at, "a/b.json"), "").expect("torn");

    assert_eq!(body_here(&open_at_boot(&at, "first"), "a/b").as_deref(), Some(""), "same boot");
    let store = open_at_boot(&at, "second");
    assert_eq!(body_here(&store, "a/b").as_deref(), Some("lasting"));
    assert_eq!(body_here(&store, "a/whole").as_deref(), Some("whole"));
    assert_eq!(body_here(&store, "a/torn"), None);

    fs::write(file(&at, ".boot"), "garbled").expect("written");
    fs::remove_file(file(&at, "a/b.json")).expect("removed");
    assert_eq!(body_here(&open_at_boot(&at, "second"), "a/b").as_deref(), Some("lasting"));
}

#[test]
fn a_deleted_document_stays_deleted_after_a_reboot() {
    let at = directory();
    let store = open_at_boot(&at, "first");
    let version = stored(put_here(&store, write("a/b", Expect::Absent, "x", Durability::Lasting)));
    let expect = Expect::At(version);
    let delete = Write { key: key("a/b"), expect, body: None, durability: Durability::Lasting };
    stored(put_here(&store, delete));
    assert_eq!(body_here(&open_at_boot(&at, "second"), "a/b"), None);
}

#[test]
fn a_reader_sees_whole_documents_while_renewals_rewrite_old_ones() {
    let at = directory();
    let store = open(&at);
    let body = |number: usize| {
        let letter = char::from(b'a' + (number % 26) as u8);
        letter.to_string().repeat(1 + number * 7919 % 60_000)
    };
    let first = write("a/b", Expect::Absent, &body(0), Durability::Lasting);
    let mut version = stored(put_here(&store, first));
    let finished = std::sync::atomic::AtomicBool::new(false);
    let ordering = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let reader = open(&at);
                while !finished.load(ordering) {
                    let read = body_here(&reader, "a/b").expect("never missing");
                    let number = (0..500).find(|number| body(*number).len() == read.len());
                    assert!(number.map(body) == Some(read), "torn");
                }
            });
        }
        for number in 1..500 {
            let renewal =
                write("a/b", Expect::At(version), &body(number), Durability::UntilPowerCut);
            version = stored(put_here(&store, renewal));
        }
        finished.store(true, ordering);
    });
    assert_eq!(fs::read_dir(file(&at, "a")).expect("there").count(), 3, "document, kept, spare");
}
