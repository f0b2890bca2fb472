//! Which flows a client of Hubble asks about. What it may ask about and is not known here is refused: to leave it out would answer
//! another question.

use std::net::IpAddr;

use ::flows::{Direction, End, Flow, Verdict};
use ipnet::IpNet;
use model::protocol;
use tonic::Code;
use wire::{
    flow::{self as message, FlowFilter, TrafficDirection},
    observer::GetFlowsRequest,
};

use crate::failure::Failure;

/// Monitor messages that have what there is here: drops, traces and verdicts of policies.
const DROP: i32 = 1;
const TRACE: i32 = 4;
pub const POLICY_VERDICT: i32 = 5;

/// One of the first must hold, if there are any, and none of the second.
#[derive(Debug, Default)]
pub struct Filters {
    white: Vec<Filter>,
    black: Vec<Filter>,
}

impl Filters {
    pub fn new(request: &GetFlowsRequest) -> Result<Self, Failure> {
        let read = |filters: &[FlowFilter]| filters.iter().map(Filter::new).collect::<Result<Vec<_>, _>>();
        Ok(Self { white: read(&request.whitelist)?, black: read(&request.blacklist)? })
    }

    pub fn is_about(&self, flow: &Flow) -> bool {
        (self.white.is_empty() || self.white.iter().any(|filter| filter.is_about(flow)))
            && !self.black.iter().any(|filter| filter.is_about(flow))
    }
}

/// All must hold; of each list one, if it is not empty.
#[derive(Debug, Default)]
struct Filter {
    from: EndFilter,
    to: EndFilter,
    verdicts: Vec<message::Verdict>,
    directions: Vec<TrafficDirection>,
    reasons: Vec<message::DropReason>,
    kinds: Vec<i32>,
    protocols: Vec<u8>,
    ports: Vec<u16>,
    /// Source ports are not recorded: who asks for one is told of none.
    no_source_port: bool,
    replies: Vec<bool>,
    nodes: Vec<String>,
    versions: Vec<message::IpVersion>,
}

#[derive(Debug, Default)]
struct EndFilter {
    blocks: Vec<IpNet>,
    /// Namespace, and how the name begins.
    pods: Vec<(String, String)>,
    labels: Vec<Vec<Term>>,
}

/// Part of a label selector.
#[derive(Debug, PartialEq, Eq)]
enum Term {
    Is(String, String),
    IsNot(String, String),
    Has(String),
    HasNot(String),
}

impl Filter {
    fn new(filter: &FlowFilter) -> Result<Self, Failure> {
        refuse_unknown(filter)?;
        Ok(Self {
            from: EndFilter::new(&filter.source_ip, &filter.source_pod, &filter.source_label)?,
            to: EndFilter::new(&filter.destination_ip, &filter.destination_pod, &filter.destination_label)?,
            verdicts: filter.verdict().collect(),
            directions: filter.traffic_direction().collect(),
            reasons: filter.drop_reason_desc().collect(),
            kinds: filter.event_type.iter().map(|kind| kind.r#type).collect(),
            protocols: filter
                .protocol
                .iter()
                .map(|text| number(text))
                .collect::<Result<Vec<_>, _>>()?
                .concat(),
            ports: filter.destination_port.iter().map(|text| port(text)).collect::<Result<_, _>>()?,
            no_source_port: !filter.source_port.is_empty(),
            replies: filter.reply.clone(),
            nodes: filter.node_name.clone(),
            versions: filter.ip_version().collect(),
        })
    }

    fn is_about(&self, flow: &Flow) -> bool {
        let kind = &flow.kind;
        let address = kind.from.address.or(kind.to.address);
        self.from.is_about(&kind.from)
            && self.to.is_about(&kind.to)
            && one_of(&self.verdicts, &verdict(kind.verdict))
            && one_of(&self.directions, &direction(kind.direction))
            && (self.reasons.is_empty()
                || kind.verdict == Verdict::Denied && self.reasons.contains(&message::DropReason::PolicyDenied))
            && (self.kinds.is_empty() || self.kinds.iter().any(|asked| is_of(*asked, kind.verdict)))
            && one_of(&self.protocols, &kind.protocol)
            && (self.ports.is_empty() || kind.port.is_some_and(|port| self.ports.contains(&port)))
            && !self.no_source_port
            // What is recorded is how connections begin.
            && one_of(&self.replies, &false)
            && (self.nodes.is_empty() || self.nodes.iter().any(|node| is_node(node, &kind.node)))
            && (self.versions.is_empty() || self.versions.contains(&version(address)))
    }
}

fn one_of<T: PartialEq>(list: &[T], one: &T) -> bool {
    list.is_empty() || list.contains(one)
}

/// Which messages of a Cilium agent a flow is like.
fn is_of(kind: i32, verdict: Verdict) -> bool {
    match kind {
        DROP => verdict == Verdict::Denied,
        TRACE => verdict != Verdict::Denied,
        POLICY_VERDICT => true,
        _ => false,
    }
}

/// `*` stands for any part of a name; before a slash stands the name of a cluster.
fn is_node(pattern: &str, node: &str) -> bool {
    let pattern = pattern.rsplit_once('/').map_or(pattern, |(_, node)| node);
    match pattern.split_once('*') {
        None => pattern.is_empty() || pattern == node,
        Some((start, end)) => {
            node.len() >= start.len() + end.len() && node.starts_with(start) && node.ends_with(end)
        }
    }
}

impl EndFilter {
    fn new(addresses: &[String], pods: &[String], labels: &[String]) -> Result<Self, Failure> {
        let block = |text: &String| {
            let address = || text.parse::<IpAddr>().map(IpNet::from).ok();
            let block = text.parse::<IpNet>().ok().or_else(address);
            block.ok_or_else(|| wrong(format!("{text:?} is neither an address nor a block of addresses")))
        };
        let pod = |text: &String| {
            let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
            (namespace.to_owned(), name.to_owned())
        };
        Ok(Self {
            blocks: addresses.iter().map(block).collect::<Result<_, _>>()?,
            pods: pods.iter().map(pod).collect(),
            labels: labels.iter().map(|text| selector(text)).collect::<Result<_, _>>()?,
        })
    }

    fn is_about(&self, end: &End) -> bool {
        let pod = end.workload.strip_prefix("Pod ").and_then(|name| name.split_once('/'));
        let is_pod = |(namespace, start): &(String, String)| {
            pod.is_some_and(|(of, name)| {
                (namespace.is_empty() || of == namespace) && name.starts_with(start.as_str())
            })
        };
        let is_in = |block: &IpNet| end.address.is_some_and(|address| block.contains(&address));
        (self.blocks.is_empty() || self.blocks.iter().any(is_in))
            && (self.pods.is_empty() || self.pods.iter().any(is_pod))
            && (self.labels.is_empty()
                || self.labels.iter().any(|terms| terms.iter().all(|term| term.holds(end))))
    }
}

impl Term {
    fn holds(&self, end: &End) -> bool {
        let label = |key: &str| match key {
            "reserved:host" => end.workload.starts_with("Node ").then_some(""),
            "reserved:world" => end.workload.is_empty().then_some(""),
            _ => end.labels.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str()),
        };
        match self {
            Self::Is(key, value) => label(key) == Some(value),
            Self::IsNot(key, value) => label(key) != Some(value),
            Self::Has(key) => label(key).is_some(),
            Self::HasNot(key) => label(key).is_none(),
        }
    }
}

/// `app=web,tier!=db,zone,!old`. Before a key may stand where it comes from, of which there is one here.
fn selector(text: &str) -> Result<Vec<Term>, Failure> {
    let key = |text: &str| {
        let text = text.trim();
        let text = text.strip_prefix("k8s:").or_else(|| text.strip_prefix("any:")).unwrap_or(text);
        text.to_owned()
    };
    let term = |term: &str| {
        let term = term.trim();
        if term.is_empty() || term.contains(['(', ')', ' ']) {
            return Err(wrong(format!(
                "{text:?} is no selector that is known here: write key=value, key!=value, key or !key"
            )));
        }
        Ok(match (term.split_once("!="), term.split_once('='), term.strip_prefix('!')) {
            (Some((of, value)), ..) => Term::IsNot(key(of), value.to_owned()),
            (None, Some((of, value)), _) => Term::Is(key(of), value.trim_start_matches('=').to_owned()),
            (None, None, Some(of)) => Term::HasNot(key(of)),
            (None, None, None) => Term::Has(key(term)),
        })
    };
    text.split(',').map(term).collect()
}

/// `icmp` is that of both families.
fn number(text: &str) -> Result<Vec<u8>, Failure> {
    match text.to_lowercase().as_str() {
        "icmp" => Ok(vec![protocol::ICMP, protocol::ICMPV6]),
        "icmpv4" => Ok(vec![protocol::ICMP]),
        name => match protocol::by_name(name) {
            Some(number) => Ok(vec![number]),
            None => Err(wrong(format!("the protocol {text:?} is not known here: tcp, udp, sctp, icmp are"))),
        },
    }
}

fn port(text: &str) -> Result<u16, Failure> {
    text.parse().map_err(|_| wrong(format!("{text:?} is no port")))
}

fn wrong(text: String) -> Failure {
    Failure::new(Code::InvalidArgument, text)
}

fn refuse_unknown(filter: &FlowFilter) -> Result<(), Failure> {
    let asked = [
        ("uuid", !filter.uuid.is_empty()),
        ("source_ip_xlated", !filter.source_ip_xlated.is_empty()),
        ("source_fqdn", !filter.source_fqdn.is_empty()),
        ("source_service", !filter.source_service.is_empty()),
        ("source_workload", !filter.source_workload.is_empty()),
        ("source_cluster_name", !filter.source_cluster_name.is_empty()),
        ("destination_fqdn", !filter.destination_fqdn.is_empty()),
        ("destination_service", !filter.destination_service.is_empty()),
        ("destination_workload", !filter.destination_workload.is_empty()),
        ("destination_cluster_name", !filter.destination_cluster_name.is_empty()),
        ("interface", !filter.interface.is_empty()),
        ("http_status_code", !filter.http_status_code.is_empty()),
        ("dns_query", !filter.dns_query.is_empty()),
        ("source_identity", !filter.source_identity.is_empty()),
        ("destination_identity", !filter.destination_identity.is_empty()),
        ("http_method", !filter.http_method.is_empty()),
        ("http_path", !filter.http_path.is_empty()),
        ("http_url", !filter.http_url.is_empty()),
        ("http_header", !filter.http_header.is_empty()),
        ("tcp_flags", !filter.tcp_flags.is_empty()),
        ("node_labels", !filter.node_labels.is_empty()),
        ("trace_id", !filter.trace_id.is_empty()),
        ("cel_expression", filter.experimental.is_some()),
    ];
    match asked.iter().find(|(_, is_asked)| *is_asked) {
        None => Ok(()),
        Some((name, _)) => Err(wrong(format!("flows are not known by {name} here: leave that filter out"))),
    }
}

pub fn verdict(verdict: Verdict) -> message::Verdict {
    match verdict {
        Verdict::Allowed => message::Verdict::Forwarded,
        Verdict::Denied => message::Verdict::Dropped,
        Verdict::Observed => message::Verdict::Audit,
    }
}

pub fn direction(direction: Direction) -> TrafficDirection {
    match direction {
        Direction::In => TrafficDirection::Ingress,
        Direction::Out => TrafficDirection::Egress,
        Direction::Through => TrafficDirection::Unknown,
    }
}

pub fn version(address: Option<IpAddr>) -> message::IpVersion {
    match address {
        Some(IpAddr::V4(_)) => message::IpVersion::IPv4,
        Some(IpAddr::V6(_)) => message::IpVersion::IPv6,
        None => message::IpVersion::IpNotUsed,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ::flows::Kind;

    use super::*;

    fn flow() -> Flow {
        let end = |address: [u8; 4], workload: &str, app: &str| {
            Arc::new(End {
                address: Some(address.into()),
                workload: workload.to_owned(),
                labels: vec![("app".to_owned(), app.to_owned())],
                tags: Vec::new(),
            })
        };
        let kind = Kind {
            node: "host-1".into(),
            verdict: Verdict::Denied,
            direction: Direction::In,
            from: end([10, 0, 0, 2], "Pod shop/stranger", "x"),
            to: end([10, 0, 0, 1], "Pod shop/web-1", "web"),
            protocol: 6,
            port: Some(80),
            service: None,
            rule: "".into(),
        };
        Flow { kind, count: 1, bytes: None, first: 1, last: 2 }
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn is_about(filter: FlowFilter) -> bool {
        let request = GetFlowsRequest { whitelist: vec![filter], ..GetFlowsRequest::default() };
        Filters::new(&request).unwrap().is_about(&flow())
    }

    #[test]
    fn of_each_list_one_must_hold_and_all_lists() {
        let pods = |list: &[&str]| FlowFilter { destination_pod: texts(list), ..FlowFilter::default() };
        assert!(is_about(FlowFilter::default()));
        assert!(is_about(pods(&["shop/web"])) && is_about(pods(&["other/x", "shop/"])));
        assert!(!is_about(pods(&["web"])), "without a namespace it is the default one");
        let verdict = i32::from(message::Verdict::Dropped);
        assert!(is_about(FlowFilter { verdict: vec![verdict], ..pods(&["shop/web-1"]) }));
        assert!(!is_about(FlowFilter { protocol: texts(&["udp"]), ..pods(&["shop/web-1"]) }));
        assert!(is_about(FlowFilter {
            protocol: texts(&["UDP", "TCP"]),
            destination_port: texts(&["80"]),
            ..pods(&[])
        }));
        let labels =
            |text: &str| is_about(FlowFilter { destination_label: texts(&[text]), ..FlowFilter::default() });
        assert!(
            labels("k8s:app=web")
                && labels("app,app!=x")
                && !labels("app=web,zone")
                && !labels("reserved:world")
        );
        assert!(is_about(FlowFilter { node_name: texts(&["cluster/host-*"]), ..FlowFilter::default() }));
        assert!(!is_about(FlowFilter { source_ip: texts(&["10.0.1.0/24"]), ..FlowFilter::default() }));
        assert!(!is_about(FlowFilter { reply: vec![true], ..FlowFilter::default() }));
        let black = GetFlowsRequest { blacklist: vec![pods(&["shop/web"])], ..GetFlowsRequest::default() };
        assert!(!Filters::new(&black).unwrap().is_about(&flow()));
    }

    #[test]
    fn what_is_not_known_here_is_refused() {
        for filter in [
            FlowFilter { source_fqdn: texts(&["*.example"]), ..FlowFilter::default() },
            FlowFilter { source_ip: texts(&["ten"]), ..FlowFilter::default() },
            FlowFilter { source_label: texts(&["app in (a, b)"]), ..FlowFilter::default() },
            FlowFilter { protocol: texts(&["http"]), ..FlowFilter::default() },
            FlowFilter { destination_port: texts(&["x"]), ..FlowFilter::default() },
        ] {
            let request = GetFlowsRequest { whitelist: vec![filter], ..GetFlowsRequest::default() };
            assert_eq!(Filters::new(&request).unwrap_err().code, Code::InvalidArgument);
        }
    }
}
