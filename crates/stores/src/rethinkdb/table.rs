//! The table of a store: there, ours to use, and safe.

use std::time::Duration;

use serde_json::Value;
use tenure::{Fault, StoreError};

use super::connection::{Connection, failed};
use super::fault::Kind;
use super::home::Home;
use super::{refused, term};

/// A database is created within this time, or that is unknown.
const CREATED_WITHIN: Duration = Duration::from_secs(15);

/// Finds the table, or creates it and its database where they are missing; gives its id, which an emulator has not.
pub(super) async fn open(
    home: &Home,
    database: &str,
    table: &str,
    create: bool,
) -> Result<Option<String>, StoreError> {
    let connection = home.connection();
    if create && !contains(connection, term::databases(), database).await? {
        let doing = format!("creating the database {database}");
        make(connection, &term::create_database(database), doing).await?;
    }
    if is_emulated(connection).await? {
        if create && !contains(connection, term::tables(database), table).await? {
            let doing = format!("creating the table {database}.{table}");
            make(connection, &term::create_table(database, table), doing).await?;
        }
        return Ok(None);
    }
    if !create {
        exists(connection, database, table).await?;
    }
    let opened = home.open(create).await;
    opened.map(Some).map_err(|failure| failed(failure, format!("opening {database}.{table}")))
}

/// Makes sure that the table is there and that what it acknowledges lasts.
pub(super) async fn check(
    connection: &Connection,
    database: &str,
    table: &str,
) -> Result<(), StoreError> {
    exists(connection, database, table).await?;
    if is_emulated(connection).await? {
        // It keeps everything in one process: there are no replicas to acknowledge anything.
        tracing::warn!(
            "rethinkdb: the server does not tell its version, so it is an emulator: for tests only"
        );
        return Ok(());
    }
    configured(connection, database, table).await
}

async fn exists(connection: &Connection, database: &str, table: &str) -> Result<(), StoreError> {
    if !contains(connection, term::databases(), database).await? {
        return Err(missing(format!("the database `{database}` does not exist")));
    }
    if !contains(connection, term::tables(database), table).await? {
        return Err(missing(format!("the table `{database}.{table}` does not exist")));
    }
    Ok(())
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
    match connection.ask_patiently(question, CREATED_WITHIN).await {
        Ok(_) => Ok(()),
        Err(failure) if failure.source.to_string().contains("already exists") => Ok(()),
        Err(failure) => Err(failed(failure, doing)),
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
