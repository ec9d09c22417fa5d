//! `tenure retry`

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use serde::Serialize;
use tenure_cluster::ClusterClient;

use super::group;
use crate::args::Retry;
use crate::exit::{Ending, Failure, NOT_LED};
use crate::session::Session;
use crate::show;

/// How many dead letters are read at a time.
const LETTERS: usize = 256;

#[derive(Serialize)]
struct Retried {
    group: String,
    retried: u64,
    missing: Vec<String>,
}

pub(crate) async fn retry(session: &Session, wanted: &Retry) -> Ending {
    let opened = session.open().await?;
    let (client, _) = group::existing(session, &opened.backend, &wanted.group.group).await?;
    let (retried, missing) = if wanted.all {
        (client.retry_all().await? as u64, Vec::new())
    } else {
        some(&client, &wanted.ids).await?
    };
    if session.json {
        let (group, missing) = (client.name().to_string(), missing.clone());
        show::print_json(&Retried { group, retried, missing })?;
    } else {
        let letters = group::count(retried, "dead letter comes", "dead letters come");
        show::print(format_args!("{letters} back"))?;
    }
    for id in &missing {
        show::say(&format!("{id:?} is no dead letter"));
    }
    Ok(if missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(NOT_LED) })
}

/// Retries the dead letters with these numbers and names.
///
/// Returns how many there are, and the words that match none.
async fn some(client: &ClusterClient, ids: &[String]) -> Result<(u64, Vec<String>), Failure> {
    // A word that is a number means the task with that number; if there is none, the task with that
    // name.
    let (mut numbered, mut named) = (BTreeMap::new(), BTreeMap::<_, Vec<u64>>::new());
    let mut after = None;
    loop {
        let letters = client.letters(after.as_ref(), LETTERS).await?;
        group::mention(&letters.garbled);
        for letter in letters.items {
            let serial = letter.task.serial;
            let number = serial.to_string();
            for id in ids {
                if *id == number {
                    numbered.insert(id, serial);
                } else if *id == letter.task.id {
                    named.entry(id).or_default().push(serial);
                }
            }
        }
        match letters.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    let (mut serials, mut missing) = (BTreeSet::new(), Vec::new());
    for id in ids {
        match (numbered.get(id), named.get(id)) {
            (Some(serial), _) => drop(serials.insert(*serial)),
            (None, Some(all)) => serials.extend(all),
            (None, None) => missing.push(id.clone()),
        }
    }
    let serials: Vec<u64> = serials.into_iter().collect();
    // Letters that another user retried meanwhile count, too.
    client.retry(&serials).await?;
    Ok((serials.len() as u64, missing))
}
