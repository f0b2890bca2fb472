//! A transaction as one etcd `Txn`: compares, the operations if they hold, a look at the compared keys if not.

use super::{
    Options,
    client::Client,
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

pub(super) fn check_size(transaction: &Transaction, options: &Options) -> Result<(), TransactError> {
    let operations = transaction.operations.len().max(transaction.compares.len());
    if operations > options.max_operations {
        let (size, limit) = (operations as u64, options.max_operations as u64);
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
) -> Result<Committed, TransactError> {
    let request = request(namespace, transaction);
    let sent = client.write(|mut member| {
        let request = request.clone();
        async move { member.kv.txn(request).await }
    });
    let response = sent.await.map_err(|failure| {
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
    let mut answers = response.responses.iter();
    let mut last = None;
    for Compare { key, expected } in &transaction.compares {
        let found = match answers.next().and_then(|answer| answer.response.as_ref()) {
            Some(Response::ResponseRange(range)) => range.kvs.first().map(|kv| revision(kv.mod_revision)),
            Some(Response::ResponsePut(_) | Response::ResponseDeleteRange(_)) | None => None,
        };
        last = Some(TransactError::Conflict { key: key.clone(), found });
        if !expected.accepts(found) {
            break;
        }
    }
    last.expect("etcd takes the failure branch only if a compare does not hold, so there is one")
}

fn request(namespace: &Namespace, transaction: &Transaction) -> TxnRequest {
    let failure = transaction.compares.iter().map(|compare| {
        let key = namespace.key(&compare.key);
        op(Request::RequestRange(RangeRequest { key, limit: 1, keys_only: true, ..RangeRequest::default() }))
    });
    TxnRequest {
        compare: transaction.compares.iter().map(|compare| to_compare(namespace, compare)).collect(),
        success: transaction.operations.iter().map(|operation| operation_op(namespace, operation)).collect(),
        failure: failure.collect(),
    }
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
