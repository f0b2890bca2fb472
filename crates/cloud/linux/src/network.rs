//! Networks, resources and peerings: namespaces, the lines between them, and routes.

use std::net::Ipv4Addr;

use cloud_api::{
    CloudError, Result,
    twin::{twin, twins},
};
use ipnet::Ipv4Net;
use model::{NetworkName, PeeringName, ResourceName, Site};

use crate::{
    cloud::Inner,
    names::port,
    namespace::{self, has_ipv6},
    permit,
    shell::{ip_in, veth},
    state::{Resource, State},
};

/// The router of every resource, on the network's end of its line.
pub(crate) const ROUTER: &str = "169.254.1.1";
/// The same for IPv6. Neighbours are written down and never asked for: a resource has nothing to say to its router.
pub(crate) const ROUTER6: &str = "fe80::1";

/// The hardware addresses of a resource's line, the same after a repair: of the resource, and of its router.
fn hardware(address: Ipv4Addr) -> [String; 2] {
    let [a, b, c, d] = address.octets();
    ["54", "55"].map(|kind| format!("02:{kind}:{a:02x}:{b:02x}:{c:02x}:{d:02x}"))
}

/// What gives a resource its twin: lines for the resource's end, whose interface is named, and for the network's.
fn twin_lines(address: Ipv4Addr, interface: &str) -> [Vec<String>; 2] {
    if !has_ipv6() {
        return [Vec::new(), Vec::new()];
    }
    let (twin, port, [own, router]) = (twin(address), port(address), hardware(address));
    [
        vec![
            format!("address replace {twin}/128 dev {interface} nodad"),
            format!("neigh replace {ROUTER6} lladdr {router} dev {interface} nud permanent"),
            format!("route replace {ROUTER6}/128 dev {interface}"),
            format!("route replace ::/0 via {ROUTER6} dev {interface}"),
        ],
        vec![
            format!("neigh replace {twin} lladdr {own} dev {port} nud permanent"),
            format!("route replace {twin}/128 dev {port}"),
        ],
    ]
}

impl Inner {
    pub(crate) async fn make_network(&self, state: &State, name: &NetworkName, space: Ipv4Net) -> Result {
        let namespace = self.names.network(name);
        namespace::ensure(&namespace).await?;
        // Closed before anything is connected to it.
        self.tables.reconcile(&namespace, permit::table(state, name)).await?;
        namespace::forward(&namespace).await?;
        // What nobody has in this space goes nowhere.
        let mut lines = vec!["link set lo up".to_owned(), format!("route replace blackhole {space}")];
        if has_ipv6() {
            lines.push(format!("route replace blackhole {}", twins(space)));
        }
        ip_in(&namespace, &lines).await?;
        // Those that live here are connected again, if the namespace was made anew.
        for (resource, record) in state.residents(name) {
            self.make_resource(state, resource, record).await?;
        }
        if state.needs_edge(&name.site) && namespace::exists(&self.names.edge(&name.site)) {
            self.join_edge(state, name, space).await?;
        }
        Ok(())
    }

    pub(crate) async fn make_resource(
        &self,
        state: &State,
        name: &ResourceName,
        resource: &Resource,
    ) -> Result {
        let network = NetworkName { site: Site::of(name), region: resource.region.clone() };
        let (inside, outside) = (self.names.resource(name), self.names.network(&network));
        let (address, port) = (resource.address, port(resource.address));
        self.tables.reconcile(&outside, permit::table(state, &network)).await?;
        match &resource.attached {
            Some(attached) => self.make_attached(attached, &outside, resource).await?,
            None => {
                namespace::ensure(&inside).await?;
                veth((&inside, "eth0"), (&outside, &port)).await?;
            }
        }
        let [own, router] = hardware(address);
        let [twin_inside, twin_outside] = twin_lines(address, "eth0");
        let mut lines = vec![
            format!("address replace {ROUTER}/32 dev {port}"),
            format!("link set {port} up"),
            format!("route replace {address}/32 dev {port}"),
        ];
        if resource.attached.is_some() {
            return ip_in(&outside, &lines).await;
        }
        lines.insert(0, format!("link set {port} address {router}"));
        lines.extend(twin_outside);
        ip_in(&outside, &lines).await?;
        let mut lines = vec![
            "link set lo up".to_owned(),
            // The same after a repair, so that nobody's neighbours are confused.
            format!("link set eth0 address {own}"),
            format!("address replace {address}/32 dev eth0"),
            "link set eth0 up".to_owned(),
            format!("route replace {ROUTER} dev eth0 scope link"),
            format!("route replace default via {ROUTER} dev eth0"),
        ];
        lines.extend(twin_inside);
        ip_in(&inside, &lines).await?;
        match resource.command() {
            Some(command) => self.start_command(name, &command),
            None => Ok(()),
        }
    }

    pub(crate) async fn make_peering(&self, state: &State, name: &PeeringName, number: u16) -> Result {
        let [a, b] = name.ends();
        let gone = || CloudError::conflict(format!("a network of {name} does not exist"));
        let spaces = [*state.networks.get(a).ok_or_else(gone)?, *state.networks.get(b).ok_or_else(gone)?];
        let namespaces = [self.names.network(a), self.names.network(b)];
        let port = peering_interface(number);
        veth((&namespaces[0], &port), (&namespaces[1], &port)).await?;
        let addresses = peering_addresses(number);
        for (end, namespace) in namespaces.iter().enumerate() {
            let (own, other, space) = (addresses[end], addresses[1 - end], spaces[1 - end]);
            let mut lines = vec![
                format!("address replace {own}/32 dev {port}"),
                format!("link set {port} up"),
                format!("route replace {space} via {other} dev {port} onlink"),
            ];
            if has_ipv6() {
                // Lines are apart, so all have the same two addresses.
                lines.push(format!("address replace fe80::{}/64 dev {port} nodad", end + 1));
                lines.push(format!("route replace {} via fe80::{} dev {port}", twins(space), 2 - end));
            }
            ip_in(namespace, &lines).await?;
        }
        Ok(())
    }
}

pub(crate) fn peering_interface(number: u16) -> String {
    format!("p{number}")
}

/// A pair of link-local addresses of its own for each peering.
fn peering_addresses(number: u16) -> [Ipv4Addr; 2] {
    let base = u32::from(Ipv4Addr::new(169, 254, 128, 0)) + u32::from(number % 0x3fff) * 2;
    [base.into(), (base + 1).into()]
}
