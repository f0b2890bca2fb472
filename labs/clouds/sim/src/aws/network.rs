//! VPCs, subnets, route tables, internet and NAT gateways, addresses, peerings.

use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::{
    Action, Outcome, Refusal, refuse,
    state::{ACCOUNT, Ec2},
};
use crate::rest::{list, text};

fn cidr(text: &str, shortest: u8, longest: u8, code: &'static str) -> Result<Ipv4Net, Refusal> {
    let net: Ipv4Net = text.parse().map_err(|_| {
        refuse("InvalidParameterValue", format!("Value ({text}) for parameter cidrBlock is invalid."))
    })?;
    if !(shortest..=longest).contains(&net.prefix_len()) {
        bail!(code, "The CIDR '{text}' is invalid.");
    }
    Ok(net.trunc())
}

impl Ec2 {
    pub(super) fn network(&mut self, action: &str, ask: &Action<'_>) -> Option<Outcome> {
        Some(match action {
            "CreateVpc" => self.create_vpc(ask),
            "DescribeVpcs" => self.describe("vpc", "VpcIds", "Vpcs", "InvalidVpcID.NotFound", ask),
            "DeleteVpc" => self.delete_vpc(ask),
            "CreateSubnet" => self.create_subnet(ask),
            "DescribeSubnets" => {
                self.describe("subnet", "SubnetIds", "Subnets", "InvalidSubnetID.NotFound", ask)
            }
            "DeleteSubnet" => self.delete_subnet(ask),
            "CreateRouteTable" => self.create_route_table(ask),
            "DescribeRouteTables" => {
                self.describe("rtb", "RouteTableIds", "RouteTables", "InvalidRouteTableID.NotFound", ask)
            }
            "DeleteRouteTable" => self.delete_route_table(ask),
            "AssociateRouteTable" => self.associate(ask),
            "DisassociateRouteTable" => self.disassociate(ask),
            "CreateRoute" => self.create_route(ask),
            "DeleteRoute" => self.delete_route(ask),
            "CreateInternetGateway" => {
                let id = self.new_id("igw");
                let object = json!({"InternetGatewayId": id, "OwnerId": ACCOUNT, "Attachments": []});
                Ok(json!({"InternetGateway": self.put(&id, "internet-gateway", object, ask)}))
            }
            "DescribeInternetGateways" => self.describe(
                "igw",
                "InternetGatewayIds",
                "InternetGateways",
                "InvalidInternetGatewayID.NotFound",
                ask,
            ),
            "AttachInternetGateway" | "DetachInternetGateway" => {
                self.attach_igw(action.starts_with("Attach"), ask)
            }
            "DeleteInternetGateway" => self.delete_igw(ask),
            "AllocateAddress" => {
                let (id, address) = (self.new_id("eipalloc"), self.public_address());
                let object = json!({"AllocationId": id, "PublicIp": address, "Domain": "vpc"});
                let object = self.put(&id, "elastic-ip", object, ask);
                Ok(
                    json!({"AllocationId": object["AllocationId"], "PublicIp": object["PublicIp"], "Domain": "vpc"}),
                )
            }
            "DescribeAddresses" => {
                self.describe("eipalloc", "AllocationIds", "Addresses", "InvalidAllocationID.NotFound", ask)
            }
            "ReleaseAddress" => self.release(ask),
            "CreateNatGateway" => self.create_nat(ask),
            "DescribeNatGateways" => {
                let mut by_filter = Action { region: ask.region, now: ask.now, input: ask.input.clone() };
                by_filter.input["Filters"] = ask.input["Filter"].clone();
                self.describe("nat", "NatGatewayIds", "NatGateways", "NatGatewayNotFound", &by_filter)
            }
            "DeleteNatGateway" => {
                let id = ask.text("NatGatewayId").to_owned();
                let nat = match self.get_mut(&id, ask, "NatGatewayNotFound") {
                    Ok(nat) => nat,
                    Err(refusal) => return Some(Err(refusal)),
                };
                nat["State"] = "deleting".into();
                self.later(&id, "deleted", ask.now + 60);
                Ok(json!({"NatGatewayId": id}))
            }
            "CreateVpcPeeringConnection" => self.create_peering(ask),
            "AcceptVpcPeeringConnection" => self.accept_peering(ask),
            "DescribeVpcPeeringConnections" => self.describe(
                "pcx",
                "VpcPeeringConnectionIds",
                "VpcPeeringConnections",
                "InvalidVpcPeeringConnectionID.NotFound",
                ask,
            ),
            "DeleteVpcPeeringConnection" => self.delete_peering(ask),
            _ => return None,
        })
    }

    fn create_vpc(&mut self, ask: &Action<'_>) -> Outcome {
        let net = cidr(ask.text("CidrBlock"), 16, 28, "InvalidVpc.Range")?;
        let in_region = self.all("vpc").filter(|(_, vpc)| vpc["_region"] == ask.region).count();
        if in_region >= 50 {
            bail!("VpcLimitExceeded", "The maximum number of VPCs has been reached.");
        }
        let id = self.new_id("vpc");
        let association = json!({"AssociationId": format!("vpc-cidr-assoc-{}", &id[4..]), "CidrBlock": net.to_string(), "CidrBlockState": {"State": "associated"}});
        let vpc = json!({"VpcId": id, "CidrBlock": net.to_string(), "State": "available", "IsDefault": false, "OwnerId": ACCOUNT, "InstanceTenancy": "default", "DhcpOptionsId": "dopt-default", "CidrBlockAssociationSet": [association]});
        let vpc = self.put(&id, "vpc", vpc, ask);
        let plain = Action { region: ask.region, now: ask.now, input: json!({}) };
        let table = self.new_id("rtb");
        let main = json!({"RouteTableId": table, "VpcId": id, "OwnerId": ACCOUNT, "_default": true,
            "Associations": [{"Main": true, "RouteTableId": table, "RouteTableAssociationId": format!("rtbassoc-{}", &table[4..])}],
            "Routes": [{"DestinationCidrBlock": net.to_string(), "GatewayId": "local", "State": "active", "Origin": "CreateRouteTable"}], "PropagatingVgws": []});
        self.put(&table, "route-table", main, &plain);
        let group = self.new_id("sg");
        let default = json!({"GroupId": group, "GroupName": "default", "Description": "default VPC security group", "VpcId": id, "OwnerId": ACCOUNT, "_default": true, "_rules": [], "IpPermissions": [], "IpPermissionsEgress": []});
        self.put(&group, "security-group", default, &plain);
        Ok(json!({"Vpc": vpc}))
    }

    fn delete_vpc(&mut self, ask: &Action<'_>) -> Outcome {
        let id = ask.text("VpcId").to_owned();
        self.get(&id, ask, "InvalidVpcID.NotFound")?;
        let attached = |object: &Value| list(&object["Attachments"]).any(|one| one["VpcId"] == id.as_str());
        let dependent = self.objects.iter().find(|(other, object)| {
            **other != id
                && object["_default"] != true
                && !matches!(object["State"].as_str(), Some("deleted"))
                && !other.starts_with("i-")
                && (object["VpcId"] == id.as_str() || attached(object))
        });
        if let Some((dependent, _)) = dependent {
            bail!(
                "DependencyViolation",
                "The vpc '{id}' has dependencies ({dependent}) and cannot be deleted."
            );
        }
        self.objects.retain(|other, object| *other != id && object["VpcId"] != id.as_str());
        Ok(json!({}))
    }

    fn create_subnet(&mut self, ask: &Action<'_>) -> Outcome {
        let vpc = ask.text("VpcId").to_owned();
        let space: Ipv4Net = text(&self.get(&vpc, ask, "InvalidVpcID.NotFound")?["CidrBlock"])
            .parse()
            .map_err(|_| refuse("InternalError", "vpc"))?;
        let net = cidr(ask.text("CidrBlock"), 16, 28, "InvalidSubnet.Range")?;
        if !space.contains(&net) {
            bail!("InvalidSubnet.Range", "The CIDR '{net}' is invalid.");
        }
        let overlaps = |other: &Value| {
            text(&other["CidrBlock"])
                .parse::<Ipv4Net>()
                .is_ok_and(|other| other.contains(&net) || net.contains(&other))
        };
        if self.all("subnet").any(|(_, other)| other["VpcId"] == vpc.as_str() && overlaps(other)) {
            bail!("InvalidSubnet.Conflict", "The CIDR '{net}' conflicts with another subnet");
        }
        let zone = match ask.text("AvailabilityZone") {
            "" => format!("{}a", ask.region),
            zone => zone.to_owned(),
        };
        let id = self.new_id("subnet");
        let object = json!({"SubnetId": id, "VpcId": vpc, "CidrBlock": net.to_string(), "AvailabilityZone": zone, "State": "available", "OwnerId": ACCOUNT, "MapPublicIpOnLaunch": false, "DefaultForAz": false, "AvailableIpAddressCount": (1_u64 << (32 - net.prefix_len())) - 5, "_used": 4});
        Ok(json!({"Subnet": self.put(&id, "subnet", object, ask)}))
    }

    fn delete_subnet(&mut self, ask: &Action<'_>) -> Outcome {
        let id = ask.text("SubnetId").to_owned();
        self.get(&id, ask, "InvalidSubnetID.NotFound")?;
        let lists =
            |object: &Value| object["SubnetIds"].as_array().is_some_and(|ids| ids.contains(&json!(id)));
        let kinds = ["i", "nat", "tgw-attach"];
        let user = kinds
            .iter()
            .flat_map(|kind| self.all(kind))
            .find(|(_, object)| object["SubnetId"] == id.as_str() || lists(object));
        if let Some((user, _)) = user {
            bail!(
                "DependencyViolation",
                "The subnet '{id}' has dependencies ({user}) and cannot be deleted."
            );
        }
        self.objects.remove(&id);
        let forget = |table: &mut Value| {
            if let Some(associations) = table["Associations"].as_array_mut() {
                associations.retain(|one| one["SubnetId"] != id.as_str());
            }
        };
        self.objects.change(|table, _| table.starts_with("rtb-"), forget);
        Ok(json!({}))
    }

    fn create_route_table(&mut self, ask: &Action<'_>) -> Outcome {
        let vpc = self.get(ask.text("VpcId"), ask, "InvalidVpcID.NotFound")?.clone();
        let id = self.new_id("rtb");
        let local = json!({"DestinationCidrBlock": vpc["CidrBlock"], "GatewayId": "local", "State": "active", "Origin": "CreateRouteTable"});
        let object = json!({"RouteTableId": id, "VpcId": vpc["VpcId"], "OwnerId": ACCOUNT, "Associations": [], "Routes": [local], "PropagatingVgws": []});
        Ok(json!({"RouteTable": self.put(&id, "route-table", object, ask)}))
    }

    fn delete_route_table(&mut self, ask: &Action<'_>) -> Outcome {
        let id = ask.text("RouteTableId").to_owned();
        let table = self.get(&id, ask, "InvalidRouteTableID.NotFound")?;
        if table["Associations"].as_array().is_some_and(|list| !list.is_empty()) {
            bail!("DependencyViolation", "The routeTable '{id}' has dependencies and cannot be deleted.");
        }
        self.objects.remove(&id);
        Ok(json!({}))
    }

    fn associate(&mut self, ask: &Action<'_>) -> Outcome {
        let subnet = ask.text("SubnetId").to_owned();
        self.get(&subnet, ask, "InvalidSubnetID.NotFound")?;
        let id = self.new_id("rtbassoc");
        let table = self.get_mut(ask.text("RouteTableId"), ask, "InvalidRouteTableID.NotFound")?;
        let association = json!({"Main": false, "RouteTableAssociationId": id, "RouteTableId": table["RouteTableId"], "SubnetId": subnet});
        if let Some(list) = table["Associations"].as_array_mut() {
            list.push(association);
        }
        Ok(json!({"AssociationId": id}))
    }

    fn disassociate(&mut self, ask: &Action<'_>) -> Outcome {
        let id = ask.text("AssociationId");
        let forget = |table: &mut Value| {
            if let Some(list) = table["Associations"].as_array_mut() {
                list.retain(|one| one["RouteTableAssociationId"] != id);
            }
        };
        self.objects.change(|table, _| table.starts_with("rtb-"), forget);
        Ok(json!({}))
    }

    fn create_route(&mut self, ask: &Action<'_>) -> Outcome {
        let net = cidr(ask.text("DestinationCidrBlock"), 0, 32, "InvalidParameterValue")?.to_string();
        let targets = ["GatewayId", "NatGatewayId", "TransitGatewayId", "VpcPeeringConnectionId"];
        let given: Vec<_> = targets.into_iter().filter(|name| !ask.text(name).is_empty()).collect();
        let [target] = given.as_slice() else {
            bail!("InvalidParameterCombination", "Exactly one target is needed.");
        };
        let id = ask.text(target).to_owned();
        let missing = match *target {
            "TransitGatewayId" => "InvalidTransitGatewayID.NotFound",
            "NatGatewayId" => "InvalidNatGatewayID.NotFound",
            "VpcPeeringConnectionId" => "InvalidVpcPeeringConnectionID.NotFound",
            _ => "InvalidGatewayID.NotFound",
        };
        // A peering is one object in two regions.
        if *target == "VpcPeeringConnectionId" {
            self.objects
                .get(&id)
                .filter(|pcx| pcx["Status"]["Code"] == "active")
                .ok_or_else(|| refuse(missing, format!("The ID '{id}' does not exist")))?;
        } else {
            self.get(&id, ask, missing)?;
        }
        let vpc = text(&self.get(ask.text("RouteTableId"), ask, "InvalidRouteTableID.NotFound")?["VpcId"])
            .to_owned();
        if *target == "TransitGatewayId" {
            let attached = self.all("tgw-attach").any(|(_, one)| {
                one["VpcId"] == vpc.as_str()
                    && one["TransitGatewayId"] == id.as_str()
                    && one["State"] == "available"
            });
            if !attached {
                bail!(missing, "The transit gateway '{id}' is not attached to {vpc}");
            }
        }
        let table = self.get_mut(ask.text("RouteTableId"), ask, "InvalidRouteTableID.NotFound")?;
        let routes = table["Routes"].as_array_mut().ok_or_else(|| refuse("InternalError", "routes"))?;
        if routes.iter().any(|route| route["DestinationCidrBlock"] == net.as_str()) {
            bail!("RouteAlreadyExists", "The route identified by {net} already exists.");
        }
        if routes.len() >= 50 {
            bail!("RouteLimitExceeded", "The maximum number of routes has been reached.");
        }
        routes.push(
            json!({"DestinationCidrBlock": net, *target: id, "State": "active", "Origin": "CreateRoute"}),
        );
        Ok(json!({"Return": true}))
    }

    fn delete_route(&mut self, ask: &Action<'_>) -> Outcome {
        let net = ask.text("DestinationCidrBlock");
        let table = self.get_mut(ask.text("RouteTableId"), ask, "InvalidRouteTableID.NotFound")?;
        let routes = table["Routes"].as_array_mut().ok_or_else(|| refuse("InternalError", "routes"))?;
        let before = routes.len();
        routes.retain(|route| route["DestinationCidrBlock"] != net || route["GatewayId"] == "local");
        if routes.len() == before {
            bail!("InvalidRoute.NotFound", "no route with destination-cidr-block {net}");
        }
        Ok(json!({}))
    }

    fn attach_igw(&mut self, attach: bool, ask: &Action<'_>) -> Outcome {
        let vpc = ask.text("VpcId").to_owned();
        self.get(&vpc, ask, "InvalidVpcID.NotFound")?;
        let igw = self.get_mut(ask.text("InternetGatewayId"), ask, "InvalidInternetGatewayID.NotFound")?;
        let is_attached = igw["Attachments"].as_array().is_some_and(|list| !list.is_empty());
        match (attach, is_attached) {
            (true, true) => Err(refuse("Resource.AlreadyAssociated", "The gateway is already attached.")),
            (false, false) => Err(refuse("Gateway.NotAttached", "The gateway is not attached.")),
            (true, false) => {
                igw["Attachments"] = json!([{"VpcId": vpc, "State": "attached"}]);
                Ok(json!({}))
            }
            (false, true) => {
                let mapped = self.all("nat").any(|(_, nat)| nat["VpcId"] == vpc.as_str());
                if mapped {
                    bail!("DependencyViolation", "Network {vpc} has some mapped public address(es).");
                }
                let igw =
                    self.get_mut(ask.text("InternetGatewayId"), ask, "InvalidInternetGatewayID.NotFound")?;
                igw["Attachments"] = json!([]);
                Ok(json!({}))
            }
        }
    }

    fn delete_igw(&mut self, ask: &Action<'_>) -> Outcome {
        let id = ask.text("InternetGatewayId").to_owned();
        let igw = self.get(&id, ask, "InvalidInternetGatewayID.NotFound")?;
        if igw["Attachments"].as_array().is_some_and(|list| !list.is_empty()) {
            bail!(
                "DependencyViolation",
                "The internetGateway '{id}' has dependencies and cannot be deleted."
            );
        }
        self.objects.remove(&id);
        Ok(json!({}))
    }

    fn release(&mut self, ask: &Action<'_>) -> Outcome {
        let id = ask.text("AllocationId").to_owned();
        self.get(&id, ask, "InvalidAllocationID.NotFound")?;
        let used =
            self.all("nat").any(|(_, nat)| nat["NatGatewayAddresses"][0]["AllocationId"] == id.as_str());
        if used {
            bail!("InvalidIPAddress.InUse", "Address {id} is in use.");
        }
        self.objects.remove(&id);
        Ok(json!({}))
    }

    fn create_nat(&mut self, ask: &Action<'_>) -> Outcome {
        let subnet = self.get(ask.text("SubnetId"), ask, "InvalidSubnetID.NotFound")?.clone();
        let address = self.get(ask.text("AllocationId"), ask, "InvalidAllocationID.NotFound")?.clone();
        let token = format!("nat/{}", ask.text("ClientToken"));
        if let Some(there) = self.tokens.get(&token).filter(|_| !ask.text("ClientToken").is_empty()) {
            let nat = self.objects.get(there).cloned().unwrap_or_default();
            return Ok(json!({"NatGateway": nat}));
        }
        let id = self.new_id("nat");
        let used = json!([{"AllocationId": address["AllocationId"], "PublicIp": address["PublicIp"]}]);
        let object = json!({"NatGatewayId": id, "SubnetId": subnet["SubnetId"], "VpcId": subnet["VpcId"], "State": "pending", "ConnectivityType": "public", "NatGatewayAddresses": used});
        let object = self.put(&id, "natgateway", object, ask);
        self.later(&id, "available", ask.now + 90);
        self.tokens.insert(token, id);
        Ok(json!({"NatGateway": object}))
    }

    fn create_peering(&mut self, ask: &Action<'_>) -> Outcome {
        let own = self.get(ask.text("VpcId"), ask, "InvalidVpcID.NotFound")?.clone();
        let region = if ask.text("PeerRegion").is_empty() { ask.region } else { ask.text("PeerRegion") };
        let there = Action { region, now: ask.now, input: json!({}) };
        let peer = self.get(ask.text("PeerVpcId"), &there, "InvalidVpcID.NotFound")?.clone();
        let nets = (text(&own["CidrBlock"]).parse::<Ipv4Net>(), text(&peer["CidrBlock"]).parse::<Ipv4Net>());
        let overlap = matches!(nets, (Ok(a), Ok(b)) if a.contains(&b) || b.contains(&a));
        let id = self.new_id("pcx");
        let info = |vpc: &Value, region: &str| json!({"VpcId": vpc["VpcId"], "CidrBlock": vpc["CidrBlock"], "OwnerId": ACCOUNT, "Region": region});
        let code = if overlap { "failed" } else { "pending-acceptance" };
        let object = json!({"VpcPeeringConnectionId": id, "Status": {"Code": code, "Message": code}, "RequesterVpcInfo": info(&own, ask.region), "AccepterVpcInfo": info(&peer, region)});
        Ok(json!({"VpcPeeringConnection": self.put(&id, "vpc-peering-connection", object, ask)}))
    }

    fn accept_peering(&mut self, ask: &Action<'_>) -> Outcome {
        let id = ask.text("VpcPeeringConnectionId");
        let missing = || refuse("InvalidVpcPeeringConnectionID.NotFound", format!("{id} does not exist"));
        let object = self
            .objects
            .get_mut(id)
            .filter(|one| one["AccepterVpcInfo"]["Region"] == ask.region)
            .ok_or_else(missing)?;
        if !matches!(object["Status"]["Code"].as_str(), Some("pending-acceptance" | "active")) {
            bail!("InvalidStateTransition", "The peering cannot be accepted.");
        }
        object["Status"] = json!({"Code": "active", "Message": "Active"});
        Ok(json!({"VpcPeeringConnection": object.clone()}))
    }

    fn delete_peering(&mut self, ask: &Action<'_>) -> Outcome {
        let id = ask.text("VpcPeeringConnectionId").to_owned();
        let object = self.get_mut(&id, ask, "InvalidVpcPeeringConnectionID.NotFound")?;
        object["Status"] = json!({"Code": "deleted", "Message": "Deleted by 123456789012"});
        self.later(&id, "gone", ask.now + 3000);
        Ok(json!({"Return": true}))
    }
}
