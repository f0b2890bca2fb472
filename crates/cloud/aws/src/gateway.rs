//! Gateways: a transit gateway that all networks of the site are attached to.
//!
//! ```text
//!   hub region        VPC ── attachment ── hub ═══ VPN connections
//!                                           │ peering attachment, static routes
//!   another region    VPC ── attachment ── spoke
//! ```

use cloud_api::CloudError;
use cloud_http::{Pace, Progress, wait};
use futures::future::try_join_all;
use model::{GatewayState, Site};
use serde_json::{Value, json};

use crate::{
    api::{items, or_gone, or_there, text},
    cloud::{AwsCloud, Result},
    networks::{Vpc, is_alive},
};

/// What a network sends to the gateway, which knows the rest. Routes of peerings are more specific and win.
const PRIVATE: [&str; 4] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"];

/// A transit gateway.
#[derive(Clone, Debug)]
pub(crate) struct Transit {
    pub(crate) region: String,
    pub(crate) id: String,
    pub(crate) asn: u32,
    pub(crate) table: String,
    ready: bool,
}

fn transit(region: &str, value: &Value) -> Transit {
    Transit {
        region: region.to_owned(),
        id: text(value, "transitGatewayId").to_owned(),
        asn: text(&value["options"], "amazonSideAsn").parse().unwrap_or_default(),
        table: text(&value["options"], "associationDefaultRouteTableId").to_owned(),
        ready: text(value, "state") == "available",
    }
}

impl AwsCloud {
    async fn transits(&self, site: &Site, region: &str, role: &str) -> Result<Vec<Transit>> {
        self.settle(site, "transit").await;
        let filters = json!({"Filter": self.marks(site).filters(&[("role", role)])});
        let found = self.ec2.list(region, "DescribeTransitGateways", "transitGatewaySet", filters).await?;
        let mut alive: Vec<Transit> =
            found.iter().filter(|one| is_alive(one)).map(|one| transit(region, one)).collect();
        alive.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(alive)
    }

    /// The ids of a site's gateways in a region, whatever their part.
    pub(crate) async fn transits_in(&self, site: &Site, region: &str) -> Result<Vec<String>> {
        let (hubs, spokes) =
            futures::try_join!(self.transits(site, region, "hub"), self.transits(site, region, "spoke"))?;
        Ok(hubs.into_iter().chain(spokes).map(|transit| transit.id).collect())
    }

    pub(crate) async fn hub_in(&self, site: &Site, region: &str) -> Result<Option<Transit>> {
        Ok(self.transits(site, region, "hub").await?.into_iter().next())
    }

    /// The site's hub, wherever it is.
    pub(crate) async fn hub(&self, site: &Site) -> Result<Option<Transit>> {
        let regions = self.regions().await?;
        let found = try_join_all(regions.iter().map(|region| self.hub_in(site, region))).await?;
        Ok(found.into_iter().flatten().next())
    }

    pub(crate) async fn need_hub(&self, site: &Site) -> Result<Transit> {
        self.hub(site).await?.ok_or_else(|| CloudError::conflict(format!("{site} has no gateway")))
    }

    async fn make_transit(&self, site: &Site, region: &str, role: &str, asn: u32) -> Result<Transit> {
        let there = self.transits(site, region, role).await?.into_iter().next();
        let found = match there {
            Some(found) => found,
            None => {
                let tags = self.marks(site).specification("transit-gateway", role, &[("role", role)])?;
                let wanted = json!({"Description": format!("trestle {site}"), "Options": {"AmazonSideAsn": asn}, "TagSpecification": tags});
                self.touch(site, "transit");
                let made = self.ec2.call(region, "CreateTransitGateway", wanted).await?;
                transit(region, &made["transitGateway"])
            }
        };
        self.when_ready(site, found, role).await
    }

    /// The same transit gateway when it can be used; somebody may just have asked for it.
    async fn when_ready(&self, site: &Site, found: Transit, role: &str) -> Result<Transit> {
        if found.ready {
            return Ok(found);
        }
        let what = format!("the transit gateway {}", found.id);
        wait(self.ec2.clock(), Pace::SLOW, &what, || async {
            let now =
                self.transits(site, &found.region, role).await?.into_iter().find(|one| one.id == found.id);
            Ok(now.filter(|one| one.ready).map_or(Progress::Pending, Progress::Done))
        })
        .await
    }

    pub(crate) async fn make_gateway(&self, site: &Site, asn: u32) -> Result<GatewayState> {
        let vpcs = self.vpcs(site).await?;
        let none = || CloudError::conflict(format!("{site} has no network for a gateway to stand in"));
        let first = vpcs.first().ok_or_else(none)?;
        let region = match self.hub(site).await? {
            Some(hub) => hub.region,
            None => first.region.clone(),
        };
        let hub = self.make_transit(site, &region, "hub", asn).await?;
        self.attach(site, &hub, &vpcs).await?;
        Ok(GatewayState { asn: hub.asn, addresses: Vec::new() })
    }

    /// Attaches networks to the gateway, through a spoke where the hub is in another region.
    pub(crate) async fn attach(&self, site: &Site, hub: &Transit, vpcs: &[Vpc]) -> Result<()> {
        let hub = &self.when_ready(site, hub.clone(), "hub").await?;
        for vpc in vpcs {
            // Nobody is attached from it yet; whoever is comes back here.
            if vpc.adopted && self.resource_subnets(site, vpc).await?.is_empty() {
                continue;
            }
            let near =
                if vpc.region == hub.region { hub.clone() } else { self.spoke(site, hub, vpc).await? };
            self.attach_vpc(site, &near, vpc).await?;
            for table in self.tables(site, vpc).await? {
                for prefix in PRIVATE {
                    self.route(vpc, &table, prefix, ("TransitGatewayId", &near.id)).await?;
                }
            }
        }
        Ok(())
    }

    async fn attachments(&self, site: &Site, region: &str, kind: &str, filters: Value) -> Result<Vec<Value>> {
        self.settle(site, "attachment").await;
        let (action, list) = match kind {
            "vpc" => ("DescribeTransitGatewayVpcAttachments", "transitGatewayVpcAttachments"),
            _ => ("DescribeTransitGatewayPeeringAttachments", "transitGatewayPeeringAttachments"),
        };
        let found = self.ec2.list(region, action, list, json!({"Filter": filters})).await?;
        Ok(found
            .into_iter()
            .filter(|one| !matches!(text(one, "state"), "deleted" | "failed" | "rejected"))
            .collect())
    }

    async fn attach_vpc(&self, site: &Site, near: &Transit, vpc: &Vpc) -> Result<()> {
        let own = json!([{"Name": "transit-gateway-id", "Value": [near.id]}, {"Name": "vpc-id", "Value": [vpc.id]}]);
        let there = self.attachments(site, &vpc.region, "vpc", own.clone()).await?;
        let mut subnets = self.resource_subnets(site, vpc).await?;
        // An attachment is in one subnet of each zone.
        subnets.sort_by(|a, b| a.1.cmp(&b.1));
        subnets.dedup_by(|a, b| a.1 == b.1);
        let missing: Vec<&String> = match there.iter().find(|one| is_alive(one)) {
            Some(attachment) => {
                let on: Vec<&str> = items(&attachment["subnetIds"]).filter_map(Value::as_str).collect();
                let zones = self.zones_of(vpc, &on, &subnets).await?;
                subnets.iter().filter(|(_, zone)| !zones.contains(zone)).map(|(id, _)| id).collect()
            }
            None if subnets.is_empty() => {
                return Err(CloudError::conflict(format!("the network {} has no subnet", vpc.id)));
            }
            None => {
                let tags = self.marks(site).specification("transit-gateway-attachment", &vpc.region, &[])?;
                let subnets: Vec<&String> = subnets.iter().map(|(id, _)| id).collect();
                let wanted = json!({"TransitGatewayId": near.id, "VpcId": vpc.id, "SubnetIds": subnets, "TagSpecifications": tags});
                self.touch(site, "attachment");
                or_there(self.ec2.fresh(&vpc.region, "CreateTransitGatewayVpcAttachment", wanted).await)?;
                Vec::new()
            }
        };
        if missing.is_empty() && there.iter().any(|one| text(one, "state") == "available") {
            return Ok(());
        }
        let ready = || async {
            wait(self.ec2.clock(), Pace::QUICK, &format!("the attachment of {}", vpc.id), || async {
                let found = self.attachments(site, &vpc.region, "vpc", own.clone()).await?;
                let ready = found.iter().find(|one| text(one, "state") == "available");
                let id = ready.map(|one| text(one, "transitGatewayAttachmentId").to_owned());
                Ok(id.map_or(Progress::Pending, Progress::Done))
            })
            .await
        };
        let id = ready().await?;
        if missing.is_empty() {
            return Ok(());
        }
        // One zone after another: an attachment is changed by one call at a time.
        for subnet in missing {
            let wanted = json!({"TransitGatewayAttachmentId": id, "AddSubnetIds": [subnet]});
            self.touch(site, "attachment");
            or_there(self.ec2.fresh(&vpc.region, "ModifyTransitGatewayVpcAttachment", wanted).await)?;
            ready().await?;
        }
        Ok(())
    }

    /// The gateway of a region other than the hub's, joined with the hub.
    async fn spoke(&self, site: &Site, hub: &Transit, vpc: &Vpc) -> Result<Transit> {
        let spoke = self.make_transit(site, &vpc.region, "spoke", hub.asn).await?;
        let attachment = self.join(site, hub, &spoke).await?;
        let routes = [(hub, vpc.space.to_string()), (&spoke, "0.0.0.0/0".to_owned())];
        for (at, prefix) in routes {
            let wanted = json!({"TransitGatewayRouteTableId": at.table, "DestinationCidrBlock": prefix, "TransitGatewayAttachmentId": attachment});
            or_there(self.ec2.fresh(&at.region, "CreateTransitGatewayRoute", wanted).await)?;
        }
        Ok(spoke)
    }

    /// The peering attachments between two transit gateways, as the first one's region lists them.
    async fn joints(&self, site: &Site, hub: &Transit, spoke: &Transit) -> Result<Vec<Value>> {
        let found = self
            .attachments(site, &hub.region, "peering", self.marks(site).filters(&[("spoke", &spoke.region)]))
            .await?;
        Ok(found
            .into_iter()
            .filter(|one| text(&one["accepterTgwInfo"], "transitGatewayId") == spoke.id)
            .collect())
    }

    async fn join(&self, site: &Site, hub: &Transit, spoke: &Transit) -> Result<String> {
        let there = self.joints(site, hub, spoke).await?;
        let id = match there.iter().find(|one| is_alive(one)) {
            Some(joint) => text(joint, "transitGatewayAttachmentId").to_owned(),
            None => {
                let tags = self.marks(site).specification(
                    "transit-gateway-attachment",
                    &spoke.region,
                    &[("spoke", &spoke.region)],
                )?;
                let account =
                    text(&there.first().cloned().unwrap_or_default()["requesterTgwInfo"], "ownerId")
                        .to_owned();
                let account =
                    if account.is_empty() { self.account(site, &hub.region).await? } else { account };
                let wanted = json!({"TransitGatewayId": hub.id, "PeerTransitGatewayId": spoke.id, "PeerAccountId": account, "PeerRegion": spoke.region, "TagSpecification": tags});
                self.touch(site, "attachment");
                let made =
                    self.ec2.fresh(&hub.region, "CreateTransitGatewayPeeringAttachment", wanted).await?;
                text(&made["transitGatewayPeeringAttachment"], "transitGatewayAttachmentId").to_owned()
            }
        };
        wait(
            self.ec2.clock(),
            Pace::SLOW,
            &format!("the peering of {} and {}", hub.id, spoke.id),
            || async {
                let found = self.joints(site, hub, spoke).await?;
                let state = found
                    .iter()
                    .find(|one| text(one, "transitGatewayAttachmentId") == id)
                    .map(|one| text(one, "state").to_owned());
                Ok(match state.as_deref() {
                    Some("available") => Progress::Done(()),
                    Some("pendingAcceptance") => {
                        let wanted = json!({"TransitGatewayAttachmentId": id});
                        // Refused while the other region does not know it yet, or knows it as accepted.
                        let _ = self
                            .ec2
                            .safe(&spoke.region, "AcceptTransitGatewayPeeringAttachment", wanted)
                            .await;
                        Progress::Pending
                    }
                    _ => Progress::Pending,
                })
            },
        )
        .await?;
        Ok(id)
    }

    /// The account's number, from a VPC of ours.
    async fn account(&self, site: &Site, region: &str) -> Result<String> {
        let vpcs = self.vpcs_in(site, region).await?;
        let Some(vpc) = vpcs.first() else { return Ok(String::new()) };
        let found = self.vpc_by_id(site, region, &vpc.id).await?;
        Ok(found.map(|vpc| text(&vpc, "ownerId").to_owned()).unwrap_or_default())
    }

    /// Takes a network off the gateway; a spoke that has no network any more goes too.
    pub(crate) async fn detach(&self, site: &Site, vpc: &Vpc) -> Result<()> {
        self.end_attachments(site, &vpc.region, "vpc", self.own_attachments(site, vpc)).await?;
        let Some(hub) = self.hub(site).await? else { return Ok(()) };
        let others = self.vpcs(site).await?;
        let is_last = !others.iter().any(|other| other.region == vpc.region && other.id != vpc.id);
        for spoke in self.transits(site, &vpc.region, "spoke").await? {
            let old = json!({"TransitGatewayRouteTableId": hub.table, "DestinationCidrBlock": vpc.space.to_string()});
            or_gone(self.ec2.safe(&hub.region, "DeleteTransitGatewayRoute", old).await)?;
            if is_last {
                self.end_spoke(site, &hub, &spoke).await?;
            }
        }
        Ok(())
    }

    /// Finds our attachments of a network. Somebody else's network may have others.
    fn own_attachments(&self, site: &Site, vpc: &Vpc) -> Value {
        let mut filters = self.marks(site).filters(&[]);
        if let Some(filters) = filters.as_array_mut() {
            filters.push(json!({"Name": "vpc-id", "Value": [vpc.id]}));
        }
        filters
    }

    async fn end_spoke(&self, site: &Site, hub: &Transit, spoke: &Transit) -> Result<()> {
        let mine = self.marks(site).filters(&[("spoke", &spoke.region)]);
        self.end_attachments(site, &hub.region, "peering", mine).await?;
        self.end_transit(site, spoke, "spoke").await
    }

    /// Deletes attachments and waits for their end.
    async fn end_attachments(&self, site: &Site, region: &str, kind: &str, filters: Value) -> Result<()> {
        let action = if kind == "vpc" {
            "DeleteTransitGatewayVpcAttachment"
        } else {
            "DeleteTransitGatewayPeeringAttachment"
        };
        for attachment in
            self.attachments(site, region, kind, filters.clone()).await?.iter().filter(|one| is_alive(one))
        {
            let id = text(attachment, "transitGatewayAttachmentId");
            or_gone(self.ec2.safe(region, action, json!({"TransitGatewayAttachmentId": id})).await)?;
            self.touch(site, "attachment");
        }
        wait(self.ec2.clock(), Pace::QUICK, "the end of attachments", || async {
            let left = self.attachments(site, region, kind, filters.clone()).await?;
            Ok(if left.is_empty() { Progress::Done(()) } else { Progress::Pending })
        })
        .await
    }

    async fn end_transit(&self, site: &Site, transit: &Transit, role: &str) -> Result<()> {
        or_gone(
            self.ec2
                .safe(&transit.region, "DeleteTransitGateway", json!({"TransitGatewayId": transit.id}))
                .await,
        )?;
        self.touch(site, "transit");
        wait(self.ec2.clock(), Pace::SLOW, &format!("the end of {}", transit.id), || async {
            self.settle(site, "transit").await;
            let filters = json!({"Filter": self.marks(site).filters(&[("role", role)])});
            let found = self
                .ec2
                .list(&transit.region, "DescribeTransitGateways", "transitGatewaySet", filters)
                .await?;
            let left = found
                .iter()
                .any(|one| text(one, "transitGatewayId") == transit.id && text(one, "state") != "deleted");
            Ok(if left { Progress::Pending } else { Progress::Done(()) })
        })
        .await
    }

    pub(crate) async fn remove_gateway(&self, site: &Site) -> Result<()> {
        let regions = self.regions().await?;
        let hubs = try_join_all(regions.iter().map(|region| self.transits(site, region, "hub"))).await?;
        let spokes = try_join_all(regions.iter().map(|region| self.transits(site, region, "spoke"))).await?;
        let (hubs, spokes): (Vec<_>, Vec<_>) =
            (hubs.into_iter().flatten().collect(), spokes.into_iter().flatten().collect());
        for hub in &hubs {
            if let Some(connection) = self.connections_in(site, &hub.region).await?.first() {
                let id = text(connection, "vpnConnectionId");
                return Err(CloudError::conflict(format!("the gateway of {site} has the connection {id}")));
            }
        }
        if hubs.is_empty() && spokes.is_empty() {
            return Ok(());
        }
        for vpc in self.vpcs(site).await? {
            for transit in hubs.iter().chain(&spokes).filter(|transit| transit.region == vpc.region) {
                self.unroute(&vpc, "transitGatewayId", &transit.id).await?;
            }
            self.end_attachments(site, &vpc.region, "vpc", self.own_attachments(site, &vpc)).await?;
        }
        for spoke in &spokes {
            for hub in &hubs {
                let mine = self.marks(site).filters(&[("spoke", &spoke.region)]);
                self.end_attachments(site, &hub.region, "peering", mine).await?;
            }
            self.end_transit(site, spoke, "spoke").await?;
        }
        for hub in &hubs {
            self.end_transit(site, hub, "hub").await?;
        }
        Ok(())
    }
}
