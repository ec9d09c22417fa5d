//! Groups many writes into a few commands.

use tenure::Key;
use tenure::store::{Expect, Fault, MAX_DOCUMENT_BYTES, Put, StoreError, Version, Write};

use super::document;
use super::table::Replacement;

/// The most writes and bytes of a command. Requests sent beside it must not wait for long.
const MOST_WRITES: usize = 250;
const MOST_BYTES: usize = 1024 * 1024;

/// The writes of one command, with their indexes in the whole.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) numbers: Vec<usize>,
    pub(super) keys: Vec<Key>,
    pub(super) writes: Writes,
}

/// The kind of a command, with its writes.
#[derive(Debug)]
pub(super) enum Writes {
    Insert(Vec<Replacement>),
    Replace(Vec<Replacement>),
    /// One deletion a command: the server only says how many of several it deleted.
    Delete(Key, Version),
}

/// The outcome of a write, with its index in the whole.
pub(super) type Numbered = (usize, Result<Put, StoreError>);

/// Sorts writes into commands. Refused writes have their outcome already.
pub(super) fn sort(writes: Vec<Write>) -> (Vec<Batch>, Vec<Numbered>) {
    let (mut inserts, mut replacements) = (Vec::new(), Vec::new());
    let (mut batches, mut refused) = (Vec::new(), Vec::new());
    for (number, write) in writes.into_iter().enumerate() {
        let Write { key, expect, body, durability: _ } = write;
        match (expect, body) {
            (_, Some(body)) if body.len() > MAX_DOCUMENT_BYTES => {
                let says = format!("{} bytes are more than {MAX_DOCUMENT_BYTES}", body.len());
                let doing = format!("writing {key}");
                let error = StoreError::new(Fault::Permanent, "mongodb", doing, says);
                refused.push((number, Err(error)));
            }
            (expect, Some(body)) => {
                let (expected, kind) = match expect {
                    Expect::Absent => (None, &mut inserts),
                    Expect::At(version) => (Some(version), &mut replacements),
                };
                let version = document::fresh();
                kind.push((number, Replacement { key, expected, version, body }));
            }
            (Expect::At(version), None) => batches.push(Batch {
                numbers: vec![number],
                keys: vec![key.clone()],
                writes: Writes::Delete(key, version),
            }),
            (Expect::Absent, None) => {
                // There is nothing to delete.
                let says = "a deletion needs the version that it deletes";
                let doing = format!("deleting {key}");
                let error = StoreError::new(Fault::Permanent, "mongodb", doing, says);
                refused.push((number, Err(error)));
            }
        }
    }
    batches.extend(chunks(inserts, Writes::Insert));
    batches.extend(chunks(replacements, Writes::Replace));
    (batches, refused)
}

fn chunks(
    writes: Vec<(usize, Replacement)>,
    kind: fn(Vec<Replacement>) -> Writes,
) -> impl Iterator<Item = Batch> {
    let mut chunks: Vec<Vec<(usize, Replacement)>> = Vec::new();
    let mut bytes = 0;
    for write in writes {
        bytes += write.1.body.len();
        match chunks.last_mut().filter(|last| last.len() < MOST_WRITES && bytes <= MOST_BYTES) {
            Some(last) => last.push(write),
            None => {
                bytes = write.1.body.len();
                chunks.push(vec![write]);
            }
        }
    }
    chunks.into_iter().map(move |chunk| {
        let (numbers, writes): (Vec<usize>, Vec<Replacement>) = chunk.into_iter().unzip();
        let keys = writes.iter().map(|write| write.key.clone()).collect();
        Batch { numbers, keys, writes: kind(writes) }
    })
}
