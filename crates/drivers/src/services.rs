//! Services on the controller: follows objects, tells nodes, and answers questions.
//!
//! ```text
//!   objects ─► ObjectFollower ─► Catalog ─► changes ─┬─► transport: every node
//!                             ▲                └─► subscriptions: proxies that speak KPNG (`localv1.Sets`)
//!                          list, get, explain
//! ```
//!
//! With what is known of a node it is also told which of its Pods are covered ([`pods`]).
//! Not here: what changes (`services::Catalog`), how nodes are reached (`transport`).

mod pods;

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
};

use ::services::{
    Catalog, Change,
    explain::{Explanation, Query, explain},
};
use ::transport::{Source, SpanChange};
use model::{
    policy::{Object, ObjectId},
    service::ServiceName,
};
use node_services::evaluate::NotUnderstood;
use parking_lot::{Mutex, RwLock};
use prost::Message as _;
use tokio::sync::Notify;
use wire::{
    service::node_service,
    trestle::v1::{NodeEndpointSlice, NodeFacts, ObjectKind},
};

use crate::{policy::ObjectFollower, transport::objects};
use pods::Covered;

/// The services of one controller.
#[derive(Default)]
pub struct Services {
    catalog: RwLock<Catalog>,
    subscriptions: Mutex<Vec<Weak<Subscription>>>,
}

/// What one reader has not looked at yet. Bounded by the number of services, however slow the reader is.
#[derive(Default)]
pub struct Subscription {
    due: Mutex<Due>,
    pub changed: Notify,
}

/// Services to look at again.
#[derive(Debug, Default)]
pub struct Due {
    pub services: BTreeSet<ServiceName>,
    /// Nodes whose zone may have changed.
    pub nodes: BTreeSet<String>,
}

impl Services {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Who the driver of objects tells, and through which nodes are told.
    pub fn follower(self: &Arc<Self>, source: Source) -> Box<dyn ObjectFollower> {
        let services = Arc::clone(self);
        Box::new(Feed { services, source, pods: Covered::default(), told: BTreeSet::new() })
    }

    /// Reads the state; changes wait meanwhile.
    pub fn read<T>(&self, ask: impl FnOnce(&Catalog) -> T) -> T {
        ask(&self.catalog.read())
    }

    pub fn explain(&self, query: &Query) -> Result<Explanation, NotUnderstood> {
        explain(&self.catalog.read(), query)
    }

    /// From now on; a reader looks at everything first.
    pub fn subscribe(&self) -> Arc<Subscription> {
        let subscription = Arc::new(Subscription::default());
        let mut all = self.subscriptions.lock();
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&subscription));
        subscription
    }

    fn publish(&self, changes: &[Change]) {
        let subscriptions: Vec<_> = self.subscriptions.lock().iter().filter_map(Weak::upgrade).collect();
        for subscription in subscriptions {
            subscription.due.lock().add(changes);
            subscription.changed.notify_one();
        }
    }
}

impl Subscription {
    pub fn take(&self) -> Due {
        std::mem::take(&mut *self.due.lock())
    }
}

impl Due {
    fn add(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Service(name, _) | Change::Slice { service: name, .. } => {
                    self.services.insert(name.clone());
                }
                Change::Node(name, _) => {
                    self.nodes.insert(name.clone());
                }
            }
        }
    }
}

struct Feed {
    services: Arc<Services>,
    source: Source,
    pods: Covered,
    /// Nodes that were told of themselves.
    told: BTreeSet<Arc<str>>,
}

impl Feed {
    /// What a node is told of itself, if there is anything.
    fn facts(&mut self, node: Arc<str>) -> Option<::transport::Change> {
        let known = self.services.read(|catalog| catalog.node(&node).map(NodeFacts::from));
        let pods = self.pods.of(&node);
        if known.is_none() && pods.is_empty() {
            return self.told.remove(&node).then(|| objects::remove(ObjectKind::NodeFacts, &node));
        }
        // Pods are the last field, and encoded already.
        let mut facts = known.unwrap_or_default().encode_to_vec();
        facts.extend(pods);
        let span = SpanChange::Nodes([Arc::clone(&node)].into());
        let put = objects::put_encoded(ObjectKind::NodeFacts, &node, facts, span);
        self.told.insert(node);
        Some(put)
    }
}

impl ObjectFollower for Feed {
    fn apply(&mut self, object: &Object) {
        self.services.catalog.write().apply(object);
        self.pods.apply(object);
    }

    fn delete(&mut self, id: &ObjectId) {
        self.services.catalog.write().delete(id);
        self.pods.delete(id);
    }

    fn flush(&mut self) {
        let changes = self.services.catalog.write().take_changes();
        let mut nodes = self.pods.take_dirty();
        nodes.extend(changes.iter().filter_map(|change| match change {
            Change::Node(name, _) => Some(Arc::from(name.as_str())),
            Change::Slice { .. } | Change::Service(..) => None,
        }));
        let facts: Vec<_> = nodes.into_iter().filter_map(|node| self.facts(node)).collect();
        let published: Vec<_> = facts.into_iter().chain(changes.iter().filter_map(publication)).collect();
        if !published.is_empty() {
            self.source.publish(published);
        }
        if !changes.is_empty() {
            self.services.publish(&changes);
        }
    }

    fn synced(&mut self) {
        self.source.synced();
    }
}

/// What all nodes are told.
fn publication(change: &Change) -> Option<::transport::Change> {
    match change {
        Change::Node(..) => None,
        Change::Slice { key, slice: Some(slice), .. } => {
            let message = NodeEndpointSlice::from(&**slice);
            Some(objects::put(ObjectKind::EndpointSlice, key, &message, SpanChange::Everyone))
        }
        Change::Slice { key, slice: None, .. } => Some(objects::remove(ObjectKind::EndpointSlice, key)),
        Change::Service(name, Some(service)) => {
            let message = node_service(name, service);
            Some(objects::put(ObjectKind::Service, &name.to_string(), &message, SpanChange::Everyone))
        }
        Change::Service(name, None) => Some(objects::remove(ObjectKind::Service, &name.to_string())),
    }
}
