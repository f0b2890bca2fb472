//! Transit gateways, their attachments and static routes.

use serde_json::{Value, json};

use super::{
    Action, Outcome, Refusal, refuse,
    state::{ACCOUNT, Ec2, passes},
};
use crate::rest::{items, list, texts};

const MISSING: &str = "InvalidTransitGatewayID.NotFound";
const NO_ATTACHMENT: &str = "InvalidTransitGatewayAttachmentID.NotFound";

impl Ec2 {
    pub(super) fn transit(&mut self, action: &str, ask: &Action<'_>) -> Option<Outcome> {
        Some(match action {
            "CreateTransitGateway" => self.create_transit(ask),
            "DescribeTransitGateways" => {
                self.describe("tgw", "TransitGatewayIds", "TransitGateways", MISSING, ask)
            }
            "DeleteTransitGateway" => self.delete_transit(ask),
            "CreateTransitGatewayVpcAttachment" => self.attach_vpc(ask),
            "DescribeTransitGatewayVpcAttachments" => {
                self.attachments("vpc", "TransitGatewayVpcAttachments", ask)
            }
            "ModifyTransitGatewayVpcAttachment" => self.change_attachment(ask),
            "DeleteTransitGatewayVpcAttachment" => self.detach("TransitGatewayVpcAttachment", ask),
            "CreateTransitGatewayPeeringAttachment" => self.attach_peer(ask),
            "AcceptTransitGatewayPeeringAttachment" => self.accept_peer(ask),
            "DescribeTransitGatewayPeeringAttachments" => {
                self.attachments("peering", "TransitGatewayPeeringAttachments", ask)
            }
            "DeleteTransitGatewayPeeringAttachment" => self.detach("TransitGatewayPeeringAttachment", ask),
            "CreateTransitGatewayRoute" => self.create_transit_route(ask),
            "DeleteTransitGatewayRoute" => self.delete_transit_route(ask),
            "SearchTransitGatewayRoutes" => self.search_routes(ask),
            _ => return None,
        })
    }

    fn create_transit(&mut self, ask: &Action<'_>) -> Outcome {
        let asn = ask.input["Options"]["AmazonSideAsn"].as_u64().unwrap_or(64_512);
        if !(64_512..=65_534).contains(&asn) && !(4_200_000_000..=4_294_967_294).contains(&asn) {
            bail!("InvalidParameterValue", "{asn} is no private ASN");
        }
        if self.all("tgw").count() >= 15 {
            bail!("TransitGatewayLimitExceeded", "The maximum has been reached.");
        }
        let (id, table) = (self.new_id("tgw"), self.new_id("tgw-rtb"));
        let options = json!({"AmazonSideAsn": asn, "AssociationDefaultRouteTableId": table, "PropagationDefaultRouteTableId": table,
            "DefaultRouteTableAssociation": "enable", "DefaultRouteTablePropagation": "enable", "VpnEcmpSupport": "enable", "DnsSupport": "enable", "AutoAcceptSharedAttachments": "disable"});
        let object = json!({"TransitGatewayId": id, "State": "pending", "OwnerId": ACCOUNT, "Options": options, "_routes": []});
        let object = self.put(&id, "transit-gateway", object, ask);
        self.later(&id, "available", ask.now + 120);
        Ok(json!({"TransitGateway": object}))
    }

    fn ready_transit(&self, id: &str, ask: &Action<'_>) -> Result<Value, Refusal> {
        let transit = self.get(id, ask, MISSING)?;
        if transit["State"] != "available" {
            bail!("IncorrectState", "{id} is in invalid state");
        }
        Ok(transit.clone())
    }

    fn delete_transit(&mut self, ask: &Action<'_>) -> Outcome {
        let id = ask.text("TransitGatewayId").to_owned();
        self.ready_transit(&id, ask)?;
        let uses = |one: &Value| {
            one["TransitGatewayId"] == id.as_str()
                || one["AccepterTgwInfo"]["TransitGatewayId"] == id.as_str()
                || one["RequesterTgwInfo"]["TransitGatewayId"] == id.as_str()
        };
        let user = ["tgw-attach", "vpn"].iter().flat_map(|kind| self.all(kind)).find(|(_, one)| uses(one));
        if let Some((user, _)) = user {
            bail!("IncorrectState", "{id} has non-deleted attachments: {user}");
        }
        let object = self.get_mut(&id, ask, MISSING)?;
        object["State"] = "deleting".into();
        let shown = object.clone();
        self.later(&id, "deleted", ask.now + 60);
        Ok(json!({"TransitGateway": shown}))
    }

    fn attach_vpc(&mut self, ask: &Action<'_>) -> Outcome {
        let (transit, vpc) = (ask.text("TransitGatewayId").to_owned(), ask.text("VpcId").to_owned());
        self.ready_transit(&transit, ask)?;
        self.get(&vpc, ask, "InvalidVpcID.NotFound")?;
        for subnet in texts(&ask.input["SubnetIds"]) {
            self.get(subnet, ask, "InvalidSubnetID.NotFound")?;
        }
        if self
            .all("tgw-attach")
            .any(|(_, one)| one["TransitGatewayId"] == transit.as_str() && one["VpcId"] == vpc.as_str())
        {
            bail!("DuplicateTransitGatewayAttachment", "{transit} already has an attachment for {vpc}");
        }
        let id = self.new_id("tgw-attach");
        let object = json!({"TransitGatewayAttachmentId": id, "TransitGatewayId": transit, "VpcId": vpc, "SubnetIds": ask.input["SubnetIds"], "State": "pending", "VpcOwnerId": ACCOUNT, "_type": "vpc"});
        let object = self.put(&id, "transit-gateway-attachment", object, ask);
        self.later(&id, "available", ask.now + 60);
        Ok(json!({"TransitGatewayVpcAttachment": object}))
    }

    /// Adds and removes subnets, of which there is at most one per zone.
    fn change_attachment(&mut self, ask: &Action<'_>) -> Outcome {
        let id = ask.text("TransitGatewayAttachmentId").to_owned();
        let attachment = self.get(&id, ask, NO_ATTACHMENT)?;
        if attachment["State"] != "available" {
            bail!("IncorrectState", "{id} is in invalid state");
        }
        let vpc = attachment["VpcId"].clone();
        let strings = |value: &Value| -> Vec<String> {
            let each = value.as_array().into_iter().flatten();
            each.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let mut subnets = strings(&attachment["SubnetIds"]);
        let removed = strings(&ask.input["RemoveSubnetIds"]);
        subnets.retain(|subnet| !removed.contains(subnet));
        for subnet in strings(&ask.input["AddSubnetIds"]) {
            let new = self.get(&subnet, ask, "InvalidSubnetID.NotFound")?;
            if new["VpcId"] != vpc {
                bail!("InvalidParameterValue", "{subnet} is not in {vpc}");
            }
            let zone = &new["AvailabilityZone"];
            if subnets.iter().any(|other| self.objects[other]["AvailabilityZone"] == *zone) {
                bail!("DuplicateSubnetsInSameZone", "{id} is in the zone {zone} already");
            }
            subnets.push(subnet);
        }
        if subnets.is_empty() {
            bail!("InvalidParameterValue", "An attachment needs a subnet.");
        }
        let object = self.get_mut(&id, ask, NO_ATTACHMENT)?;
        (object["SubnetIds"], object["State"]) = (subnets.into(), "modifying".into());
        let shown = object.clone();
        self.later(&id, "available", ask.now + 20);
        Ok(json!({"TransitGatewayVpcAttachment": shown}))
    }

    fn attachments(&self, kind: &str, list: &str, ask: &Action<'_>) -> Outcome {
        let mut found =
            self.describe("tgw-attach", "TransitGatewayAttachmentIds", list, NO_ATTACHMENT, ask)?;
        if let Some(each) = found[list].as_array_mut() {
            each.retain(|one| one["_type"] == kind);
        }
        Ok(found)
    }

    fn detach(&mut self, kind: &str, ask: &Action<'_>) -> Outcome {
        let id = ask.text("TransitGatewayAttachmentId").to_owned();
        let found = self.objects.get_mut(&id).filter(|one| one["State"] != "deleted");
        let object = found.ok_or_else(|| refuse(NO_ATTACHMENT, format!("The ID '{id}' does not exist")))?;
        if object["State"] == "pending" {
            bail!("IncorrectState", "{id} is in invalid state");
        }
        object["State"] = "deleting".into();
        let shown = object.clone();
        self.later(&id, "deleted", ask.now + 30);
        Ok(json!({ kind: shown }))
    }

    fn attach_peer(&mut self, ask: &Action<'_>) -> Outcome {
        let own = ask.text("TransitGatewayId").to_owned();
        self.ready_transit(&own, ask)?;
        let there = Action { region: ask.text("PeerRegion"), now: ask.now, input: json!({}) };
        let peer = ask.text("PeerTransitGatewayId").to_owned();
        self.ready_transit(&peer, &there)?;
        let id = self.new_id("tgw-attach");
        let info = |transit: &str, region: &str| json!({"TransitGatewayId": transit, "OwnerId": ACCOUNT, "Region": region});
        let object = json!({"TransitGatewayAttachmentId": id, "RequesterTgwInfo": info(&own, ask.region), "AccepterTgwInfo": info(&peer, there.region), "State": "pendingAcceptance", "_type": "peering"});
        let object = self.put(&id, "transit-gateway-attachment", object, ask);
        Ok(json!({"TransitGatewayPeeringAttachment": object}))
    }

    fn accept_peer(&mut self, ask: &Action<'_>) -> Outcome {
        let id = ask.text("TransitGatewayAttachmentId").to_owned();
        let found = self.objects.get_mut(&id).filter(|one| one["AccepterTgwInfo"]["Region"] == ask.region);
        let object = found.ok_or_else(|| refuse(NO_ATTACHMENT, format!("The ID '{id}' does not exist")))?;
        if object["State"] != "pendingAcceptance" {
            bail!("IncorrectState", "{id} is in invalid state");
        }
        object["State"] = "pending".into();
        let shown = object.clone();
        self.later(&id, "available", ask.now + 60);
        Ok(json!({"TransitGatewayPeeringAttachment": shown}))
    }

    fn table_owner(&mut self, ask: &Action<'_>) -> Result<&mut Value, Refusal> {
        let table = ask.text("TransitGatewayRouteTableId");
        let found = self.objects.find_mut(|one| {
            one["Options"]["AssociationDefaultRouteTableId"] == table && one["_region"] == ask.region
        });
        found.ok_or_else(|| refuse("InvalidRouteTableID.NotFound", format!("{table} does not exist")))
    }

    fn create_transit_route(&mut self, ask: &Action<'_>) -> Outcome {
        let attachment = ask.text("TransitGatewayAttachmentId").to_owned();
        let ready = self.objects.get(&attachment).is_some_and(|one| one["State"] == "available");
        if !ready {
            bail!("IncorrectState", "{attachment} is in invalid state");
        }
        let net = ask.text("DestinationCidrBlock").to_owned();
        let owner = self.table_owner(ask)?;
        let routes = owner["_routes"].as_array_mut().ok_or_else(|| refuse("InternalError", "routes"))?;
        if routes.iter().any(|route| route["net"] == net.as_str()) {
            bail!("RouteAlreadyExists", "The route identified by {net} already exists.");
        }
        routes.push(json!({"net": net, "attachment": attachment}));
        Ok(json!({"Route": {"DestinationCidrBlock": net, "Type": "static", "State": "active"}}))
    }

    fn delete_transit_route(&mut self, ask: &Action<'_>) -> Outcome {
        let net = ask.text("DestinationCidrBlock").to_owned();
        let owner = self.table_owner(ask)?;
        let routes = owner["_routes"].as_array_mut().ok_or_else(|| refuse("InternalError", "routes"))?;
        let before = routes.len();
        routes.retain(|route| route["net"] != net.as_str());
        if routes.len() == before {
            bail!("InvalidRoute.NotFound", "{net} is no route");
        }
        Ok(json!({"Route": {"DestinationCidrBlock": net, "Type": "static", "State": "deleted"}}))
    }

    fn search_routes(&mut self, ask: &Action<'_>) -> Outcome {
        let owner = self.table_owner(ask)?;
        let transit = owner["TransitGatewayId"].clone();
        let routes = items(&owner["_routes"]);
        let show = |net: &Value, kind: &str, attachment: Value| json!({"DestinationCidrBlock": net, "Type": kind, "State": "active", "TransitGatewayAttachments": [attachment]});
        let fixed = routes.iter().map(|route| {
            let through =
                json!({"TransitGatewayAttachmentId": route["attachment"], "ResourceType": "peering"});
            show(&route["net"], "static", through)
        });
        let tunnels = self.all("vpn").filter(|(_, vpn)| vpn["TransitGatewayId"] == transit);
        let learnt = tunnels.flat_map(|(id, vpn)| {
            let through = json!({"TransitGatewayAttachmentId": id.replace("vpn-", "tgw-attach-"), "ResourceId": id, "ResourceType": "vpn"});
            let told = list(&vpn["_told"]);
            told.map(move |net| show(net, "propagated", through.clone()))
        });
        let found = fixed.chain(learnt).filter(|route| passes(route, &ask.input["Filters"]));
        Ok(json!({"Routes": found.collect::<Vec<_>>(), "AdditionalRoutesAvailable": false}))
    }
}
