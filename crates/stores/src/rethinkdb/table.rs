//! The table of a store: there, ours to use, and safe.

use std::time::Duration;

use serde_json::Value;
use tenure::{Fault, StoreError};

use super::connection::{Connection, failed};
use super::fault::Kind;
use super::{refused, term};

/// How long a table that was just created may take until it serves.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// How long servers may take to tell each other of a new table.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

/// Creates the database and the table where they are missing.
pub(super) async fn create(
    connection: &Connection,
    database: &str,
    table: &str,
) -> Result<(), StoreError> {
    if !contains(connection, term::databases(), database).await? {
        let doing = format!("creating the database {database}");
        make(connection, &term::create_database(database), doing).await?;
    }
    if !contains(connection, term::tables(database), table).await? {
        let doing = format!("creating the table {database}.{table}");
        make(connection, &term::create_table(database, table), doing).await?;
        if !is_emulated(connection).await? {
            settle(connection, database, table).await?;
        }
    }
    Ok(())
}

/// Makes sure that the table is there and that what it acknowledges lasts.
pub(super) async fn check(
    connection: &Connection,
    database: &str,
    table: &str,
) -> Result<(), StoreError> {
    if !contains(connection, term::databases(), database).await? {
        return Err(missing(format!("the database `{database}` does not exist")));
    }
    if !contains(connection, term::tables(database), table).await? {
        return Err(missing(format!("the table `{database}.{table}` does not exist")));
    }
    if is_emulated(connection).await? {
        // It keeps everything in one process: there are no replicas to acknowledge anything.
        tracing::warn!(
            "rethinkdb: the server does not tell its version, so it is an emulator: for tests only"
        );
        return Ok(());
    }
    configured(connection, database, table).await
}

/// Whether the server is an emulator.
pub(super) async fn is_emulated(connection: &Connection) -> Result<bool, StoreError> {
    connection.is_emulated().await.map_err(|failure| failed(failure, "connecting"))
}

async fn contains(
    connection: &Connection,
    names: term::Term,
    name: &str,
) -> Result<bool, StoreError> {
    let listed = connection.ask(Kind::Read, &names).await;
    let listed = listed.map_err(|failure| failed(failure, "looking for the table"))?;
    let listed = listed.as_array().map_or(&[][..], Vec::as_slice);
    Ok(listed.iter().any(|listed| listed.as_str() == Some(name)))
}

fn missing(what: String) -> StoreError {
    let says = format!("{what}, and creating it was not asked for");
    refused(Fault::Permanent, "looking for the table", says)
}

/// Creates; somebody else may have been faster.
async fn make(
    connection: &Connection,
    question: &term::Term,
    doing: String,
) -> Result<(), StoreError> {
    match connection.ask(Kind::Write, question).await {
        Ok(_) => Ok(()),
        Err(failure) if failure.source.to_string().contains("already exists") => Ok(()),
        Err(failure) => Err(failed(failure, doing)),
    }
}

/// Waits until a new table serves, and until every server has heard of it.
///
/// Two servers may each create a table of the same name at once; from when they have told each other on, the name is
/// ambiguous and every question about it fails. Before, each would serve its own: so nothing is done with it yet.
async fn settle(connection: &Connection, database: &str, table: &str) -> Result<(), StoreError> {
    tokio::time::sleep(TOLD_WITHIN).await;
    let doing = || format!("waiting for the new table {database}.{table}");
    // The server counts in whole seconds.
    let seconds = (connection.request() / 2).as_secs().max(1);
    let question = term::table(database, table).wait_for_writes(seconds);
    let end = tokio::time::Instant::now() + READY_WITHIN;
    loop {
        match connection.ask(Kind::Read, &question).await {
            Ok(_) => return Ok(()),
            Err(failure) if tokio::time::Instant::now() >= end => {
                return Err(failed(failure, doing()));
            }
            Err(failure) => tracing::debug!(error = %failure.source, "{}", doing()),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Whether writes are acknowledged by a majority, and documents are found by `id`.
async fn configured(
    connection: &Connection,
    database: &str,
    table: &str,
) -> Result<(), StoreError> {
    let doing = || format!("reading the configuration of {database}.{table}");
    let question = term::table(database, table).config();
    let config = connection.ask(Kind::Read, &question).await;
    let config = config.map_err(|failure| match failure.fault {
        // Without it nobody could say that an acknowledged write lasts.
        Fault::Denied => {
            failed(failure, format!("{}, which takes the permission `config`", doing()))
        }
        Fault::Permanent | Fault::Unavailable | Fault::Indeterminate => failed(failure, doing()),
    })?;
    judge(&config).map_err(|says| refused(Fault::Permanent, doing(), says))
}

fn judge(config: &Value) -> Result<(), String> {
    let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or("unknown");
    if text("write_acks") != "majority" {
        return Err(format!(
            "write_acks is {}, so that an acknowledged write may be lost: it must be \"majority\"",
            config.get("write_acks").unwrap_or(&Value::Null)
        ));
    }
    if text("primary_key") != "id" {
        return Err(format!("its primary key is `{}`: it must be `id`", text("primary_key")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_table_that_forgets_what_it_acknowledged_is_refused() {
        let config = |acks: Value, key: &str| json!({ "write_acks": acks, "primary_key": key });
        assert_eq!(judge(&config(json!("majority"), "id")), Ok(()));
        for (config, says) in [
            (config(json!("single"), "id"), "write_acks is \"single\""),
            (config(json!([]), "id"), "write_acks is []"),
            (config(json!("majority"), "_id"), "its primary key is `_id`"),
            (Value::Null, "write_acks is null"),
        ] {
            let error = judge(&config).expect_err("it is not safe");
            assert!(error.contains(says), "{error}");
        }
    }
}
