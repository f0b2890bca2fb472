//! A transaction as one etcd `Txn`: compares, the operations if they hold, a look at the compared keys if not.
//!
//! etcd counts operations level by level: what stands inside a nested `Txn` may have as many as are left when those beside it
//! are subtracted. So a transaction of more than `--max-txn-ops` is sent as parts, each a `Txn` with its share of compares and
//! operations, inside one that has nothing else:
//!
//! ```text
//!   Txn { then: [ Txn { if: compares 0…63, then: operations 0…63, else: abort }, Txn { … }, … ] }
//! ```
//!
//! etcd judges all compares before it applies anything, and an operation that it cannot carry out makes it refuse the whole
//! request. `abort` is one: a read at a revision that is never reached. So it is all or nothing under one revision, as for a
//! small one; only which compare did not hold is asked for afterwards.

use super::{
    Options,
    client::{Client, Failure},
    keys::{Namespace, revision, signed},
    pb::etcdserverpb::{
        Compare as PbCompare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
        TxnResponse,
        compare::{CompareResult, CompareTarget, TargetUnion},
        request_op::Request,
        response_op::Response,
    },
};
use crate::api::{
    Committed, Compare, Expected, Limit, Operation, Outcome, Revision, TransactError, Transaction,
};

const RAISE_OPERATIONS: &str = "split it, or raise etcd's --max-txn-ops and max_operations with it";
const RAISE_BYTES: &str = "split it, or raise etcd's --max-request-bytes and max_request_bytes with it";

/// Beside keys and values: what the encoding of one compare or operation, with the namespace, adds at most.
const OVERHEAD: usize = 64;

/// A revision that no store reaches.
const NEVER: i64 = i64::MAX;

/// How many parts a transaction is sent in, and how many compares and operations are in each at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parts {
    count: usize,
    size: usize,
}

/// None if it does not fit however it is divided. `limit` is etcd's `--max-txn-ops`.
fn parts(transaction: &Transaction, limit: usize) -> Option<Parts> {
    let all = transaction.operations.len().max(transaction.compares.len());
    if all <= limit {
        return Some(Parts { count: 1, size: all });
    }
    let count = (2..=limit / 2).find(|count| count * (limit - count) >= all)?;
    Some(Parts { count, size: all.div_ceil(count) })
}

pub(super) fn check_size(transaction: &Transaction, options: &Options) -> Result<(), TransactError> {
    if parts(transaction, options.max_operations).is_none() {
        let size = transaction.operations.len().max(transaction.compares.len()) as u64;
        let half = options.max_operations as u64 / 2;
        let limit = half * (options.max_operations as u64 - half);
        return Err(TransactError::TooLarge { unit: Limit::Operations, size, limit, hint: RAISE_OPERATIONS });
    }
    // A compared key is sent twice: see `failure` below.
    let compares: usize = transaction.compares.iter().map(|compare| compare.key.as_str().len()).sum();
    let parts = transaction.operations.len() + 2 * transaction.compares.len();
    let size = transaction.size() + compares + parts * (OVERHEAD + options.namespace.len());
    if size > options.max_request_bytes {
        let (size, limit) = (size as u64, options.max_request_bytes as u64);
        return Err(TransactError::TooLarge { unit: Limit::Bytes, size, limit, hint: RAISE_BYTES });
    }
    Ok(())
}

pub(super) async fn transact(
    client: &Client,
    namespace: &Namespace,
    transaction: &Transaction,
    max_operations: usize,
) -> Result<Committed, TransactError> {
    let parts = parts(transaction, max_operations).unwrap_or(Parts { count: 1, size: max_operations });
    let request = match parts.count {
        1 => request(namespace, transaction),
        _ => in_parts(namespace, transaction, parts),
    };
    let sent = client.write(|mut member| {
        let request = request.clone();
        async move { member.kv.txn(request).await }
    });
    let sent = sent.await;
    if parts.count > 1 && sent.as_ref().is_err_and(Failure::is_future) {
        return Err(which_conflict(client, namespace, transaction, max_operations).await);
    }
    let response = sent.map_err(|failure| {
        let lease = transaction.operations.iter().find_map(|operation| match operation {
            Operation::Put { lease, .. } => *lease,
            Operation::Delete { .. } | Operation::DeletePrefix { .. } => None,
        });
        match lease {
            Some(lease) if failure.is_lease_not_found() => TransactError::LeaseNotFound { lease },
            _ if failure.is_too_large() => too_large(Limit::Bytes, transaction.size(), RAISE_BYTES),
            _ if failure.is_too_many_operations() => {
                too_large(Limit::Operations, transaction.operations.len(), RAISE_OPERATIONS)
            }
            _ => client.write_error(failure, Outcome::Unknown),
        }
    })?;
    if response.succeeded {
        let number = response.header.map_or(0, |header| header.revision);
        return Ok(Committed { revision: revision(number) });
    }
    Err(conflict(transaction, &response))
}

/// etcd refused what our own limits let pass: its flags are lower than our options say.
fn too_large(unit: Limit, size: usize, hint: &'static str) -> TransactError {
    TransactError::TooLarge { unit, size: size as u64, limit: (size as u64).saturating_sub(1), hint }
}

/// The first compare that does not hold against what the failed transaction read in the same instant.
fn conflict(transaction: &Transaction, response: &TxnResponse) -> TransactError {
    let mut found = found(response);
    let mut last = None;
    for Compare { key, expected } in &transaction.compares {
        let found = found.next().flatten();
        last = Some(TransactError::Conflict { key: key.clone(), found });
        if !expected.accepts(found) {
            break;
        }
    }
    last.expect("etcd takes the failure branch only if a compare does not hold, so there is one")
}

/// The first compare of an aborted transaction that does not hold now; the first of all if the reason has gone meanwhile.
async fn which_conflict(
    client: &Client,
    namespace: &Namespace,
    transaction: &Transaction,
    max_operations: usize,
) -> TransactError {
    let mut first = None;
    for compares in transaction.compares.chunks(max_operations) {
        let looks = TxnRequest { success: looks(namespace, compares), ..TxnRequest::default() };
        let read = client.read(|mut member| {
            let looks = looks.clone();
            async move { member.kv.txn(looks).await }
        });
        let response = match read.await {
            Ok(response) => response,
            Err(failure) => return client.write_error(failure, Outcome::NotApplied),
        };
        for (Compare { key, expected }, found) in compares.iter().zip(found(&response)) {
            let conflict = TransactError::Conflict { key: key.clone(), found };
            if !expected.accepts(found) {
                return conflict;
            }
            first.get_or_insert(conflict);
        }
    }
    first.expect("etcd aborts only if a compare does not hold, so there is one")
}

/// What a `Txn` found of the keys it looked at, in their order.
fn found(response: &TxnResponse) -> impl Iterator<Item = Option<Revision>> {
    response.responses.iter().map(|answer| match &answer.response {
        Some(Response::ResponseRange(range)) => range.kvs.first().map(|kv| revision(kv.mod_revision)),
        Some(Response::ResponsePut(_) | Response::ResponseDeleteRange(_) | Response::ResponseTxn(_))
        | None => None,
    })
}

fn request(namespace: &Namespace, transaction: &Transaction) -> TxnRequest {
    TxnRequest {
        compare: transaction.compares.iter().map(|compare| to_compare(namespace, compare)).collect(),
        success: transaction.operations.iter().map(|operation| operation_op(namespace, operation)).collect(),
        failure: looks(namespace, &transaction.compares),
    }
}

fn in_parts(namespace: &Namespace, transaction: &Transaction, parts: Parts) -> TxnRequest {
    let mut compares = transaction.compares.chunks(parts.size);
    let mut operations = transaction.operations.chunks(parts.size);
    let part = |_| {
        let (compares, operations) =
            (compares.next().unwrap_or_default(), operations.next().unwrap_or_default());
        op(Request::RequestTxn(TxnRequest {
            compare: compares.iter().map(|compare| to_compare(namespace, compare)).collect(),
            success: operations.iter().map(|operation| operation_op(namespace, operation)).collect(),
            failure: if compares.is_empty() { Vec::new() } else { vec![abort(namespace)] },
        }))
    };
    TxnRequest { success: (0..parts.count).map(part).collect(), ..TxnRequest::default() }
}

/// What makes etcd refuse the whole request.
fn abort(namespace: &Namespace) -> RequestOp {
    let key = namespace.restore_marker();
    op(Request::RequestRange(RangeRequest { key, limit: 1, revision: NEVER, ..RangeRequest::default() }))
}

/// A look at each compared key.
fn looks(namespace: &Namespace, compares: &[Compare]) -> Vec<RequestOp> {
    let look = |compare: &Compare| {
        let key = namespace.key(&compare.key);
        op(Request::RequestRange(RangeRequest { key, limit: 1, keys_only: true, ..RangeRequest::default() }))
    };
    compares.iter().map(look).collect()
}

fn op(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

fn operation_op(namespace: &Namespace, operation: &Operation) -> RequestOp {
    op(match operation {
        Operation::Put { key, value, lease } => Request::RequestPut(PutRequest {
            key: namespace.key(key),
            value: value.clone(),
            lease: lease.map_or(0, |lease| lease.0.cast_signed()),
        }),
        Operation::Delete { key } => Request::RequestDeleteRange(DeleteRangeRequest {
            key: namespace.key(key),
            ..DeleteRangeRequest::default()
        }),
        Operation::DeletePrefix { prefix } => {
            let (key, range_end) = namespace.range(prefix);
            Request::RequestDeleteRange(DeleteRangeRequest { key, range_end })
        }
    })
}

fn to_compare(namespace: &Namespace, Compare { key, expected }: &Compare) -> PbCompare {
    // A key that does not exist has create revision 0.
    let (result, target, union) = match expected {
        Expected::Absent => (CompareResult::Equal, CompareTarget::Create, TargetUnion::CreateRevision(0)),
        Expected::Present => (CompareResult::Greater, CompareTarget::Create, TargetUnion::CreateRevision(0)),
        Expected::ModifiedAt(Revision(number)) => {
            (CompareResult::Equal, CompareTarget::Mod, TargetUnion::ModRevision(signed(*number)))
        }
    };
    PbCompare {
        result: result.into(),
        target: target.into(),
        key: namespace.key(key),
        target_union: Some(union),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_etcd_takes_at_once_is_one_part_and_more_is_as_few_as_can_be() {
        let of = |operations: usize| {
            let puts = (0..operations).map(|n| format!("k/{n}").parse().unwrap());
            parts(&puts.fold(Transaction::new(), |all, key| all.put(key, "")), 128)
        };
        assert_eq!(of(128), Some(Parts { count: 1, size: 128 }));
        assert_eq!(of(129), Some(Parts { count: 2, size: 65 }));
        assert_eq!(of(252), Some(Parts { count: 2, size: 126 }));
        assert_eq!(of(4096), Some(Parts { count: 64, size: 64 }));
        assert_eq!(of(4097), None);
        for operations in 129..4096 {
            let Parts { count, size } = of(operations).unwrap();
            assert!(count * size >= operations && size + count <= 128, "{operations}");
        }
    }
}
