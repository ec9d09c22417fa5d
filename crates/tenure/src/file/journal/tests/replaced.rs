//! Tests of full journals, and of failures while a new journal takes their place.

use std::fs;

use super::super::super::power::{cut, watch};
use super::super::super::step::{Script, run};
use super::*;
use crate::store::MAX_DOCUMENT_BYTES;

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
