//! A leader feed: leadership on a table, and the changes of that table, in one.

mod store;

pub use store::{
    Beat, Cursor, FeedStore, Fields, Found, Handle, Item, LEADER, Origin, Subscription, is_metadata,
};
