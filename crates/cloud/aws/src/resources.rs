//! Resources: instances, each in a security group of its own that is closed before the instance exists.

use cloud_api::ResourceSpec;
use cloud_http::{Pace, Progress, wait};
use futures::future::try_join_all;
use model::{ResourceState, Segment, Site};
use serde_json::{Value, json};

use crate::{
    api::{items, text},
    cloud::{AwsCloud, Result},
    description::Description,
    groups::short,
    networks::{Vpc, state_of},
};

/// States in which an instance counts as there.
const THERE: [&str; 4] = ["pending", "running", "stopping", "stopped"];

impl AwsCloud {
    /// The instances of a site in a region.
    pub(crate) async fn instances(
        &self,
        site: &Site,
        region: &str,
        more: &[(&str, &str)],
    ) -> Result<Vec<Value>> {
        self.settle(site, "instance").await;
        let mut filters = self.marks(site).filters(more);
        if let Some(filters) = filters.as_array_mut() {
            filters.push(json!({"Name": "instance-state-name", "Value": THERE}));
        }
        let found =
            self.ec2.list(region, "DescribeInstances", "reservationSet", json!({"Filter": filters})).await?;
        Ok(found.iter().flat_map(|reservation| items(&reservation["instancesSet"]).cloned()).collect())
    }

    /// Instances of whomever, by their ids. Not known is no error: it may have been made a moment ago.
    pub(crate) async fn instances_by_id(
        &self,
        site: &Site,
        region: &str,
        ids: &[&str],
    ) -> Result<Vec<Value>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        self.settle(site, "instance").await;
        let filters =
            json!([{"Name": "instance-id", "Value": ids}, {"Name": "instance-state-name", "Value": THERE}]);
        let found =
            self.ec2.list(region, "DescribeInstances", "reservationSet", json!({"Filter": filters})).await?;
        Ok(found.iter().flat_map(|reservation| items(&reservation["instancesSet"]).cloned()).collect())
    }

    pub(crate) async fn make_resource(&self, site: &Site, spec: &ResourceSpec) -> Result<ResourceState> {
        let description = Description::parse(&spec.description)?;
        let (region, name) = (spec.region.as_str(), spec.name.as_str());
        spec.check_network(&description.region)?;
        let there = self.instances(site, region, &[("name", name)]).await?;
        let id = match there.first() {
            Some(instance) => text(instance, "instanceId").to_owned(),
            None => {
                let vpc = self.need_vpc(site, region).await?;
                let group = self.closed_group(site, (region, &vpc.id), name, 0, &[]).await?;
                self.run(site, &vpc, name, &group, &description).await?
            }
        };
        let pace = Pace::QUICK;
        let what = format!("the instance {id} of {site}.{name}");
        wait(self.ec2.clock(), pace, &what, || async {
            // By its name: an id that was made a moment ago may not be known everywhere yet.
            let found = self.instances(site, region, &[("name", name)]).await?;
            let running = found
                .iter()
                .find(|one| one["instanceState"]["name"] == "running" && text(one, "instanceId") == id);
            Ok(running.and_then(|one| state_of(one, region)).map_or(Progress::Pending, Progress::Done))
        })
        .await
    }

    async fn run(
        &self,
        site: &Site,
        vpc: &Vpc,
        name: &str,
        group: &str,
        description: &Description,
    ) -> Result<String> {
        let subnet = self.zone_subnet(site, vpc, description.zone.as_deref()).await?;
        let mut wanted = Value::Object(description.fields.clone());
        wanted["MinCount"] = 1.into();
        wanted["MaxCount"] = 1.into();
        wanted["NetworkInterface"] = json!([{"DeviceIndex": 0, "SubnetId": subnet, "SecurityGroupId": [group], "AssociatePublicIpAddress": false, "DeleteOnTermination": true}]);
        // The group is new for every new resource, so the token is.
        wanted["ClientToken"] = format!("trestle-{}", short(&format!("{group}/{site}.{name}"))).into();
        wanted["TagSpecification"] = self.marks(site).specification("instance", name, &[("name", name)])?;
        self.touch(site, "instance");
        let made = self.ec2.safe(&vpc.region, "RunInstances", wanted).await?;
        let instance = items(&made["instancesSet"]).next().cloned().unwrap_or_default();
        Ok(text(&instance, "instanceId").to_owned())
    }

    pub(crate) async fn remove_resource(&self, site: &Site, name: &Segment) -> Result<()> {
        let regions = self.regions().await?;
        try_join_all(regions.iter().map(|region| self.remove_in(site, region, name.as_str()))).await.map(drop)
    }

    async fn remove_in(&self, site: &Site, region: &str, name: &str) -> Result<()> {
        self.let_go(site, region, name).await?;
        let there = self.instances(site, region, &[("name", name)]).await?;
        let ids: Vec<&str> = there.iter().map(|instance| text(instance, "instanceId")).collect();
        if !ids.is_empty() {
            self.ec2.safe(region, "TerminateInstances", json!({"InstanceId": ids})).await?;
            self.touch(site, "instance");
        }
        let groups = self.groups(site, region, name).await?;
        for group in groups {
            // Refused as in use until the instance is gone.
            self.delete(region, "DeleteSecurityGroup", json!({"GroupId": text(&group, "groupId")})).await?;
            self.touch(site, "group");
        }
        Ok(())
    }
}
