//! The answers of a server.

use std::time::Duration;

use super::jute::{Malformed, Reader};

/// The metadata of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Stat {
    /// The transaction that created it.
    pub created: i64,
    /// The transaction that changed its data last.
    pub modified: i64,
    /// How often its data has changed since its creation.
    pub version: i32,
    /// How often its children have come and gone.
    pub children_version: i32,
    /// The session that it belongs to; 0 for a node that stays.
    pub owner: i64,
    /// The number of its children.
    pub children: i32,
}

/// The error code of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Code {
    Inconsistent,
    Unimplemented,
    BadArguments,
    NoNode,
    NoAuth,
    BadVersion,
    NoChildrenForEphemerals,
    NodeExists,
    NotEmpty,
    SessionExpired,
    InvalidAcl,
    AuthFailed,
    SessionMoved,
    NotReadOnly,
    QuotaExceeded,
    Throttled,
    Other(i32),
}

impl Code {
    pub(crate) fn of(number: i32) -> Option<Code> {
        Some(match number {
            0 => return None,
            -2 => Code::Inconsistent,
            -6 => Code::Unimplemented,
            -8 => Code::BadArguments,
            -101 => Code::NoNode,
            -102 => Code::NoAuth,
            -103 => Code::BadVersion,
            -108 => Code::NoChildrenForEphemerals,
            -110 => Code::NodeExists,
            -111 => Code::NotEmpty,
            -112 => Code::SessionExpired,
            -114 => Code::InvalidAcl,
            -115 => Code::AuthFailed,
            -118 => Code::SessionMoved,
            -119 => Code::NotReadOnly,
            -125 => Code::QuotaExceeded,
            -127 => Code::Throttled,
            other => Code::Other(other),
        })
    }
}

/// The head of every frame except a connection's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) number: i32,
    pub(crate) zxid: i64,
    pub(crate) refused: Option<Code>,
}

impl Head {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Head, Malformed> {
        let (number, zxid) = (reader.int()?, reader.long()?);
        Ok(Head { number, zxid, refused: Code::of(reader.int()?) })
    }
}

/// A server's answer to a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// The session that was asked for is over.
    Expired,
    Session {
        id: i64,
        secret: Vec<u8>,
        ttl: Duration,
    },
}

/// Reads the first frame of a connection.
pub(crate) fn accepted(body: &[u8]) -> Result<Accepted, Malformed> {
    let mut reader = Reader::new(body);
    let _version = reader.int()?;
    let ttl = reader.int()?;
    let id = reader.long()?;
    let secret = reader.bytes()?.to_vec();
    match u64::try_from(ttl) {
        Ok(ttl) if ttl > 0 && id != 0 => {
            Ok(Accepted::Session { id, secret, ttl: Duration::from_millis(ttl) })
        }
        Ok(_) | Err(_) => Ok(Accepted::Expired),
    }
}

/// The kind of change that a watch saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum EventKind {
    Created,
    Deleted,
    Changed,
    Children,
}

/// A notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event<'a> {
    pub(crate) kind: EventKind,
    pub(crate) path: &'a str,
}

impl<'a> Event<'a> {
    /// Reads a notification; `None` for a kind that we never ask for.
    pub(crate) fn read(mut reader: Reader<'a>) -> Result<Option<Event<'a>>, Malformed> {
        let (number, _state, path) = (reader.int()?, reader.int()?, reader.text()?);
        let kind = match number {
            1 => EventKind::Created,
            2 => EventKind::Deleted,
            3 => EventKind::Changed,
            4 => EventKind::Children,
            _ => return Ok(None),
        };
        Ok(Some(Event { kind, path }))
    }
}

pub(crate) fn stat(reader: &mut Reader<'_>) -> Result<Stat, Malformed> {
    let (created, modified) = (reader.long()?, reader.long()?);
    let (_ctime, _mtime) = (reader.long()?, reader.long()?);
    let (version, children_version, _acl_version) = (reader.int()?, reader.int()?, reader.int()?);
    let owner = reader.long()?;
    let (_length, children, _last_child) = (reader.int()?, reader.int()?, reader.long()?);
    Ok(Stat { created, modified, version, children_version, owner, children })
}

/// Reads the answer to a creation.
pub(crate) fn created(reader: &mut Reader<'_>) -> Result<(String, Stat), Malformed> {
    Ok((reader.text()?.to_owned(), stat(reader)?))
}

/// Reads the answer to a read.
pub(crate) fn data(reader: &mut Reader<'_>) -> Result<(Vec<u8>, Stat), Malformed> {
    Ok((reader.bytes()?.to_vec(), stat(reader)?))
}

/// Reads the answer to a read of many nodes, in the order they were asked for.
pub(crate) fn many_data(reader: &mut Reader<'_>) -> Result<Vec<Found>, Malformed> {
    const GET_DATA: i32 = 4;
    let mut found = Vec::new();
    loop {
        let (code, done, _error) = (reader.int()?, reader.flag()?, reader.int()?);
        if done {
            return Ok(found);
        }
        found.push(match code {
            GET_DATA => Ok(data(reader)?),
            -1 => Err(Code::of(reader.int()?).ok_or(Malformed)?),
            _ => return Err(Malformed),
        });
    }
}

/// The result of one of many nodes.
pub(crate) type Found = Result<(Vec<u8>, Stat), Code>;

/// Reads the answer to a listing.
pub(crate) fn children(reader: &mut Reader<'_>) -> Result<(Vec<String>, Stat), Malformed> {
    let (names, stat) = names(reader)?;
    Ok((names.into_iter().map(str::to_owned).collect(), stat))
}

/// Reads the answer to a listing, without copies.
///
/// A queue may have a thousand candidates, and each of them reads it.
pub(crate) fn names<'a>(reader: &mut Reader<'a>) -> Result<(Vec<&'a str>, Stat), Malformed> {
    let count = reader.count()?;
    let mut names = Vec::with_capacity(count.min(4096));
    for _ in 0..count {
        names.push(reader.text()?);
    }
    Ok((names, stat(reader)?))
}

/// The results of a transaction's parts.
///
/// A creation has its path and its [`Stat`], if the server sends them. Servers before 3.9 do not.
pub(crate) type Results = Vec<Option<(String, Stat)>>;

/// Reads the answer to a transaction. If it was refused: the part that failed, and its code.
pub(crate) fn results(
    reader: &mut Reader<'_>,
) -> Result<Result<Results, (usize, Code)>, Malformed> {
    const CREATE_UNKNOWN: i32 = 1;
    const DELETE: i32 = 2;
    const SET_DATA: i32 = 5;
    const CHECK: i32 = 13;
    const CREATE: i32 = 15;
    const CREATE_CONTAINER: i32 = 19;
    let mut results = Vec::new();
    let mut refused: Option<(usize, Code)> = None;
    for at in 0.. {
        let (code, done, _error) = (reader.int()?, reader.flag()?, reader.int()?);
        if done {
            break;
        }
        results.push(match code {
            CREATE | CREATE_CONTAINER => Some(created(reader)?),
            CREATE_UNKNOWN => {
                reader.text()?;
                None
            }
            SET_DATA => {
                stat(reader)?;
                None
            }
            DELETE | CHECK => None,
            -1 => {
                // The part that failed has its own code. Parts before it have zero, parts after it
                // `Inconsistent`.
                match (Code::of(reader.int()?), refused) {
                    (Some(code), None | Some((_, Code::Inconsistent))) => {
                        refused = Some((at, code))
                    }
                    (None, None) => refused = Some((at, Code::Inconsistent)),
                    (Some(_) | None, Some(_)) => {}
                }
                None
            }
            _ => return Err(Malformed),
        });
    }
    Ok(match refused {
        Some(refused) => Err(refused),
        None => Ok(results),
    })
}

#[cfg(test)]
mod tests {
    use bytes::BufMut;

    use super::*;

    fn head(out: &mut Vec<u8>, code: i32, done: bool, error: i32) {
        out.put_i32(code);
        out.put_u8(u8::from(done));
        out.put_i32(error);
    }

    /// The [`Stat`] of a node created by 3, changed by 4 and at version 5.
    fn put_stat(out: &mut Vec<u8>) {
        out.put_i64(3);
        out.put_i64(4);
        out.put_slice(&[0; 16]);
        out.put_i32(5);
        out.put_slice(&[0; 32]);
    }

    fn refused(codes: &[i32]) -> Vec<u8> {
        let mut out = Vec::new();
        for code in codes {
            head(&mut out, -1, false, *code);
            out.put_i32(*code);
        }
        head(&mut out, -1, true, -1);
        out
    }

    #[test]
    fn of_many_nodes_each_is_found_or_not_by_itself() {
        let mut out = Vec::new();
        head(&mut out, 4, false, 0);
        out.put_slice(&[0, 0, 0, 2, b'h', b'i']);
        put_stat(&mut out);
        head(&mut out, -1, false, -101);
        out.put_i32(-101);
        head(&mut out, 4, false, 0);
        // A node without data.
        out.put_i32(-1);
        put_stat(&mut out);
        head(&mut out, -1, true, -1);
        let found = many_data(&mut Reader::new(&out)).expect("well formed");
        let stat = stat(&mut Reader::new(&out[15..])).expect("well formed");
        assert_eq!((stat.created, stat.modified, stat.version), (3, 4, 5));
        assert_eq!(found, [Ok((b"hi".to_vec(), stat)), Err(Code::NoNode), Ok((Vec::new(), stat))]);
        for end in 0..out.len() {
            assert_eq!(many_data(&mut Reader::new(&out[..end])), Err(Malformed), "cut at {end}");
        }
    }

    #[test]
    fn creations_in_a_transaction_are_read_with_and_without_what_is_known_of_the_node() {
        let mut out = Vec::new();
        // The answer of servers before 3.9, and of later ones.
        for code in [1, 15] {
            head(&mut out, code, false, 0);
            out.put_slice(&[0, 0, 0, 2, b'/', b'x']);
            if code == 15 {
                put_stat(&mut out);
            }
        }
        head(&mut out, -1, true, -1);
        let made = results(&mut Reader::new(&out)).expect("well formed").expect("done");
        let known: Vec<_> = made.iter().map(|made| made.as_ref().map(|made| &*made.0)).collect();
        assert_eq!(known, [None, Some("/x")]);
    }

    #[test]
    fn the_part_to_blame_for_a_transaction_is_the_one_with_a_code_of_its_own() {
        for (codes, blamed) in [
            (&[0, 0, -103, -2][..], (2, Code::BadVersion)),
            (&[-101, -2, -2], (0, Code::NoNode)),
            (&[0, 0, -110], (2, Code::NodeExists)),
        ] {
            let answer = refused(codes);
            assert_eq!(results(&mut Reader::new(&answer)), Ok(Err(blamed)), "{codes:?}");
        }
    }
}
