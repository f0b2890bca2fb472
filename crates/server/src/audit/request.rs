//! What a request names (pure): for its intent, which is written before any handler has read it.

use prost::Message;
use serde::Deserialize;
use wire::{
    invisinetspb::ConnectCloudsRequest,
    paragliderpb::{DeleteValueRequest, SetValueRequest},
    tagservicepb::{Subscription, Tag, TagMapping},
    trestle::v1::{
        self, AdoptVolumeRequest, CheckCloudsRequest, CreateCloudResourceRequest, CreateJoinTokenRequest,
        CreateTokenRequest, DeleteNamespaceRequest, DeleteObjectsRequest, DeleteRulesRequest,
        DiscardStagedRequest, IssueCertificateRequest, JobRequest, KeepConsumerRequest, KeepVolumeRequest,
        LabelConsumerRequest, LimitConsumerRequest, LinkRequest, NameConsumerRequest,
        OffboardConsumerRequest, PermitConsumerRequest, PromoteStagedRequest, PruneObjectsRequest,
        PutRulesRequest, RecreateVolumeRequest, RemoveHostRequest, ResizeConsumerRequest, ResourceRequest,
        RevokeCertificateRequest, RevokeTicketRequest, RevokeTokenRequest, RuleHolder, rule_holder::Holder,
    },
};

/// Objects of one request that are named; further ones are counted.
const MAX_NAMES: usize = 20;
/// Before a message on the wire: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// The object a gRPC request names, from its body as it came; none if it names none, or cannot be read. What proves a
/// caller (tickets, sealed ids) is never named.
pub fn named(operation: &str, body: &[u8]) -> Option<String> {
    let message = body.get(PREFIX..).filter(|_| body[0] == 0)?;
    let (service, method) = operation.rsplit_once('/')?;
    let name = match (service.rsplit('.').next()?, method) {
        ("TagService", "SetTag" | "DeleteTagMember") => read::<TagMapping>(message)?.tag_name,
        ("TagService", "DeleteTag") => read::<Tag>(message)?.tag_name,
        ("TagService", _) => {
            let Subscription { tag_name, subscriber } = read(message)?;
            format!("{tag_name} for {subscriber}")
        }
        ("Namespaces", "SetNamespace") => read::<v1::Namespace>(message)?.name,
        ("Namespaces", _) => read::<DeleteNamespaceRequest>(message)?.name,
        ("Controller", "SetValue") => {
            let SetValueRequest { key, cloud, namespace, .. } = read(message)?;
            format!("{namespace}/{cloud}/{key}")
        }
        ("Controller", "DeleteValue") => {
            let DeleteValueRequest { key, cloud, namespace } = read(message)?;
            format!("{namespace}/{cloud}/{key}")
        }
        ("Controller", _) => {
            let request: ConnectCloudsRequest = read(message)?;
            // Later revisions have the namespaces where the first has address spaces.
            let (a, b) = match request.cloud_a_namespace.is_empty() {
                true => (request.cloud_a_address_space, request.cloud_b_address_space),
                false => (request.cloud_a_namespace, request.cloud_b_namespace),
            };
            format!("{a}/{} to {b}/{}", request.cloud_a, request.cloud_b)
        }
        ("Orchestrator", _) => of_orchestrator(method, message)?,
        ("Objects", _) => of_objects(method, message)?,
        ("Storage", "RevokeTicket") => read::<RevokeTicketRequest>(message)?.id,
        ("Storage", "ResizeConsumer") => read::<ResizeConsumerRequest>(message)?.id,
        ("Storage", "PermitConsumer") => read::<PermitConsumerRequest>(message)?.id,
        ("Storage", "OffboardConsumer") => read::<OffboardConsumerRequest>(message)?.id,
        ("Storage", "KeepConsumer") => read::<KeepConsumerRequest>(message)?.id,
        ("Storage", "NameConsumer") => read::<NameConsumerRequest>(message)?.id,
        ("Storage", "AdoptVolume") => read::<AdoptVolumeRequest>(message)?.consumer,
        ("Storage", "LimitConsumer") => read::<LimitConsumerRequest>(message)?.id,
        ("Storage", "LabelConsumer") => read::<LabelConsumerRequest>(message)?.id,
        (
            "Storage",
            "CreateVolume" | "ResizeVolume" | "DeleteVolume" | "KeepVolume" | "SnapshotVolume"
            | "RestoreVolume" | "PublishVolume" | "UnpublishVolume" | "ExportVolume",
        ) => {
            // The first two fields of all of them are the consumer and the volume.
            let KeepVolumeRequest { consumer, name } = read(message)?;
            if consumer.is_empty() { name } else { format!("{consumer}/{name}") }
        }
        ("Storage", "RecreateVolume") => read::<RecreateVolumeRequest>(message)?.consumer,
        ("Hosts", _) => read::<RemoveHostRequest>(message)?.name,
        ("Access", _) => of_access(method, message)?,
        _ => return None,
    };
    Some(name).filter(|name| !name.is_empty())
}

fn read<M: Message + Default>(message: &[u8]) -> Option<M> {
    M::decode(message).ok()
}

fn of_orchestrator(method: &str, message: &[u8]) -> Option<String> {
    let on = |holder: Option<RuleHolder>, rules: Vec<String>| {
        let holder = match holder?.holder? {
            Holder::Resource(name) | Holder::Tag(name) => name,
        };
        Some(format!("{holder}: {}", list(rules)))
    };
    Some(match method {
        "CreateCloudResource" => read::<CreateCloudResourceRequest>(message)?.name,
        "DeleteResource" => read::<ResourceRequest>(message)?.name,
        "PutRules" => {
            let request: PutRulesRequest = read(message)?;
            on(request.on, request.rules.into_iter().map(|rule| rule.id).collect())?
        }
        "DeleteRules" => {
            let request: DeleteRulesRequest = read(message)?;
            on(request.on, request.names)?
        }
        "CreateLink" | "DeleteLink" | "RotateLink" => {
            let request: LinkRequest = read(message)?;
            format!("{} to {}", request.a, request.b)
        }
        "CancelJob" => read::<JobRequest>(message)?.id,
        "CheckClouds" if read::<CheckCloudsRequest>(message)?.fix => "all clouds, to mend them".to_owned(),
        _ => return None,
    })
}

fn of_objects(method: &str, message: &[u8]) -> Option<String> {
    Some(match method {
        "DeleteObjects" => {
            let request: DeleteObjectsRequest = read(message)?;
            of_refs(request.objects)
        }
        "PruneObjects" => format!("set {}", read::<PruneObjectsRequest>(message)?.set),
        "PromoteStaged" => of_staged(read::<PromoteStagedRequest>(message)?.objects),
        "DiscardStaged" => of_staged(read::<DiscardStagedRequest>(message)?.objects),
        _ => {
            let request: v1::ApplyObjectsRequest = read(message)?;
            of_documents(&request.documents)
        }
    })
}

fn of_refs(objects: Vec<v1::ObjectRef>) -> String {
    let name = |object: v1::ObjectRef| format!("{} {}/{}", object.kind, object.namespace, object.name);
    list(objects.into_iter().map(name).collect())
}

/// None are all.
fn of_staged(objects: Vec<v1::ObjectRef>) -> String {
    if objects.is_empty() { "all that is staged".to_owned() } else { of_refs(objects) }
}

/// The objects that documents describe.
pub fn of_documents(documents: &[Vec<u8>]) -> String {
    let more = documents.len().saturating_sub(MAX_NAMES);
    let named = documents.iter().take(MAX_NAMES).map(|document| document_name(document));
    // The list counts what it leaves out.
    list(named.chain(std::iter::repeat_n(String::new(), more)).collect())
}

/// A document is read as a whole by its handler; here only as far as its name.
fn document_name(document: &[u8]) -> String {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Named {
        kind: String,
        metadata: Metadata,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Metadata {
        namespace: String,
        name: String,
    }
    let Named { kind, metadata } = serde_json::from_slice(document).unwrap_or_default();
    match metadata.namespace.as_str() {
        "" => format!("{kind} {}", metadata.name),
        namespace => format!("{kind} {namespace}/{}", metadata.name),
    }
}

fn of_access(method: &str, message: &[u8]) -> Option<String> {
    let subject = |role: i32, name: String| match wire::access::role(role) {
        Ok(role) => format!("{role}/{name}"),
        Err(_) => name,
    };
    Some(match method {
        "CreateToken" => {
            let request: CreateTokenRequest = read(message)?;
            subject(request.role, request.name)
        }
        "CreateJoinToken" => {
            let request: CreateJoinTokenRequest = read(message)?;
            format!("hosts {}", if request.names.is_empty() { "*" } else { &request.names })
        }
        "IssueCertificate" => {
            let request: IssueCertificateRequest = read(message)?;
            subject(request.role, request.name)
        }
        "RevokeToken" => read::<RevokeTokenRequest>(message)?.id,
        "RevokeCertificate" => read::<RevokeCertificateRequest>(message)?.serial,
        _ => return None,
    })
}

fn list(names: Vec<String>) -> String {
    let more = names.len().saturating_sub(MAX_NAMES);
    let named = names.into_iter().take(MAX_NAMES).collect::<Vec<_>>().join(", ");
    if more == 0 { named } else { format!("{named} and {more} more") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::table::{Effect, TABLE};

    fn framed(message: &impl Message) -> Vec<u8> {
        let message = message.encode_to_vec();
        [&[0, 0, 0, 0, 0], message.as_slice()].concat()
    }

    #[test]
    fn requests_name_what_they_act_on() {
        let tag = TagMapping { tag_name: "web".into(), ..TagMapping::default() };
        assert_eq!(named("tagservicepb.TagService/SetTag", &framed(&tag)).unwrap(), "web");
        let token = CreateTokenRequest { name: "alice".into(), role: 3, ttl_seconds: None };
        assert_eq!(named("trestle.v1.Access/CreateToken", &framed(&token)).unwrap(), "viewer/alice");
        let on = Some(RuleHolder { holder: Some(Holder::Resource("default.aws.vm".into())) });
        let rules = DeleteRulesRequest { on, names: vec!["a".into(), "b".into()], dry_run: false };
        let rules = named("trestle.v1.Orchestrator/DeleteRules", &framed(&rules)).unwrap();
        assert_eq!(rules, "default.aws.vm: a, b");
        let pod =
            |n| format!(r#"{{"kind":"Pod","metadata":{{"namespace":"x","name":"p{n}"}}}}"#).into_bytes();
        let documents = (0..30).map(pod).collect();
        let apply = v1::ApplyObjectsRequest { documents, ..v1::ApplyObjectsRequest::default() };
        let applied = named("trestle.v1.Objects/ApplyObjects", &framed(&apply)).unwrap();
        assert!(applied.starts_with("Pod x/p0, Pod x/p1, ") && applied.ends_with("Pod x/p19 and 10 more"));
    }

    #[test]
    fn no_request_is_too_strange_to_be_read() {
        for rule in TABLE.iter().filter(|rule| matches!(rule.effect, Effect::Write | Effect::Export)) {
            for body in [&[][..], &[0], &[1, 0, 0, 0, 0, 9], &[0, 0, 0, 0, 0], &[0, 0, 0, 0, 0, 0xff, 0xff]] {
                named(rule.operation, body);
            }
        }
    }

    #[test]
    fn what_proves_a_caller_is_never_named() {
        // As onboarding has it: a string in the first field.
        let ticket = Tag { tag_name: "secret".into() };
        for rule in TABLE.iter().filter(|rule| rule.operation.starts_with("provider.")) {
            assert_eq!(named(rule.operation, &framed(&ticket)), None, "{}", rule.operation);
        }
    }
}
