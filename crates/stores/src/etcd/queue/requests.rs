//! The transactions and reads of queues.

use bytes::Bytes;
use tenure::Key;
use tenure::protocol::Holder;
use tenure::queue::{Entry, Ticket};

use super::super::message::within;
use super::super::proto::compare::{CompareResult, CompareTarget, TargetUnion};
use super::super::proto::range_request::{SortOrder, SortTarget};
use super::super::proto::request_op::Request;
use super::super::proto::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
};
use super::super::waits::Topic;
use super::claims::Seat;
use super::keys::{QueueKeys, of_name};
use super::record;

/// The maximum number of candidates of one election that are shown to people.
const MOST_SHOWN: i64 = 10_000;

/// Joins a queue if the key is free and the election is open. Otherwise reads the mark and the key.
///
/// A join that arrives after its seat has moved to another lease has no effect, because its entry
/// would not be kept alive. A new candidate has the newest entry, so the two newest are its own and
/// the one before.
pub(super) fn join(
    keys: &QueueKeys,
    election: &Key,
    seat: Seat,
    ticket: &Ticket,
    holder: &Holder,
) -> TxnRequest {
    let (entry, beside) = (keys.entry(election, seat.name), keys.holder(election, seat.name));
    let mark = keys.mark(election);
    TxnRequest {
        compare: vec![
            absent(entry.clone()),
            says(mark.clone(), record::OPEN),
            under(keys.session(seat.name), seat.lease),
        ],
        success: vec![
            put(entry, record::entry_value(holder), seat.lease),
            put(beside, record::encode(holder, ticket.attempt), seat.lease),
            range(one(mark)),
            range(one(keys.tenure(election))),
            range(first(keys.entries(election))),
            range(newest(keys.entries(election), 2, 0)),
        ],
        failure: vec![
            range(one(keys.mark(election))),
            range(one(keys.entry(election, seat.name))),
            range(one(keys.holder(election, seat.name))),
        ],
    }
}

/// Deletes this very entry of ours; if it was left cleanly, also the record of its tenure.
pub(super) fn leave(
    keys: &QueueKeys,
    election: &Key,
    seat: i64,
    token: u64,
    clean: bool,
) -> TxnRequest {
    let entry = keys.entry(election, seat);
    let mut success = vec![delete(entry.clone()), delete(keys.holder(election, seat))];
    if clean {
        let tenure = keys.tenure(election);
        success.push(within(TxnRequest {
            compare: vec![says(tenure.clone(), &record::tenure(token))],
            success: vec![delete(tenure)],
            failure: Vec::new(),
        }));
    }
    TxnRequest { compare: vec![made_at(entry, token)], success, failure: Vec::new() }
}

/// Records that the tenure of this entry begins.
pub(super) fn begin(keys: &QueueKeys, election: &Key, entry: Bytes, token: u64) -> TxnRequest {
    TxnRequest {
        compare: vec![made_at(entry, token)],
        success: vec![put(keys.tenure(election), record::tenure(token), 0)],
        failure: Vec::new(),
    }
}

/// Publishes another value at this entry.
///
/// It has no effect if the seat has moved to another lease: the entry would move back.
pub(super) fn publish(
    keys: &QueueKeys,
    election: &Key,
    seat: Seat,
    token: u64,
    holder: &Holder,
    attempt: u64,
) -> TxnRequest {
    let (entry, beside) = (keys.entry(election, seat.name), keys.holder(election, seat.name));
    TxnRequest {
        compare: vec![made_at(entry.clone(), token), under(keys.session(seat.name), seat.lease)],
        success: vec![
            put(entry, record::entry_value(holder), seat.lease),
            put(beside, record::encode(holder, attempt), seat.lease),
        ],
        failure: Vec::new(),
    }
}

/// Moves the key that stands for a seat to another lease. Otherwise reads the key.
///
/// From then on no key appears under the former lease: joins and publications compare this key's
/// lease.
pub(super) fn move_seat(keys: &QueueKeys, seat: i64, from: i64, to: i64) -> TxnRequest {
    let session = keys.session(seat);
    TxnRequest {
        compare: vec![under(session.clone(), from)],
        success: vec![keep(session.clone(), to)],
        failure: vec![range(one(session))],
    }
}

/// Moves any entry at this seat, and its record, to another lease. Tokens stay as they are.
pub(super) fn move_entry(
    keys: &QueueKeys,
    election: &Key,
    seat: i64,
    from: i64,
    to: i64,
) -> TxnRequest {
    let moved = |key: Bytes, beside: Option<RequestOp>| TxnRequest {
        compare: vec![under(key.clone(), from)],
        success: std::iter::once(keep(key, to)).chain(beside).collect(),
        failure: Vec::new(),
    };
    let beside = within(moved(keys.holder(election, seat), None));
    moved(keys.entry(election, seat), Some(beside))
}

/// Opens an election that has no mark. Otherwise reads the mark.
pub(super) fn create(keys: &QueueKeys, election: &Key) -> TxnRequest {
    let mark = keys.mark(election);
    TxnRequest {
        compare: vec![absent(mark.clone())],
        success: vec![put(mark.clone(), Bytes::from_static(record::OPEN), 0)],
        failure: vec![range(one(mark))],
    }
}

/// Ends an election, if its mark and its first entry have not changed.
///
/// The mark must still be at revision `at`, and the queue must still begin as it was read.
///
/// The transaction also writes the first entry again, unchanged. The next candidate watches that
/// key, and etcd reports changes of one key in order: the candidate hears of the end before it
/// hears that the entry is gone. Changes of two keys, such as the entry and the mark, may be
/// reported in any order.
pub(super) fn end(
    keys: &QueueKeys,
    election: &Key,
    at: i64,
    body: Bytes,
    begins: &Beginning,
) -> TxnRequest {
    let mark = keys.mark(election);
    let (compare, touched) = match begins {
        // No entry can come before one that stands.
        Beginning::With(first) => (made_at(of_name(&first.name), first.token), Some(first)),
        Beginning::Empty { revision } => (none_since(keys.entries(election), *revision), None),
    };
    let touched = touched.map(|first| touch(of_name(&first.name)));
    TxnRequest {
        compare: vec![unchanged(mark.clone(), at), compare],
        success: std::iter::once(put(mark, body, 0)).chain(touched).collect(),
        failure: beginning(keys, election).into_iter().map(range).collect(),
    }
}

/// The beginning of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// The queue begins with this entry.
    With(Entry),
    /// The queue was empty at this revision of the store.
    Empty { revision: i64 },
}

/// Replaces a mark that is still at this revision. Otherwise reads the mark.
pub(super) fn mark(keys: &QueueKeys, election: &Key, at: i64, body: Bytes) -> TxnRequest {
    let mark = keys.mark(election);
    TxnRequest {
        compare: vec![unchanged(mark.clone(), at)],
        success: vec![put(mark.clone(), body, 0)],
        failure: vec![range(one(mark))],
    }
}

/// Removes the rest of an election, if its mark is still at this revision.
pub(super) fn remove(keys: &QueueKeys, election: &Key, at: i64) -> TxnRequest {
    let mark = keys.mark(election);
    TxnRequest {
        compare: vec![unchanged(mark.clone(), at)],
        success: vec![delete(mark), delete(keys.tenure(election))],
        failure: Vec::new(),
    }
}

/// The reads that an end needs, at first and after each failed attempt: the mark and the first
/// entry.
pub(super) fn beginning(keys: &QueueKeys, election: &Key) -> Vec<RangeRequest> {
    vec![one(keys.mark(election)), first(keys.entries(election))]
}

/// Writes the keys that stand for the leases of new seats, as long as these live.
pub(super) fn sessions(keys: &QueueKeys, leases: &[i64], says: &Bytes) -> TxnRequest {
    let put = |lease: &i64| put(keys.session(*lease), says.clone(), *lease);
    TxnRequest { success: leases.iter().map(put).collect(), ..TxnRequest::default() }
}

/// The first reads of a look at our own entry: mark, tenure, the entry, its record.
pub(super) fn own(keys: &QueueKeys, election: &Key, seat: Option<i64>) -> Vec<RangeRequest> {
    let mut ranges = vec![one(keys.mark(election)), one(keys.tenure(election))];
    if let Some(seat) = seat {
        ranges.extend([one(keys.entry(election, seat)), one(keys.holder(election, seat))]);
    }
    ranges
}

/// Reads the mark and some keys of a queue, to tell if there are candidates.
///
/// These are enough unless keys are nested deeper.
pub(super) fn anybody(keys: &QueueKeys, election: &Key) -> Vec<RangeRequest> {
    let Topic { key, end } = keys.entries(election);
    let some = RangeRequest { key, range_end: end, limit: 100, ..RangeRequest::default() };
    vec![one(keys.mark(election)), some]
}

/// Reads everything: mark, tenure, all entries in order, all records.
pub(super) fn everything(keys: &QueueKeys, election: &Key) -> Vec<RangeRequest> {
    vec![
        one(keys.mark(election)),
        one(keys.tenure(election)),
        in_order(keys.entries(election), MOST_SHOWN),
        in_order(keys.holders(election), MOST_SHOWN),
    ]
}

/// The newest entry that was made before this token.
pub(super) fn before(entries: Topic, token: u64) -> RangeRequest {
    let last = i64::try_from(token).unwrap_or(i64::MAX).saturating_sub(1);
    newest(entries, 1, last)
}

/// All keys of a queue, in order.
pub(super) fn all(entries: Topic) -> RangeRequest {
    in_order(entries, 0)
}

pub(super) fn one(key: Bytes) -> RangeRequest {
    RangeRequest { key, ..RangeRequest::default() }
}

pub(super) fn first(range: Topic) -> RangeRequest {
    in_order(range, 1)
}

fn in_order(range: Topic, limit: i64) -> RangeRequest {
    sorted(range, SortOrder::Ascend, limit)
}

/// The newest keys that were made up to revision `until`, or ever if that is 0.
fn newest(range: Topic, limit: i64, until: i64) -> RangeRequest {
    RangeRequest { max_create_revision: until, ..sorted(range, SortOrder::Descend, limit) }
}

fn sorted(range: Topic, order: SortOrder, limit: i64) -> RangeRequest {
    RangeRequest {
        key: range.key,
        range_end: range.end,
        limit,
        sort_order: order.into(),
        sort_target: SortTarget::Create.into(),
        ..RangeRequest::default()
    }
}

fn range(range: RangeRequest) -> RequestOp {
    RequestOp { request: Some(Request::RequestRange(range)) }
}

fn put(key: Bytes, value: Bytes, lease: i64) -> RequestOp {
    let put = PutRequest { key, value, lease, ignore_value: false, ignore_lease: false };
    RequestOp { request: Some(Request::RequestPut(put)) }
}

/// Puts a key under another lease, with the same value. etcd refuses it if there is no such key.
fn keep(key: Bytes, lease: i64) -> RequestOp {
    let value = Bytes::new();
    let put = PutRequest { key, value, lease, ignore_value: true, ignore_lease: false };
    RequestOp { request: Some(Request::RequestPut(put)) }
}

/// Writes a key again, with the same value and lease. etcd refuses it if there is no such key.
fn touch(key: Bytes) -> RequestOp {
    let value = Bytes::new();
    let put = PutRequest { key, value, lease: 0, ignore_value: true, ignore_lease: true };
    RequestOp { request: Some(Request::RequestPut(put)) }
}

fn delete(key: Bytes) -> RequestOp {
    let delete = DeleteRangeRequest { key, range_end: Bytes::new() };
    RequestOp { request: Some(Request::RequestDeleteRange(delete)) }
}

/// A transaction that only reads.
pub(super) fn reads(ranges: impl Iterator<Item = RangeRequest>) -> TxnRequest {
    TxnRequest { success: ranges.map(range).collect(), ..TxnRequest::default() }
}

fn absent(key: Bytes) -> Compare {
    equal(key, CompareTarget::Create, TargetUnion::CreateRevision(0))
}

fn made_at(key: Bytes, token: u64) -> Compare {
    // No revision is that high, so the comparison fails.
    let revision = i64::try_from(token).unwrap_or(i64::MAX);
    equal(key, CompareTarget::Create, TargetUnion::CreateRevision(revision))
}

/// Compares that no key in this range was made after this revision.
fn none_since(range: Topic, revision: i64) -> Compare {
    let target_union = Some(TargetUnion::CreateRevision(revision.saturating_add(1)));
    Compare {
        result: CompareResult::Less.into(),
        target: CompareTarget::Create.into(),
        key: range.key,
        target_union,
        range_end: range.end,
    }
}

/// Compares the lease of a key. A missing key is under none.
fn under(key: Bytes, lease: i64) -> Compare {
    equal(key, CompareTarget::Lease, TargetUnion::Lease(lease))
}

fn unchanged(key: Bytes, revision: i64) -> Compare {
    equal(key, CompareTarget::Mod, TargetUnion::ModRevision(revision))
}

fn says(key: Bytes, value: &[u8]) -> Compare {
    equal(key, CompareTarget::Value, TargetUnion::Value(Bytes::copy_from_slice(value)))
}

fn equal(key: Bytes, target: CompareTarget, union: TargetUnion) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: target.into(),
        key,
        target_union: Some(union),
        range_end: Bytes::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::keys::Keys;
    use super::*;
    use tenure::CandidateId;

    /// A late request must not put anything under a lease that its seat has left.
    #[test]
    fn whatever_is_put_under_a_lease_of_a_seat_compares_that_the_seat_is_under_it() {
        let keys = QueueKeys::new(&Keys::new("p"));
        let election = Key::parse("elections/a").expect("a good key");
        let seat = Seat { name: 10, lease: 30, former: Some(20) };
        let id = CandidateId::from_bits(7);
        let ticket = Ticket { candidate: id.clone(), attempt: 1 };
        let holder = Holder { id, name: "a".into(), value: Bytes::new(), presence: None };
        let compared = under(keys.session(10), 30);
        for txn in [
            join(&keys, &election, seat, &ticket, &holder),
            publish(&keys, &election, seat, 5, &holder, 1),
        ] {
            assert!(txn.compare.contains(&compared), "{txn:?}");
            for part in &txn.success {
                if let Some(Request::RequestPut(put)) = &part.request {
                    assert_eq!(put.lease, 30, "{put:?}");
                    assert!(put.key.ends_with(b"/a/a"), "it keeps its name: {put:?}");
                }
            }
        }
    }
}
