//! Kubernetes-style objects, between the words of callers and those of the store; for gRPC and REST alike.
//!
//! In: documents as bytes, references as text. Out: what became of each object, when the engine has taken it in. Not here:
//! what a valid document is (`drivers::objects`), what objects come to (`policy`).

use std::sync::Arc;

use drivers::{
    objects::{Applied, Detail, Document, Objects, ObjectsError, Outcome, Validation},
    policy::Policy,
};
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
};

/// Problems told of one request. A directory of mistakes need not fill the screen.
const MAX_PROBLEMS: usize = 20;

/// Changes stored objects.
#[derive(Clone)]
pub struct Changing {
    pub objects: Objects,
    pub policy: Arc<Policy>,
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
        let applied = self.objects.apply_telling(detail, Arc::clone(&documents), set, keep, dry_run).await;
        let applied = self.settled(applied, request.dry_run).await?;
        let warnings = if validation == Validation::Warn { warnings(&documents) } else { Vec::new() };
        Ok(ApplyObjectsResponse { applied, warnings })
    }

    pub async fn delete(&self, request: DeleteObjectsRequest) -> Result<DeleteObjectsResponse, Failure> {
        let ids = request.objects.into_iter().map(object_id).collect::<Result<Vec<_>, _>>()?;
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
        let applied = self.objects.prune(&request.set, keep, request.dry_run).await;
        let applied = self.settled(applied, request.dry_run).await?;
        Ok(PruneObjectsResponse { applied })
    }

    /// The reply to a change, which is put on record, given when the engine has taken it in.
    async fn settled(
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
    let outcome = match applied.outcome {
        Outcome::Created => v1::Outcome::Created,
        Outcome::Configured => v1::Outcome::Configured,
        Outcome::Unchanged => v1::Outcome::Unchanged,
        Outcome::Deleted => v1::Outcome::Deleted,
    };
    v1::Applied {
        object: Some(object_ref(&applied.id)),
        outcome: outcome as i32,
        difference: applied.difference,
    }
}
