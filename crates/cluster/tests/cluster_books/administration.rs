//! Declaring members dead, draining, pausing, retrying, and the settings.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tenure::MemoryStore;
use tenure::store::{MAX_DOCUMENT_BYTES, Reads, StoreExt};
use tenure_cluster::ClusterError;
use tenure_cluster::documents::{ClusterConfig, LEAST_SLOTS, Letter, NodeEntry, Nodes, Settings};
use tenure_cluster::{ClusterClient, SettingsPut};

use crate::faulty::{Faults, Faulty};
use crate::stage::{client_on, inbox, member, op, order, read, stage, write};

fn node(bits: u128, name: &str) -> NodeEntry {
    NodeEntry { token: member(bits), workers: 2, name: name.into(), draining: false }
}

async fn with_nodes(client: &ClusterClient, store: &MemoryStore) {
    let nodes = vec![node(1, "a"), node(2, "b"), node(3, "b")];
    let nodes = Nodes { nodes, dead: Vec::new(), revision: 4, op: op(1) };
    write(store, &client.keys().nodes(), &nodes).await;
}

async fn nodes(client: &ClusterClient, store: &MemoryStore) -> Nodes {
    read(store, &client.keys().nodes()).await.expect("a node list").1
}

#[tokio::test]
async fn a_member_that_is_declared_dead_is_in_the_store_when_the_call_returns() {
    let (client, store) = stage();
    with_nodes(&client, &store).await;
    assert!(client.mark_dead(&member(2)).await.expect("it serves"));
    assert!(!client.mark_dead(&member(9)).await.expect("it serves"), "it is in no list");
    let found = nodes(&client, &store).await;
    assert_eq!((found.dead, found.nodes.len()), (vec![member(2), member(9)], 3));
    assert!(client.mark_dead(&member(2)).await.expect("it serves"));
    assert_eq!(nodes(&client, &store).await.revision, 6, "saying it again changes nothing");
}

#[tokio::test]
async fn the_list_of_the_dead_stays_short_and_keeps_the_newest() {
    let (client, store) = stage();
    for bits in 0..100 {
        client.mark_dead(&member(bits)).await.expect("it serves");
    }
    let dead = nodes(&client, &store).await.dead;
    assert_eq!((dead.len(), dead.last()), (64, Some(&member(99))));
}

#[tokio::test]
async fn members_are_drained_by_id_or_by_name() {
    let (client, store) = stage();
    with_nodes(&client, &store).await;
    let by_name = client.drain_member("b").await.expect("it serves");
    assert_eq!(by_name, [member(2), member(3)]);
    let by_id = client.drain_member(member(1).as_str()).await.expect("it serves");
    assert_eq!(by_id, [member(1)]);
    assert!(client.drain_member("nobody").await.expect("it serves").is_empty());
    assert!(nodes(&client, &store).await.nodes.iter().all(|node| node.draining));
    assert!(store.get(&client.keys().wake_up()).await.expect("a read").is_some());
}

#[tokio::test]
async fn pausing_and_resuming_leave_the_rest_of_the_charter_alone() {
    let (client, store) = stage();
    client.pause().await.expect("it serves");
    let cluster_config = async || {
        read::<ClusterConfig>(&store, &client.keys().cluster_config()).await.expect("one").1
    };
    assert!(cluster_config().await.paused && cluster_config().await.slots == LEAST_SLOTS);
    let grown = ClusterConfig { slots: 1000, revision: 9, ..cluster_config().await };
    write(&store, &client.keys().cluster_config(), &grown).await;
    client.resume().await.expect("it serves");
    let after = cluster_config().await;
    assert_eq!((after.paused, after.slots, after.revision), (false, 1000, 10));
    client.resume().await.expect("it serves");
    assert_eq!(cluster_config().await.revision, 10, "saying it again changes nothing");
}

#[tokio::test(start_paused = true)]
async fn whatever_answers_are_lost_it_is_in_the_store_when_the_call_returns() {
    for seed in 0..100 {
        let store = MemoryStore::new();
        let faults = Faults { refused: 0, unread: 0, ..Faults::MANY };
        let reads = if seed % 2 == 0 { Reads::Linearizable } else { Reads::Weak };
        let faulty = Faulty::new(store.clone(), reads, faults, seed);
        let client = client_on(Arc::new(faulty));
        with_nodes(&client, &store).await;
        client.pause().await.expect("it serves");
        assert!(
            read::<ClusterConfig>(&store, &client.keys().cluster_config())
                .await
                .expect("one")
                .1
                .paused
        );
        client.mark_dead(&member(1)).await.expect("it serves");
        assert_eq!(nodes(&client, &store).await.dead, [member(1)]);
        for version in 0..5 {
            let put = client.put_settings(settings("a", json!(version)), version).await;
            let SettingsPut::Stored(stored) = put.expect("it serves") else {
                panic!("seed {seed}: nobody else puts any")
            };
            let (_, found) =
                read::<Settings>(&store, &client.keys().settings()).await.expect("one");
            assert_eq!((found.version, stored), (version + 1, version + 1), "seed {seed}");
            assert_eq!(found.settings["a"], json!(version), "seed {seed}");
        }
    }
}

fn settings(name: &str, value: Value) -> Map<String, Value> {
    Map::from_iter([(name.to_owned(), value)])
}

#[tokio::test]
async fn settings_are_put_only_in_the_place_of_those_that_were_read() {
    let (client, _) = stage();
    assert_eq!(client.settings().await.expect("it serves"), None);
    let put = client.put_settings(settings("a", json!(1)), 0).await.expect("it serves");
    assert_eq!(put, SettingsPut::Stored(1));
    let late = client.put_settings(settings("b", json!(2)), 0).await.expect("it serves");
    let SettingsPut::Conflict(Some(found)) = late else { panic!("{late:?}") };
    assert_eq!((found.version, found.settings), (1, settings("a", json!(1))));
    let put = client.put_settings(settings("b", json!(2)), 1).await.expect("it serves");
    assert_eq!(put, SettingsPut::Stored(2));
    let early = client.put_settings(settings("c", json!(3)), 7).await.expect("it serves");
    assert!(matches!(early, SettingsPut::Conflict(Some(_))));
    let found = client.settings().await.expect("it serves").expect("some");
    assert_eq!((found.version, found.settings), (2, settings("b", json!(2))));
}

#[tokio::test]
async fn settings_that_are_too_large_are_refused_and_nothing_is_written() {
    let (client, _) = stage();
    let large = settings("a", json!("x".repeat(MAX_DOCUMENT_BYTES)));
    let error = client.put_settings(large, 0).await.expect_err("too large");
    assert!(matches!(error, ClusterError::Document { .. }), "{error}");
    assert_eq!(client.settings().await.expect("it serves"), None);
}

async fn with_letters(
    client: &ClusterClient,
    store: &MemoryStore,
    serials: impl Iterator<Item = u64>,
) {
    for serial in serials {
        let error = "no".to_owned();
        let letter =
            Letter { task: order("a").numbered(serial), attempt: 3, error, at: 1, op: op(1) };
        write(store, &client.keys().letter(serial), &letter).await;
    }
}

#[tokio::test]
async fn retries_are_in_the_inbox_and_what_is_no_dead_letter_is_given_back() {
    let (client, store) = stage();
    with_letters(&client, &store, [3, 5].into_iter()).await;
    assert_eq!(client.retry(&[3, 4, 5]).await.expect("it serves"), [4]);
    assert_eq!(inbox(&client, &store, 0).await, ["retry 3", "retry 5"]);
    assert!(client.re_enqueue(5).await.expect("it serves"));
    assert!(!client.re_enqueue(6).await.expect("it serves"));
    assert_eq!(inbox(&client, &store, 0).await.len(), 3);
}

#[tokio::test]
async fn all_dead_letters_are_brought_back_however_many_there_are() {
    let (client, store) = stage();
    with_letters(&client, &store, 1..=600).await;
    assert_eq!(client.retry_all().await.expect("it serves"), 600);
    let found = inbox(&client, &store, 0).await;
    assert_eq!((found.len(), found[599].as_str()), (600, "retry 600"));
}
