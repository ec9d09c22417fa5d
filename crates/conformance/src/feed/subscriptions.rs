//! A table's changes, as [`FeedStore`](tenure::feed::FeedStore) shows them.

// The names of the cases are their documentation.
#![allow(missing_docs)]

use futures_util::StreamExt;
use tenure::feed::{Beat, Handle, Item, LEADER, Origin, Subscription};
use tenure::store::Expect;

use super::Case;
use super::case::{fields, next, soon, stored, subscribed};

/// The next item, which must be a change.
async fn change(case: &Case, subscription: &mut Subscription) -> (String, Option<u64>) {
    match next(subscription).await {
        Item::Change { change, .. } => case.subject().understand(&change),
        other @ (Item::Leader(_) | Item::Alive(_)) => panic!("not a change: {other:?}"),
    }
}

pub async fn a_change_by_anybody_is_shown(case: &Case) {
    let store = case.open().await;
    let mut subscription = subscribed(&store, case.table()).await;
    case.write("order-1", 1).await;
    assert_eq!(change(case, &mut subscription).await, ("order-1".into(), Some(1)));
}

pub async fn changes_of_a_document_are_shown_in_order_and_its_deletion_last(case: &Case) {
    let store = case.open().await;
    let mut subscription = subscribed(&store, case.table()).await;
    for n in 1..=20 {
        case.write("order-1", n).await;
    }
    case.subject().delete(case.table(), "order-1").await;
    for n in 1..=20 {
        assert_eq!(change(case, &mut subscription).await, ("order-1".into(), Some(n)));
    }
    assert_eq!(change(case, &mut subscription).await, ("order-1".into(), None));
}

pub async fn nothing_of_the_past_is_shown(case: &Case) {
    let store = case.open().await;
    case.write("order-1", 1).await;
    let mut subscription = subscribed(&store, case.table()).await;
    case.write("order-2", 2).await;
    assert_eq!(change(case, &mut subscription).await, ("order-2".into(), Some(2)));
}

pub async fn from_the_start_what_is_there_is_shown_before_what_comes(case: &Case) {
    if !case.subject().shows_the_past() {
        return case.skip("the database cannot show what a table already holds");
    }
    let store = case.open().await;
    stored(&store, case.table(), Expect::Absent, &fields(LEADER, 1)).await;
    case.write("order-1", 1).await;
    case.write("order-2", 2).await;
    let subscribed = store.subscribe(case.table(), Origin::Start).await;
    let mut subscription = subscribed.expect("the table can be followed");
    let mut shown = Vec::new();
    while shown.len() < 2 {
        if let Item::Change { change, .. } = next(&mut subscription).await {
            shown.push(case.subject().understand(&change));
        }
    }
    shown.sort();
    assert_eq!(shown, [("order-1".into(), Some(1)), ("order-2".into(), Some(2))]);
    case.write("order-3", 3).await;
    assert_eq!(change(case, &mut subscription).await, ("order-3".into(), Some(3)));
}

pub async fn a_write_of_the_leaders_document_is_shown_as_such(case: &Case) {
    let store = case.open().await;
    let mut subscription = subscribed(&store, case.table()).await;
    let version = stored(&store, case.table(), Expect::Absent, &fields(LEADER, 1)).await;
    let second = stored(&store, case.table(), Expect::At(version), &fields(LEADER, 2)).await;
    let mut shown = Vec::new();
    // A database may show only that the document changed, or only the newest of several versions.
    while shown.last().is_none_or(|found: &tenure::feed::Found| found.version != second) {
        match next(&mut subscription).await {
            Item::Leader(Some(found)) => shown.push(found),
            Item::Leader(None) => return case.skip("the feed does not show the document itself"),
            other @ (Item::Change { .. } | Item::Alive(_)) => {
                panic!("not the leader's: {other:?}")
            }
        }
    }
    let newest = shown.last().expect("there is one");
    assert_eq!(newest.fields.get("token"), Some(&2.into()));
    assert!(newest.fields.contains_key("timestamp"), "{newest:?}");
}

/// leaderfeed showed the deletion of its metadata as a change of the table.
pub async fn no_document_of_ours_is_ever_a_change_not_even_its_deletion(case: &Case) {
    let store = case.open().await;
    let mut subscription = subscribed(&store, case.table()).await;
    for id in [LEADER, "feeds/host-a"] {
        let version = stored(&store, case.table(), Expect::Absent, &fields(id, 1)).await;
        let beat = Beat { id: id.into(), expect: Expect::At(version), fields: None };
        let _ = store.heartbeat(case.table(), beat).await.expect("it is deleted");
    }
    for id in ["elections/a/b", "candidates/a/b/7", "feeds/ghost", LEADER] {
        case.write(id, 1).await;
        case.subject().delete(case.table(), id).await;
    }
    case.write("order-1", 1).await;
    loop {
        match next(&mut subscription).await {
            Item::Leader(_) | Item::Alive(_) => {}
            Item::Change { change, .. } => {
                let shown = case.subject().understand(&change);
                assert_eq!(shown, ("order-1".into(), Some(1)), "{change}");
                return;
            }
        }
    }
}

pub async fn a_subscription_goes_on_after_the_last_change_an_earlier_one_showed(case: &Case) {
    let store = case.open().await;
    let mut subscription = subscribed(&store, case.table()).await;
    case.write("order-1", 1).await;
    let Item::Change { cursor, .. } = next(&mut subscription).await else {
        panic!("not a change");
    };
    let Some(cursor) = cursor else { return case.skip("the database cannot go back") };
    store.unsubscribe(subscription).await;
    case.write("order-2", 2).await;
    let again = store.subscribe(case.table(), Origin::After(cursor)).await;
    let mut again = again.expect("the table can be followed");
    assert_eq!(change(case, &mut again).await, ("order-2".into(), Some(2)));
}

pub async fn two_subscriptions_of_one_handle_show_the_same(case: &Case) {
    let store = case.open().await;
    let mut one = subscribed(&store, case.table()).await;
    let mut other = subscribed(&store, case.table()).await;
    case.write("order-1", 1).await;
    let shown = (change(case, &mut one).await, change(case, &mut other).await);
    assert_eq!(shown.0, shown.1);
    store.unsubscribe(one).await;
    case.write("order-2", 2).await;
    assert_eq!(change(case, &mut other).await, ("order-2".into(), Some(2)));
}

pub async fn a_subscription_stays_silent_while_nothing_happens(case: &Case) {
    let store = case.open().await;
    let mut subscription = subscribed(&store, case.table()).await;
    let silence = std::time::Duration::from_secs(2);
    let quiet = async {
        while let Some(item) = subscription.next().await {
            match item {
                Ok(Item::Alive(_)) => {}
                Ok(Item::Change { .. } | Item::Leader(_)) | Err(_) => return item,
            }
        }
        panic!("the subscription ended")
    };
    let heard = tokio::time::timeout(silence, quiet).await;
    assert!(heard.is_err(), "{heard:?}");
    case.write("order-1", 1).await;
    let shown = soon("a change", change(case, &mut subscription)).await;
    assert_eq!(shown, ("order-1".into(), Some(1)));
}

pub async fn the_drivers_own_handles_are_given_out(case: &Case) {
    let store = case.open().await;
    assert!(store.handle(case.table(), Handle::Connection).is_some());
    assert!(store.handle(case.table(), Handle::Table).is_some());
}
