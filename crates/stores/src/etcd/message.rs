//! Documents in etcd's messages.

use bytes::Bytes;
use tenure::store::{Document, Expect, MAX_DOCUMENT_BYTES, Version};

use super::proto::compare::{CompareResult, CompareTarget, TargetUnion};
use super::proto::request_op::Request;
use super::proto::response_op::Response;
use super::proto::{
    Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RequestOp, ResponseHeader,
    ResponseOp, TxnRequest, TxnResponse,
};

pub(super) fn read_one(key: Bytes) -> RangeRequest {
    // Not serializable, so linearizable.
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

/// A conditional write; `None` if the expected version is not one of ours.
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

/// A transaction inside another, with its own outcome.
pub(super) fn within(txn: TxnRequest) -> RequestOp {
    RequestOp { request: Some(Request::RequestTxn(txn)) }
}

/// Several writes as one transaction, each with its own outcome.
///
/// The failure branch is never taken, because the outer transaction compares nothing. It is there
/// because older servers (3.4.23 is one) check permissions and disk space in both branches of a
/// transaction, but not in transactions inside.
pub(super) fn together<'a>(writes: impl Iterator<Item = &'a TxnRequest>) -> TxnRequest {
    let (success, failure) = writes
        .map(|write| (within(write.clone()), write.success.iter().map(without_value)))
        .unzip::<_, _, Vec<_>, Vec<_>>();
    TxnRequest { compare: Vec::new(), success, failure: failure.into_iter().flatten().collect() }
}

fn without_value(change: &RequestOp) -> RequestOp {
    match &change.request {
        Some(Request::RequestPut(put)) => {
            let put = PutRequest { key: put.key.clone(), ..PutRequest::default() };
            RequestOp { request: Some(Request::RequestPut(put)) }
        }
        Some(
            Request::RequestRange(_) | Request::RequestDeleteRange(_) | Request::RequestTxn(_),
        )
        | None => change.clone(),
    }
}

/// For each write of a transaction: true if it succeeded, `None` if the answer does not tell.
pub(super) fn succeeded(answer: &TxnResponse) -> impl Iterator<Item = Option<bool>> {
    let parts = answer.responses.iter().map(|part| match &part.response {
        Some(Response::ResponseTxn(inner)) => Some(inner.succeeded),
        Some(
            Response::ResponseRange(_)
            | Response::ResponsePut(_)
            | Response::ResponseDeleteRange(_),
        )
        | None => None,
    });
    parts.chain(std::iter::repeat(None))
}

/// The key that one read of a transaction found.
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
    // Cut a body that is too large just after the limit, so that it still shows as too large.
    let body = found.value.slice(..found.value.len().min(MAX_DOCUMENT_BYTES + 1));
    Document { version: version(found.mod_revision), body }
}

pub(super) fn version(revision: i64) -> Version {
    Version::new(revision.to_string())
}

/// Parses a version of ours; `None` if it is not one.
pub(super) fn revision(version: &Version) -> Option<i64> {
    version.as_str().parse().ok().filter(|revision| *revision > 0)
}

pub(super) fn at(header: Option<&ResponseHeader>) -> i64 {
    header.map_or(0, |header| header.revision)
}
