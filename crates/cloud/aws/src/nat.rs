//! NAT: a gateway in a public subnet, which has a route table and an internet gateway of its own.

use cloud_http::{Pace, Progress, wait};
use model::Site;
use serde_json::{Value, json};

use crate::{
    api::{items, or_gone, or_there, text},
    cloud::{AwsCloud, Result},
    networks::{Vpc, is_alive},
};

const EVERYWHERE: &str = "0.0.0.0/0";

impl AwsCloud {
    /// Objects of a kind that belong to the NAT of a VPC.
    async fn of_nat(&self, site: &Site, vpc: &Vpc, action: &str, list: &str) -> Result<Vec<Value>> {
        self.settle(site, "nat").await;
        let filters = json!({"Filter": self.marks(site).filters(&[("nat", &vpc.region)])});
        Ok(self.ec2.list(&vpc.region, action, list, filters).await?)
    }

    async fn make_of_nat(
        &self,
        site: &Site,
        vpc: &Vpc,
        action: &str,
        kind: &str,
        mut parameters: Value,
    ) -> Result<Value> {
        parameters["TagSpecification"] =
            self.marks(site).specification(kind, "nat", &[("nat", &vpc.region)])?;
        self.touch(site, "nat");
        Ok(self.ec2.fresh(&vpc.region, action, parameters).await?)
    }

    pub(crate) async fn make_nat(&self, site: &Site, region: &str) -> Result<()> {
        let _turn = self.turns.take(&format!("nat/{site}/{region}")).await;
        let vpc = self.need_vpc(site, region).await?;
        let there = self.of_nat(site, &vpc, "DescribeNatGateways", "natGatewaySet").await?;
        let id = match there.iter().find(|nat| is_alive(nat)) {
            Some(nat) => text(nat, "natGatewayId").to_owned(),
            None => {
                let subnet = self.public_subnet(site, &vpc).await?;
                let addresses = self.of_nat(site, &vpc, "DescribeAddresses", "addressesSet").await?;
                let address = match addresses.first() {
                    Some(address) => text(address, "allocationId").to_owned(),
                    None => {
                        let made = self.make_of_nat(
                            site,
                            &vpc,
                            "AllocateAddress",
                            "elastic-ip",
                            json!({"Domain": "vpc"}),
                        );
                        text(&made.await?, "allocationId").to_owned()
                    }
                };
                let wanted = json!({"SubnetId": subnet, "AllocationId": address, "ClientToken": format!("trestle-{address}")});
                let made = self.make_of_nat(site, &vpc, "CreateNatGateway", "natgateway", wanted).await?;
                text(&made["natGateway"], "natGatewayId").to_owned()
            }
        };
        wait(self.ec2.clock(), Pace::QUICK, &format!("the NAT gateway {id}"), || async {
            let found = self
                .ec2
                .list(
                    region,
                    "DescribeNatGateways",
                    "natGatewaySet",
                    json!({"Filter": [{"Name": "nat-gateway-id", "Value": [id]}]}),
                )
                .await?;
            Ok(match found.first().map(|nat| text(nat, "state")) {
                Some("available") => Progress::Done(()),
                Some("failed") => Progress::Failed(
                    found.first().map(|nat| text(nat, "failureMessage").to_owned()).unwrap_or_default(),
                ),
                _ => Progress::Pending,
            })
        })
        .await?;
        let table = self.main_table(&vpc).await?;
        self.route(&vpc, &table, EVERYWHERE, ("NatGatewayId", &id)).await
    }

    /// A subnet whose route table leads to an internet gateway.
    async fn public_subnet(&self, site: &Site, vpc: &Vpc) -> Result<String> {
        let gateways = self.of_nat(site, vpc, "DescribeInternetGateways", "internetGatewaySet").await?;
        let (igw, attached) = match gateways.first() {
            Some(igw) => {
                (text(igw, "internetGatewayId").to_owned(), items(&igw["attachmentSet"]).next().is_some())
            }
            None => {
                let made = self
                    .make_of_nat(site, vpc, "CreateInternetGateway", "internet-gateway", json!({}))
                    .await?;
                (text(&made["internetGateway"], "internetGatewayId").to_owned(), false)
            }
        };
        if !attached {
            let both = json!({"InternetGatewayId": igw, "VpcId": vpc.id});
            or_there(self.ec2.fresh(&vpc.region, "AttachInternetGateway", both).await)?;
        }
        let subnet = self.public_part(site, vpc).await?;
        let tables = self.of_nat(site, vpc, "DescribeRouteTables", "routeTableSet").await?;
        let table = match tables.into_iter().next() {
            Some(table) => table,
            None => {
                let made = self
                    .make_of_nat(site, vpc, "CreateRouteTable", "route-table", json!({"VpcId": vpc.id}))
                    .await?;
                made["routeTable"].clone()
            }
        };
        self.route(vpc, &table, EVERYWHERE, ("GatewayId", &igw)).await?;
        let joined = items(&table["associationSet"]).any(|one| text(one, "subnetId") == subnet);
        if !joined {
            let both = json!({"RouteTableId": text(&table, "routeTableId"), "SubnetId": subnet});
            self.ec2.fresh(&vpc.region, "AssociateRouteTable", both).await?;
        }
        Ok(subnet)
    }

    pub(crate) async fn remove_nat(&self, site: &Site, region: &str) -> Result<()> {
        let _turn = self.turns.take(&format!("nat/{site}/{region}")).await;
        for vpc in self.vpcs_in(site, region).await?.into_iter().filter(|vpc| !vpc.adopted) {
            let gateways = self.of_nat(site, &vpc, "DescribeNatGateways", "natGatewaySet").await?;
            for nat in gateways.iter().filter(|nat| text(nat, "state") != "deleted") {
                let id = text(nat, "natGatewayId");
                self.unroute(&vpc, "natGatewayId", id).await?;
                or_gone(self.ec2.safe(region, "DeleteNatGateway", json!({"NatGatewayId": id})).await)?;
                self.touch(site, "nat");
                wait(self.ec2.clock(), Pace::QUICK, &format!("the end of {id}"), || async {
                    let found = self.of_nat(site, &vpc, "DescribeNatGateways", "natGatewaySet").await?;
                    let left = found
                        .iter()
                        .any(|nat| text(nat, "natGatewayId") == id && text(nat, "state") != "deleted");
                    Ok(if left { Progress::Pending } else { Progress::Done(()) })
                })
                .await?;
            }
            for address in self.of_nat(site, &vpc, "DescribeAddresses", "addressesSet").await? {
                self.delete(
                    region,
                    "ReleaseAddress",
                    json!({"AllocationId": text(&address, "allocationId")}),
                )
                .await?;
                self.touch(site, "nat");
            }
            for table in self.of_nat(site, &vpc, "DescribeRouteTables", "routeTableSet").await? {
                for association in items(&table["associationSet"]) {
                    let id = text(association, "routeTableAssociationId");
                    or_gone(
                        self.ec2.safe(region, "DisassociateRouteTable", json!({"AssociationId": id})).await,
                    )?;
                }
                self.delete(
                    region,
                    "DeleteRouteTable",
                    json!({"RouteTableId": text(&table, "routeTableId")}),
                )
                .await?;
                self.touch(site, "nat");
            }
            if let Some(subnet) = self.find_public_subnet(site, &vpc).await? {
                self.delete(region, "DeleteSubnet", json!({"SubnetId": subnet})).await?;
                self.touch(site, "subnet");
            }
            for igw in self.of_nat(site, &vpc, "DescribeInternetGateways", "internetGatewaySet").await? {
                let id = text(&igw, "internetGatewayId");
                self.delete(
                    region,
                    "DetachInternetGateway",
                    json!({"InternetGatewayId": id, "VpcId": vpc.id}),
                )
                .await?;
                self.delete(region, "DeleteInternetGateway", json!({"InternetGatewayId": id})).await?;
                self.touch(site, "nat");
            }
        }
        Ok(())
    }
}
