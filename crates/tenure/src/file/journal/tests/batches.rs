//! Tests of batches that go through the journal, and of deletions.

use std::fs;

use super::*;

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
