//! What of the state is there in the kernel.

use async_trait::async_trait;
use cloud_api::{At, Cloud, Listing, Result};
use model::{CloudTraits, Cost, Effort, GatewayState, NetworkName, Site};

use super::LinuxCloud;
use crate::{attach::Attached, names, namespace, network::peering_interface};

#[async_trait]
impl Cloud for LinuxCloud {
    async fn describe(&self) -> Result<CloudTraits> {
        // Below and above are the addresses of lines inside a site.
        Ok(CloudTraits {
            bgp_first: [169, 254, 4, 0].into(),
            bgp_last: [169, 254, 127, 252].into(),
            gateway: Some(Effort { seconds: 1, cost: Cost::Free }),
            connection: Some(Effort { seconds: 1, cost: Cost::Free }),
            ..CloudTraits::default()
        })
    }

    /// What is there in the kernel, of what the state says.
    async fn list(&self, at: &At) -> Result<Listing> {
        let state = self.inner.state();
        let mut listing = Listing::default();
        for (name, space) in state.networks_of(&at.site) {
            if namespace::exists(&self.inner.names.network(name)) {
                listing.networks.push((name.region.clone(), space));
            }
        }
        for (name, resource) in state.resources.iter().filter(|(name, _)| Site::of(name) == at.site) {
            let home = NetworkName { site: at.site.clone(), region: resource.region.clone() };
            let inside = match &resource.attached {
                None => namespace::exists(&self.inner.names.resource(name)),
                Some(Attached::Namespace(name)) => namespace::exists(name),
                Some(Attached::Link(_)) => true,
            };
            let is_there = inside
                && namespace::has_link(&self.inner.names.network(&home), &names::port(resource.address))
                    .await;
            if is_there {
                listing.resources.push((name.name.clone(), self.inner.resource_state(name, resource)));
            }
        }
        for (name, number) in &state.peerings {
            let end = self.inner.names.network(name.ends()[0]);
            let of_site = name.ends().iter().any(|end| end.site == at.site);
            if of_site && namespace::has_link(&end, &peering_interface(*number)).await {
                listing.peerings.push(name.clone());
            }
        }
        if namespace::exists(&self.inner.names.edge(&at.site)) {
            let nats = state.nats.iter().filter(|nat| nat.site == at.site);
            listing.nats = nats.map(|nat| nat.region.clone()).collect();
            let block = self.inner.underlay.block(&at.site)?;
            let gateway = state.gateways.get(&at.site).zip(block);
            listing.gateway =
                gateway.map(|(asn, block)| GatewayState { asn: *asn, addresses: block.tunnels() });
            listing.connections = state
                .connections
                .get(&at.site)
                .map(|peers| peers.keys().cloned().collect())
                .unwrap_or_default();
        }
        Ok(listing)
    }
}
