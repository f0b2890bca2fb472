//! Who gets an address and port that several services claim.
//!
//! The smallest claim wins, by name of the service first: the outcome does not depend on who came first, and a loser
//! takes over when the winner goes. Who may come there is the winner's business only as long as no load balancer of that
//! address restricts it: a guard holds for the place, whoever answers.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    net::{IpAddr, SocketAddr},
};

use super::{port_id, source_ranges};
use crate::{FrontendKind, IngressMode, Node, PortId, Protocol, Service, ServiceName};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub owner: PortId,
    pub kind: FrontendKind,
    pub address: IpAddr,
    pub port: u16,
    /// Of a load balancer that not everybody may use.
    pub is_guarded: bool,
}

type Place = (IpAddr, u16, Protocol);

impl Claim {
    fn place(&self) -> Place {
        (self.address, self.port, self.owner.protocol)
    }
}

type Claimant = (PortId, FrontendKind, bool);

#[derive(Clone, Debug, Default)]
pub struct Claims {
    /// Sorted: the winner is the first. Nearly always there is one.
    by_place: HashMap<Place, Vec<Claimant>>,
    /// Places with more than one claim.
    contested: BTreeSet<Place>,
}

/// Two services want to be found at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub loser: ServiceName,
    pub winner: ServiceName,
    pub address: IpAddr,
    pub port: u16,
    pub protocol: Protocol,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { winner, address, port, protocol, .. } = self;
        let socket = SocketAddr::new(*address, *port);
        write!(f, "{socket}/{protocol} is served for {winner}, which claims it too and comes first by name")
    }
}

impl Claims {
    /// Returns the services for which something may have changed.
    pub fn exchange(&mut self, before: &[Claim], after: &[Claim]) -> BTreeSet<ServiceName> {
        let mut touched: BTreeMap<Place, [Option<PortId>; 2]> = BTreeMap::new();
        for claim in before.iter().chain(after) {
            let place = claim.place();
            touched.entry(place).or_insert_with(|| self.in_charge(&place).map(Option::<&PortId>::cloned));
        }
        for claim in before {
            let place = claim.place();
            if let Some(claims) = self.by_place.get_mut(&place) {
                claims.retain(|(owner, kind, _)| *owner != claim.owner || *kind != claim.kind);
                if claims.is_empty() {
                    self.by_place.remove(&place);
                }
            }
        }
        for claim in after {
            let claims = self.by_place.entry(claim.place()).or_default();
            let mine = (claim.owner.clone(), claim.kind, claim.is_guarded);
            if let Err(place) = claims.binary_search(&mine) {
                claims.reserve_exact(1);
                claims.insert(place, mine);
            }
        }
        let mut affected = BTreeSet::new();
        for (place, was) in touched {
            if self.by_place.get(&place).is_some_and(|claims| claims.len() > 1) {
                self.contested.insert(place);
            } else {
                self.contested.remove(&place);
            }
            for (was, is) in was.into_iter().zip(self.in_charge(&place)) {
                if was.as_ref() != is {
                    affected.extend(is.map(|owner| owner.service.clone()));
                    affected.extend(was.map(|owner| owner.service));
                }
            }
        }
        affected
    }

    /// O(places that are contested).
    pub fn conflicts(&self) -> impl Iterator<Item = Conflict> + '_ {
        self.contested.iter().flat_map(|place| {
            let claims = self.by_place.get(place).map(Vec::as_slice).unwrap_or_default();
            let winner = claims.first().map(|(owner, ..)| &owner.service);
            let losers = claims.iter().skip(1).map(|(owner, ..)| &owner.service);
            losers.filter(move |loser| Some(*loser) != winner).filter_map(move |loser| {
                let (address, port, protocol) = *place;
                Some(Conflict { loser: loser.clone(), winner: winner?.clone(), address, port, protocol })
            })
        })
    }

    pub fn is_won(&self, claim: &Claim) -> bool {
        let winner = self.by_place.get(&claim.place()).and_then(|claims| claims.first());
        winner.is_some_and(|(owner, kind, _)| *owner == claim.owner && *kind == claim.kind)
    }

    /// Whether it is this claim's ranges that hold for its place: those of the first that has any.
    pub fn is_guard(&self, claim: &Claim) -> bool {
        let [_, guard] = self.in_charge(&claim.place());
        claim.is_guarded && guard == Some(&claim.owner)
    }

    /// Who answers at a place, and who guards it.
    fn in_charge(&self, place: &Place) -> [Option<&PortId>; 2] {
        let claims = self.by_place.get(place).map(Vec::as_slice).unwrap_or_default();
        let guard = claims.iter().find(|(_, _, is_guarded)| *is_guarded);
        [claims.first(), guard].map(|claimant| claimant.map(|(owner, ..)| owner))
    }
}

/// All places where a service wants to be found.
pub fn wanted(name: &ServiceName, service: &Service, node: &Node) -> Vec<Claim> {
    if !service.is_ours() {
        return Vec::new();
    }
    let balancers = service.load_balancers.iter().filter(|ingress| ingress.mode == IngressMode::Vip);
    let balancers: Vec<_> = balancers.map(|ingress| ingress.address).collect();
    let external: &[IpAddr] = if node.refuse_external_ips { &[] } else { &service.external_ips };
    let mut claims = Vec::new();
    for ipv6 in [false, true] {
        if !service.cluster_ips.iter().any(|address| address.is_ipv6() == ipv6) {
            continue;
        }
        for port in &service.ports {
            let owner = port_id(name, port, ipv6);
            let is_restricted = !source_ranges(service, ipv6).is_empty();
            let mut claim = |kind, addresses: &[IpAddr], number| {
                let of_family = addresses.iter().filter(|address| address.is_ipv6() == ipv6 && number != 0);
                let of_family = of_family.filter(|address| !node.excludes(**address));
                claims.extend(of_family.map(|address| Claim {
                    owner: owner.clone(),
                    kind,
                    address: *address,
                    port: number,
                    is_guarded: kind == FrontendKind::LoadBalancer && is_restricted,
                }));
            };
            claim(FrontendKind::ClusterIp, &service.cluster_ips, port.port);
            claim(FrontendKind::ExternalIp, external, port.port);
            claim(FrontendKind::LoadBalancer, &balancers, port.port);
            claim(FrontendKind::NodePort, &node.addresses, port.node_port);
        }
    }
    claims
}
