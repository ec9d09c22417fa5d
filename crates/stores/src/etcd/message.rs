//! Documents in etcd's messages.

use bytes::Bytes;
use tenure::{Document, Expect, MAX_DOCUMENT_BYTES, Version};

use super::proto::compare::{CompareResult, CompareTarget, TargetUnion};
use super::proto::request_op::Request;
use super::proto::response_op::Response;
use super::proto::{
    Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RequestOp, ResponseHeader,
    ResponseOp, TxnRequest,
};

pub(super) fn read_one(key: Bytes) -> RangeRequest {
    // Not serializable, which is to say linearizable.
    RangeRequest { key, ..RangeRequest::default() }
}

pub(super) fn read_all(keys: impl Iterator<Item = Bytes>) -> TxnRequest {
    let read = |key| RequestOp { request: Some(Request::RequestRange(read_one(key))) };
    TxnRequest { success: keys.map(read).collect(), ..TxnRequest::default() }
}

pub(super) fn read_range(range: (Bytes, Bytes), limit: usize) -> RangeRequest {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    RangeRequest { key: range.0, range_end: range.1, limit, ..RangeRequest::default() }
}

/// One conditional write, or none when the expectation names no version of ours.
pub(super) fn write(key: Bytes, expect: &Expect, body: Option<Bytes>) -> Option<TxnRequest> {
    let (target, union) = match expect {
        Expect::Absent => (CompareTarget::Create, TargetUnion::CreateRevision(0)),
        Expect::At(version) => (CompareTarget::Mod, TargetUnion::ModRevision(revision(version)?)),
    };
    let compare = Compare {
        result: CompareResult::Equal.into(),
        target: target.into(),
        key: key.clone(),
        target_union: Some(union),
        range_end: Bytes::new(),
    };
    let change = match body {
        Some(value) => Request::RequestPut(PutRequest { key, value, ..PutRequest::default() }),
        None => Request::RequestDeleteRange(DeleteRangeRequest { key, range_end: Bytes::new() }),
    };
    let success = vec![RequestOp { request: Some(change) }];
    Some(TxnRequest { compare: vec![compare], success, failure: Vec::new() })
}

/// What a part of a transaction of reads found.
pub(super) fn found(part: ResponseOp) -> Option<KeyValue> {
    match part.response {
        Some(Response::ResponseRange(range)) => range.kvs.into_iter().next(),
        Some(
            Response::ResponsePut(_) | Response::ResponseDeleteRange(_) | Response::ResponseTxn(_),
        )
        | None => None,
    }
}

pub(super) fn document(found: KeyValue) -> Document {
    // Of a body that is too large, as much is kept as shows that it is.
    let body = found.value.slice(..found.value.len().min(MAX_DOCUMENT_BYTES + 1));
    Document { version: version(found.mod_revision), body }
}

pub(super) fn version(revision: i64) -> Version {
    Version::new(revision.to_string())
}

/// The revision that a version of ours stands for.
pub(super) fn revision(version: &Version) -> Option<i64> {
    version.as_str().parse().ok().filter(|revision| *revision > 0)
}

pub(super) fn at(header: Option<&ResponseHeader>) -> i64 {
    header.map_or(0, |header| header.revision)
}
