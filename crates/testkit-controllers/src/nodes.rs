//! A controller that is fed by the test: what nodes are told is what the test publishes.

use std::{ops::Deref, sync::Arc, time::Duration};

use server::{Config, transport::objects};
use tempfile::TempDir;
use tonic::{Request, transport::Channel};
use transport::{Change, SessionView, Source, SpanChange, Stats};
use wire::trestle::v1::{
    ListNodesRequest, NodeFacts, NodePolicy, NodeStatus, ObjectKind, Role, SetMember,
    nodes_client::NodesClient,
};

use super::controller::{Credential, Fixture};

/// The source the tests are.
const SOURCE: &str = "test";

pub struct Harness {
    fixture: Fixture,
    pub source: Source,
}

impl Deref for Harness {
    type Target = Fixture;

    fn deref(&self) -> &Fixture {
        &self.fixture
    }
}

impl Harness {
    /// A controller whose sources are not in sync yet.
    pub async fn unsynced() -> Self {
        Self::start(tempfile::tempdir().unwrap(), |_| {}).await
    }

    /// A controller whose sources are in sync and empty.
    pub async fn synced() -> Self {
        let harness = Self::unsynced().await;
        harness.source.synced();
        harness
    }

    pub async fn start(dir: TempDir, adjust: impl FnOnce(&mut Config)) -> Self {
        let fixture = Fixture::start_beside(dir, &[SOURCE], adjust).await;
        let source = fixture.controller.transport().source(SOURCE).unwrap();
        Self { fixture, source }
    }

    /// Another controller on the same data and the same port; not in sync.
    pub async fn restart(self) -> Self {
        let port = self.controller.grpc_addr().port();
        let dir = self.stop().await;
        Self::start(dir, |config| config.listen.grpc.set_port(port)).await
    }

    /// Stops the controller and hands back its directory.
    pub async fn stop(self) -> TempDir {
        self.fixture.stop().await
    }

    pub fn publish(&self, changes: impl IntoIterator<Item = Change>) {
        self.source.publish(changes);
    }

    pub async fn node(&self, name: &str) -> Credential {
        self.issue(Role::Node, name).await
    }

    pub fn as_admin<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", format!("Bearer {}", self.token).parse().unwrap());
        request
    }

    /// A connection as nodes make it.
    pub async fn channel(&self, credential: Option<&Credential>) -> Channel {
        let endpoint = self.endpoint(credential.map(Credential::identity));
        // A small window for the stream, so that a client which does not read is noticed; not for the connection, by
        // which h2 clients measure how many small frames they bear unread before they end it.
        let endpoint = endpoint.initial_stream_window_size(65_535).initial_connection_window_size(1 << 20);
        endpoint.http2_keep_alive_interval(Duration::from_secs(20)).connect().await.unwrap()
    }

    /// What the controller knows of a node's stream.
    pub fn session(&self, name: &str) -> Option<SessionView> {
        self.controller.transport().hub.session(name)
    }

    pub fn stats(&self) -> Stats {
        self.controller.transport().hub.stats()
    }

    pub async fn list(&self) -> Vec<NodeStatus> {
        let mut nodes = NodesClient::new(self.admin().await);
        nodes.list_nodes(ListNodesRequest {}).await.unwrap().into_inner().nodes
    }
}

pub fn nodes(names: &[&str]) -> SpanChange {
    SpanChange::Nodes(names.iter().map(|name| Arc::from(*name)).collect())
}

pub fn member(name: &str) -> SetMember {
    SetMember { name: name.into(), addresses: vec![vec![10, 0, 0, 1]], ..SetMember::default() }
}

pub fn set(name: &str, members: &[&str], span: SpanChange) -> Change {
    objects::put_set(ObjectKind::AddressSet, name, members.iter().map(|name| member(name)).collect(), span)
}

pub fn change(name: &str, put: &[&str], removed: &[&str]) -> Change {
    let members = |names: &[&str]| names.iter().map(|name| member(name)).collect();
    objects::change_set(ObjectKind::AddressSet, name, members(put), members(removed), SpanChange::Keep)
}

pub fn policy(name: &str, generation: i64, span: SpanChange) -> Change {
    objects::put_policy(name, &NodePolicy { generation, ..NodePolicy::default() }, span)
}

/// What makes a node one that the controller knows.
pub fn facts(node: &str) -> Change {
    objects::put(ObjectKind::NodeFacts, node, &NodeFacts::default(), nodes(&[node]))
}

/// Waits for a condition, with a bound.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} did not come true in a minute");
}
