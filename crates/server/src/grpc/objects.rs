//! `trestle.v1.Objects`.

use std::{pin::Pin, sync::Arc};

use drivers::{
    objects::{self, Applied, Document, Objects, ObjectsError, Outcome, Stored, Validation},
    policy::Policy,
};
use futures::{Stream, StreamExt as _, stream};
use model::policy::{Kind, ObjectId, output::Problem};
use store::Event;
use tonic::{Code, Request, Response, Status};
use wire::trestle::v1::{
    self, ApplyObjectsRequest, ApplyObjectsResponse, DeleteObjectsRequest, DeleteObjectsResponse,
    ListObjectsRequest, ListObjectsResponse, ObjectEvent, ObjectRef, PruneObjectsRequest,
    PruneObjectsResponse, StoredObject, object_event::Type, objects_server,
};

use crate::{
    audit::{self, DRY_RUN},
    failure::{Failure, store_failure},
    serving::{self, Serving},
};

type Reply<T> = Result<Response<T>, Status>;
type Events<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Problems told of one request. A directory of mistakes need not fill the screen.
const MAX_PROBLEMS: usize = 20;

pub(super) struct Service {
    pub objects: Objects,
    pub policy: Arc<Policy>,
    pub serving: Arc<Serving>,
}

#[tonic::async_trait]
impl objects_server::Objects for Service {
    async fn apply_objects(&self, request: Request<ApplyObjectsRequest>) -> Reply<ApplyObjectsResponse> {
        let request = request.into_inner();
        let validation = validation(request.validation)?;
        let documents: Arc<[Document]> = documents(&request.documents, validation)?.into();
        let keep = match request.prune {
            true if request.set.is_empty() => {
                let text = "name the set to prune; without one, everything would be deleted";
                return Err(Failure::new(Code::InvalidArgument, text).into());
            }
            true => Some(request.keep.into_iter().map(object_id).collect::<Result<_, _>>()?),
            false => None,
        };
        let applied = self.objects.apply(Arc::clone(&documents), &request.set, keep, request.dry_run).await;
        let applied = self.settled(applied, request.dry_run).await?;
        let warnings = if validation == Validation::Warn { warnings(&documents) } else { Vec::new() };
        Ok(Response::new(ApplyObjectsResponse { applied, warnings }))
    }

    async fn delete_objects(&self, request: Request<DeleteObjectsRequest>) -> Reply<DeleteObjectsResponse> {
        let request = request.into_inner();
        let ids = request.objects.into_iter().map(object_id).collect::<Result<Vec<_>, _>>()?;
        let applied = self.objects.delete(&ids, request.dry_run).await;
        let applied = self.settled(applied, request.dry_run).await?;
        Ok(Response::new(DeleteObjectsResponse { applied }))
    }

    async fn prune_objects(&self, request: Request<PruneObjectsRequest>) -> Reply<PruneObjectsResponse> {
        let request = request.into_inner();
        if request.set.is_empty() {
            let text = "name the set to prune; without one, everything would be deleted";
            return Err(Failure::new(Code::InvalidArgument, text).into());
        }
        let keep = request.keep.into_iter().map(object_id).collect::<Result<Vec<_>, _>>()?;
        let applied = self.objects.prune(&request.set, keep, request.dry_run).await;
        let applied = self.settled(applied, request.dry_run).await?;
        Ok(Response::new(PruneObjectsResponse { applied }))
    }

    async fn get_object(&self, request: Request<ObjectRef>) -> Reply<StoredObject> {
        let id = object_id(request.into_inner())?;
        let stored = self.objects.get(&id).await.map_err(Failure::from)?;
        Ok(Response::new(stored_object(&stored)))
    }

    type ListObjectsStream = Events<ListObjectsResponse>;

    async fn list_objects(&self, request: Request<ListObjectsRequest>) -> Reply<Self::ListObjectsStream> {
        let (kind, namespace) = filter(request.into_inner())?;
        let snapshot = self.objects.snapshot(kind).await.map_err(Failure::from)?;
        let pages = snapshot.pages.map(move |page| match page {
            Ok(entries) => {
                let stored = entries.iter().filter_map(objects::read_entry);
                let objects =
                    stored.filter(|stored| is_in(stored.id(), &namespace)).map(|s| stored_object(&s));
                Ok(ListObjectsResponse { objects: objects.collect() })
            }
            Err(err) => Err(store_failure::read(&err, &err).into()),
        });
        Ok(Response::new(Box::pin(pages)))
    }

    type WatchObjectsStream = Events<ObjectEvent>;

    async fn watch_objects(&self, request: Request<ListObjectsRequest>) -> Reply<Self::WatchObjectsStream> {
        let (kind, namespace) = filter(request.into_inner())?;
        let events = self.objects.watch(kind).filter_map(move |event| {
            let told = object_event(event, &namespace);
            async move { told }
        });
        let stop = self.serving.streams();
        let end = stream::once(async { Err(serving::ended()) });
        Ok(Response::new(Box::pin(events.take_until(stop.cancelled_owned()).chain(end))))
    }
}

impl Service {
    /// The reply to a change, which is put on record, given when the engine has taken it in.
    async fn settled(
        &self,
        result: Result<(Vec<Applied>, store::Revision), ObjectsError>,
        dry_run: bool,
    ) -> Result<Vec<v1::Applied>, Failure> {
        let (applied, revision) = result?;
        match dry_run {
            true => audit::note(DRY_RUN),
            false => applied.iter().for_each(|applied| audit::changed(applied.change.clone())),
        }
        self.policy.reach(revision).await;
        Ok(applied.into_iter().map(wire_applied).collect())
    }
}

fn validation(number: i32) -> Result<Validation, Failure> {
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

fn documents(texts: &[Vec<u8>], validation: Validation) -> Result<Vec<Document>, Failure> {
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

fn object_id(reference: ObjectRef) -> Result<ObjectId, Failure> {
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

fn kind(text: &str) -> Result<Kind, Failure> {
    Kind::from_name(text).ok_or_else(|| {
        let all: Vec<_> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
        Failure::new(Code::InvalidArgument, format!("{text:?} is not a kind; there are {}", all.join(", ")))
    })
}

fn filter(request: ListObjectsRequest) -> Result<(Option<Kind>, String), Failure> {
    let kind = if request.kind.is_empty() { None } else { Some(kind(&request.kind)?) };
    Ok((kind, request.namespace))
}

fn is_in(id: &ObjectId, namespace: &str) -> bool {
    namespace.is_empty() || id.namespace == namespace
}

fn object_event(
    event: Result<Event, store::WatchError>,
    namespace: &str,
) -> Option<Result<ObjectEvent, Status>> {
    let event = match event {
        Ok(Event::Init { .. }) => return None,
        Ok(Event::InitDone { .. }) => ObjectEvent { r#type: Type::Synced as i32, object: None },
        Ok(Event::Apply(entry)) => {
            let stored = objects::read_entry(&entry).filter(|stored| is_in(stored.id(), namespace))?;
            ObjectEvent { r#type: Type::Applied as i32, object: Some(stored_object(&stored)) }
        }
        Ok(Event::Delete { key, .. }) => {
            let id = objects::read_key(&key).filter(|id| is_in(id, namespace))?;
            let object = StoredObject { object: Some(object_ref(&id)), document: Vec::new() };
            ObjectEvent { r#type: Type::Deleted as i32, object: Some(object) }
        }
        Err(err) => return Some(Err(Failure::from_error(Code::OutOfRange, &err).into())),
    };
    Some(Ok(event))
}

fn object_ref(id: &ObjectId) -> ObjectRef {
    ObjectRef { kind: id.kind.as_str().to_owned(), namespace: id.namespace.clone(), name: id.name.clone() }
}

fn stored_object(stored: &Stored) -> StoredObject {
    let document = stored.document.json().to_string().into_bytes();
    StoredObject { object: Some(object_ref(stored.id())), document }
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
