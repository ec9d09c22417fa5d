//! The requests to a server.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes};
use tenure::queue::window::Kind;

use super::AUTHENTICATION;
use super::jute::{bytes, flag, frame, text};

// The numbers of the protocol (ZooDefs.OpCode).
const DELETE: i32 = 2;
const EXISTS: i32 = 3;
const GET_DATA: i32 = 4;
const SET_DATA: i32 = 5;
const SYNC: i32 = 9;
const CHILDREN: i32 = 12;
const CHECK: i32 = 13;
const MULTI: i32 = 14;
const CREATE: i32 = 15;
const CREATE_CONTAINER: i32 = 19;
const MULTI_READ: i32 = 22;
const AUTH: i32 = 100;
const CLOSE: i32 = -11;

/// The lifetime of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lifetime {
    /// Until it is deleted.
    Lasting,
    /// Until it is deleted, or the server finds it empty.
    Container,
    /// As long as the session. The server appends a number to its name.
    EphemeralSequential,
    /// As long as the session.
    Ephemeral,
}

/// A permission on a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acl {
    /// The sum of the permitted operations: read 1, write 2, create 4, delete 8, admin 16.
    pub permissions: i32,
    /// How clients are identified, such as `digest`, `ip` or `world`.
    pub scheme: Arc<str>,
    /// The client, as the scheme writes it.
    pub id: Arc<str>,
}

impl Acl {
    /// Everything is permitted to everyone.
    #[must_use]
    pub fn open() -> Arc<[Acl]> {
        Arc::new([Acl { permissions: 31, scheme: "world".into(), id: "anyone".into() }])
    }

    /// Everything is permitted to the creator of the node. The session must be authenticated.
    #[must_use]
    pub fn creator() -> Arc<[Acl]> {
        Arc::new([Acl { permissions: 31, scheme: "auth".into(), id: "".into() }])
    }

    /// Everything is permitted to the creator of the node, and reading to everyone.
    #[must_use]
    pub fn creator_and_readers() -> Arc<[Acl]> {
        let readers = Acl { permissions: 1, scheme: "world".into(), id: "anyone".into() };
        Acl::creator().iter().cloned().chain([readers]).collect()
    }
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Create {
        path: String,
        data: Bytes,
        lifetime: Lifetime,
        acl: Arc<[Acl]>,
    },
    Delete {
        path: String,
        version: i32,
    },
    SetData {
        path: String,
        data: Bytes,
        version: i32,
    },
    Check {
        path: String,
        version: i32,
    },
    Exists {
        path: Arc<str>,
        watch: bool,
    },
    Data {
        path: Arc<str>,
        watch: bool,
    },
    Children {
        path: Arc<str>,
        watch: bool,
    },
    Sync {
        path: Arc<str>,
    },
    Multi(Vec<Request>),
    /// The data of many nodes in one answer. Servers before 3.6 do not know it.
    ManyData(Vec<String>),
    Close,
}

impl Request {
    /// The kind of proof that an answer gives.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Request::Exists { .. }
            | Request::Data { .. }
            | Request::Children { .. }
            | Request::ManyData(_) => Kind::Read,
            Request::Sync { .. } => Kind::Sync,
            Request::Create { .. }
            | Request::Delete { .. }
            | Request::SetData { .. }
            | Request::Check { .. }
            | Request::Multi(_)
            | Request::Close => Kind::Write,
        }
    }

    /// How much work it is for the server.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Request::Multi(parts) => parts.len(),
            Request::ManyData(paths) => paths.len(),
            Request::Create { .. }
            | Request::Delete { .. }
            | Request::SetData { .. }
            | Request::Check { .. }
            | Request::Exists { .. }
            | Request::Data { .. }
            | Request::Children { .. }
            | Request::Sync { .. }
            | Request::Close => 1,
        }
    }

    /// The size of its data.
    pub(crate) fn size(&self) -> usize {
        match self {
            Request::Create { data, .. } | Request::SetData { data, .. } => data.len(),
            Request::Multi(parts) => parts.iter().map(Request::size).sum(),
            Request::Delete { .. }
            | Request::Check { .. }
            | Request::Exists { .. }
            | Request::Data { .. }
            | Request::Children { .. }
            | Request::Sync { .. }
            | Request::ManyData(_)
            | Request::Close => 0,
        }
    }

    /// Its size as a part of a transaction, or a little less.
    pub(crate) fn length(&self) -> usize {
        match self {
            Request::Create { path, data, .. } | Request::SetData { path, data, .. } => {
                path.len() + data.len()
            }
            Request::Delete { path, .. } | Request::Check { path, .. } => path.len(),
            Request::Exists { path, .. }
            | Request::Data { path, .. }
            | Request::Children { path, .. }
            | Request::Sync { path } => path.len(),
            Request::Multi(parts) => parts.iter().map(Request::length).sum(),
            Request::ManyData(paths) => paths.iter().map(String::len).sum(),
            Request::Close => 0,
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>, number: i32) {
        frame(out, |out| {
            out.put_i32(number);
            out.put_i32(self.code());
            self.body(out);
        });
    }

    fn code(&self) -> i32 {
        match self {
            Request::Create { lifetime: Lifetime::Container, .. } => CREATE_CONTAINER,
            Request::Create { .. } => CREATE,
            Request::Delete { .. } => DELETE,
            Request::SetData { .. } => SET_DATA,
            Request::Check { .. } => CHECK,
            Request::Exists { .. } => EXISTS,
            Request::Data { .. } => GET_DATA,
            Request::Children { .. } => CHILDREN,
            Request::Sync { .. } => SYNC,
            Request::Multi(_) => MULTI,
            Request::ManyData(_) => MULTI_READ,
            Request::Close => CLOSE,
        }
    }

    fn body(&self, out: &mut Vec<u8>) {
        match self {
            Request::Create { path, data, lifetime, acl } => {
                text(out, path);
                bytes(out, data);
                write_acl(out, acl);
                out.put_i32(match lifetime {
                    Lifetime::Lasting => 0,
                    Lifetime::Ephemeral => 1,
                    Lifetime::EphemeralSequential => 3,
                    Lifetime::Container => 4,
                });
            }
            Request::Delete { path, version } | Request::Check { path, version } => {
                text(out, path);
                out.put_i32(*version);
            }
            Request::SetData { path, data, version } => {
                text(out, path);
                bytes(out, data);
                out.put_i32(*version);
            }
            Request::Exists { path, watch }
            | Request::Data { path, watch }
            | Request::Children { path, watch } => {
                text(out, path);
                flag(out, *watch);
            }
            Request::Sync { path } => text(out, path),
            Request::Multi(parts) => {
                for part in parts {
                    multi_head(out, part.code(), false);
                    part.body(out);
                }
                multi_head(out, -1, true);
            }
            Request::ManyData(paths) => {
                for path in paths {
                    multi_head(out, GET_DATA, false);
                    text(out, path);
                    flag(out, false);
                }
                multi_head(out, -1, true);
            }
            Request::Close => {}
        }
    }
}

fn multi_head(out: &mut Vec<u8>, code: i32, done: bool) {
    out.put_i32(code);
    flag(out, done);
    out.put_i32(-1);
}

fn write_acl(out: &mut Vec<u8>, acl: &[Acl]) {
    out.put_i32(i32::try_from(acl.len()).expect("nobody writes so many permissions"));
    for Acl { permissions, scheme, id } in acl {
        out.put_i32(*permissions);
        text(out, scheme);
        text(out, id);
    }
}

/// Writes the first frame of a connection, which begins or resumes a session.
pub(crate) fn connect(out: &mut Vec<u8>, seen: i64, ttl: Duration, session: i64, secret: &[u8]) {
    frame(out, |out| {
        out.put_i32(0);
        out.put_i64(seen);
        out.put_i32(i32::try_from(ttl.as_millis()).unwrap_or(i32::MAX));
        out.put_i64(session);
        bytes(out, secret);
        // Refuse read-only mode: a server without a quorum is of no use.
        flag(out, false);
    });
}

/// Writes an authentication request.
pub(crate) fn authenticate(out: &mut Vec<u8>, scheme: &str, proof: &[u8]) {
    frame(out, |out| {
        out.put_i32(AUTHENTICATION);
        out.put_i32(AUTH);
        out.put_i32(0);
        text(out, scheme);
        bytes(out, proof);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a request, without the length in front.
    fn written(request: &Request) -> Vec<u8> {
        let mut out = Vec::new();
        request.write(&mut out, 7);
        out.split_off(4)
    }

    #[test]
    fn a_transaction_is_a_list_of_requests_with_a_head_each() {
        let request = Request::Multi(vec![
            Request::Check { path: "/a".into(), version: -1 },
            Request::SetData { path: "/a".into(), data: Bytes::from_static(b"x"), version: 3 },
        ]);
        let expected = [
            &[0, 0, 0, 7, 0, 0, 0, 14][..],
            &[0, 0, 0, 13, 0, 255, 255, 255, 255],
            &[0, 0, 0, 2, b'/', b'a', 255, 255, 255, 255],
            &[0, 0, 0, 5, 0, 255, 255, 255, 255],
            &[0, 0, 0, 2, b'/', b'a', 0, 0, 0, 1, b'x', 0, 0, 0, 3],
            &[255, 255, 255, 255, 1, 255, 255, 255, 255],
        ];
        assert_eq!(written(&request), expected.concat());
        assert_eq!((request.weight(), request.size(), request.length()), (2, 1, 5));
    }

    #[test]
    fn the_data_of_many_nodes_is_asked_for_without_watches() {
        let request = Request::ManyData(vec!["/a".into(), "/bc".into()]);
        let expected = [
            &[0, 0, 0, 7, 0, 0, 0, 22][..],
            &[0, 0, 0, 4, 0, 255, 255, 255, 255, 0, 0, 0, 2, b'/', b'a', 0],
            &[0, 0, 0, 4, 0, 255, 255, 255, 255, 0, 0, 0, 3, b'/', b'b', b'c', 0],
            &[255, 255, 255, 255, 1, 255, 255, 255, 255],
        ];
        assert_eq!(written(&request), expected.concat());
        assert_eq!((request.kind(), request.weight()), (Kind::Read, 2));
    }
}
