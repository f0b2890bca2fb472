//! Networks, resources and peerings: namespaces, the lines between them, and routes.

use cloud_api::CloudError;
use ipnet::Ipv4Net;
use model::{NetworkName, PeeringName, ResourceName, Site};

use crate::{
    cloud::Inner,
    names::port,
    namespace, permit,
    shell::{ip_in, veth},
    state::{Resource, State},
};

/// The router of every resource, on the network's end of its line.
pub(crate) const ROUTER: &str = "169.254.1.1";

impl Inner {
    pub(crate) async fn make_network(
        &self,
        state: &State,
        name: &NetworkName,
        space: Ipv4Net,
    ) -> Result<(), CloudError> {
        let namespace = self.names.network(name);
        namespace::ensure(&namespace).await?;
        // Closed before anything is connected to it.
        self.tables.reconcile(&namespace, permit::table(state, name)).await?;
        namespace::forward(&namespace).await?;
        // What nobody has in this space goes nowhere.
        ip_in(&namespace, &["link set lo up".to_owned(), format!("route replace blackhole {space}")]).await?;
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
    ) -> Result<(), CloudError> {
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
        ip_in(
            &outside,
            &[
                format!("address replace {ROUTER}/32 dev {port}"),
                format!("link set {port} up"),
                format!("route replace {address}/32 dev {port}"),
            ],
        )
        .await?;
        if resource.attached.is_some() {
            return Ok(());
        }
        let [a, b, c, d] = address.octets();
        ip_in(
            &inside,
            &[
                "link set lo up".to_owned(),
                // The same after a repair, so that nobody's neighbours are confused.
                format!("link set eth0 address 02:54:{a:02x}:{b:02x}:{c:02x}:{d:02x}"),
                format!("address replace {address}/32 dev eth0"),
                "link set eth0 up".to_owned(),
                format!("route replace {ROUTER} dev eth0 scope link"),
                format!("route replace default via {ROUTER} dev eth0"),
            ],
        )
        .await?;
        match resource.command() {
            Some(command) => self.start_command(name, &command),
            None => Ok(()),
        }
    }

    pub(crate) async fn make_peering(
        &self,
        state: &State,
        name: &PeeringName,
        number: u16,
    ) -> Result<(), CloudError> {
        let [a, b] = name.ends();
        let gone = || CloudError::conflict(format!("a network of {name} does not exist"));
        let spaces = [*state.networks.get(a).ok_or_else(gone)?, *state.networks.get(b).ok_or_else(gone)?];
        let namespaces = [self.names.network(a), self.names.network(b)];
        let port = peering_interface(number);
        veth((&namespaces[0], &port), (&namespaces[1], &port)).await?;
        let addresses = peering_addresses(number);
        for (end, namespace) in namespaces.iter().enumerate() {
            let (own, other, space) = (addresses[end], addresses[1 - end], spaces[1 - end]);
            ip_in(
                namespace,
                &[
                    format!("address replace {own}/32 dev {port}"),
                    format!("link set {port} up"),
                    format!("route replace {space} via {other} dev {port} onlink"),
                ],
            )
            .await?;
        }
        Ok(())
    }
}

pub(crate) fn peering_interface(number: u16) -> String {
    format!("p{number}")
}

/// A pair of link-local addresses of its own for each peering.
fn peering_addresses(number: u16) -> [std::net::Ipv4Addr; 2] {
    let base = u32::from(std::net::Ipv4Addr::new(169, 254, 128, 0)) + u32::from(number % 0x3fff) * 2;
    [base.into(), (base + 1).into()]
}
