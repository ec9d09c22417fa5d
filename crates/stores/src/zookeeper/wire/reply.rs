//! What a server answers.

use std::time::Duration;

use super::jute::{Malformed, Reader};

/// What a server knows of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Stat {
    /// The transaction that created it.
    pub created: i64,
    /// The transaction that changed its data last.
    pub modified: i64,
    /// How often its data was changed since its creation.
    pub version: i32,
    /// How often its children came and went.
    pub children_version: i32,
    /// The session it goes with; 0 for one that stays.
    pub owner: i64,
    /// How many children it has.
    pub children: i32,
}

/// How a server refused.
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

/// The head of every frame but a connection's first.
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

/// What a server says to a new connection.
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

/// What a watch saw.
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
    /// Reads one; none if it is about something that is never asked for.
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

/// The answer to a creation.
pub(crate) fn created(reader: &mut Reader<'_>) -> Result<(String, Stat), Malformed> {
    Ok((reader.text()?.to_owned(), stat(reader)?))
}

/// The answer to a reading.
pub(crate) fn data(reader: &mut Reader<'_>) -> Result<(Vec<u8>, Stat), Malformed> {
    Ok((reader.bytes()?.to_vec(), stat(reader)?))
}

/// The answer to a listing.
pub(crate) fn children(reader: &mut Reader<'_>) -> Result<(Vec<String>, Stat), Malformed> {
    let (names, stat) = names(reader)?;
    Ok((names.into_iter().map(str::to_owned).collect(), stat))
}

/// The same, without copies: a line may have a thousand candidates, each of whom reads it.
pub(crate) fn names<'a>(reader: &mut Reader<'a>) -> Result<(Vec<&'a str>, Stat), Malformed> {
    let count = reader.count()?;
    let mut names = Vec::with_capacity(count.min(4096));
    for _ in 0..count {
        names.push(reader.text()?);
    }
    Ok((names, stat(reader)?))
}

/// What became of the parts of a transaction: of a creation its path and what is known of the node.
pub(crate) type Results = Vec<Option<(String, Stat)>>;

/// The answer to a transaction; or why none of it happened, and which part is to blame.
pub(crate) fn results(
    reader: &mut Reader<'_>,
) -> Result<Result<Results, (usize, Code)>, Malformed> {
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
            SET_DATA => {
                stat(reader)?;
                None
            }
            DELETE | CHECK => None,
            -1 => {
                // Of the one to blame there is a code; those before it say zero, those after it `Inconsistent`.
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
