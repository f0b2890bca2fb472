//! A flow as clients of Hubble read it. A row stands for many connections, which they have no word for: the summary says how many.

use std::net::IpAddr;

use ::flows::{Direction, End, Flow, Verdict};
use model::protocol;
use prost_types::Timestamp;
use wire::flow::{
    self as message, CiliumEventType, DropReason, Endpoint, FlowType, Icmp, Ip, Layer4, Policy, Ports,
    Service, layer4::Protocol,
};

use super::filter::{POLICY_VERDICT, direction, verdict, version};

/// Identities that Cilium reserves.
const HOST: u32 = 1;
const WORLD: u32 = 2;

pub fn flow(flow: &Flow) -> message::Flow {
    let kind = &flow.kind;
    let policies: Vec<Policy> = policy(&kind.rule).into_iter().collect();
    let when = |side, verdict| {
        if kind.direction == side && kind.verdict == verdict { policies.clone() } else { Vec::new() }
    };
    message::Flow {
        time: Some(moment(flow.last)),
        verdict: verdict(kind.verdict).into(),
        ip: Some(Ip {
            source: text(kind.from.address),
            destination: text(kind.to.address),
            ip_version: version(kind.from.address.or(kind.to.address)).into(),
        }),
        l4: layer4(kind.protocol, kind.port),
        source: Some(endpoint(&kind.from)),
        destination: Some(endpoint(&kind.to)),
        r#type: FlowType::L3L4.into(),
        node_name: kind.node.to_string(),
        event_type: Some(CiliumEventType { r#type: POLICY_VERDICT, sub_type: 0 }),
        destination_service: kind
            .service
            .map(|service| Service { name: service.to_string(), namespace: String::new() }),
        traffic_direction: direction(kind.direction).into(),
        drop_reason_desc: match kind.verdict {
            Verdict::Denied => DropReason::PolicyDenied,
            Verdict::Allowed | Verdict::Observed => DropReason::Unknown,
        }
        .into(),
        is_reply: Some(false),
        summary: summary(flow),
        egress_allowed_by: when(Direction::Out, Verdict::Allowed),
        ingress_allowed_by: when(Direction::In, Verdict::Allowed),
        egress_denied_by: when(Direction::Out, Verdict::Denied),
        ingress_denied_by: when(Direction::In, Verdict::Denied),
        ..message::Flow::default()
    }
}

/// From milliseconds since 1970.
pub fn moment(millis: u64) -> Timestamp {
    let nanos = i32::try_from(millis % 1_000 * 1_000_000).expect("below a second");
    Timestamp { seconds: i64::try_from(millis / 1_000).unwrap_or(i64::MAX), nanos }
}

fn text(address: Option<IpAddr>) -> String {
    address.map(|address| address.to_string()).unwrap_or_default()
}

fn summary(flow: &Flow) -> String {
    let what = if flow.kind.verdict == Verdict::Allowed { "connections" } else { "packets" };
    let rule = if flow.kind.rule.is_empty() { String::new() } else { format!("; {}", flow.kind.rule) };
    format!("{} {what}{rule}", flow.count)
}

fn layer4(number: u8, port: Option<u16>) -> Option<Layer4> {
    let port = port.unwrap_or_default();
    let ports = || Ports { source_port: 0, destination_port: port.into() };
    let icmp = || Icmp { r#type: (port >> 8).into(), code: (port & 0xff).into() };
    let protocol = match protocol::name(number)? {
        "tcp" => Protocol::Tcp(ports()),
        "udp" => Protocol::Udp(ports()),
        "sctp" => Protocol::Sctp(ports()),
        "icmp" => Protocol::IcmPv4(icmp()),
        _ => Protocol::IcmPv6(icmp()),
    };
    Some(Layer4 { protocol: Some(protocol) })
}

fn endpoint(end: &End) -> Endpoint {
    let (kind, name) = end.workload.split_once(' ').unwrap_or_default();
    let (namespace, pod) = if kind == "Pod" { name.split_once('/').unwrap_or_default() } else { ("", "") };
    let reserved = match kind {
        "Node" => Some((HOST, "reserved:host")),
        "" => Some((WORLD, "reserved:world")),
        _ => None,
    };
    let labels = end.labels.iter().map(|(key, value)| format!("k8s:{key}={value}"));
    Endpoint {
        id: 0,
        identity: reserved.map_or(0, |(identity, _)| identity),
        namespace: namespace.to_owned(),
        labels: labels.chain(reserved.map(|(_, label)| label.to_owned())).collect(),
        pod_name: pod.to_owned(),
    }
}

/// `ingress rule 0 of NetworkPolicy shop/web`, `isolated by NetworkPolicy shop/web`.
fn policy(rule: &str) -> Option<Policy> {
    let source =
        rule.strip_prefix("isolated by ").or_else(|| rule.rsplit_once(" of ").map(|(_, source)| source))?;
    let (kind, name) = source.split_once(' ')?;
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    Some(Policy { name: name.to_owned(), namespace: namespace.to_owned(), kind: kind.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_known_by_the_rule() {
        let of = |text| policy(text).map(|policy| [policy.kind, policy.namespace, policy.name].join(" "));
        assert_eq!(
            of("ingress rule 0 `a of b` of NetworkPolicy shop/web").unwrap(),
            "NetworkPolicy shop web"
        );
        assert_eq!(of("isolated by NetworkPolicy shop/web").unwrap(), "NetworkPolicy shop web");
        assert_eq!(of("egress rule 1 of ClusterNetworkPolicy x").unwrap(), "ClusterNetworkPolicy  x");
        assert_eq!(of("no controller covers it"), None);
    }
}
