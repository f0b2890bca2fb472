//! What IBM's own groups of a cluster open. Pure.
//!
//! IBM puts workers into a group `kube-CLUSTER` that opens the inside of the cluster and the services that workers need.
//! None of that is the permit list's. What opens the cluster to others, or lets it out to everybody, is: the pings that
//! IBM lets in from everywhere, what IBM adds when somebody takes its outbound protection away, and what somebody adds by
//! hand. It shows as entries that are not ours, and goes as they do.
//!
//! The group `kube-lbaas-CLUSTER` of load balancers, which somebody inside makes, lets in everybody. What it lets in goes
//! likewise, but for one rule per port: IBM writes the open one anew where there is none. It names the Pods, who are no
//! callers from outside.

use cloud_api::{CloudError, CloudErrorKind};
use ipnet::Ipv4Net;
use model::{Address, Direction, PermitEntry};
use serde_json::Value;

use crate::{
    api::text,
    cloud::Result,
    rules::{Rule, Rules},
    vpcs::Vpc,
};

/// Where Pods and Services are, in every cluster: IBM's own choice for a VPC's first cluster. Nobody outside sees them.
pub(crate) const PODS: Ipv4Net = Ipv4Net::new_assert(std::net::Ipv4Addr::new(172, 17, 0, 0), 18);
pub(crate) const SERVICES: Ipv4Net = Ipv4Net::new_assert(std::net::Ipv4Addr::new(172, 21, 0, 0), 16);

/// Refuses a space that is not told from the inside of a cluster.
pub(crate) fn check_space(space: Ipv4Net) -> Result<()> {
    match [PODS, SERVICES].iter().find(|inside| inside.contains(&space) || space.contains(*inside)) {
        None => Ok(()),
        Some(inside) => Err(CloudError::invalid(format!(
            "{space} cannot be the network of a cluster in IBM Cloud: {inside} is in the cluster itself"
        ))),
    }
}

/// Refuses entries for addresses that are in every cluster.
pub(crate) fn check_targets(entries: &[PermitEntry]) -> Result<()> {
    let is_inside = |target: &&Address| {
        [PODS, SERVICES].iter().any(|inside| ipnet::IpNet::from(*inside).contains(&target.net()))
    };
    for entry in entries {
        if let Some(target) = entry.targets().iter().find(is_inside) {
            return Err(CloudError::new(
                CloudErrorKind::Unsupported,
                format!(
                    "the entry {} names {target}, which is inside the cluster: its Pods are in {PODS} and its Services in \
                     {SERVICES}, and what has such an address elsewhere is not reached from it",
                    entry.name
                ),
            ));
        }
    }
    Ok(())
}

/// IBM's group of the load balancers, among the groups of a cluster's VPC.
pub(crate) fn balancers_group(groups: &[Value]) -> Option<&Value> {
    groups.iter().find(|group| text(group, "name").starts_with("kube-lbaas-"))
}

/// What takes the place of a rule of the load balancers' group.
pub(crate) fn shut(rule: &Rule) -> Rule {
    Rule { prefix: ipnet::IpNet::from(PODS).into(), ..rule.clone() }
}

/// IBM's group of the workers, among the groups of a cluster's VPC.
pub(crate) fn workers_group<'g>(groups: &'g [Value], vpc: &Vpc) -> Option<&'g Value> {
    groups.iter().find(|group| {
        let cluster = text(group, "name").strip_prefix("kube-");
        cluster.is_some_and(|cluster| {
            !["vpegw-", "lbaas-"].iter().any(|other| cluster.starts_with(other)) && cluster != vpc.id
        })
    })
}

/// The rules of IBM's group that the permit list is to speak of.
pub(crate) fn opened(group: &Value) -> Rules {
    let everybody: Address = ipnet::IpNet::from(Ipv4Net::default()).into();
    let inside: Address = ipnet::IpNet::from(PODS).into();
    let told = |rule: &Rule| match rule.direction {
        Direction::Inbound => rule.prefix != inside,
        Direction::Outbound => rule.prefix == everybody,
    };
    let rules = group["rules"].as_array().into_iter().flatten();
    let read = |rule: &Value| {
        let path = format!("{}/rules/{}", text(group, "id"), text(rule, "id"));
        // A single kind of ICMP is ICMP: what is open in part is open.
        let mut whole = rule.clone();
        whole["type"].take();
        Some((Rule::read(&whole).filter(told)?, path))
    };
    rules.filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::vpcs::Home;

    #[test]
    fn the_inside_is_not_spoken_of_and_openings_are() {
        let rule = |id: &str, direction: &str, protocol: &str, remote: Value| json!({"id": id, "direction": direction, "protocol": protocol, "remote": remote});
        let mut ping = rule("ping", "inbound", "icmp", json!({"cidr_block": "0.0.0.0/0"}));
        ping["type"] = 8.into();
        let rules = json!([
            rule("pods", "inbound", "icmp_tcp_udp", json!({"cidr_block": "172.17.0.0/18"})),
            rule("self", "inbound", "icmp_tcp_udp", json!({"id": "kube"})),
            rule("dns", "outbound", "icmp_tcp_udp", json!({"cidr_block": "161.26.0.0/16"})),
            rule("iam", "outbound", "icmp_tcp_udp", json!({"address": "166.9.0.1"})),
            ping,
            rule("port", "inbound", "tcp", json!({"address": "10.0.0.4"})),
            rule("all", "outbound", "icmp_tcp_udp", json!({"cidr_block": "0.0.0.0/0"})),
        ]);
        let mut paths: Vec<String> = opened(&json!({"id": "g", "rules": rules})).into_values().collect();
        paths.sort();
        assert_eq!(paths, ["g/rules/all", "g/rules/ping", "g/rules/port"]);
    }

    #[test]
    fn the_workers_group_is_told_from_the_others() {
        let vpc = Vpc::read("us-south", &json!({"id": "r006-1"}), Home::Cluster("k".to_owned()));
        let names =
            ["kube-vpegw-c1", "kube-lbaas-c1", "kube-r006-1", "kube-vpegw-r006-1", "other", "kube-c1"];
        let groups: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        assert_eq!(balancers_group(&groups), Some(&groups[1]));
        assert_eq!(workers_group(&groups, &vpc), groups.last());
        assert_eq!(workers_group(&groups[..5], &vpc), None);
    }

    #[test]
    fn a_network_is_not_where_pods_are() {
        for (space, fits) in [
            ("10.0.0.0/16", true),
            ("172.16.0.0/12", false),
            ("172.17.16.0/20", false),
            ("172.20.0.0/16", true),
        ] {
            assert_eq!(check_space(space.parse().unwrap()).is_ok(), fits, "{space}");
        }
    }
}
