//! Private endpoints: endpoint gateways, each with one reserved address and in a security group of its own. Born closed:
//! the group has no rules, and the gateway is in it from the request that makes it.

use cloud_api::{CloudError, ResourceSpec};
use futures::future::try_join_all;
use model::{ResourceState, Segment};
use serde_json::{Value, json};

use crate::{
    api::{ENDPOINT_GATEWAY, Place, is_alive, text},
    cloud::{Ground, IbmCloud, Result},
    kinds::EndpointDescription,
    resources::note_of,
    rules::Note,
    vpcs::{Vpc, Vpcs},
};

/// An endpoint as the contract knows it. Its id is its region and its name, as an instance's is.
pub(crate) fn state_of(region: &str, endpoint: &Value) -> Option<ResourceState> {
    Some(ResourceState {
        uri: format!("{region}/{}", text(endpoint, "name")),
        address: text(&endpoint["ips"][0], "address").parse().ok()?,
        region: region.parse().ok()?,
    })
}

impl IbmCloud {
    /// The endpoint gateways of a VPC that are ours.
    pub(crate) async fn endpoints(&self, ground: &Ground, vpc: &Vpc) -> Result<Vec<Value>> {
        let path = format!("endpoint_gateways?vpc.id={}", vpc.id);
        let found = self.api.list(Place::Region(&vpc.region), &ENDPOINT_GATEWAY, &path).await?;
        let ours = |one: &Value| is_alive(one) && ground.names.is_endpoint(text(one, "name"));
        Ok(found.into_iter().filter(ours).collect())
    }

    pub(crate) async fn make_endpoint(
        &self,
        ground: &Ground,
        spec: &ResourceSpec,
        description: EndpointDescription,
    ) -> Result<ResourceState> {
        let (name, region) = (ground.names.endpoint(&spec.name), spec.region.as_str());
        let _turn = self.turns.take(&format!("{region}/{name}")).await;
        let (place, vpc) = (Place::Region(region), self.need_vpc(ground, region).await?);
        let (there, groups) = futures::try_join!(self.endpoints(ground, &vpc), self.groups(&vpc))?;
        let there = there.into_iter().find(|one| one["name"] == name.as_str());
        if note_of(ground, &groups, &name).is_none() {
            let note = Note { name: spec.name.to_string(), list: Vec::new() };
            self.write_note(ground, &vpc, &groups, &name, &note).await?;
        }
        let made = match there {
            Some(endpoint) if ENDPOINT_GATEWAY.is_ready(&endpoint) => endpoint,
            _ => {
                let (group, subnet) = futures::try_join!(
                    self.closed_group(ground, &vpc, &groups, &name),
                    self.subnet(ground, &vpc, &description.zone)
                )?;
                let mut body = ground.place(Value::Object(description.fields));
                body["name"] = name.as_str().into();
                body["vpc"] = json!({"id": vpc.id});
                body["security_groups"] = json!([{"id": group}]);
                // The address goes with the gateway.
                body["ips"] = json!([{"name": name, "subnet": {"id": subnet}, "auto_delete": true}]);
                let listed = format!("endpoint_gateways?vpc.id={}", vpc.id);
                self.api.make(place, &ENDPOINT_GATEWAY, &listed, &body).await?
            }
        };
        let none = || CloudError::unavailable(format!("the endpoint gateway {name} has no address yet"));
        state_of(region, &made).ok_or_else(none)
    }

    pub(crate) async fn remove_endpoint(&self, ground: &Ground, vpcs: &Vpcs, name: &Segment) -> Result<()> {
        let wanted = ground.names.endpoint(name);
        try_join_all(vpcs.of_regions().map(|vpc| self.remove_endpoint_from(ground, vpc, &wanted))).await?;
        Ok(())
    }

    async fn remove_endpoint_from(&self, ground: &Ground, vpc: &Vpc, name: &str) -> Result<()> {
        let _turn = self.turns.take(&format!("{}/{name}", vpc.name())).await;
        let place = Place::Region(&vpc.region);
        let listed = format!("endpoint_gateways?vpc.id={}", vpc.id);
        let (endpoints, groups) = futures::try_join!(
            async { Ok(self.api.list(place, &ENDPOINT_GATEWAY, &listed).await?) },
            self.groups(vpc)
        )?;
        for endpoint in endpoints.iter().filter(|one| one["name"] == name) {
            self.api
                .remove(place, &ENDPOINT_GATEWAY, &format!("endpoint_gateways/{}", text(endpoint, "id")))
                .await?;
        }
        // The list goes with the resource, so that another of the same name is closed.
        self.forget_list(ground, vpc, &groups, name).await
    }
}
