//! The site's gateway: an HA VPN gateway and its router, in the site's own VPC, in the first region of the site, which may
//! be one of an adopted network. And NAT, a router as well.

use cloud_api::CloudError;
use cloud_http::Class;
use model::{GatewayState, Segment};
use serde_json::{Value, json};

use crate::{
    adopt::adopted_region,
    cloud::{self, GcpCloud, Ground, Result},
    names::{self, last},
};

pub(crate) struct Gateway {
    pub(crate) region: String,
    pub(crate) state: GatewayState,
}

impl GcpCloud {
    /// The gateway, if both its parts are there.
    pub(crate) async fn gateway(&self, ground: &Ground) -> Result<Option<Gateway>> {
        let (compute, names) = (&self.compute, &ground.names);
        let found = compute.list_all(&ground.project, "vpnGateways", &names.gateway()).await?;
        let Some(gateway) = found.into_iter().find(|one| names.owns(one)) else { return Ok(None) };
        let region = last(&gateway["region"]).to_owned();
        let router = compute.get(&ground.region(&region), "routers", &names.router()).await?;
        let asn =
            router.and_then(|router| router["bgp"]["asn"].as_u64()).and_then(|asn| u32::try_from(asn).ok());
        let addresses = addresses(&gateway);
        Ok(asn.map(|asn| Gateway { region, state: GatewayState { asn, addresses } }))
    }

    pub(crate) async fn make_gateway(&self, ground: &Ground, asn: u32) -> Result<GatewayState> {
        let (compute, names) = (&self.compute, &ground.names);
        if let Some(there) = self.gateway(ground).await? {
            self.serve_adopted(ground, None).await?;
            return Ok(there.state);
        }
        let half = compute.list_all(&ground.project, "vpnGateways", &names.gateway()).await?;
        let region = match half.iter().find(|one| names.owns(one)) {
            Some(half) => last(&half["region"]).to_owned(),
            None => self.gateway_region(ground).await?,
        };
        let place = ground.region(&region);
        let mark = names::write(names.mark());
        let gateway = json!({"name": names.gateway(), "network": ground.network(), "description": mark});
        let router = json!({"name": names.router(), "network": ground.network(), "description": mark, "bgp": {"asn": asn}});
        futures::try_join!(
            compute.insert(&place, "vpnGateways", &gateway),
            compute.insert(&place, "routers", &router)
        )?;
        let missing =
            || CloudError::unavailable(format!("the gateway of {} was made and is not there", ground.site));
        let made = self.gateway(ground).await?.ok_or_else(missing)?;
        self.serve_adopted(ground, None).await?;
        Ok(made.state)
    }

    /// Where a new gateway stands. A site that has adopted networks only gets a VPC for it.
    async fn gateway_region(&self, ground: &Ground) -> Result<String> {
        if let Some((network, _)) = self.subnets(ground).await?.first() {
            return Ok(cloud::region_of(network.as_str()));
        }
        let none =
            || CloudError::conflict(format!("{} has no network for a gateway to stand in", ground.site));
        let adopted = self.adopted(ground).await?;
        let region = adopted.first().and_then(|one| adopted_region(one.name.as_str())).ok_or_else(none)?;
        self.make_vpc(ground).await?;
        Ok(region.to_owned())
    }

    pub(crate) async fn need_gateway(&self, ground: &Ground) -> Result<Gateway> {
        self.gateway(ground)
            .await?
            .ok_or_else(|| CloudError::conflict(format!("{} has no gateway", ground.site)))
    }

    /// What there is of a gateway, half made or half gone, with the collection of each part.
    pub(crate) async fn gateway_parts(&self, ground: &Ground) -> Result<Vec<(&'static str, Value)>> {
        let (compute, names) = (&self.compute, &ground.names);
        let gateways = compute.list_all(&ground.project, "vpnGateways", &names.gateway()).await?;
        let routers = compute.list_all(&ground.project, "routers", &names.router()).await?;
        let gateways = gateways.into_iter().map(|one| ("vpnGateways", one));
        let all = gateways.chain(routers.into_iter().map(|one| ("routers", one)));
        Ok(all.filter(|(_, object)| names.owns(object)).collect())
    }

    pub(crate) async fn remove_gateway(&self, ground: &Ground) -> Result<()> {
        for (collection, object) in self.gateway_parts(ground).await? {
            let place = ground.region(last(&object["region"]));
            let name = object["name"].as_str().unwrap_or_default();
            match self.compute.delete(&place, collection, name).await {
                Err(failure) if failure.is(Class::InUse) => {
                    return Err(CloudError::conflict(format!(
                        "the gateway of {} has connections: {failure}",
                        ground.site
                    )));
                }
                outcome => outcome?,
            }
        }
        for adopted in self.adopted(ground).await? {
            self.part(&ground.vpc(), &adopted.vpc).await?;
        }
        self.remove_vpc(ground).await
    }

    pub(crate) async fn make_nat(&self, ground: &Ground, network: &Segment) -> Result<()> {
        let (names, place) = (&ground.names, ground.place_of(network.as_str()));
        let none = || CloudError::conflict(format!("there is no network {}.{network}", ground.site));
        self.subnet(ground, network.as_str()).await?.ok_or_else(none)?;
        let name = names.nat(network.as_str());
        if self.compute.get(&place, "routers", &name).await?.is_some() {
            return Ok(());
        }
        self.narrow_nats(ground, &cloud::region_of(network.as_str())).await?;
        let mark = names::Mark { region: Some(network.clone()), ..names.mark() };
        let nats = [nat_of(ground, network.as_str())];
        let router = json!({"name": name, "network": ground.network(), "description": names::write(mark), "nats": nats});
        Ok(self.compute.insert(&place, "routers", &router).await?)
    }

    /// A NAT for all subnets of a region, as Trestle made them before it had several there, would keep others out; it is for its
    /// own from now on.
    async fn narrow_nats(&self, ground: &Ground, region: &str) -> Result<()> {
        let place = ground.region(region);
        let name = ground.names.nat(region);
        let Some(router) = self.compute.get(&place, "routers", &name).await? else { return Ok(()) };
        let is_wide = router["nats"][0]["sourceSubnetworkIpRangesToNat"] == "ALL_SUBNETWORKS_ALL_IP_RANGES";
        if !is_wide || !ground.names.owns(&router) {
            return Ok(());
        }
        let body = json!({"nats": [nat_of(ground, region)]});
        Ok(self.compute.patch(&place, "routers", &name, &body).await?)
    }
}

/// NAT for one network, all ranges of its subnet.
fn nat_of(ground: &Ground, network: &str) -> Value {
    let subnet = ground.place_of(network).object("subnetworks", &ground.names.subnet(network));
    json!({
        "name": "nat",
        "natIpAllocateOption": "AUTO_ONLY",
        "sourceSubnetworkIpRangesToNat": "LIST_OF_SUBNETWORKS",
        "subnetworks": [{"name": subnet, "sourceIpRangesToNat": ["ALL_IP_RANGES"]}],
    })
}

fn addresses(gateway: &Value) -> Vec<std::net::IpAddr> {
    let interfaces = gateway["vpnInterfaces"].as_array().into_iter().flatten();
    interfaces.filter_map(|interface| interface["ipAddress"].as_str()?.parse().ok()).collect()
}
