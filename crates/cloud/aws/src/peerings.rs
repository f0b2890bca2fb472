//! Peerings: one VPC peering connection and a route on each side.

use cloud_api::CloudError;
use cloud_http::{Class, Pace, Progress, wait};
use model::{PeeringName, Site};
use serde_json::{Value, json};

use crate::{
    adopt::place,
    api::{items, or_gone, or_there, text},
    cloud::{AwsCloud, Result},
    marks::mark,
    networks::Vpc,
};

fn code(peering: &Value) -> &str {
    text(&peering["status"], "code")
}

fn is_alive(peering: &Value) -> bool {
    matches!(code(peering), "initiating-request" | "pending-acceptance" | "provisioning" | "active")
}

impl AwsCloud {
    /// The route tables that resources in a VPC use.
    pub(crate) async fn tables(&self, site: &Site, vpc: &Vpc) -> Result<Vec<Value>> {
        match vpc.adopted {
            true => self.attached_tables(site, vpc).await,
            false => Ok(vec![self.main_table(vpc).await?]),
        }
    }

    /// The main route table of a VPC, and its routes.
    pub(crate) async fn main_table(&self, vpc: &Vpc) -> Result<Value> {
        self.recent.settle(&format!("routes/{}", vpc.id), self.ec2.clock()).await;
        let filters = json!({"Filter": [{"Name": "vpc-id", "Value": [vpc.id]}, {"Name": "association.main", "Value": ["true"]}]});
        let found = self.ec2.list(&vpc.region, "DescribeRouteTables", "routeTableSet", filters).await?;
        found
            .into_iter()
            .next()
            .ok_or_else(|| CloudError::unavailable(format!("{} has no main route table yet", vpc.id)))
    }

    /// Sends a prefix somewhere, and nowhere else.
    pub(crate) async fn route(
        &self,
        vpc: &Vpc,
        table: &Value,
        prefix: &str,
        target: (&str, &str),
    ) -> Result<()> {
        let (parameter, id) = target;
        let shown = format!("{}{}", parameter[..1].to_ascii_lowercase(), &parameter[1..]);
        let mut routes =
            items(&table["routeSet"]).filter(|route| text(route, "destinationCidrBlock") == prefix);
        let table = text(table, "routeTableId");
        match routes.next() {
            Some(route) if text(route, &shown) == id && text(route, "state") != "blackhole" => return Ok(()),
            // Its own addresses.
            Some(route) if text(route, "gatewayId") == "local" => return Ok(()),
            Some(route) if vpc.adopted && text(route, &shown) != id => {
                return Err(CloudError::conflict(format!(
                    "the route table {table} of {} sends {prefix} elsewhere already, and it is not Trestle's; take that \
                     route away or make it more specific",
                    vpc.id
                )));
            }
            Some(_) => {
                let old = json!({"RouteTableId": table, "DestinationCidrBlock": prefix});
                or_gone(self.ec2.safe(&vpc.region, "DeleteRoute", old).await)?;
            }
            None => {}
        }
        self.recent.touch(&format!("routes/{}", vpc.id), self.ec2.clock());
        let wanted = json!({"RouteTableId": table, "DestinationCidrBlock": prefix, parameter: id});
        Ok(or_there(self.ec2.fresh(&vpc.region, "CreateRoute", wanted).await)?)
    }

    /// Takes away all routes to something.
    pub(crate) async fn unroute(&self, vpc: &Vpc, field: &str, id: &str) -> Result<()> {
        let tables =
            if vpc.adopted { self.all_tables(vpc).await? } else { vec![self.main_table(vpc).await?] };
        for table in &tables {
            for route in items(&table["routeSet"]).filter(|route| text(route, field) == id) {
                let old = json!({"RouteTableId": text(table, "routeTableId"), "DestinationCidrBlock": text(route, "destinationCidrBlock")});
                or_gone(self.ec2.safe(&vpc.region, "DeleteRoute", old).await)?;
                self.recent.touch(&format!("routes/{}", vpc.id), self.ec2.clock());
            }
        }
        Ok(())
    }

    /// The connections of a peering. They are listed where they were asked for: in the region of the first end.
    async fn find_peering(&self, name: &PeeringName) -> Result<Vec<Value>> {
        let [a, _] = name.ends();
        self.settle(&a.site, "peering").await;
        let filters = json!({"Filter": self.marks(&a.site).filters(&[("peering", &name.to_string())])});
        let found = self
            .ec2
            .list(
                place(a.region.as_str()).0,
                "DescribeVpcPeeringConnections",
                "vpcPeeringConnectionSet",
                filters,
            )
            .await?;
        Ok(found.into_iter().filter(is_alive).collect())
    }

    pub(crate) async fn make_peering(&self, name: &PeeringName) -> Result<()> {
        let [a, b] = name.ends();
        let _turn = self.turns.take(&name.to_string()).await;
        let near = self.need_vpc(&a.site, a.region.as_str()).await?;
        let far = self.need_vpc(&b.site, b.region.as_str()).await?;
        let there = self.find_peering(name).await?;
        let peering = match there.into_iter().next() {
            Some(peering) => peering,
            None => {
                let tags = self.marks(&a.site).specification(
                    "vpc-peering-connection",
                    &name.to_string(),
                    &[("peering", &name.to_string())],
                )?;
                let mut wanted = json!({"VpcId": near.id, "PeerVpcId": far.id, "TagSpecification": tags});
                if near.region != far.region {
                    wanted["PeerRegion"] = far.region.as_str().into();
                }
                self.touch(&a.site, "peering");
                self.ec2.fresh(&near.region, "CreateVpcPeeringConnection", wanted).await?["vpcPeeringConnection"].clone()
            }
        };
        let id = text(&peering, "vpcPeeringConnectionId").to_owned();
        if code(&peering) != "active" {
            self.accept(&id, &far).await?;
        }
        for (site, own, other) in [(&a.site, &near, &far), (&b.site, &far, &near)] {
            for table in self.tables(site, own).await? {
                self.route(own, &table, &other.space.to_string(), ("VpcPeeringConnectionId", &id)).await?;
            }
        }
        Ok(())
    }

    /// Accepts at the other end, which may hear of it late.
    async fn accept(&self, id: &str, far: &Vpc) -> Result<()> {
        wait(self.ec2.clock(), Pace::QUICK, &format!("the peering {id}"), || async {
            match self
                .ec2
                .safe(&far.region, "AcceptVpcPeeringConnection", json!({"VpcPeeringConnectionId": id}))
                .await
            {
                Ok(answer) if code(&answer["vpcPeeringConnection"]) == "active" => Ok(Progress::Done(())),
                Ok(_) => Ok(Progress::Pending),
                Err(failure) if failure.is(Class::NotFound) || failure.is(Class::Busy) => {
                    Ok(Progress::Pending)
                }
                Err(failure) => Err(failure.into()),
            }
        })
        .await
    }

    pub(crate) async fn remove_peering(&self, name: &PeeringName) -> Result<()> {
        let [a, b] = name.ends();
        let _turn = self.turns.take(&name.to_string()).await;
        for peering in self.find_peering(name).await? {
            let id = text(&peering, "vpcPeeringConnectionId");
            for end in [a, b] {
                if let Some(vpc) = self.vpc(&end.site, end.region.as_str()).await? {
                    self.unroute(&vpc, "vpcPeeringConnectionId", id).await?;
                }
            }
            or_gone(
                self.ec2
                    .safe(
                        a.region.as_str(),
                        "DeleteVpcPeeringConnection",
                        json!({"VpcPeeringConnectionId": id}),
                    )
                    .await,
            )?;
            self.touch(&a.site, "peering");
        }
        Ok(())
    }

    /// The peerings of all sites that begin in a region.
    pub(crate) async fn all_peerings_in(&self, region: &str) -> Result<Vec<PeeringName>> {
        let filters = json!({"Filter": [self.owner_filter()]});
        let found = self
            .ec2
            .list(region, "DescribeVpcPeeringConnections", "vpcPeeringConnectionSet", filters)
            .await?;
        let alive = found.iter().filter(|peering| is_alive(peering));
        Ok(alive.filter_map(|peering| mark(peering, "peering")?.parse().ok()).collect())
    }

    pub(crate) async fn peerings_in(&self, site: &Site, region: &str) -> Result<Vec<PeeringName>> {
        self.settle(site, "peering").await;
        let filters = json!({"Filter": self.marks(site).filters(&[])});
        let found = self
            .ec2
            .list(region, "DescribeVpcPeeringConnections", "vpcPeeringConnectionSet", filters)
            .await?;
        let active = found.iter().filter(|peering| code(peering) == "active");
        Ok(active.filter_map(|peering| mark(peering, "peering")?.parse().ok()).collect())
    }
}
