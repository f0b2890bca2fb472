//! The parts both policy dialects share: everything, all Pods, ports.

use std::{
    borrow::Cow,
    net::{Ipv4Addr, Ipv6Addr},
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use model::policy::{
    LabelSelector, convert,
    kubernetes::{IntOrString, Port},
    output::{Direction, IpBlock, MemberKind, Problem, Service},
};

use super::Peers;
use crate::selection::{Scope, Selection};

pub(super) fn everywhere() -> [IpBlock; 2] {
    let v4 = Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0);
    let v6 = Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 0);
    [IpBlock { cidr: IpNet::V4(v4), except: Vec::new() }, IpBlock { cidr: IpNet::V6(v6), except: Vec::new() }]
}

/// A rule without peers is about everyone. A node can look up a named port only at members it knows, so an egress rule
/// with one also names all Pods.
pub(super) fn everyone<'a>(direction: Direction, ports: &[Port]) -> Peers<'a> {
    let mut peers = Peers { ip_blocks: everywhere().into(), ..Peers::default() };
    let named = |port: &Port| matches!(port.port, Some(IntOrString::Name(_)));
    if direction == Direction::Out && ports.iter().any(named) {
        let scope = Scope::Matching(Cow::Owned(LabelSelector::default()));
        peers.select(Selection { kind: MemberKind::Pod, scope, selector: None });
    }
    peers
}

/// The usable ports; those at fault are reported.
pub(super) fn services(base: &str, ports: &[Port], problems: &mut Vec<Problem>) -> Vec<Service> {
    let mut services = Vec::with_capacity(ports.len());
    for (i, port) in ports.iter().enumerate() {
        match convert::port(port) {
            Ok(service) => services.push(service),
            Err(problem) => problems.push(problem.under(&format!("{base}.ports[{i}]"))),
        }
    }
    services
}
