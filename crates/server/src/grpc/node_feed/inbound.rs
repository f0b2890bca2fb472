//! What a node says: first who it is, then what it has applied.

use std::{sync::Arc, time::Duration};

use ::transport::{Deframer, End, Key, Kind, Opening, Refused, Revision, Session};
use bytes::Bytes;
use drivers::span::is_cloud;
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use model::policy::output::{Member, MemberKind};
use policy::Engine;
use prost::Message as _;
use tokio::{sync::oneshot, time::timeout};
use tonic::{Code, body::Body};
use tracing::debug;
use wire::trestle::v1::{FromNode, NodeReport, from_node};

use super::{Feed, Protocol, invalid, may_be};
use crate::{
    access::{Caller, Peer},
    audit::{Phase, Record},
    failure::code_name,
};

/// Longest message a node may send: room for reports with all the errors that are kept.
const MAX_MESSAGE: usize = 1 << 20;
/// Time to say who is there.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked whether the sources are in sync, of which a dataplane is told nothing.
const SYNC_PAUSE: Duration = Duration::from_millis(50);
/// A node that reports without pause is read no faster than this.
const REPORT_PAUSE: Duration = Duration::from_millis(20);
/// Longest id Azure NPM's clients may announce; node certificates hold less.
const MAX_NAME: usize = 253;

/// One stream's other half.
pub(super) struct Inbound {
    feed: Feed,
    operation: String,
    caller: Caller,
    peer: Peer,
    body: Body,
    deframer: Deframer,
}

impl Inbound {
    pub fn new(feed: Feed, operation: String, caller: Caller, peer: Peer, body: Body) -> Self {
        Self { feed, operation, caller, peer, body, deframer: Deframer::new(MAX_MESSAGE) }
    }

    /// Opens the session and reads reports until the node has no more to say.
    pub async fn serve<P: Protocol>(mut self, mut answer: oneshot::Sender<Result<Arc<Session>, End>>) {
        let opened = tokio::select! {
            opened = self.open::<P>() => opened,
            () = answer.closed() => return,
        };
        let session = match opened {
            Ok(session) => session,
            Err(end) => {
                debug!(peer = %self.peer.addr, reason = end.message, "a node stream is refused");
                let _ = answer.send(Err(end));
                return;
            }
        };
        if answer.send(Ok(Arc::clone(&session))).is_err() {
            // The stream ended while the node said hello.
            self.feed.hub.close(&session);
            return;
        }
        tokio::select! {
            read = self.read_reports(&session) => {
                if let Err(end) = read {
                    session.end(end);
                }
            }
            // Whoever holds the body keeps the stream from ending.
            () = session.closed() => {}
        }
    }

    async fn open<P: Protocol>(&mut self) -> Result<Arc<Session>, End> {
        let late =
            |_| End { code: Code::DeadlineExceeded as u8, message: "the node did not say hello".to_owned() };
        let message = timeout(PATIENCE, self.next()).await.map_err(late)??;
        let mut hello = P::hello(message.ok_or_else(|| invalid("the node said nothing".to_owned()))?)?;
        check_text(&hello.node)?;
        if P::IS_DATAPLANE {
            hello.node = self.node_of(hello.node).await?;
        }
        self.check_name(&hello.node)?;
        let opening = Opening {
            name: hello.node.into(),
            dialect: P::DIALECT,
            token: hello.token,
            digest: hello.digest,
            peer: self.peer.addr.to_string(),
            version: hello.version.chars().take(64).collect(),
            credential: self.caller.credential.as_ref().map(ToString::to_string),
            cut: self.peer.guest.cut().clone(),
        };
        self.feed.hub.open(opening).map_err(|refused| match refused {
            Refused::Exists { .. } => End { code: Code::AlreadyExists as u8, message: refused.to_string() },
        })
    }

    /// A node is who its certificate says.
    fn check_name(&self, name: &str) -> Result<(), End> {
        if self.may_be(name) {
            return Ok(());
        }
        let message = format!("{} may not connect as node {name}", self.caller.subject);
        self.record(name, Code::PermissionDenied);
        Err(End { code: Code::PermissionDenied as u8, message })
    }

    fn may_be(&self, name: &str) -> bool {
        may_be(&self.feed.joined, &self.caller, name)
    }

    /// The node of a dataplane, which announces itself by the node's name or by its Pod's. Nodes are those of which anything is
    /// known when the sources are in sync.
    async fn node_of(&mut self, id: String) -> Result<String, End> {
        while !self.feed.hub.is_synced() {
            tokio::time::sleep(SYNC_PAUSE).await;
        }
        if self.feed.hub.knows(&id) {
            return Ok(id);
        }
        match self.feed.policy.ask(|engine| node_of_pod(engine, &id)) {
            Some(node) => Ok(node),
            // Who is somebody else is told so, and not who there is.
            None if !self.may_be(&id) => Ok(id),
            None => {
                let message = format!(
                    "there is no node {id} and no Pod of this name on one; announce the name of the node as Kubernetes has it, and apply its Node or a Pod on it"
                );
                Err(End { code: Code::NotFound as u8, message })
            }
        }
    }

    async fn read_reports(&mut self, session: &Session) -> Result<(), End> {
        while let Some(message) = self.next().await? {
            let message = FromNode::decode(message)
                .map_err(|err| invalid(format!("a report cannot be read: {err}")))?;
            match message.message {
                Some(from_node::Message::Report(report)) => take_report(&self.feed, session, report),
                Some(from_node::Message::Hello(_)) => {
                    return Err(invalid("a node says hello once".to_owned()));
                }
                // From a newer node: passed over.
                None => {}
            }
            tokio::time::sleep(REPORT_PAUSE).await;
        }
        Ok(())
    }

    /// The next message; none when the node has no more to say.
    async fn next(&mut self) -> Result<Option<Bytes>, End> {
        loop {
            if let Some(message) = self.deframer.next_message().map_err(|err| invalid(err.to_string()))? {
                return Ok(Some(message));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.deframer.push(&data);
                    }
                }
                // A broken connection ends the other half by itself.
                Some(Err(_)) => return Ok(None),
                None => {
                    self.deframer.finish().map_err(|err| invalid(err.to_string()))?;
                    return Ok(None);
                }
            }
        }
    }

    fn record(&self, name: &str, code: Code) {
        let record = Record::event(Timestamp::now(), &self.operation, String::new());
        self.feed.audit.refused(Record {
            phase: Phase::Refusal,
            caller: Some(self.caller.subject.clone()),
            peer: self.peer.addr.to_string(),
            object: name.to_owned(),
            result: code_name(code).to_owned(),
            ..record
        });
    }
}

fn check_text(name: &str) -> Result<(), End> {
    match name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
        true => Err(invalid("the node's id is empty, too long, or not text".to_owned())),
        false => Ok(()),
    }
}

/// Where a Pod is, by `namespace/name` or by its name alone if no other has it.
fn node_of_pod(engine: &Engine, id: &str) -> Option<String> {
    let node = |member: &Arc<Member>| member.node.as_ref().map(ToString::to_string);
    if let Some((namespace, name)) = id.split_once('/') {
        return engine.member(MemberKind::Pod, namespace, name).and_then(node);
    }
    let mut named =
        engine.all_members().filter(|member| member.kind == MemberKind::Pod && *member.name == *id);
    match (named.next(), named.next()) {
        (Some(only), None) => node(only),
        _ => None,
    }
}

/// The agent of an ExternalNode is `namespace/name`, which no certificate can say: it says `namespace.name`, and names of
/// namespaces have no dot. What clouds must enforce is under keys of that form too, and no node's.
pub(super) fn is_name_of(subject: &str, node: &str) -> bool {
    match node.split_once('/') {
        Some((namespace, name)) => !is_cloud(node) && subject.split_once('.') == Some((namespace, name)),
        None => subject == node,
    }
}

fn take_report(feed: &Feed, session: &Session, report: NodeReport) {
    if let Some(host) = report.host {
        feed.hosts.told(&session.name, host);
    }
    let errors = report.errors.into_iter().map(|error| {
        // A kind of a newer node that does not fit is kept as unknown.
        let kind = Kind(u8::try_from(error.kind).unwrap_or_default());
        (Key::new(kind, error.name), error.message)
    });
    session.report(Revision(report.revision), errors, report.skipped);
}

#[cfg(test)]
mod tests {
    use super::is_name_of;

    #[test]
    fn the_agent_of_an_external_node_is_known_by_its_certificate() {
        assert!(is_name_of("node-1.example", "node-1.example") && is_name_of("vms.web", "vms/web"));
        assert!(is_name_of("vms.web.example", "vms/web.example"));
        for (subject, node) in [("vms.web", "vms.web/x"), ("web", "vms/web"), ("a.b.c", "a.b/c"), ("x", "y")]
        {
            assert!(!is_name_of(subject, node), "{subject} {node}");
        }
    }
}
