//! What the proxy is told, without a kernel.

use model::service::{NodeFacts, ServiceName};
use wire::trestle::v1::{
    NodeApply, NodeEndpoint, NodeEndpointSlice, NodeFacts as FactsMessage, NodeFlush, NodeService, NodeStart,
    ObjectKind, ToNode, node_apply::Body, node_service::Type, node_start::Mode, to_node,
};

use super::{ServiceSettings, ServicesPart};
use crate::{held::Held, part::Changed};

fn held(objects: &[(ObjectKind, &str, Body)]) -> Held {
    let start = NodeStart { epoch: 1, mode: Mode::Snapshot.into(), buckets: vec![], tells_pods: true };
    let applies = objects.iter().map(|(kind, name, body)| {
        let body = Some(body.clone());
        to_node::Message::Apply(NodeApply { kind: (*kind).into(), name: (*name).to_owned(), hash: 1, body })
    });
    let flush = to_node::Message::Flush(NodeFlush { revision: 1, synced: true });
    let mut held = Held::default();
    for message in [to_node::Message::Start(start)].into_iter().chain(applies).chain([flush]) {
        held.take(ToNode { message: Some(message) }).unwrap();
    }
    held
}

/// A whole comparison, as after a failure: what the controller took back in the meantime is forgotten.
#[test]
fn what_is_not_held_any_more_is_forgotten() {
    let service = |name: &str| {
        let (namespace, name) = ("shop".to_owned(), name.to_owned());
        let service =
            NodeService { namespace, name, r#type: Type::ClusterIp.into(), ..NodeService::default() };
        Body::Service(Box::new(service))
    };
    let slice = |addresses: Vec<u8>| {
        let endpoints = vec![NodeEndpoint { addresses: vec![addresses], ..NodeEndpoint::default() }];
        let (namespace, service) = ("shop".to_owned(), "stays".to_owned());
        Body::Slice(NodeEndpointSlice { namespace, service, endpoints, ..NodeEndpointSlice::default() })
    };
    let facts = Body::Facts(FactsMessage { zone: "west".into(), ..FactsMessage::default() });
    let stays = (ObjectKind::Service, "shop/stays", service("stays"));
    let before = held(&[
        stays.clone(),
        (ObjectKind::Service, "shop/goes", service("goes")),
        (ObjectKind::EndpointSlice, "shop/slice", slice(vec![10, 0, 0, 1])),
        (ObjectKind::EndpointSlice, "shop/unreadable", slice(vec![1, 2, 3])),
        (ObjectKind::NodeFacts, "here", facts),
    ]);
    let (mut part, _services) = ServicesPart::new(ServiceSettings::default());
    part.take_in(&before, Changed::All);
    assert_eq!(part.proxy.store().services().count(), 2);
    assert_eq!(part.proxy.store().slices().collect::<Vec<_>>(), ["shop/slice"]);
    assert_eq!((part.unreadable.len(), part.facts.zone.as_deref()), (1, Some("west")));
    part.take_in(&held(&[stays]), Changed::All);
    let store = part.proxy.store();
    assert!(store.services().eq([&ServiceName::new("shop", "stays")]) && store.slices().next().is_none());
    assert_eq!((part.unreadable.len(), &part.facts), (0, &NodeFacts::default()));
}
