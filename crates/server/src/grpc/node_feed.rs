//! The node streams: `trestle.v1.NodeFeed/Connect`, and `DataplaneEvents/Connect` on Azure NPM's wires, the first (`pb`) and
//! the later one (`protos`).
//!
//! All answer at once with a body that waits for its session, so that a peer which says nothing holds no place
//! among the calls in flight. A task per stream reads what the node says.

mod inbound;

use std::{
    convert::Infallible,
    future::{Ready, ready},
    marker::PhantomData,
    sync::Arc,
    task::{Context, Poll},
};

use ::transport::{DialectId, Digest, End, FeedBody, Hub, Revision};
use bytes::Bytes;
use drivers::{
    hosts::Hosts,
    policy::Policy,
    transport::{LATER, NODE, SEED},
};
use inbound::Inbound;
use life::Life;
use prost::Message as _;
use tokio::sync::oneshot;
use tonic::{Code, Status, body::Body, codegen::Service, server::NamedService};
use wire::{
    pb::{DatapathPodMetadata, dataplane_events_server},
    protos,
    trestle::v1::{FromNode, from_node, node_feed_server},
};

use crate::{
    access::{Caller, Peer, Proof},
    audit::Audit,
    host_reports::HostReports,
};

/// What the services need.
#[derive(Clone)]
pub(super) struct Feed {
    pub hub: Arc<Hub>,
    pub audit: Arc<Audit>,
    pub hosts: Arc<HostReports>,
    pub joined: Arc<Hosts>,
    pub policy: Arc<Policy>,
    pub life: Life,
}

/// Whether a caller may speak as a node. A caller that proved nothing was let in by the configuration, on loopback, and may say what it
/// likes.
pub(super) fn may_be(joined: &Hosts, caller: &Caller, node: &str) -> bool {
    let subject = &caller.subject.name;
    // A host that joined is itself and nothing else: its name is its own choice, and may have dots.
    let is_joined = joined.get(subject).is_some();
    let is_it =
        if is_joined { subject.as_str() == node } else { inbound::is_name_of(subject.as_str(), node) };
    caller.proof == Proof::Anonymous || is_it
}

/// What tells one node stream from the other.
pub(super) trait Protocol: Send + Sync + 'static {
    const SERVICE: &'static str;
    const DIALECT: DialectId;
    /// Whether its clients may announce a Pod, too: then whoever is neither a node nor a Pod on one is refused.
    const IS_DATAPLANE: bool;

    /// Reads the first message.
    fn hello(message: Bytes) -> Result<Hello, End>;
}

/// What a node says of itself.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Hello {
    node: String,
    token: Option<(u64, Revision)>,
    digest: Option<Digest>,
    version: String,
}

/// `trestle.v1.NodeFeed`.
pub(super) struct NodeFeed;

/// `pb.DataplaneEvents`.
pub(super) struct DataplaneEvents;

/// `protos.DataplaneEvents`.
pub(super) struct LaterDataplaneEvents;

impl Protocol for NodeFeed {
    const SERVICE: &'static str = node_feed_server::SERVICE_NAME;
    const DIALECT: DialectId = NODE;
    const IS_DATAPLANE: bool = false;

    fn hello(message: Bytes) -> Result<Hello, End> {
        let message =
            FromNode::decode(message).map_err(|err| invalid(format!("the hello cannot be read: {err}")))?;
        let Some(from_node::Message::Hello(hello)) = message.message else {
            return Err(invalid("the first message must be a hello".to_owned()));
        };
        let token = hello.epoch.zip(hello.revision).map(|(epoch, revision)| (epoch, Revision(revision)));
        // A digest of another size is from another version of the protocol; the node starts from nothing.
        Ok(Hello {
            node: hello.node,
            token,
            digest: Digest::from_slice(&hello.digest),
            version: hello.version,
        })
    }
}

impl Protocol for DataplaneEvents {
    const SERVICE: &'static str = dataplane_events_server::SERVICE_NAME;
    const DIALECT: DialectId = SEED;
    const IS_DATAPLANE: bool = true;

    fn hello(message: Bytes) -> Result<Hello, End> {
        let metadata = DatapathPodMetadata::decode(message);
        let metadata = metadata.map_err(|err| invalid(format!("the metadata cannot be read: {err}")))?;
        Ok(Hello { node: metadata.id, ..Hello::default() })
    }
}

impl Protocol for LaterDataplaneEvents {
    const SERVICE: &'static str = protos::dataplane_events_server::SERVICE_NAME;
    const DIALECT: DialectId = LATER;
    const IS_DATAPLANE: bool = true;

    fn hello(message: Bytes) -> Result<Hello, End> {
        let metadata = protos::DatapathPodMetadata::decode(message);
        let metadata = metadata.map_err(|err| invalid(format!("the metadata cannot be read: {err}")))?;
        let named = [metadata.node_name, metadata.pod_name].into_iter().find(|name| !name.is_empty());
        Ok(Hello { node: named.unwrap_or_default(), ..Hello::default() })
    }
}

fn invalid(message: String) -> End {
    End { code: Code::InvalidArgument as u8, message }
}

/// A node stream as a service.
pub(super) struct Stream<P> {
    feed: Feed,
    protocol: PhantomData<P>,
}

impl<P> Stream<P> {
    pub fn new(feed: Feed) -> Self {
        Self { feed, protocol: PhantomData }
    }
}

impl<P> Clone for Stream<P> {
    fn clone(&self) -> Self {
        Self::new(self.feed.clone())
    }
}

impl<P: Protocol> NamedService for Stream<P> {
    const NAME: &'static str = P::SERVICE;
}

impl<P: Protocol> Service<http::Request<Body>> for Stream<P> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        ready(Ok(self.connect(request).unwrap_or_else(|status| status.into_http())))
    }
}

impl<P: Protocol> Stream<P> {
    fn connect(&self, request: http::Request<Body>) -> Result<http::Response<Body>, Status> {
        let operation = request.uri().path().trim_start_matches('/').to_owned();
        if operation.strip_prefix(P::SERVICE) != Some("/Connect") {
            return Err(Status::unimplemented(format!("there is no operation {operation}")));
        }
        let (mut parts, body) = request.into_parts();
        let caller = parts.extensions.remove::<Caller>();
        let (Some(caller), Some(peer)) = (caller, parts.extensions.remove::<Peer>()) else {
            return Err(Status::unauthenticated(format!("{operation} needs a client certificate")));
        };
        let (answer, opened) = oneshot::channel();
        let inbound = Inbound::new(self.feed.clone(), operation, caller, peer, body);
        self.feed.life.spawn_guest("node stream", inbound.serve::<P>(answer));
        let mut response = http::Response::new(Body::new(FeedBody::new(Arc::clone(&self.feed.hub), opened)));
        let kind = http::HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
        Ok(response)
    }
}
