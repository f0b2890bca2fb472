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

use crate::rules::{Rule, Rules, rule_in_wide};
use crate::shapes::{GroupRule, SecurityGroup};
use crate::{Result, Vpc};

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
pub(crate) fn balancers_group(groups: &[SecurityGroup]) -> Option<&SecurityGroup> {
    groups.iter().find(|group| group.name.starts_with("kube-lbaas-"))
}

/// What takes the place of a rule of the load balancers' group.
pub(crate) fn shut(rule: &Rule) -> Rule {
    Rule { prefix: ipnet::IpNet::from(PODS).into(), ..rule.clone() }
}

/// IBM's group of the workers, among the groups of a cluster's VPC.
pub(crate) fn workers_group<'g>(groups: &'g [SecurityGroup], vpc: &Vpc) -> Option<&'g SecurityGroup> {
    groups.iter().find(|group| {
        let cluster = group.name.strip_prefix("kube-");
        cluster.is_some_and(|cluster| {
            !["vpegw-", "lbaas-"].iter().any(|other| cluster.starts_with(other)) && cluster != vpc.id
        })
    })
}

/// The rules of IBM's group that the permit list is to speak of.
pub(crate) fn opened(group: &SecurityGroup) -> Rules {
    let told = |rule: &Rule| {
        let known = match rule.direction {
            Direction::Inbound => std::slice::from_ref(&PODS),
            Direction::Outbound => &NEEDED,
        };
        !known.iter().any(|net| ipnet::IpNet::from(*net).contains(&rule.prefix.net()))
    };
    let path = |rule: &GroupRule| format!("{}/rules/{}", group.id, rule.id);
    let read = |rule: &GroupRule| Some((rule_in_wide(rule).filter(told)?, path(rule)));
    group.rules.iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        shapes::samples::{group, open},
        vpcs::Home,
    };

    #[test]
    fn the_inside_is_not_spoken_of_and_openings_are() {
        let (inbound, outbound) = (Direction::Inbound, Direction::Outbound);
        let rules = [
            ("pods", inbound, "icmp_tcp_udp", Some("198.18.0.0/16")),
            ("to-pods", outbound, "icmp_tcp_udp", Some("198.18.0.0/16")),
            ("services", outbound, "icmp_tcp_udp", Some("166.8.0.0/14")),
            ("metadata", outbound, "icmp_tcp_udp", Some("169.254.169.254/32")),
            ("self", inbound, "icmp_tcp_udp", None),
            ("dns", outbound, "icmp_tcp_udp", Some("161.26.0.0/16")),
            ("iam", outbound, "icmp_tcp_udp", Some("166.9.0.1/32")),
            ("ping", inbound, "icmp", Some("0.0.0.0/0")),
            ("port", inbound, "tcp", Some("10.0.0.4/32")),
            ("all", outbound, "icmp_tcp_udp", Some("0.0.0.0/0")),
            ("half", outbound, "icmp_tcp_udp", Some("0.0.0.0/1")),
            ("near", outbound, "tcp", Some("10.0.0.0/8")),
            ("alb", outbound, "tcp", Some("169.63.1.1/32")),
            ("wider", outbound, "tcp", Some("166.8.0.0/13")),
        ];
        let mut rules = rules.map(|(id, direction, protocol, block)| open(id, direction, protocol, block));
        rules.iter_mut().filter(|rule| rule.id == "ping").for_each(|rule| rule.r#type = Some(8));
        let group = group("x", rules.into());
        let mut paths: Vec<String> = opened(&group).into_values().collect();
        paths.sort();
        let told = ["alb", "all", "half", "near", "ping", "port", "wider"];
        assert_eq!(paths, told.map(|id| format!("g/rules/{id}")));
    }

    #[test]
    fn the_workers_group_is_told_from_the_others() {
        let vpc = Vpc::sample("us-south", Home::of_cluster("us-south", "k").unwrap());
        let names =
            ["kube-vpegw-c1", "kube-lbaas-c1", "kube-r006-1", "kube-vpegw-r006-1", "other", "kube-c1"];
        let groups = names.map(|name| group(name, Vec::new()));
        let name = |group: Option<&SecurityGroup>| group.map(|group| group.name.clone());
        assert_eq!(name(balancers_group(&groups)).as_deref(), Some("kube-lbaas-c1"));
        assert_eq!(name(workers_group(&groups, &vpc)).as_deref(), Some("kube-c1"));
        assert_eq!(name(workers_group(&groups[..5], &vpc)), None);
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
