//! Resources: instances, each in a security group of its own that is closed before the instance exists.

use cloud_api::{CloudError, CloudErrorKind, ResourceSpec};
use cloud_http::{Class, Pace, Progress, wait};
use futures::future::try_join_all;
use model::{ResourceState, Segment, Site};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{
    api::{items, text},
    cloud::{AwsCloud, Result},
    description::Description,
    networks::{Vpc, parts, state_of},
};

/// States in which an instance counts as there.
const THERE: [&str; 4] = ["pending", "running", "stopping", "stopped"];

/// 16 hexadecimal digits of SHA-256.
fn short(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

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

    pub(crate) async fn make_resource(&self, site: &Site, spec: &ResourceSpec) -> Result<ResourceState> {
        let description = Description::parse(&spec.description)?;
        let (region, name) = (spec.region.as_str(), spec.name.as_str());
        if description.region != spec.region {
            return Err(CloudError::invalid(format!(
                "the description is for {}, not {region}",
                description.region
            )));
        }
        let there = self.instances(site, region, &[("name", name)]).await?;
        let id = match there.first() {
            Some(instance) => text(instance, "instanceId").to_owned(),
            None => {
                let vpc = self.need_vpc(site, region).await?;
                let group = self.closed_group(site, &vpc, name).await?;
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

    /// The resource's group, with nothing in it. Only for a resource that does not exist yet.
    async fn closed_group(&self, site: &Site, vpc: &Vpc, name: &str) -> Result<String> {
        let group_name = format!("trestle-{}", short(&format!("{site}.{name}")));
        let mut tries = 0;
        let id = loop {
            let found = self.groups(site, &vpc.region, name).await?;
            if let Some(group) = found.iter().find(|group| text(group, "vpcId") == vpc.id) {
                let id = text(group, "groupId").to_owned();
                self.clear(site, &vpc.region, &id, group).await?;
                return Ok(id);
            }
            let tags = self.marks(site).specification("security-group", name, &[("name", name)])?;
            let wanted = json!({"GroupName": group_name, "GroupDescription": format!("trestle: what {name} permits"), "VpcId": vpc.id, "TagSpecification": tags});
            self.touch(site, "group");
            match self.ec2.fresh(&vpc.region, "CreateSecurityGroup", wanted).await {
                Ok(made) => break text(&made, "groupId").to_owned(),
                Err(failure) if failure.is(Class::Exists) && tries < 3 => tries += 1,
                Err(failure) => return Err(failure.into()),
            }
        };
        // EC2 lets everything out of a new group.
        let all = json!({"GroupId": id, "IpPermissions": [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]});
        match self.ec2.fresh(&vpc.region, "RevokeSecurityGroupEgress", all).await {
            Err(failure) if !failure.is(Class::NotFound) => Err(failure.into()),
            _ => Ok(id),
        }
    }

    pub(crate) async fn groups(&self, site: &Site, region: &str, name: &str) -> Result<Vec<Value>> {
        self.settle(site, "group").await;
        let filters = json!({"Filter": self.marks(site).filters(&[("name", name)])});
        Ok(self.ec2.list(region, "DescribeSecurityGroups", "securityGroupInfo", filters).await?)
    }

    async fn run(
        &self,
        site: &Site,
        vpc: &Vpc,
        name: &str,
        group: &str,
        description: &Description,
    ) -> Result<String> {
        let (inner, _) = parts(vpc.space)?;
        let subnet = self.subnet(site, vpc, "resources", inner).await?;
        if let Some(zone) = &description.zone {
            let own = json!({"SubnetId": [subnet]});
            let found = self.ec2.list(&vpc.region, "DescribeSubnets", "subnetSet", own).await?;
            let have = found.first().map(|subnet| text(subnet, "availabilityZone")).unwrap_or_default();
            if have != zone {
                let message = format!(
                    "the network {site}.{} is in the zone {have}; leave the zone out or use it",
                    vpc.region
                );
                return Err(CloudError::new(CloudErrorKind::Unsupported, message));
            }
        }
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
