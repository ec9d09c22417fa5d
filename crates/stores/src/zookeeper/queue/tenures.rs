//! The record of an election's tenures: the newest recorded one, and how it ended.
//!
//! Each election has one such node, which is never deleted. It is not among the candidates, because
//! other clients would take it for one of them.

use bytes::Bytes;
use tenure::queue::{Entry, Left};
use tenure::store::StoreError;

use super::super::client::Error;
use super::super::fault::{Kind, failed, unsent};
use super::super::wire::{Code, Lifetime, Request, Stat};
use super::ZookeeperQueue;
use super::root::{self, Root};

/// How often a record is tried while other processes make the same node.
const MOST_ATTEMPTS: usize = 4;

/// The content of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tenure {
    /// A tenure with a lock delay. It was not left cleanly, or not yet.
    Begun(u64),
    /// The tenure was left cleanly.
    Left(u64),
    /// The tenure began in an election without a lock delay.
    Led(u64),
    /// The record makes no sense. It counts as a tenure that was not left cleanly, with the highest
    /// token it can have had: the transaction that wrote the record.
    Unreadable(u64),
}

impl Tenure {
    pub(super) fn read(data: &[u8], stat: &Stat) -> Tenure {
        let words = std::str::from_utf8(data).ok().and_then(|text| text.split_once(' '));
        let read = words.and_then(|(word, token)| match (word, token.parse().ok()?) {
            ("begun", token) => Some(Tenure::Begun(token)),
            ("left", token) => Some(Tenure::Left(token)),
            ("led", token) => Some(Tenure::Led(token)),
            _ => None,
        });
        read.unwrap_or(Tenure::Unreadable(root::number(stat.modified)))
    }

    pub(super) fn data(self) -> Bytes {
        Bytes::from(match self {
            Tenure::Begun(token) | Tenure::Unreadable(token) => format!("begun {token}"),
            Tenure::Left(token) => format!("left {token}"),
            Tenure::Led(token) => format!("led {token}"),
        })
    }

    /// The tenure that was not left cleanly.
    pub(super) fn unclean(self) -> Option<u64> {
        match self {
            Tenure::Begun(token) | Tenure::Unreadable(token) => Some(token),
            Tenure::Left(_) | Tenure::Led(_) => None,
        }
    }

    /// The recorded token; 0 if the record is unreadable.
    pub(super) fn token(self) -> u64 {
        match self {
            Tenure::Begun(token) | Tenure::Left(token) | Tenure::Led(token) => token,
            Tenure::Unreadable(_) => 0,
        }
    }
}

/// This process's knowledge of the record of an entry's tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recorded {
    /// The server confirmed the record.
    Known,
    /// The record was sent, and no answer came.
    Perhaps,
}

impl ZookeeperQueue {
    /// Records a tenure while its entry stands.
    pub(super) async fn record(&self, entry: &Entry, tenure: Tenure) -> Result<(), StoreError> {
        let doing = || format!("recording the tenure of {}", entry.name);
        let fail = |error| failed(error, Kind::Write, doing());
        let path = Root::of_entry(&self.base, &entry.name).tenure.to_string();
        let stands = Request::Check { path: entry.name.to_string(), version: -1 };
        let mut record = Request::SetData { path: path.clone(), data: tenure.data(), version: -1 };
        for _ in 0..MOST_ATTEMPTS {
            let replaces = matches!(record, Request::SetData { .. });
            match self.client.transaction(vec![stands.clone(), record]).await.map_err(fail)? {
                Ok(_) => return Ok(()),
                Err((0, Code::NoNode)) => return Err(unsent(doing(), "the entry is gone")),
                // There is no record to replace, or no node to create one in.
                Err((_, Code::NoNode)) => {
                    if !replaces {
                        self.make_tenures().await.map_err(fail)?;
                    }
                    record = self.first_record(&path, tenure);
                }
                Err((_, Code::NodeExists)) => {
                    record =
                        Request::SetData { path: path.clone(), data: tenure.data(), version: -1 };
                }
                Err((_, code)) => return Err(fail(code.into())),
            }
        }
        Err(unsent(doing(), "another process makes and deletes that record all the time"))
    }

    fn first_record(&self, path: &str, tenure: Tenure) -> Request {
        let (path, data) = (path.to_owned(), tenure.data());
        Request::Create { path, data, lifetime: Lifetime::Lasting, acl: self.acl.clone() }
    }

    async fn make_tenures(&self) -> Result<(), Error> {
        let path = root::tenures(&self.base);
        let made = self.client.create(&path, Bytes::new(), Lifetime::Lasting, &self.acl).await;
        match made {
            Ok(_) | Err(Error::NodeExists) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Deletes an entry.
    ///
    /// If its tenure is recorded as begun and has ended cleanly, that is recorded in the same
    /// transaction.
    pub(super) async fn delete(&self, entry: &Entry, clean: bool) -> Result<Left, Error> {
        if clean && self.is_recorded(entry).await? {
            // While our entry stands, no later tenure can have begun, so the record is ours.
            let path = Root::of_entry(&self.base, &entry.name).tenure.to_string();
            let data = Tenure::Left(entry.token).data();
            let parts = vec![
                Request::Delete { path: entry.name.to_string(), version: -1 },
                Request::SetData { path, data, version: -1 },
            ];
            match self.client.transaction(parts).await? {
                Ok(_) => return Ok(Left::Deleted),
                Err((0, Code::NoNode)) => return Ok(Left::Absent),
                // An operator has deleted the record, and the transaction had no effect.
                Err((_, Code::NoNode)) => {}
                Err((_, code)) => return Err(code.into()),
            }
        }
        match self.client.delete(&entry.name, None).await {
            Ok(()) => Ok(Left::Deleted),
            Err(Error::NoNode) => Ok(Left::Absent),
            Err(error) => Err(error),
        }
    }

    /// Returns true if the beginning of this entry's tenure is recorded.
    ///
    /// The server is asked only if its answer was lost.
    async fn is_recorded(&self, entry: &Entry) -> Result<bool, Error> {
        match self.known_of(entry) {
            None => Ok(false),
            Some(Recorded::Known) => Ok(true),
            Some(Recorded::Perhaps) => {
                let path = Root::of_entry(&self.base, &entry.name).tenure;
                // This may be a new connection, to a server that has not heard of the record yet.
                let (synced, read) = (self.client.sync(&path), self.client.data(&path));
                synced.await?;
                match read.await {
                    Ok((data, stat)) => {
                        Ok(Tenure::read(&data, &stat).unclean() == Some(entry.token))
                    }
                    Err(Error::NoNode) => Ok(false),
                    Err(error) => Err(error),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_and_one_that_makes_no_sense_is_waited_for() {
        let stat = Stat {
            created: 7,
            modified: 9,
            version: 1,
            children_version: 0,
            owner: 0,
            children: 0,
        };
        for tenure in [Tenure::Begun(5), Tenure::Left(5), Tenure::Led(5)] {
            assert_eq!(Tenure::read(&tenure.data(), &stat), tenure);
        }
        for odd in [&b""[..], b"5", b"begun", b"begun x", b"ended 5", b"\xff 5"] {
            let read = Tenure::read(odd, &stat);
            assert_eq!((read.unclean(), read.token()), (Some(9), 0), "{odd:?}");
        }
        let page = include_str!("../../../../../docs/keys.md");
        for word in ["begun", "left", "led"] {
            assert!(page.contains(&format!("`{word} <token>`")), "{word}");
        }
    }
}
