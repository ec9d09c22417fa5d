//! Many writers at once.

use std::sync::Arc;

use futures_util::future::join_all;
use tenure::store::{Expect, Fault, Put, Store, StoreExt};

use super::Case;
use super::case::{found, stored};

/// How many handles the writers of a race share.
const HANDLES: usize = 5;

async fn handles(case: &Case) -> Vec<Arc<dyn Store>> {
    join_all((0..HANDLES).map(|_| case.store())).await
}

/// Of a hundred writers that create the same document, exactly one succeeds.
pub async fn of_a_hundred_who_create_a_document_one_wins(case: &Case) {
    let handles = handles(case).await;
    let contenders = (0..100).map(|number| {
        let (store, key) = (handles[number % HANDLES].clone(), case.key("a"));
        tokio::spawn(async move {
            match store.put(&key, Expect::Absent, number.to_string().into()).await {
                Ok(Put::Stored(version)) => Some((number, version)),
                Ok(Put::Conflict) => None,
                // Under such a load a store may say that it did nothing, but never that it is
                // unsure.
                Err(error) if error.fault == Fault::Unavailable => None,
                Err(error) => panic!("{error}: {:?}", error.source),
            }
        })
    });
    let winners: Vec<_> = join_all(contenders)
        .await
        .into_iter()
        .filter_map(|contender| contender.expect("it ran"))
        .collect();
    assert_eq!(winners.len(), 1, "{winners:?}");
    let document = found(&*handles[0], &case.key("a")).await;
    let (number, version) = &winners[0];
    assert_eq!((&document.body[..], &document.version), (number.to_string().as_bytes(), version));
}

/// Counters incremented by compare-and-set lose no increment.
pub async fn no_update_is_lost_among_concurrent_writers(case: &Case) {
    const WRITERS: usize = 8;
    const INCREMENTS: u64 = 25;
    let handles = handles(case).await;
    stored(&*handles[0], &case.key("counter"), Expect::Absent, "0").await;
    let writers = (0..WRITERS).map(|number| {
        let (store, key) = (handles[number % HANDLES].clone(), case.key("counter"));
        tokio::spawn(async move {
            let mut done = 0;
            while done < INCREMENTS {
                let document = found(&*store, &key).await;
                let count: u64 = String::from_utf8_lossy(&document.body).parse().expect("a number");
                let body = (count + 1).to_string().into();
                // Lets other writers in between the read and the write, even if neither waits.
                tokio::task::yield_now().await;
                match store.put(&key, Expect::At(document.version), body).await {
                    Ok(Put::Stored(_)) => done += 1,
                    Ok(Put::Conflict) => tokio::task::yield_now().await,
                    Err(error) if error.fault == Fault::Unavailable => {}
                    Err(error) => panic!("{error}: {:?}", error.source),
                }
            }
        })
    });
    for writer in join_all(writers).await {
        writer.expect("it ran");
    }
    let total = found(&*handles[0], &case.key("counter")).await.body;
    assert_eq!(total, (WRITERS as u64 * INCREMENTS).to_string());
}

/// Of writes and deletions at one version, exactly one is reported as a success.
pub async fn a_write_and_a_deletion_of_one_version_never_both_succeed(case: &Case) {
    let handles = handles(case).await;
    for round in 0..20 {
        let key = case.key(&format!("round-{round}"));
        let version = stored(&*handles[0], &key, Expect::Absent, "first").await;
        let rivals = (0..HANDLES).map(|number| {
            let (store, key, version) = (handles[number].clone(), key.clone(), version.clone());
            tokio::spawn(async move {
                let put = if number % 2 == 0 {
                    store.put(&key, Expect::At(version), number.to_string().into()).await
                } else {
                    store.delete(&key, version).await
                };
                match put {
                    Ok(Put::Stored(_)) => Some(number),
                    Ok(Put::Conflict) => None,
                    Err(error) if error.fault == Fault::Unavailable => None,
                    Err(error) => panic!("{error}: {:?}", error.source),
                }
            })
        });
        let winners: Vec<usize> =
            join_all(rivals).await.into_iter().filter_map(|rival| rival.expect("it ran")).collect();
        let [winner] = winners[..] else { panic!("round {round}: {winners:?}") };
        let left = handles[0].get(&key).await.expect("an answer").map(|document| document.body);
        assert_eq!(left, (winner % 2 == 0).then(|| winner.to_string().into()));
    }
}

/// A reader beside a writer sees whole documents only, each as it was written.
pub async fn a_reader_never_sees_half_a_document(case: &Case) {
    let handles = handles(case).await;
    let key = case.key("a");
    let whole = |number: u32| format!("{number:08}").repeat(1000);
    let mut version = stored(&*handles[0], &key, Expect::Absent, whole(0)).await;
    let (reader, at) = (handles[1].clone(), key.clone());
    let reading = tokio::spawn(async move {
        let mut last = 0;
        while last < 50 {
            let body = found(&*reader, &at).await.body;
            let number: u32 =
                String::from_utf8_lossy(&body[..8]).parse().expect("a number in front");
            assert!(body == whole(number), "half a document");
            assert!(reader.reads() == tenure::store::Reads::Weak || number >= last, "back in time");
            last = number;
        }
    });
    for number in 1..=50 {
        version = stored(&*handles[0], &key, Expect::At(version), whole(number)).await;
    }
    reading.await.expect("every read was whole");
}
