//! `trestle.v1.Objects`.

use std::{pin::Pin, sync::Arc};

use drivers::objects::{self, Stored};
use futures::{Stream, StreamExt as _, stream};
use model::policy::{Kind, ObjectId};
use store::Event;
use tonic::{Code, Request, Response, Status};
use wire::trestle::v1::{
    ApplyObjectsRequest, ApplyObjectsResponse, DeleteObjectsRequest, DeleteObjectsResponse,
    DiscardStagedRequest, DiscardStagedResponse, ListObjectsRequest, ListObjectsResponse, ListStagedRequest,
    ListStagedResponse, ObjectEvent, ObjectRef, PromoteStagedRequest, PruneObjectsRequest,
    PruneObjectsResponse, StoredObject, object_event::Type, objects_server,
};

use crate::{
    failure::{Failure, store_failure},
    objects::{Changing, kind, object_id, object_ref},
    serving::{self, Serving},
};

type Reply<T> = Result<Response<T>, Status>;
type Events<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

pub(super) struct Grpc {
    pub changing: Changing,
    pub serving: Arc<Serving>,
}

#[tonic::async_trait]
impl objects_server::Objects for Grpc {
    async fn apply_objects(&self, request: Request<ApplyObjectsRequest>) -> Reply<ApplyObjectsResponse> {
        Ok(Response::new(self.changing.apply(request.into_inner()).await?))
    }

    async fn delete_objects(&self, request: Request<DeleteObjectsRequest>) -> Reply<DeleteObjectsResponse> {
        Ok(Response::new(self.changing.delete(request.into_inner()).await?))
    }

    async fn prune_objects(&self, request: Request<PruneObjectsRequest>) -> Reply<PruneObjectsResponse> {
        Ok(Response::new(self.changing.prune(request.into_inner()).await?))
    }

    async fn list_staged(&self, request: Request<ListStagedRequest>) -> Reply<ListStagedResponse> {
        Ok(Response::new(self.changing.list_staged(request.into_inner()).await?))
    }

    async fn promote_staged(&self, request: Request<PromoteStagedRequest>) -> Reply<ApplyObjectsResponse> {
        Ok(Response::new(self.changing.promote(request.into_inner()).await?))
    }

    async fn discard_staged(&self, request: Request<DiscardStagedRequest>) -> Reply<DiscardStagedResponse> {
        Ok(Response::new(self.changing.discard(request.into_inner()).await?))
    }

    async fn get_object(&self, request: Request<ObjectRef>) -> Reply<StoredObject> {
        let id = object_id(request.into_inner())?;
        let stored = self.changing.objects.get(&id).await.map_err(Failure::from)?;
        Ok(Response::new(stored_object(&stored)))
    }

    type ListObjectsStream = Events<ListObjectsResponse>;

    async fn list_objects(&self, request: Request<ListObjectsRequest>) -> Reply<Self::ListObjectsStream> {
        let (kind, namespace) = filter(request.into_inner())?;
        let snapshot = self.changing.objects.snapshot(kind).await.map_err(Failure::from)?;
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
        let events = self.changing.objects.watch(kind).filter_map(move |event| {
            let told = object_event(event, &namespace);
            async move { told }
        });
        let stop = self.serving.streams();
        let end = stream::once(async { Err(serving::ended()) });
        Ok(Response::new(Box::pin(events.take_until(stop.cancelled_owned()).chain(end))))
    }
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

fn stored_object(stored: &Stored) -> StoredObject {
    let document = stored.document.json().to_string().into_bytes();
    StoredObject { object: Some(object_ref(stored.id())), document }
}
