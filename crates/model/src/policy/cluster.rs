//! policy.networking.k8s.io: ClusterNetworkPolicy (v1alpha2), and what it was before, AdminNetworkPolicy and
//! BaselineAdminNetworkPolicy (v1alpha1), which are read as it.
//!
//! It becomes rules over groups as an Antrea policy does ([`ClusterNetworkPolicy::as_antrea`]), in a tier of its own before
//! Kubernetes' policies or after them. Its API says what becomes of a rule that is not understood, and so do we: one that accepts
//! matches nothing, any other denies everything.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    LabelSelector, Operator, Requirement,
    antrea::{self, AppliedTo, PolicySpec},
    convert,
    kubernetes::{IntOrString, IpBlock, Port},
    meta::{ObjectMeta, null_as_default},
    output::Problem,
    workload::HOST_NETWORK_LABEL,
};

/// No object is called so: the tiers cannot be taken.
pub const ADMIN_TIER: &str = "policy.networking.k8s.io/Admin";
pub const BASELINE_TIER: &str = "policy.networking.k8s.io/Baseline";
/// Their priorities, as Antrea has them: the last before Kubernetes' policies, and the last of all.
pub const TIERS: [(&str, i32); 2] = [(ADMIN_TIER, 251), (BASELINE_TIER, 254)];

/// Priorities of policies within their tier.
const PRIORITIES: std::ops::RangeInclusive<i32> = 0..=1000;

/// Fields that this version does not know.
type Unknown = BTreeMap<String, Value>;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterNetworkPolicy {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: Spec,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spec {
    /// `Admin` or `Baseline`.
    pub tier: String,
    pub priority: i32,
    pub subject: Subject,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub ingress: Vec<Rule>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub egress: Vec<Rule>,
}

/// One of both.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Subject {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<NamespacedPod>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NamespacedPod {
    #[serde(deserialize_with = "null_as_default")]
    pub namespace_selector: LabelSelector,
    #[serde(deserialize_with = "null_as_default")]
    pub pod_selector: LabelSelector,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rule {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// `Accept`, `Deny` or `Pass`.
    pub action: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub from: Vec<Peer>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub to: Vec<Peer>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub protocols: Vec<Protocol>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// One of them. The last three are of egress rules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Peer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<NamespacedPod>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub networks: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub domain_names: Vec<String>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// One of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Protocol {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<Destination>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp: Option<Destination>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sctp: Option<Destination>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub destination_named_port: String,
    #[serde(flatten)]
    pub unknown: Unknown,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Destination {
    /// Absent: every port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<DestinationPort>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A number or a range.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DestinationPort {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<PortRange>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PortRange {
    pub start: i32,
    pub end: i32,
}

/// v1alpha1, of either tier: the baseline one has no priority.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdminNetworkPolicy {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: AdminSpec,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdminSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    pub subject: Subject,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub ingress: Vec<AdminRule>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub egress: Vec<AdminRule>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdminRule {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// `Allow`, `Deny` or `Pass`.
    pub action: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub from: Vec<Peer>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub to: Vec<Peer>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub ports: Vec<AdminPort>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// One of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdminPort {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_number: Option<AdminNumber>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_range: Option<AdminRange>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub named_port: Option<String>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdminNumber {
    pub protocol: String,
    pub port: i32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdminRange {
    pub protocol: String,
    pub start: i32,
    pub end: i32,
}

impl AdminNetworkPolicy {
    /// The same in the words of today: of the tier `Baseline` or `Admin`.
    pub fn today(&self, tier: &str) -> ClusterNetworkPolicy {
        let spec = &self.spec;
        let rules = |rules: &[AdminRule]| rules.iter().map(AdminRule::today).collect();
        ClusterNetworkPolicy {
            metadata: self.metadata.clone(),
            spec: Spec {
                tier: tier.to_owned(),
                // There is one baseline policy, and whatever has a priority comes before it.
                priority: spec.priority.unwrap_or(*PRIORITIES.end()),
                subject: spec.subject.clone(),
                ingress: rules(&spec.ingress),
                egress: rules(&spec.egress),
            },
        }
    }
}

impl AdminRule {
    fn today(&self) -> Rule {
        let action = if self.action == "Allow" { "Accept" } else { &self.action };
        Rule {
            name: self.name.clone(),
            action: action.to_owned(),
            from: self.from.clone(),
            to: self.to.clone(),
            protocols: self.ports.iter().map(AdminPort::today).collect(),
            unknown: self.unknown.clone(),
        }
    }
}

impl AdminPort {
    /// What names not exactly one thing names nothing there either.
    fn today(&self) -> Protocol {
        let port = |number, range| {
            let port = DestinationPort { number, range, unknown: Unknown::new() };
            Some(Destination { destination_port: Some(port), unknown: Unknown::new() })
        };
        let mut protocol = Protocol { unknown: self.unknown.clone(), ..Protocol::default() };
        let (name, destination) = match (&self.port_number, &self.port_range, &self.named_port) {
            (Some(number), None, None) => (&number.protocol, port(Some(number.port), None)),
            (None, Some(AdminRange { protocol, start, end }), None) => {
                (protocol, port(None, Some(PortRange { start: *start, end: *end })))
            }
            (None, None, Some(name)) => {
                protocol.destination_named_port.clone_from(name);
                return protocol;
            }
            _ => return protocol,
        };
        match name.as_str() {
            "TCP" | "" => protocol.tcp = destination,
            "UDP" => protocol.udp = destination,
            "SCTP" => protocol.sctp = destination,
            _ => {}
        }
        protocol
    }
}

impl ClusterNetworkPolicy {
    /// The same as an Antrea policy, which is always whole and legal, and all that is wrong.
    pub fn as_antrea(&self) -> (PolicySpec, Vec<Problem>) {
        let (spec, mut problems) = (&self.spec, Vec::new());
        let tier = match spec.tier.as_str() {
            "Admin" => ADMIN_TIER,
            "Baseline" => BASELINE_TIER,
            other => {
                let message =
                    format!("`{other}` is not one of Admin, Baseline; it is taken for one of Admin");
                problems.push(Problem::new("spec.tier", message));
                ADMIN_TIER
            }
        };
        if !PRIORITIES.contains(&spec.priority) {
            problems
                .push(Problem::new("spec.priority", format!("{} is not between 0 and 1000", spec.priority)));
        }
        let applied_to = match (&spec.subject.namespaces, &spec.subject.pods) {
            (Some(namespaces), None) => {
                checked(namespaces).map(|()| applied_to(namespaces, &LabelSelector::default()))
            }
            (None, Some(pods)) => {
                pods.check().map(|()| applied_to(&pods.namespace_selector, &pods.pod_selector))
            }
            _ => Err(Problem::new("", "exactly one of namespaces, pods is needed")),
        };
        let applied_to = applied_to.map_err(|problem| problems.push(problem.under("spec.subject"))).ok();
        let rules = |list: &'static str, side: &'static str, rules: &[Rule], problems: &mut Vec<Problem>| {
            let rules = rules.iter().enumerate();
            rules.map(|(i, rule)| rule.as_antrea(&format!("spec.{list}[{i}]"), side, problems)).collect()
        };
        let spec = PolicySpec {
            tier: tier.to_owned(),
            // Antrea's begin with 1.
            priority: f64::from(spec.priority.clamp(*PRIORITIES.start(), *PRIORITIES.end())) + 1.0,
            ingress: rules("ingress", "from", &spec.ingress, &mut problems),
            egress: rules("egress", "to", &spec.egress, &mut problems),
            applied_to: vec![
                applied_to
                    .unwrap_or_else(|| AppliedTo { pod_selector: Some(nobody()), ..Default::default() }),
            ],
        };
        (spec, problems)
    }
}

impl Rule {
    fn as_antrea(&self, base: &str, side: &str, problems: &mut Vec<Problem>) -> antrea::Rule {
        let mut faults = Vec::new();
        faults.extend(self.unknown.keys().map(|field| unknown_field(field)));
        let action = match self.action.as_str() {
            "Accept" => "Allow",
            "Deny" => "Drop",
            "Pass" => "Pass",
            other => {
                faults.push(Problem::new(".action", format!("`{other}` is not one of Accept, Deny, Pass")));
                "Drop"
            }
        };
        let ingress = side == "from";
        let (written, other, wrong) =
            if ingress { (&self.from, &self.to, ".to") } else { (&self.to, &self.from, ".from") };
        if !other.is_empty() {
            faults.push(Problem::new(wrong, format!("peers of this direction stand in `{side}`")));
        }
        if written.is_empty() {
            faults.push(Problem::new(format!(".{side}"), "at least one peer is needed"));
        }
        let (mut peers, mut ports) = (Vec::new(), Vec::new());
        for (i, peer) in written.iter().enumerate() {
            match peer.as_antrea(ingress, action) {
                Ok(found) => peers.extend(found),
                Err(problem) => faults.push(problem.under(&format!(".{side}[{i}]"))),
            }
        }
        for (i, protocol) in self.protocols.iter().enumerate() {
            match protocol.ports() {
                Ok(found) => ports.extend(found),
                Err(problem) => faults.push(problem.under(&format!(".protocols[{i}]"))),
            }
        }
        let rule = antrea::Rule { name: self.name.clone(), ..antrea::Rule::default() };
        let rule = match (faults.is_empty(), action) {
            (true, _) => antrea::Rule { action: action.to_owned(), ports, ..rule },
            (false, "Allow") => {
                peers = vec![antrea::Peer { pod_selector: Some(nobody()), ..antrea::Peer::default() }];
                antrea::Rule { action: action.to_owned(), ..rule }
            }
            (false, _) => {
                peers.clear();
                antrea::Rule { action: "Drop".to_owned(), ..rule }
            }
        };
        let done = if action == "Allow" { "the rule accepts nothing" } else { "the rule denies everything" };
        let told =
            |problem: Problem| Problem::new(problem.path, format!("{}; {done}", problem.message)).under(base);
        problems.extend(faults.into_iter().map(told));
        if ingress { antrea::Rule { from: peers, ..rule } } else { antrea::Rule { to: peers, ..rule } }
    }
}

impl Peer {
    /// As one peer for each network or name.
    fn as_antrea(&self, ingress: bool, action: &str) -> Result<Vec<antrea::Peer>, Problem> {
        let Self { namespaces, pods, nodes, networks, domain_names, unknown } = self;
        if let Some(field) = unknown.keys().next() {
            return Err(unknown_field(field));
        }
        let given = [
            namespaces.is_some(),
            pods.is_some(),
            nodes.is_some(),
            !networks.is_empty(),
            !domain_names.is_empty(),
        ];
        if given.iter().filter(|given| **given).count() != 1 {
            return Err(Problem::new(
                "",
                "exactly one kind of peer is needed, of those that this version knows",
            ));
        }
        if ingress && !given[..2].contains(&true) {
            return Err(Problem::new("", "is a peer of egress rules only"));
        }
        if !domain_names.is_empty() && action != "Allow" {
            return Err(Problem::new(".domainNames", "can be accepted only"));
        }
        let peer = antrea::Peer::default();
        if let Some(namespaces) = namespaces {
            checked(namespaces).map_err(|problem| problem.under(".namespaces"))?;
            return Ok(vec![pods_peer(namespaces, &LabelSelector::default())]);
        }
        if let Some(pods) = pods {
            pods.check().map_err(|problem| problem.under(".pods"))?;
            return Ok(vec![pods_peer(&pods.namespace_selector, &pods.pod_selector)]);
        }
        if let Some(nodes) = nodes {
            checked(nodes).map_err(|problem| problem.under(".nodes"))?;
            return Ok(vec![antrea::Peer { node_selector: Some(nodes.clone()), ..peer }]);
        }
        for (i, network) in networks.iter().enumerate() {
            convert::prefix(network).map_err(|problem| problem.under(&format!(".networks[{i}]")))?;
        }
        let block = |cidr: &String| IpBlock { cidr: cidr.clone(), except: Vec::new() };
        let networks =
            networks.iter().map(|cidr| antrea::Peer { ip_block: Some(block(cidr)), ..peer.clone() });
        let names = domain_names.iter().map(|name| antrea::Peer { fqdn: Some(name.clone()), ..peer.clone() });
        Ok(networks.chain(names).collect())
    }
}

impl Protocol {
    fn ports(&self) -> Result<Vec<Port>, Problem> {
        let Self { tcp, udp, sctp, destination_named_port: name, unknown } = self;
        if let Some(field) = unknown.keys().next() {
            return Err(unknown_field(field));
        }
        let destinations = [("TCP", tcp), ("UDP", udp), ("SCTP", sctp)];
        let given: Vec<_> =
            destinations.iter().filter_map(|(protocol, to)| Some((*protocol, to.as_ref()?))).collect();
        match (given.as_slice(), name.is_empty()) {
            ([(protocol, destination)], true) => Ok(vec![destination.port(protocol)?]),
            // A port has its name whatever its protocol.
            ([], false) => destinations.iter().map(|(protocol, _)| named(protocol, name)).collect(),
            _ => Err(Problem::new("", "exactly one of tcp, udp, sctp, destinationNamedPort is needed")),
        }
    }
}

impl Destination {
    fn port(&self, protocol: &str) -> Result<Port, Problem> {
        if let Some(field) = self.unknown.keys().next() {
            return Err(unknown_field(field));
        }
        let port = |first: Option<i32>, end_port| Port {
            protocol: Some(protocol.to_owned()),
            port: first.map(IntOrString::Int),
            end_port,
            ..Port::default()
        };
        let port = match &self.destination_port {
            None => port(None, None),
            Some(DestinationPort { number: Some(number), range: None, unknown }) if unknown.is_empty() => {
                port(Some(*number), None)
            }
            Some(DestinationPort { number: None, range: Some(range), unknown }) if unknown.is_empty() => {
                port(Some(range.start), Some(range.end))
            }
            Some(_) => {
                return Err(Problem::new(".destinationPort", "exactly one of number, range is needed"));
            }
        };
        convert::port(&port)?;
        Ok(port)
    }
}

impl NamespacedPod {
    fn check(&self) -> Result<(), Problem> {
        checked(&self.namespace_selector).map_err(|problem| problem.under(".namespaceSelector"))?;
        checked(&self.pod_selector).map_err(|problem| problem.under(".podSelector"))
    }
}

fn unknown_field(field: &str) -> Problem {
    Problem::new(format!(".{field}"), "unknown field")
}

fn checked(selector: &LabelSelector) -> Result<(), Problem> {
    convert::selector(selector).map(drop)
}

fn named(protocol: &str, name: &str) -> Result<Port, Problem> {
    let (protocol, port) = (Some(protocol.to_owned()), Some(IntOrString::Name(name.to_owned())));
    let port = Port { protocol, port, ..Port::default() };
    convert::port(&port).map_err(|problem| Problem::new(".destinationNamedPort", problem.message))?;
    Ok(port)
}

fn host_network(operator: Operator) -> Requirement {
    Requirement { key: HOST_NETWORK_LABEL.to_owned(), operator, values: Vec::new() }
}

/// Pods on their node's network are no subjects and no peers.
fn pods_only(selector: &LabelSelector) -> LabelSelector {
    let mut selector = selector.clone();
    selector.match_expressions.push(host_network(Operator::DoesNotExist));
    selector
}

/// No Pod has a label and has it not.
fn nobody() -> LabelSelector {
    let mut selector = pods_only(&LabelSelector::default());
    selector.match_expressions.push(host_network(Operator::Exists));
    selector
}

fn applied_to(namespaces: &LabelSelector, pods: &LabelSelector) -> AppliedTo {
    AppliedTo {
        namespace_selector: Some(namespaces.clone()),
        pod_selector: Some(pods_only(pods)),
        ..AppliedTo::default()
    }
}

fn pods_peer(namespaces: &LabelSelector, pods: &LabelSelector) -> antrea::Peer {
    antrea::Peer {
        namespace_selector: Some(namespaces.clone()),
        pod_selector: Some(pods_only(pods)),
        ..antrea::Peer::default()
    }
}

#[cfg(test)]
mod tests;
