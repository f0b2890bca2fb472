//! A node that does what the protocol says, in memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};
use transport::Digest;
use wire::trestle::v1::{
    FromNode, NodeEndpointSlice, NodeFacts, NodeHello, NodeReport, NodeService, NodeStart, ObjectKind,
    SetMember, ToNode, from_node, node_apply, node_feed_client::NodeFeedClient, node_start::Mode, to_node,
};

use testkit_controllers::{controller::Credential, nodes::Harness};

/// What a node holds of one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Held {
    Set(BTreeSet<String>),
    Policy(i64),
    Service(NodeService),
    Slice(NodeEndpointSlice),
    Facts(NodeFacts),
    /// Of a kind this node does not know.
    Unknown,
}

/// A node's state, which outlives its streams.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub objects: BTreeMap<(i32, String), (u64, Held)>,
    pub token: Option<(u64, u64)>,
}

impl State {
    pub fn digest(&self) -> Digest {
        let mut digest = Digest::default();
        self.objects.values().for_each(|(hash, _)| digest.add(*hash));
        digest
    }

    pub fn hello(&self, name: &str) -> NodeHello {
        NodeHello {
            node: name.into(),
            epoch: self.token.map(|(epoch, _)| epoch),
            revision: self.token.map(|(_, revision)| revision),
            digest: self.digest().as_slice().to_vec(),
            version: "test".into(),
        }
    }

    pub fn set(&self, name: &str) -> Option<Vec<&str>> {
        match &self.objects.get(&(ObjectKind::AddressSet as i32, name.to_owned()))?.1 {
            Held::Set(members) => Some(members.iter().map(String::as_str).collect()),
            _ => None,
        }
    }

    pub fn policy(&self, name: &str) -> Option<i64> {
        match self.objects.get(&(ObjectKind::Policy as i32, name.to_owned()))?.1 {
            Held::Policy(generation) => Some(generation),
            _ => None,
        }
    }
}

/// One stream of a node.
pub struct Agent {
    pub state: State,
    pub start: Option<NodeStart>,
    pub waits: usize,
    pub bytes: usize,
    reports: mpsc::Sender<FromNode>,
    stream: Streaming<ToNode>,
    pending: Vec<ToNode>,
}

impl Agent {
    pub async fn connect(harness: &Harness, credential: &Credential, state: State) -> Self {
        let hello = state.hello(&credential.name);
        Self::connect_as(harness, credential, state, hello).await.unwrap()
    }

    pub async fn connect_as(
        harness: &Harness,
        credential: &Credential,
        state: State,
        hello: NodeHello,
    ) -> Result<Self, Status> {
        let (reports, outgoing) = mpsc::channel(8);
        reports.send(FromNode { message: Some(from_node::Message::Hello(hello)) }).await.unwrap();
        let mut client = NodeFeedClient::new(harness.channel(Some(credential)).await);
        let stream = client.connect(ReceiverStream::new(outgoing)).await?.into_inner();
        Ok(Self { state, start: None, waits: 0, bytes: 0, reports, stream, pending: Vec::new() })
    }

    /// Reads until the next flush and applies what came before it.
    pub async fn step(&mut self) -> Result<u64, Status> {
        loop {
            let next = tokio::time::timeout(Duration::from_secs(30), self.stream.message()).await;
            let message = next.map_err(|_| Status::deadline_exceeded("nothing came"))??;
            let Some(message) = message else { return Err(Status::ok("the stream ended")) };
            self.bytes += prost::Message::encoded_len(&message) + 5;
            match message.message {
                Some(to_node::Message::Flush(flush)) => {
                    assert_eq!(
                        flush.synced,
                        self.pending_start().is_some(),
                        "the first flush is the one that syncs"
                    );
                    self.flush(flush.revision);
                    return Ok(flush.revision);
                }
                Some(to_node::Message::Wait(_)) => self.waits += 1,
                _ => self.pending.push(message),
            }
        }
    }

    /// Steps until a condition holds.
    pub async fn until(&mut self, what: &str, mut holds: impl FnMut(&State) -> bool) {
        while !holds(&self.state) {
            self.step().await.unwrap_or_else(|status| panic!("{what}: {status}, with {:?}", self.state));
        }
    }

    /// Whether nothing comes for a while.
    pub async fn is_quiet(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.stream.message()).await.is_err()
    }

    /// How the stream ends.
    pub async fn end(&mut self) -> Code {
        loop {
            if let Err(status) = self.step().await {
                return status.code();
            }
        }
    }

    pub async fn report(&self, report: NodeReport) {
        self.reports.send(FromNode { message: Some(from_node::Message::Report(report)) }).await.unwrap();
    }

    pub async fn send(&self, message: FromNode) {
        let _ = self.reports.send(message).await;
    }

    fn pending_start(&self) -> Option<NodeStart> {
        self.pending.iter().find_map(|message| match &message.message {
            Some(to_node::Message::Start(start)) => Some(start.clone()),
            _ => None,
        })
    }

    fn flush(&mut self, revision: u64) {
        let start = self.pending_start();
        let mut seen = BTreeSet::new();
        for message in std::mem::take(&mut self.pending) {
            match message.message {
                Some(to_node::Message::Apply(apply)) => {
                    let key = (apply.kind, apply.name);
                    seen.insert(key.clone());
                    let had = self.state.objects.remove(&key).map(|(_, held)| held);
                    let held = match (apply.body, had) {
                        (Some(node_apply::Body::Policy(policy)), _) => Held::Policy(policy.generation),
                        (Some(node_apply::Body::Set(set)), had) => {
                            let mut members = match had {
                                Some(Held::Set(members)) if !set.replace => members,
                                _ => BTreeSet::new(),
                            };
                            let name = |member: &SetMember| member.name.clone();
                            members
                                .retain(|member| !set.removed.iter().any(|removed| name(removed) == *member));
                            members.extend(set.put.iter().map(name));
                            Held::Set(members)
                        }
                        (Some(node_apply::Body::Service(service)), _) => Held::Service(*service),
                        (Some(node_apply::Body::Slice(slice)), _) => Held::Slice(slice),
                        (Some(node_apply::Body::Facts(facts)), _) => Held::Facts(facts),
                        (None, _) => Held::Unknown,
                    };
                    self.state.objects.insert(key, (apply.hash, held));
                }
                Some(to_node::Message::Remove(remove)) => {
                    self.state.objects.remove(&(remove.kind, remove.name));
                }
                _ => {}
            }
        }
        if let Some(start) = start {
            self.sweep(&start, &seen);
            self.state.token = Some((start.epoch, revision));
            self.start = Some(start);
        }
        if let Some((_, at)) = &mut self.state.token {
            assert!(*at <= revision, "revisions never go back");
            *at = revision;
        }
    }

    fn sweep(&mut self, start: &NodeStart, seen: &BTreeSet<(i32, String)>) {
        let swept = |hash: u64| match start.mode() {
            Mode::Snapshot => true,
            Mode::Buckets => start.buckets.contains(&((hash % 128) as u32)),
            Mode::Resume | Mode::Unspecified => false,
        };
        self.state.objects.retain(|key, (hash, _)| seen.contains(key) || !swept(*hash));
    }
}
