//! Tests of batches that are interrupted at any step, and of power cuts after them.

use super::super::super::power::{cut, watch};
use super::super::super::step::{Script, run};
use super::*;

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
