//! Opening a store's table: finding or creating it, and checking that it is safe.

use std::time::Duration;

use serde_json::Value;
use tenure::store::{Fault, StoreError};
use tokio::time::Instant;

use super::connection::{Connection, failed};
use super::fault::Kind;
use super::home::{self, Home, LOOKED_WITHIN};
use super::{refused, term};

/// The time to open a table. It includes a starting server, a creation and a repair.
const OPENED_WITHIN: Duration = Duration::from_secs(25);

/// How long the creation of a database may take. After that its outcome is unknown.
const CREATED_WITHIN: Duration = Duration::from_secs(15);

/// Opens the table. Checks that it can be read and that acknowledged writes last.
///
/// Another table of its name may appear at any moment, so a step that fails for now is repeated
/// from the start.
pub(super) async fn settle(
    home: &Home,
    database: &str,
    table: &str,
    create: bool,
) -> Result<Option<String>, StoreError> {
    let end = Instant::now() + OPENED_WITHIN;
    loop {
        let settled = async {
            let id = open_until(home, database, table, create, end).await?;
            check(home.connection(), database, table).await?;
            Ok::<_, StoreError>(id)
        };
        match settled.await {
            Err(error) if error.fault == Fault::Unavailable && Instant::now() < end => {
                tracing::debug!(%error, "rethinkdb: {database}.{table} is not settled");
                home::pause().await;
            }
            settled => return settled,
        }
    }
}

/// Finds the table, or creates it and its database, and returns the table's id.
///
/// An emulator's table has no id.
pub(super) async fn open(
    home: &Home,
    database: &str,
    table: &str,
    create: bool,
) -> Result<Option<String>, StoreError> {
    open_until(home, database, table, create, Instant::now() + OPENED_WITHIN).await
}

async fn open_until(
    home: &Home,
    database: &str,
    table: &str,
    create: bool,
    end: Instant,
) -> Result<Option<String>, StoreError> {
    let connection = home.connection();
    if !contains(connection, term::databases(), database).await? {
        if !create {
            return Err(missing(format!("the database `{database}` does not exist")));
        }
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
    match home.open(create, end).await {
        Ok(Some(id)) => Ok(Some(id)),
        Ok(None) => Err(missing(format!("the table `{database}.{table}` does not exist"))),
        Err(failure) => Err(failed(failure, format!("opening {database}.{table}"))),
    }
}

async fn check(connection: &Connection, database: &str, table: &str) -> Result<(), StoreError> {
    if is_emulated(connection).await? {
        if !contains(connection, term::tables(database), table).await? {
            return Err(missing(format!("the table `{database}.{table}` does not exist")));
        }
        // An emulator keeps everything in one process: there are no replicas to acknowledge writes.
        tracing::warn!(
            "rethinkdb: the server does not tell its version, so it is an emulator: for tests only"
        );
        return Ok(());
    }
    configured(connection, database, table).await?;
    let question = term::settled_table(database, table).emptiness();
    let read = connection.ask_patiently(Kind::Read, &question, LOOKED_WITHIN).await;
    read.map(drop).map_err(|failure| failed(failure, format!("reading {database}.{table}")))
}

/// Returns true if the server is an emulator.
pub(super) async fn is_emulated(connection: &Connection) -> Result<bool, StoreError> {
    connection.is_emulated().await.map_err(|failure| failed(failure, "connecting"))
}

async fn contains(
    connection: &Connection,
    names: term::Term,
    name: &str,
) -> Result<bool, StoreError> {
    let listed = connection.ask_patiently(Kind::Read, &names, LOOKED_WITHIN).await;
    let listed = listed.map_err(|failure| failed(failure, "looking for the table"))?;
    let listed = listed.as_array().map_or(&[][..], Vec::as_slice);
    Ok(listed.iter().any(|listed| listed.as_str() == Some(name)))
}

fn missing(what: String) -> StoreError {
    let says = format!("{what}, and creating it was not asked for");
    refused(Fault::Permanent, "looking for the table", says)
}

/// Creates a database or table. Succeeds if another process was faster.
async fn make(
    connection: &Connection,
    question: &term::Term,
    doing: String,
) -> Result<(), StoreError> {
    match connection.ask_patiently(Kind::Write, question, CREATED_WITHIN).await {
        Ok(_) => Ok(()),
        Err(failure) if failure.source.to_string().contains("already exists") => Ok(()),
        Err(failure) => Err(failed(failure, doing)),
    }
}

/// Fails unless a majority acknowledges writes and documents are found by `id`.
async fn configured(
    connection: &Connection,
    database: &str,
    table: &str,
) -> Result<(), StoreError> {
    let doing = || format!("reading the configuration of {database}.{table}");
    let question = term::table(database, table).config();
    let config = connection.ask_patiently(Kind::Read, &question, LOOKED_WITHIN).await;
    let config = config.map_err(|failure| match failure.fault {
        // Without the configuration it is unknown whether acknowledged writes last.
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
