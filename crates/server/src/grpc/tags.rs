//! `tagservicepb.TagService` on Paraglider's wire, and `trestle.v1.TagEvents` beside it.

use std::{pin::Pin, sync::Arc};

use ::tags::{Difference, Request as TagRequest, ResolvedMember};
use drivers::{
    blocking,
    tags::{Heard, Tags, Watching, mapping, set},
};
use futures::{Stream, StreamExt as _, stream};
use model::{Subscriber, TagName};
use store::Revision;
use tonic::{Code, Request, Response, Status};
use wire::{
    tags::{tag_members, tag_value},
    tagservicepb::{
        BasicResponse, ListTagsRequest, ListTagsResponse, SubscriberList, Subscription, Tag, TagMapping,
        TagMappingList, tag_service_server::TagService,
    },
    trestle::v1::{self, TagDifference, TagEvent, WatchSubscriberRequest, tag_events_server::TagEvents},
};

use crate::{
    audit,
    changes::tag_changed,
    failure::Failure,
    metrics::Metrics,
    serving::{self, Serving},
};

type Reply<T> = Result<Response<T>, Status>;

pub(super) struct Grpc(pub Arc<Tags>);

#[tonic::async_trait]
impl TagService for Grpc {
    async fn set_tag(&self, request: Request<TagMapping>) -> Reply<BasicResponse> {
        let (tag, value) = tag_value(request.into_inner()).map_err(|err| Failure::invalid(&err))?;
        let message = format!("Created/updated tag: {tag}");
        self.ask(set(tag, value), message).await
    }

    async fn get_tag(&self, request: Request<Tag>) -> Reply<TagMapping> {
        let tag = tag_name(&request.get_ref().tag_name)?;
        let snapshot = self.0.snapshot().map_err(Failure::from)?;
        let mapping = blocking(move || -> Result<_, Failure> {
            let view = snapshot.graph.get(&tag).map_err(not_found)?;
            Ok(TagMapping::from((tag, view.to_value())))
        });
        Ok(Response::new(mapping.await?))
    }

    async fn resolve_tag(&self, request: Request<Tag>) -> Reply<TagMappingList> {
        let tag = tag_name(&request.get_ref().tag_name)?;
        let snapshot = self.0.snapshot().map_err(Failure::from)?;
        let list = blocking(move || -> Result<_, Failure> {
            let resolved = snapshot.graph.resolve(&tag).map_err(not_found)?;
            Ok(TagMappingList { mappings: resolved.iter().map(mapping).collect() })
        });
        Ok(Response::new(list.await?))
    }

    async fn delete_tag_member(&self, request: Request<TagMapping>) -> Reply<BasicResponse> {
        let (tag, members) = tag_members(request.into_inner()).map_err(|err| Failure::invalid(&err))?;
        let message = format!("Deleted members from tag: {tag}");
        self.ask(TagRequest::DeleteMembers { tag, members }, message).await
    }

    async fn delete_tag(&self, request: Request<Tag>) -> Reply<BasicResponse> {
        let tag = tag_name(&request.get_ref().tag_name)?;
        let message = format!("Deleted tag: {tag}");
        self.ask(TagRequest::DeleteTag { tag }, message).await
    }

    async fn subscribe(&self, request: Request<Subscription>) -> Reply<BasicResponse> {
        let (tag, subscriber) = subscription(request.get_ref())?;
        let message = format!("Subscribed {subscriber} to tag {tag}");
        self.ask(TagRequest::Subscribe { tag, subscriber }, message).await
    }

    async fn unsubscribe(&self, request: Request<Subscription>) -> Reply<BasicResponse> {
        let (tag, subscriber) = subscription(request.get_ref())?;
        let message = format!("Unsubscribed {subscriber} from tag {tag}");
        self.ask(TagRequest::Unsubscribe { tag, subscriber }, message).await
    }

    async fn get_subscribers(&self, request: Request<Tag>) -> Reply<SubscriberList> {
        let tag = tag_name(&request.get_ref().tag_name)?;
        let snapshot = self.0.snapshot().map_err(Failure::from)?;
        let subscribers = snapshot.graph.subscribers(&tag).map_err(not_found)?;
        Ok(Response::new(SubscriberList { subscribers: subscribers.map(Subscriber::to_string).collect() }))
    }

    async fn list_tags(&self, request: Request<ListTagsRequest>) -> Reply<ListTagsResponse> {
        let prefix = request.into_inner().prefix;
        let snapshot = self.0.snapshot().map_err(Failure::from)?;
        let list = blocking(move || -> Result<_, Failure> {
            let tags = snapshot.graph.list(&prefix);
            Ok(ListTagsResponse {
                tags: tags.map(|(name, view)| (name.clone(), view.to_value()).into()).collect(),
            })
        });
        Ok(Response::new(list.await?))
    }
}

impl Grpc {
    async fn ask(&self, request: TagRequest, message: String) -> Reply<BasicResponse> {
        audit::changed(tag_changed(&self.0, request).await?);
        Ok(Response::new(BasicResponse { success: true, message }))
    }
}

fn not_found(error: ::tags::NotFound) -> Failure {
    Failure::from_error(Code::NotFound, &error)
}

fn tag_name(text: &str) -> Result<TagName, Failure> {
    text.parse().map_err(|err: model::NameError| Failure::invalid(&err))
}

fn subscription(message: &Subscription) -> Result<(TagName, Subscriber), Failure> {
    Ok((tag_name(&message.tag_name)?, subscriber(&message.subscriber)?))
}

fn subscriber(text: &str) -> Result<Subscriber, Failure> {
    text.parse().map_err(|err: model::SubscriberError| {
        Failure::new(Code::InvalidArgument, format!("the subscriber is not acceptable: {err}"))
    })
}

fn resolved(member: &ResolvedMember) -> v1::ResolvedMember {
    let TagMapping { tag_name, uri, ip, .. } = mapping(member);
    v1::ResolvedMember { tag_name, uri, ip }
}

pub(super) struct EventService {
    pub tags: Arc<Tags>,
    pub metrics: Arc<Metrics>,
    pub serving: Arc<Serving>,
}

#[tonic::async_trait]
impl TagEvents for EventService {
    type WatchSubscriberStream = Pin<Box<dyn Stream<Item = Result<TagEvent, Status>> + Send>>;

    async fn watch_subscriber(
        &self,
        request: Request<WatchSubscriberRequest>,
    ) -> Reply<Self::WatchSubscriberStream> {
        let request = request.into_inner();
        let subscriber = subscriber(&request.subscriber)?;
        let watching = self.tags.watch(subscriber, request.after.map(Revision)).await;
        let watching = watching.map_err(|err| Failure::from_error(Code::OutOfRange, &err))?;
        let start = TagEvent { revision: watching.start().0, start: true, differences: Vec::new() };
        let open = Open::new(watching, Arc::clone(&self.metrics));
        let events = stream::unfold(Some(open), |open| async {
            let mut open = open?;
            match open.watching.next().await {
                Ok(heard) => Some((Ok(event(&heard)), Some(open))),
                Err(err) => Some((Err(Failure::from_error(Code::OutOfRange, &err).into()), None)),
            }
        });
        let end = stream::once(async { Err(serving::ended()) });
        let events = events.take_until(self.serving.streams().cancelled_owned()).chain(end);
        Ok(Response::new(Box::pin(stream::once(async move { Ok(start) }).chain(events))))
    }
}

/// A stream that is counted while it is open.
struct Open {
    watching: Watching,
    metrics: Arc<Metrics>,
}

impl Open {
    fn new(watching: Watching, metrics: Arc<Metrics>) -> Self {
        metrics.tag_watchers.inc();
        Self { watching, metrics }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.metrics.tag_watchers.dec();
    }
}

fn event(heard: &Heard) -> TagEvent {
    let differences = heard.differences.iter().map(|difference| wire_difference(difference)).collect();
    TagEvent { revision: heard.revision.0, start: false, differences }
}

fn wire_difference(difference: &Difference) -> TagDifference {
    TagDifference {
        tag_name: difference.tag.to_string(),
        added: difference.added.iter().map(resolved).collect(),
        removed: difference.removed.iter().map(resolved).collect(),
        deleted: difference.deleted,
    }
}
