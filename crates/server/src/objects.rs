//! Kubernetes-style objects, between the words of callers and those of the store; for gRPC and REST alike.
//!
//! In: documents as bytes, references as text. Out: what became of each object, when the engine has taken it in. Not here:
//! what a valid document is (`drivers::objects`), what objects come to (`policy`).

use std::sync::Arc;

use drivers::{
    flows::Flows,
    objects::{Applied, Detail, Document, Objects, ObjectsError, Outcome, Validation, staged::Intended},
    policy::Policy,
};
use jiff::Timestamp;
use model::policy::{Kind, ObjectId, output::Problem};
use tonic::Code;
use wire::trestle::v1::{
    self, ApplyObjectsRequest, ApplyObjectsResponse, DeleteObjectsRequest, DeleteObjectsResponse, ObjectRef,
    PruneObjectsRequest, PruneObjectsResponse,
};

use crate::{
    audit::{self, DRY_RUN},
    enforcement,
    failure::Failure,
    policy_tests::PolicyTests,
    what_if::Change,
};

/// Problems told of one request. A directory of mistakes need not fill the screen.
const MAX_PROBLEMS: usize = 20;
/// Of a change that is kept beside what is in force, on record.
const STAGED: &str = "staged: nothing in force was changed";

/// Changes stored objects.
#[derive(Clone)]
pub struct Changing {
    pub objects: Objects,
    pub policy: Arc<Policy>,
    pub tests: PolicyTests,
    /// What nodes have seen, if it is recorded.
    pub flows: Option<Arc<Flows>>,
}

impl Changing {
    pub async fn apply(&self, request: ApplyObjectsRequest) -> Result<ApplyObjectsResponse, Failure> {
        let validation = validation(request.validation)?;
        let documents: Arc<[Document]> = documents(&request.documents, validation)?.into();
        let keep = match request.prune {
            true if request.set.is_empty() => {
                let text = "name the set to prune; without one, everything would be deleted";
                return Err(Failure::new(Code::InvalidArgument, text));
            }
            true => Some(request.keep.into_iter().map(object_id).collect::<Result<_, _>>()?),
            false => None,
        };
        let detail = match (request.no_differences, request.dry_run) {
            (false, _) => Detail::Everything,
            (true, false) => Detail::Record,
            (true, true) => Detail::Outcome,
        };
        let (set, dry_run) = (&request.set, request.dry_run);
        let warnings = if validation == Validation::Warn { warnings(&documents) } else { Vec::new() };
        if request.stage {
            if request.prune {
                let text = "what would be pruned is not staged by itself: stage its deletion (DeleteObjects with stage)";
                return Err(Failure::new(Code::InvalidArgument, text));
            }
            let would = self.objects.apply_telling(detail, Arc::clone(&documents), set, None, true).await?.0;
            let intended = documents.iter().cloned().map(Box::new).map(Intended::Put).collect::<Vec<_>>();
            let applied = self.staged(would, &intended, set, dry_run).await?;
            return Ok(ApplyObjectsResponse { applied, warnings });
        }
        let adds_tests = documents.iter().any(|document| document.id().kind == Kind::PolicyTest);
        let change = async { Ok(Change::of_documents(&*documents)) };
        let _turn = self.tests.turn(request.despite_tests, adds_tests, change).await?;
        let applied = self.objects.apply_telling(detail, Arc::clone(&documents), set, keep, dry_run).await;
        let applied = self.settled(applied, request.dry_run).await?;
        Ok(ApplyObjectsResponse { applied, warnings })
    }

    pub async fn delete(&self, request: DeleteObjectsRequest) -> Result<DeleteObjectsResponse, Failure> {
        let ids = request.objects.into_iter().map(object_id).collect::<Result<Vec<_>, _>>()?;
        if request.stage {
            let would = self.objects.delete(&ids, true).await?.0;
            let intended: Vec<_> = ids.into_iter().map(Intended::Delete).collect();
            let applied = self.staged(would, &intended, "", request.dry_run).await?;
            return Ok(DeleteObjectsResponse { applied });
        }
        let change = async { Ok(Change::of_deletion(ids.clone())) };
        let _turn = self.tests.turn(request.despite_tests, false, change).await?;
        let applied = self.objects.delete(&ids, request.dry_run).await;
        let applied = self.settled(applied, request.dry_run).await?;
        Ok(DeleteObjectsResponse { applied })
    }

    pub async fn prune(&self, request: PruneObjectsRequest) -> Result<PruneObjectsResponse, Failure> {
        if request.set.is_empty() {
            let text = "name the set to prune; without one, everything would be deleted";
            return Err(Failure::new(Code::InvalidArgument, text));
        }
        let keep = request.keep.into_iter().map(object_id).collect::<Result<Vec<_>, _>>()?;
        let going = async {
            let going = self.objects.prune(&request.set, keep.clone(), true).await?.0;
            Ok(Change::of_deletion(going.into_iter().map(|applied| applied.id).collect()))
        };
        let _turn = self.tests.turn(request.despite_tests, false, going).await?;
        let applied = self.objects.prune(&request.set, keep, request.dry_run).await;
        let applied = self.settled(applied, request.dry_run).await?;
        Ok(PruneObjectsResponse { applied })
    }

    /// Keeps changes beside what is in force. `would` is what each would do now.
    async fn staged(
        &self,
        would: Vec<Applied>,
        intended: &[Intended],
        set: &str,
        dry_run: bool,
    ) -> Result<Vec<v1::Applied>, Failure> {
        if dry_run {
            audit::note(DRY_RUN);
        } else {
            self.objects.stage(intended, set, Timestamp::now()).await?;
            audit::note(STAGED);
        }
        Ok(would.into_iter().map(wire_applied).collect())
    }

    /// The reply to a change, which is put on record, given when the engine has taken it in.
    pub(crate) async fn settled(
        &self,
        result: Result<(Vec<Applied>, store::Revision), ObjectsError>,
        dry_run: bool,
    ) -> Result<Vec<v1::Applied>, Failure> {
        let (applied, revision) = result?;
        match dry_run {
            true => audit::note(DRY_RUN),
            false => {
                enforcement::stored_objects(&applied, revision);
                applied.iter().for_each(|applied| audit::changed(applied.change.clone()));
            }
        }
        self.policy.reach(revision).await;
        enforcement::computed();
        Ok(applied.into_iter().map(wire_applied).collect())
    }
}

pub fn validation(number: i32) -> Result<Validation, Failure> {
    match v1::Validation::try_from(number) {
        Ok(v1::Validation::Unspecified | v1::Validation::Strict) => Ok(Validation::Strict),
        Ok(v1::Validation::Warn) => Ok(Validation::Warn),
        Ok(v1::Validation::Ignore) => Ok(Validation::Ignore),
        Err(_) => Err(Failure::new(Code::InvalidArgument, format!("{number} is not a validation"))),
    }
}

fn warnings(documents: &[Document]) -> Vec<String> {
    let all = documents
        .iter()
        .flat_map(|document| document.unknown().iter().map(move |what| (document.id(), what)));
    all.map(|(id, Problem { path, message })| format!("{id}: {path}: {message}")).collect()
}

/// Every problem of every document is told at once.
pub fn documents(texts: &[Vec<u8>], validation: Validation) -> Result<Vec<Document>, Failure> {
    let mut documents = Vec::with_capacity(texts.len());
    let mut problems = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        match Document::read(text, validation) {
            Ok(document) => documents.push(document),
            Err(err) => problems.push(format!("document {}: {}", index + 1, common::chain(&err))),
        }
    }
    if problems.is_empty() {
        return Ok(documents);
    }
    let more = problems.len().saturating_sub(MAX_PROBLEMS);
    problems.truncate(MAX_PROBLEMS);
    let more = if more > 0 { format!("\n… and {more} more") } else { String::new() };
    Err(Failure::new(Code::InvalidArgument, format!("nothing was applied:\n{}{more}", problems.join("\n"))))
}

pub fn object_id(reference: ObjectRef) -> Result<ObjectId, Failure> {
    let kind = kind(&reference.kind)?;
    let namespace = match kind.is_namespaced() {
        true if reference.namespace.is_empty() => "default".to_owned(),
        true => reference.namespace,
        false => String::new(),
    };
    let id = ObjectId { kind, namespace, name: reference.name };
    // Only names that an object can have make a key.
    if [&id.namespace, &id.name].iter().any(|text| text.len() > 253 || text.contains(['/', '\n', '\0']))
        || id.name.is_empty()
    {
        return Err(Failure::new(Code::InvalidArgument, format!("{:?} is not a name of an object", id.name)));
    }
    Ok(id)
}

pub fn kind(text: &str) -> Result<Kind, Failure> {
    Kind::from_name(text).ok_or_else(|| {
        let all: Vec<_> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
        Failure::new(Code::InvalidArgument, format!("{text:?} is not a kind; there are {}", all.join(", ")))
    })
}

pub fn object_ref(id: &ObjectId) -> ObjectRef {
    ObjectRef { kind: id.kind.as_str().to_owned(), namespace: id.namespace.clone(), name: id.name.clone() }
}

fn wire_applied(applied: Applied) -> v1::Applied {
    v1::Applied {
        object: Some(object_ref(&applied.id)),
        outcome: wire_outcome(applied.outcome) as i32,
        difference: applied.difference,
    }
}

pub(crate) fn wire_outcome(outcome: Outcome) -> v1::Outcome {
    match outcome {
        Outcome::Created => v1::Outcome::Created,
        Outcome::Configured => v1::Outcome::Configured,
        Outcome::Unchanged => v1::Outcome::Unchanged,
        Outcome::Deleted => v1::Outcome::Deleted,
    }
}
