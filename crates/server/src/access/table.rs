//! The table of operations: which roles may make each call, and whether it writes.
//!
//! A gRPC operation is named `package.Service/Method`, a REST operation `METHOD /route/{parameter}`.
//! Tests prove that every method and route served has a line here, and that no line is left over.

use model::Role;

/// Who may make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Also callers who have not said who they are.
    Anyone,
    /// Every caller who has.
    Known,
    /// Callers in one of these roles.
    Roles(&'static [Role]),
}

/// Whether a call changes anything. Calls that do are on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Read,
    Write,
    /// It hands out everything there is, secrets too, and is on record like a write.
    Export,
    /// A machine says what it observed: intent stays as it is, and there is nothing to audit.
    Report,
    /// It says how the controller is, to anyone and at any time: no limit on calls holds it up.
    Health,
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub operation: &'static str,
    pub who: Who,
    pub effect: Effect,
}

const READERS: Who = Who::Roles(&[Role::Admin, Role::Operator, Role::Viewer]);
const WRITERS: Who = Who::Roles(&[Role::Admin, Role::Operator]);
/// Those who read, and nodes, who are shown their own part only.
const WATCHERS: Who = Who::Roles(&[Role::Admin, Role::Operator, Role::Viewer, Role::Node]);
/// A consumer of storage is shown and changes its own volumes only.
const HOLDERS: Who = Who::Roles(&[Role::Admin, Role::Operator, Role::Consumer]);
const SHOWN_HOLDERS: Who = Who::Roles(&[Role::Admin, Role::Operator, Role::Viewer, Role::Consumer]);
const REPORTERS: Who = Who::Roles(&[Role::Admin, Role::Operator, Role::Node]);
const NODES: Who = Who::Roles(&[Role::Node]);
/// Plugins act for the controller, and operators may do what plugins may.
const PLUGINS: Who = Who::Roles(&[Role::Admin, Role::Operator, Role::Plugin]);
const ADMINS: Who = Who::Roles(&[Role::Admin]);

const fn read(operation: &'static str, who: Who) -> Rule {
    Rule { operation, who, effect: Effect::Read }
}

const fn write(operation: &'static str, who: Who) -> Rule {
    Rule { operation, who, effect: Effect::Write }
}

const fn export(operation: &'static str, who: Who) -> Rule {
    Rule { operation, who, effect: Effect::Export }
}

const fn report(operation: &'static str, who: Who) -> Rule {
    Rule { operation, who, effect: Effect::Report }
}

const fn health(operation: &'static str) -> Rule {
    Rule { operation, who: Who::Anyone, effect: Effect::Health }
}

/// Every operation there is.
pub const TABLE: &[Rule] = &[
    // Tags on Paraglider's wire.
    write("tagservicepb.TagService/SetTag", WRITERS),
    read("tagservicepb.TagService/GetTag", READERS),
    read("tagservicepb.TagService/ResolveTag", READERS),
    write("tagservicepb.TagService/DeleteTagMember", WRITERS),
    write("tagservicepb.TagService/DeleteTag", WRITERS),
    write("tagservicepb.TagService/Subscribe", WRITERS),
    write("tagservicepb.TagService/Unsubscribe", WRITERS),
    read("tagservicepb.TagService/GetSubscribers", READERS),
    read("tagservicepb.TagService/ListTags", READERS),
    read("trestle.v1.TagEvents/WatchSubscriber", READERS),
    // Tags over REST.
    read("GET /tags", READERS),
    read("GET /tags/{tag}", READERS),
    write("DELETE /tags/{tag}", WRITERS),
    read("POST /tags/{tag}/resolveMembers", READERS),
    write("POST /tags/{tag}/applyMembers", WRITERS),
    write("DELETE /tags/{tag}/members/{member}", WRITERS),
    read("GET /tags/{tag}/subscribers", READERS),
    write("PUT /tags/{tag}/subscribers/{subscriber}", WRITERS),
    write("DELETE /tags/{tag}/subscribers/{subscriber}", WRITERS),
    // Namespaces.
    read("trestle.v1.Namespaces/ListNamespaces", READERS),
    read("trestle.v1.Namespaces/GetNamespace", READERS),
    write("trestle.v1.Namespaces/SetNamespace", WRITERS),
    write("trestle.v1.Namespaces/DeleteNamespace", WRITERS),
    read("GET /namespaces", READERS),
    read("GET /namespaces/{namespace}", READERS),
    write("PUT /namespaces/{namespace}", WRITERS),
    write("DELETE /namespaces/{namespace}", WRITERS),
    // Clouds, on Paraglider's wire: plugins ask for what must be unique.
    read("invisinetspb.Controller/FindUnusedAddressSpace", PLUGINS),
    read("invisinetspb.Controller/GetUsedAddressSpaces", PLUGINS),
    read("invisinetspb.Controller/FindUnusedAsn", PLUGINS),
    write("invisinetspb.Controller/ConnectClouds", PLUGINS),
    // The same, as Paraglider of today has it.
    read("paragliderpb.Controller/FindUnusedAddressSpaces", PLUGINS),
    read("paragliderpb.Controller/GetUsedAddressSpaces", PLUGINS),
    read("paragliderpb.Controller/FindUnusedAsn", PLUGINS),
    write("paragliderpb.Controller/ConnectClouds", PLUGINS),
    write("paragliderpb.Controller/SetValue", PLUGINS),
    read("paragliderpb.Controller/GetValue", PLUGINS),
    write("paragliderpb.Controller/DeleteValue", PLUGINS),
    // Resources, rules, links and jobs.
    read("trestle.v1.Orchestrator/ListClouds", READERS),
    read("trestle.v1.Orchestrator/GetCloud", READERS),
    write("trestle.v1.Orchestrator/CreateCloudResource", WRITERS),
    write("trestle.v1.Orchestrator/DeleteResource", WRITERS),
    read("trestle.v1.Orchestrator/GetResource", READERS),
    read("trestle.v1.Orchestrator/ListResources", READERS),
    write("trestle.v1.Orchestrator/PutRules", WRITERS),
    write("trestle.v1.Orchestrator/DeleteRules", WRITERS),
    read("trestle.v1.Orchestrator/ListRules", READERS),
    read("trestle.v1.Orchestrator/ListRulesInForce", READERS),
    read("trestle.v1.Orchestrator/DescribeTags", READERS),
    write("trestle.v1.Orchestrator/CreateLink", WRITERS),
    write("trestle.v1.Orchestrator/DeleteLink", WRITERS),
    write("trestle.v1.Orchestrator/RotateLink", WRITERS),
    read("trestle.v1.Orchestrator/ListLinks", READERS),
    read("trestle.v1.Orchestrator/ListJobs", READERS),
    read("trestle.v1.Orchestrator/WatchJob", READERS),
    write("trestle.v1.Orchestrator/CancelJob", WRITERS),
    write("trestle.v1.Orchestrator/CheckClouds", WRITERS),
    read("GET /namespaces/{namespace}/clouds/{cloud}/resources", READERS),
    write("POST /namespaces/{namespace}/clouds/{cloud}/resources", WRITERS),
    read("GET /namespaces/{namespace}/clouds/{cloud}/resources/{resource}", READERS),
    write("PUT /namespaces/{namespace}/clouds/{cloud}/resources/{resource}", WRITERS),
    write("DELETE /namespaces/{namespace}/clouds/{cloud}/resources/{resource}", WRITERS),
    read("GET /namespaces/{namespace}/clouds/{cloud}/resources/{resource}/rules", READERS),
    write("POST /namespaces/{namespace}/clouds/{cloud}/resources/{resource}/rules", WRITERS),
    write("PUT /namespaces/{namespace}/clouds/{cloud}/resources/{resource}/rules/{rule}", WRITERS),
    write("DELETE /namespaces/{namespace}/clouds/{cloud}/resources/{resource}/rules/{rule}", WRITERS),
    write("POST /namespaces/{namespace}/clouds/{cloud}/resources/{resource}/applyRules", WRITERS),
    write("POST /namespaces/{namespace}/clouds/{cloud}/resources/{resource}/deleteRules", WRITERS),
    read("GET /tags/{tag}/rules", READERS),
    write("POST /tags/{tag}/rules", WRITERS),
    write("DELETE /tags/{tag}/rules", WRITERS),
    read("GET /clouds", READERS),
    read("GET /clouds/{cloud}", READERS),
    read("GET /rules", READERS),
    read("GET /resources", READERS),
    read("GET /links", READERS),
    read("GET /jobs", READERS),
    read("GET /jobs/{id}", READERS),
    write("DELETE /jobs/{id}", WRITERS),
    // Kubernetes-style objects, and what policies come to.
    write("trestle.v1.Objects/ApplyObjects", WRITERS),
    write("trestle.v1.Objects/DeleteObjects", WRITERS),
    write("trestle.v1.Objects/PruneObjects", WRITERS),
    read("trestle.v1.Objects/ListStaged", READERS),
    write("trestle.v1.Objects/PromoteStaged", WRITERS),
    write("trestle.v1.Objects/DiscardStaged", WRITERS),
    read("trestle.v1.Objects/GetObject", READERS),
    read("trestle.v1.Objects/ListObjects", READERS),
    read("trestle.v1.Objects/WatchObjects", READERS),
    read("trestle.v1.Policies/ListPolicies", READERS),
    read("trestle.v1.Policies/GetPolicy", READERS),
    read("trestle.v1.Enforcement/WatchEnforcement", READERS),
    read("trestle.v1.Policies/Explain", READERS),
    read("trestle.v1.Policies/RunPolicyTests", READERS),
    read("trestle.v1.Policies/Lint", READERS),
    read("trestle.v1.Policies/Replay", READERS),
    read("trestle.v1.Policies/Suggest", READERS),
    // Permissions.
    write("trestle.v1.Permissions/Allow", WRITERS),
    write("trestle.v1.Permissions/Deny", WRITERS),
    read("trestle.v1.Permissions/ListPermissions", READERS),
    read("trestle.v1.Permissions/GetPermission", READERS),
    read("trestle.v1.Permissions/Prove", READERS),
    read("GET /permissions", READERS),
    write("POST /permissions", WRITERS),
    read("GET /permissions/{name}", READERS),
    write("DELETE /permissions/{name}", WRITERS),
    read("GET /permissions/{name}/proof", READERS),
    read("GET /policies", READERS),
    read("GET /policies/{kind}/{namespace}/{name}", READERS),
    read("GET /enforcement/{change}", READERS),
    // Flows.
    report("trestle.v1.Flows/ReportFlows", NODES),
    read("trestle.v1.Flows/ListFlows", READERS),
    read("trestle.v1.Flows/FollowFlows", READERS),
    read("trestle.v1.Flows/TopFlows", READERS),
    // For Hubble's clients.
    read("observer.Observer/GetFlows", READERS),
    read("observer.Observer/GetNodes", READERS),
    read("observer.Observer/ServerStatus", READERS),
    read("GET /flows", READERS),
    read("GET /flows/top", READERS),
    read("GET /explain", READERS),
    read("GET /reachability", READERS),
    read("GET /map", READERS),
    read("GET /map/around", READERS),
    read("GET /workloads", READERS),
    read("GET /objects", READERS),
    write("POST /objects", WRITERS),
    write("DELETE /objects", WRITERS),
    read("GET /staged", READERS),
    write("POST /staged/promotion", WRITERS),
    write("POST /staged/discard", WRITERS),
    read("GET /policy-tests", READERS),
    read("POST /policy-tests", READERS),
    read("GET /lint", READERS),
    read("POST /lint", READERS),
    read("POST /replay", READERS),
    read("POST /suggestions", READERS),
    // Services, for people, and as one node sees them on KPNG's wire.
    read("trestle.v1.Services/ListServices", READERS),
    read("trestle.v1.Services/GetService", READERS),
    read("trestle.v1.Services/ExplainService", READERS),
    read("localv1.Sets/Watch", WATCHERS),
    read("GET /services", READERS),
    read("GET /services/{namespace}/{name}", READERS),
    read("GET /services/explain", READERS),
    // The watch API.
    health("GET /livez"),
    read("GET /api", Who::Known),
    read("GET /apis", Who::Known),
    read("GET /apis/controlplane.antrea.io", Who::Known),
    read("GET /apis/controlplane.antrea.io/v1beta2", Who::Known),
    read("GET /apis/controlplane.antrea.io/v1beta2/networkpolicies", WATCHERS),
    read("GET /apis/controlplane.antrea.io/v1beta2/networkpolicies/{name}", WATCHERS),
    report("POST /apis/controlplane.antrea.io/v1beta2/networkpolicies/{name}/status", REPORTERS),
    read("GET /apis/controlplane.antrea.io/v1beta2/appliedtogroups", WATCHERS),
    read("GET /apis/controlplane.antrea.io/v1beta2/appliedtogroups/{name}", WATCHERS),
    read("GET /apis/controlplane.antrea.io/v1beta2/addressgroups", WATCHERS),
    read("GET /apis/controlplane.antrea.io/v1beta2/addressgroups/{name}", WATCHERS),
    read("GET /apis/controlplane.antrea.io/v1beta2/egressgroups", WATCHERS),
    read("GET /apis/controlplane.antrea.io/v1beta2/egressgroups/{name}", WATCHERS),
    read("GET /apis/controlplane.antrea.io/v1beta2/supportbundlecollections", WATCHERS),
    read("GET /apis/controlplane.antrea.io/v1beta2/supportbundlecollections/{name}", WATCHERS),
    report("POST /apis/controlplane.antrea.io/v1beta2/nodestatssummaries", REPORTERS),
    read("GET /apis/controlplane.antrea.io/v1beta2/clustergroupmembers/{name}", READERS),
    read("GET /apis/controlplane.antrea.io/v1beta2/namespaces/{namespace}/groupmembers/{name}", READERS),
    read("GET /apis/controlplane.antrea.io/v1beta2/namespaces/{namespace}/groupassociations/{name}", READERS),
    read("GET /apis/controlplane.antrea.io/v1beta2/ipgroupassociations/{name}", READERS),
    read("POST /apis/controlplane.antrea.io/v1beta2/networkpolicyevaluation", READERS),
    read("GET /apis/stats.antrea.io", Who::Known),
    read("GET /apis/stats.antrea.io/v1alpha1", Who::Known),
    read("GET /apis/stats.antrea.io/v1alpha1/networkpolicystats", READERS),
    read("GET /apis/stats.antrea.io/v1alpha1/namespaces/{namespace}/networkpolicystats", READERS),
    read("GET /apis/stats.antrea.io/v1alpha1/namespaces/{namespace}/networkpolicystats/{name}", READERS),
    read("GET /apis/stats.antrea.io/v1alpha1/antreanetworkpolicystats", READERS),
    read("GET /apis/stats.antrea.io/v1alpha1/namespaces/{namespace}/antreanetworkpolicystats", READERS),
    read(
        "GET /apis/stats.antrea.io/v1alpha1/namespaces/{namespace}/antreanetworkpolicystats/{name}",
        READERS,
    ),
    read("GET /apis/stats.antrea.io/v1alpha1/antreaclusternetworkpolicystats", READERS),
    read("GET /apis/stats.antrea.io/v1alpha1/antreaclusternetworkpolicystats/{name}", READERS),
    // Storage, for administrators.
    write("trestle.v1.Storage/CreateTicket", WRITERS),
    read("trestle.v1.Storage/ListTickets", READERS),
    write("trestle.v1.Storage/RevokeTicket", WRITERS),
    write("trestle.v1.Storage/RotateTicketKey", ADMINS),
    read("trestle.v1.Storage/ListConsumers", READERS),
    read("trestle.v1.Storage/GetConsumer", READERS),
    write("trestle.v1.Storage/ResizeConsumer", WRITERS),
    write("trestle.v1.Storage/PermitConsumer", WRITERS),
    write("trestle.v1.Storage/OffboardConsumer", WRITERS),
    write("trestle.v1.Storage/KeepConsumer", WRITERS),
    write("trestle.v1.Storage/NameConsumer", WRITERS),
    write("trestle.v1.Storage/AdoptVolume", WRITERS),
    write("trestle.v1.Storage/RecreateVolume", WRITERS),
    read("GET /tickets", READERS),
    write("POST /tickets", WRITERS),
    write("DELETE /tickets/{id}", WRITERS),
    read("GET /consumers", READERS),
    read("GET /consumers/{id}", READERS),
    write("PUT /consumers/{id}/capacity", WRITERS),
    write("PUT /consumers/{id}/sources", WRITERS),
    write("DELETE /consumers/{id}", WRITERS),
    write("POST /consumers/{id}/keep", WRITERS),
    write("PUT /consumers/{id}/name", WRITERS),
    write("POST /consumers/{id}/adoption", WRITERS),
    write("POST /consumers/{id}/recreation", WRITERS),
    write("trestle.v1.Storage/LimitConsumer", WRITERS),
    write("PUT /consumers/{id}/rates", WRITERS),
    write("trestle.v1.Storage/LabelConsumer", WRITERS),
    write("PUT /consumers/{id}/labels", WRITERS),
    // Volumes, for administrators and for the consumers whose they are.
    read("trestle.v1.Storage/ListVolumes", SHOWN_HOLDERS),
    write("trestle.v1.Storage/CreateVolume", HOLDERS),
    write("trestle.v1.Storage/ResizeVolume", HOLDERS),
    write("trestle.v1.Storage/DeleteVolume", HOLDERS),
    write("trestle.v1.Storage/KeepVolume", HOLDERS),
    write("trestle.v1.Storage/SnapshotVolume", HOLDERS),
    write("trestle.v1.Storage/RestoreVolume", HOLDERS),
    write("trestle.v1.Storage/PublishVolume", HOLDERS),
    write("trestle.v1.Storage/UnpublishVolume", HOLDERS),
    export("trestle.v1.Storage/ExportVolume", HOLDERS),
    // Making the volume is on record; here it is filled.
    report("trestle.v1.Storage/ImportVolume", HOLDERS),
    read("GET /consumers/{id}/volumes", READERS),
    write("POST /consumers/{id}/volumes", WRITERS),
    write("PUT /consumers/{id}/volumes/{name}/size", WRITERS),
    write("DELETE /consumers/{id}/volumes/{name}", WRITERS),
    write("POST /consumers/{id}/volumes/{name}/keep", WRITERS),
    write("POST /consumers/{id}/volumes/{name}/snapshot", WRITERS),
    write("POST /consumers/{id}/volumes/{name}/restoration", WRITERS),
    write("PUT /consumers/{id}/volumes/{name}/writer", WRITERS),
    write("DELETE /consumers/{id}/volumes/{name}/writer", WRITERS),
    // Storage, for consumers: the ticket or the sealed id in the request is their proof.
    write("provider.OCSProvider/OnBoardConsumer", Who::Anyone),
    write("provider.OCSProvider/OnboardConsumer", Who::Anyone),
    read("provider.OCSProvider/GetStorageConfig", Who::Anyone),
    write("provider.OCSProvider/UpdateCapacity", Who::Anyone),
    write("provider.OCSProvider/OffboardConsumer", Who::Anyone),
    write("provider.OCSProvider/OffBoardConsumer", Who::Anyone),
    write("provider.OCSProvider/ReportStatus", Who::Anyone),
    read("provider.OCSProvider/AcknowledgeOnboarding", Who::Anyone),
    read("provider.OCSProvider/GetDesiredClientState", Who::Anyone),
    read("provider.OCSProvider/GetClientAlerts", Who::Anyone),
    read("provider.OCSProvider/FulfillStorageClassClaim", Who::Anyone),
    read("provider.OCSProvider/GetStorageClassClaimConfig", Who::Anyone),
    read("provider.OCSProvider/RevokeStorageClassClaim", Who::Anyone),
    read("provider.OCSProvider/FulfillStorageClaim", Who::Anyone),
    read("provider.OCSProvider/GetStorageClaimConfig", Who::Anyone),
    read("provider.OCSProvider/RevokeStorageClaim", Who::Anyone),
    // Who may call.
    write("trestle.v1.Access/CreateToken", ADMINS),
    write("trestle.v1.Access/CreateJoinToken", ADMINS),
    read("trestle.v1.Access/ListTokens", ADMINS),
    write("trestle.v1.Access/RevokeToken", ADMINS),
    write("trestle.v1.Access/IssueCertificate", ADMINS),
    read("trestle.v1.Access/ListCertificates", ADMINS),
    write("trestle.v1.Access/RevokeCertificate", ADMINS),
    read("trestle.v1.Access/WhoAmI", Who::Known),
    write("trestle.v1.Access/CreateLogin", READERS),
    read("trestle.v1.Access/ListAudit", ADMINS),
    read("trestle.v1.Access/VerifyAudit", ADMINS),
    read("GET /audit", ADMINS),
    // Nodes.
    read("trestle.v1.NodeFeed/Connect", NODES),
    read("pb.DataplaneEvents/Connect", NODES),
    read("protos.DataplaneEvents/Connect", NODES),
    read("trestle.v1.Nodes/ListNodes", READERS),
    read("trestle.v1.Nodes/GetNode", READERS),
    read("GET /nodes/{node}", READERS),
    // Hosts: machines that have joined.
    read("trestle.v1.Hosts/ListHosts", READERS),
    read("trestle.v1.Hosts/GetHost", READERS),
    write("trestle.v1.Hosts/RemoveHost", ADMINS),
    read("GET /hosts", READERS),
    read("GET /hosts/{host}", READERS),
    write("DELETE /hosts/{host}", ADMINS),
    write("POST /hosts/tokens", ADMINS),
    // What proves a machine that joins is in its request; hosts renew and leave as themselves.
    read("trestle.v1.Join/Challenge", Who::Anyone),
    write("trestle.v1.Join/Join", Who::Anyone),
    write("trestle.v1.Join/Renew", NODES),
    write("trestle.v1.Join/Leave", NODES),
    // Kubernetes clusters.
    read("trestle.v1.Kubernetes/ListClusters", READERS),
    read("GET /clusters", READERS),
    // The controller itself.
    read("trestle.v1.Admin/GetStatus", READERS),
    export("trestle.v1.Admin/Backup", ADMINS),
    read("GET /", Who::Anyone),
    read("GET /page/{file}", Who::Anyone),
    write("POST /session", Who::Anyone),
    write("DELETE /session", Who::Known),
    read("GET /whoami", Who::Known),
    read("GET /events", READERS),
    read("GET /status", READERS),
    read("GET /nodes", READERS),
    read("GET /ping", Who::Anyone),
    health("GET /healthz"),
    health("GET /readyz"),
    read("GET /openapi.json", Who::Anyone),
    read("GET /metrics", READERS),
    health("grpc.health.v1.Health/Check"),
    health("grpc.health.v1.Health/Watch"),
    read("grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Who::Anyone),
];

/// The line for an operation. `HEAD` follows `GET`.
pub fn rule(operation: &str) -> Option<&'static Rule> {
    let get;
    let operation = match operation.strip_prefix("HEAD ") {
        Some(route) => {
            get = format!("GET {route}");
            get.as_str()
        }
        None => operation,
    };
    TABLE.iter().find(|rule| rule.operation == operation)
}

impl Who {
    /// Whether a caller in `role` (none: unknown) may make the call.
    pub fn admits(self, role: Option<Role>) -> bool {
        match (self, role) {
            (Self::Anyone, _) | (Self::Known, Some(_)) => true,
            (Self::Roles(roles), Some(role)) => roles.contains(&role),
            (Self::Known | Self::Roles(_), None) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::Message as _;

    use super::*;

    fn listed(is_grpc: bool) -> BTreeSet<String> {
        let operations: Vec<_> = TABLE.iter().map(|rule| rule.operation).collect();
        let all: BTreeSet<_> = operations.iter().collect();
        assert_eq!(all.len(), operations.len(), "an operation has two lines");
        operations.into_iter().filter(|o| o.contains(' ') != is_grpc).map(str::to_owned).collect()
    }

    #[test]
    fn every_grpc_method_served_has_a_line_and_no_line_is_left_over() {
        let mut files = prost_types::FileDescriptorSet::decode(wire::DESCRIPTORS).unwrap().file;
        for foreign in [tonic_health::pb::FILE_DESCRIPTOR_SET, tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET]
        {
            files.extend(prost_types::FileDescriptorSet::decode(foreign).unwrap().file);
        }
        let mut methods = BTreeSet::new();
        for file in &files {
            for service in &file.service {
                let name = format!("{}.{}", file.package(), service.name());
                if crate::grpc::SERVED.contains(&name.as_str()) {
                    methods.extend(service.method.iter().map(|method| format!("{name}/{}", method.name())));
                }
            }
        }
        assert_eq!(methods, listed(true));
    }

    #[test]
    fn every_http_route_served_has_a_line_and_no_line_is_left_over() {
        let document = serde_json::to_value(crate::rest::openapi()).unwrap();
        let mut routes: BTreeSet<String> = crate::watch_api::operations().into_iter().collect();
        for (path, item) in document["paths"].as_object().unwrap() {
            for method in ["get", "put", "post", "delete", "patch"] {
                if item.get(method).is_some() {
                    routes.insert(format!("{} {path}", method.to_uppercase()));
                }
            }
        }
        assert_eq!(routes, listed(false));
    }

    #[test]
    fn machines_and_viewers_never_write() {
        let proven_by_the_request = |rule: &&Rule| {
            rule.operation.starts_with("provider.OCSProvider/") || rule.operation == "trestle.v1.Join/Join"
        };
        // Everyone may come and go as themselves.
        let own = [
            "POST /session",
            "DELETE /session",
            "trestle.v1.Access/CreateLogin",
            "trestle.v1.Join/Renew",
            "trestle.v1.Join/Leave",
        ];
        let writes = TABLE.iter().filter(|rule| rule.effect == Effect::Write);
        let writes = writes.filter(|rule| !own.contains(&rule.operation));
        for rule in writes.filter(|rule| !proven_by_the_request(rule)) {
            // A plugin is promised spaces and links, on its own service only.
            let plugin = ["invisinetspb.Controller/", "paragliderpb.Controller/"]
                .iter()
                .any(|service| rule.operation.starts_with(service));
            assert_eq!(rule.who.admits(Some(Role::Plugin)), plugin, "{}", rule.operation);
            // A consumer changes its own volumes, by calls that look whose they are.
            let volumes = rule.operation.starts_with("trestle.v1.Storage/")
                && rule.operation.ends_with("Volume")
                && !["Adopt", "Recreate"].iter().any(|call| rule.operation.contains(call));
            assert_eq!(rule.who.admits(Some(Role::Consumer)), volumes, "{}", rule.operation);
            for role in [Role::Viewer, Role::Node] {
                assert!(!rule.who.admits(Some(role)), "{} admits {role}", rule.operation);
            }
            assert!(!rule.who.admits(None), "{} admits strangers", rule.operation);
        }
    }
}
