//! What IBM's own groups of a cluster open. Pure.
//!
//! IBM puts workers into a group `kube-CLUSTER` that opens the inside of the cluster and the services that workers need.
//! None of that is the permit list's. What opens the cluster to others, or lets it out to anybody else, is: the pings that
//! IBM lets in from everywhere, what IBM adds when somebody takes its outbound protection away, the way to public addresses
//! of Ingress, and what somebody adds by hand. It shows as entries that are not ours, and goes as they do.
//!
//! The group `kube-lbaas-CLUSTER` of load balancers, which IBM makes for Ingress and somebody inside for Services, lets in
//! everybody. What it lets in goes
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

/// Where Pods and Services are, in every cluster. Nobody outside sees them. Of the blocks that IBM takes, these are the
/// ones that are nobody's: IBM's own choice, 172.17.0.0/18, may be a network's, which would then be let into every cluster.
pub(crate) const PODS: Ipv4Net = block([198, 18, 0, 0], 16);
pub(crate) const SERVICES: Ipv4Net = block([198, 19, 0, 0], 16);
/// Addresses of Pods that IBM gives a worker.
const PODS_OF_WORKER: u64 = 128;

/// Where IBM's group lets workers out to, besides members of groups: Pods, name servers and provisioning, IBM's services
/// on its private network, and the instance's metadata.
const NEEDED: [Ipv4Net; 4] =
    [PODS, block([161, 26, 0, 0], 16), block([166, 8, 0, 0], 14), block([169, 254, 169, 254], 32)];

const fn block(first: [u8; 4], length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(std::net::Ipv4Addr::new(first[0], first[1], first[2], first[3]), length)
}

/// Workers of a cluster, by the addresses of its Pods.
pub(crate) fn most_workers() -> u64 {
    (1 << (32 - PODS.prefix_len())) / PODS_OF_WORKER
}

/// Refuses a network's space that is not told from the inside of a cluster.
pub(crate) fn check_space(space: Ipv4Net) -> Result<()> {
    match [PODS, SERVICES].iter().find(|inside| inside.contains(&space) || space.contains(*inside)) {
        None => Ok(()),
        Some(inside) => Err(CloudError::invalid(format!(
            "{space} cannot be a network in IBM Cloud: {inside} is inside every Kubernetes cluster, which would take the \
             network for its own"
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
    let told = |rule: &Rule| {
        let known = match rule.direction {
            Direction::Inbound => std::slice::from_ref(&PODS),
            Direction::Outbound => &NEEDED,
        };
        !known.iter().any(|net| ipnet::IpNet::from(*net).contains(&rule.prefix.net()))
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
            rule("pods", "inbound", "icmp_tcp_udp", json!({"cidr_block": "198.18.0.0/16"})),
            rule("to-pods", "outbound", "icmp_tcp_udp", json!({"cidr_block": "198.18.0.0/16"})),
            rule("services", "outbound", "icmp_tcp_udp", json!({"cidr_block": "166.8.0.0/14"})),
            rule("metadata", "outbound", "icmp_tcp_udp", json!({"address": "169.254.169.254"})),
            rule("self", "inbound", "icmp_tcp_udp", json!({"id": "kube"})),
            rule("dns", "outbound", "icmp_tcp_udp", json!({"cidr_block": "161.26.0.0/16"})),
            rule("iam", "outbound", "icmp_tcp_udp", json!({"address": "166.9.0.1"})),
            ping,
            rule("port", "inbound", "tcp", json!({"address": "10.0.0.4"})),
            rule("all", "outbound", "icmp_tcp_udp", json!({"cidr_block": "0.0.0.0/0"})),
            rule("half", "outbound", "icmp_tcp_udp", json!({"cidr_block": "0.0.0.0/1"})),
            rule("near", "outbound", "tcp", json!({"cidr_block": "10.0.0.0/8"})),
            rule("alb", "outbound", "tcp", json!({"address": "169.63.1.1"})),
            rule("wider", "outbound", "tcp", json!({"cidr_block": "166.8.0.0/13"})),
        ]);
        let mut paths: Vec<String> = opened(&json!({"id": "g", "rules": rules})).into_values().collect();
        paths.sort();
        let told = ["alb", "all", "half", "near", "ping", "port", "wider"];
        assert_eq!(paths, told.map(|id| format!("g/rules/{id}")));
    }

    #[test]
    fn the_workers_group_is_told_from_the_others() {
        let vpc = Vpc::read("us-south", &json!({"id": "r006-1"}), Home::of_cluster("us-south", "k").unwrap());
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
            ("172.16.0.0/12", true),
            ("198.16.0.0/12", false),
            ("198.18.16.0/20", false),
            ("198.19.0.0/16", false),
            ("198.20.0.0/16", true),
        ] {
            assert_eq!(check_space(space.parse().unwrap()).is_ok(), fits, "{space}");
        }
    }
}
