//! The nodes as people see them: those that are or were connected, here or to another controller on the same store, and
//! those that are known by other means.
//!
//! Known are the nodes that a certificate was issued to and those that a Node object describes, so that the list is whole
//! again after a restart of the controller, when no node has come back yet. What a node did before the restart is not
//! remembered.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use ::transport::{HeldObject, Hub, Key, SessionView};
use drivers::{
    objects::{self, Objects},
    peers::{ErrorWord, NodeElsewhere, Peers},
    transport::SEED,
};
use futures::StreamExt as _;
use jiff::Timestamp;
use model::{Role, policy::Kind};
use tonic::Code;
use wire::trestle::v1::{NodeObject, NodeObjectError, NodeStatus};

use crate::{
    access::Credentials,
    failure::{Failure, store_failure},
    host_reports::HostReports,
};

/// Where nodes are known from.
#[derive(Clone)]
pub struct Nodes {
    pub hub: Arc<Hub>,
    pub peers: Arc<Peers>,
    pub credentials: Arc<Credentials>,
    pub objects: Objects,
    pub hosts: Arc<HostReports>,
}

impl Nodes {
    /// Every node there is, by name.
    pub async fn list(&self) -> Result<Vec<NodeStatus>, Failure> {
        let elsewhere = self.peers.nodes().into_iter().map(|node| (node.name.clone(), node));
        let mut nodes: BTreeMap<String, NodeStatus> =
            self.known().await?.into_iter().map(|name| (name.clone(), unseen(name))).collect();
        let mut elsewhere: BTreeMap<String, NodeElsewhere> = elsewhere.collect();
        for session in self.hub.sessions() {
            if elsewhere.get(&*session.name).is_some_and(|node| node.knows_better(&session)) {
                continue;
            }
            elsewhere.remove(&*session.name);
            nodes.insert(session.name.to_string(), self.status(session));
        }
        nodes.extend(elsewhere.into_iter().map(|(name, node)| (name, status_elsewhere(node))));
        Ok(nodes.into_values().collect())
    }

    /// One node, with the objects it is meant to hold.
    pub async fn get(&self, name: &str) -> Result<(NodeStatus, Vec<NodeObject>), Failure> {
        let (session, held) = (self.hub.session(name), self.hub.held(name));
        let elsewhere = self.peers.node(name);
        let elsewhere =
            elsewhere.filter(|node| session.as_ref().is_none_or(|session| node.knows_better(session)));
        let status = match elsewhere
            .map(status_elsewhere)
            .or_else(|| session.map(|session| self.status(session)))
        {
            Some(status) => status,
            None if held.is_some() || self.known().await?.contains(name) => unseen(name.to_owned()),
            None => {
                let text = format!(
                    "there is no node {name}: it never connected, has no certificate, and nothing is meant for it"
                );
                return Err(Failure::new(Code::NotFound, text));
            }
        };
        Ok((status, held.unwrap_or_default().into_iter().map(object).collect()))
    }

    fn status(&self, session: SessionView) -> NodeStatus {
        let host = self.hosts.of(&session.name);
        NodeStatus { host, ..status(session) }
    }

    /// Nodes that are known although they may never have connected.
    async fn known(&self) -> Result<BTreeSet<String>, Failure> {
        let now = Timestamp::now();
        let certificates = self.credentials.certificates().into_iter();
        let mut names: BTreeSet<String> = certificates
            .filter(|(_, record)| {
                record.subject.role == Role::Node && !record.revoked && now < record.not_after
            })
            .map(|(_, record)| record.subject.name.to_string())
            .collect();
        let mut snapshot = self.objects.snapshot(Some(Kind::Node)).await?;
        while let Some(page) = snapshot.pages.next().await {
            let entries = page.map_err(|err| store_failure::read(&err, &err))?;
            names.extend(
                entries.iter().filter_map(objects::read_entry).map(|stored| stored.id().name.clone()),
            );
        }
        Ok(names)
    }
}

fn unseen(name: String) -> NodeStatus {
    NodeStatus { name, ..NodeStatus::default() }
}

fn object(held: HeldObject) -> NodeObject {
    NodeObject {
        kind: i32::from(held.key.kind.0),
        name: held.key.name.to_string(),
        revision: held.revision.0,
        members: held.members.map(|members| members as u64),
    }
}

fn status(view: SessionView) -> NodeStatus {
    let error = |(key, message): (Key, String)| NodeObjectError {
        kind: i32::from(key.kind.0),
        name: key.name.to_string(),
        message,
    };
    NodeStatus {
        name: view.name.to_string(),
        connected: view.connected,
        protocol: protocol(view.dialect != SEED),
        peer: view.peer,
        version: view.version,
        connected_at: Some(seconds(view.connected_at)),
        disconnected_at: view.disconnected_at.map(seconds),
        revision: view.revision.0,
        sent_revision: view.sent.0,
        applied_revision: view.applied.map(|applied| applied.0),
        lag_seconds: view.lag.as_secs_f64(),
        errors: view.errors.into_iter().map(error).collect(),
        skipped: view.skipped,
        bytes_sent: view.bytes_sent,
        last_end: view.last_end.map(|end| end.message).unwrap_or_default(),
        controller: String::new(),
        host: None,
    }
}

/// Revisions are in the count of this controller: each has its own. What changes with every message is not known here.
fn status_elsewhere(node: NodeElsewhere) -> NodeStatus {
    let (lag, word) = (node.lag_seconds(), &node.word);
    let error = |error: &ErrorWord| NodeObjectError {
        kind: i32::from(error.kind),
        name: error.name.clone(),
        message: error.message.clone(),
    };
    let applied = node.has_all.then_some(node.newest.0);
    NodeStatus {
        name: node.name,
        connected: word.connected,
        protocol: protocol(word.acknowledges),
        peer: word.peer.clone(),
        version: word.version.clone(),
        connected_at: Some(word.connected_at),
        disconnected_at: word.disconnected_at,
        revision: node.newest.0,
        sent_revision: applied.unwrap_or_default(),
        applied_revision: applied,
        lag_seconds: lag as f64,
        errors: word.errors.iter().map(error).collect(),
        skipped: word.skipped,
        bytes_sent: 0,
        last_end: word.last_end.clone(),
        controller: node.controller,
        host: None,
    }
}

fn protocol(acknowledges: bool) -> String {
    if acknowledges { "node" } else { "seed" }.to_owned()
}

fn seconds(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
