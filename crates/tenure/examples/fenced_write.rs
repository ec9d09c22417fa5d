//! Protects a database from a leader that does not know yet that it was replaced.
//!
//! `cargo run -p tenure --example fenced_write`
//!
//! No lease protects against a process that is paused between a check and a write. The fencing
//! token does, if the written system refuses smaller ones. In SQL that is one condition:
//!
//! ```sql
//! UPDATE accounts SET balance = $1, token = $2 WHERE id = $3 AND token <= $2
//! ```
//!
//! No row was changed? Then a later leader has written, and this process must stop. The table here
//! is a map that does the same.

use std::collections::HashMap;
use std::sync::Mutex;

use tenure::{Backend, Election};

/// A table with a column for the highest token that wrote a row.
#[derive(Default)]
struct Accounts {
    rows: Mutex<HashMap<&'static str, (i64, u64)>>,
}

impl Accounts {
    /// Returns false, and changes nothing, if a greater token has written the row.
    fn update(&self, id: &'static str, balance: i64, token: u64) -> bool {
        let mut rows = self.rows.lock().expect("no writer panics");
        let row = rows.entry(id).or_default();
        if row.1 > token {
            return false;
        }
        *row = (balance, token);
        true
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backend = Backend::memory(); // or a directory, or `tenure_stores::open(url)`
    let accounts = Accounts::default();
    let election =
        Election::builder(&backend, "examples/billing").create_if_missing(true).open().await?;

    let first = election.campaign("host-a".try_into()?).await?;
    let old = first.mandate().token();
    assert!(accounts.update("alice", 100, old));
    println!("token {old} wrote 100");

    // Imagine that host-a stands still here, between its check and its next write. Its lease runs
    // out, and host-b leads.
    first.resign().await;
    let second = election.campaign("host-b".try_into()?).await?;
    let new = second.mandate().token();
    assert!(accounts.update("alice", 90, new));
    println!("token {new} wrote 90");

    // host-a wakes up and writes.
    assert!(!accounts.update("alice", 110, old));
    println!("token {old} was refused");
    second.resign().await;
    Ok(())
}
