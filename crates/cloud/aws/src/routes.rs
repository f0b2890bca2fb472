//! Routes of a VPC: which tables its resources use, and where they lead.

use cloud_api::{CloudError, Result};
use cloud_http::{or_gone, or_there};

use crate::{
    account::{Account, Place},
    attach::attached_in,
    marks::Filter,
    networks::Network,
    shapes::{Route, RouteTable, actions as ask},
};

impl ask::Target<'_> {
    fn id(&self) -> &str {
        match self {
            Self::Internet(id) | Self::Nat(id) | Self::Transit(id) | Self::Peering(id) => id,
        }
    }

    fn is_of(&self, route: &Route) -> bool {
        let there = match self {
            Self::Internet(_) => &route.gateway_id,
            Self::Nat(_) => &route.nat_gateway_id,
            Self::Transit(_) => &route.transit_gateway_id,
            Self::Peering(_) => &route.vpc_peering_connection_id,
        };
        there.as_deref() == Some(self.id())
    }
}

/// What routes of a VPC are remembered as.
fn memory(network: &Network) -> String {
    format!("routes/{}", network.id)
}

async fn list(account: &Account, network: &Network, more: Option<Filter>) -> Result<Vec<RouteTable>> {
    account.settle(&memory(network)).await;
    let filters: Vec<Filter> = [Filter::new("vpc-id", [&network.id])].into_iter().chain(more).collect();
    Ok(account.ec2.list(&network.region, &filters).await?)
}

pub(crate) async fn main_table(account: &Account, network: &Network) -> Result<RouteTable> {
    let main = Filter::new("association.main", ["true"]);
    let none = || CloudError::unavailable(format!("{} has no main route table yet", network.id));
    list(account, network, Some(main)).await?.into_iter().next().ok_or_else(none)
}

/// The route tables that resources in a network use; of an adopted one, those of attached instances.
pub(crate) async fn tables(place: Place<'_>, network: &Network) -> Result<Vec<RouteTable>> {
    if !network.adopted {
        return Ok(vec![main_table(place.account, network).await?]);
    }
    let attached = attached_in(place, network).await?;
    let subnets: Vec<&str> = attached.iter().filter_map(|one| one.subnet()).collect();
    if subnets.is_empty() {
        return Ok(Vec::new());
    }
    let tables = list(place.account, network, None).await?;
    let used: Vec<&str> = subnets.iter().filter_map(|subnet| table_of(&tables, subnet)).collect();
    Ok(tables.iter().filter(|table| used.contains(&table.route_table_id.as_str())).cloned().collect())
}

/// The id of the route table that a subnet uses: its own, or else the main one.
pub(crate) fn table_of<'t>(tables: &'t [RouteTable], subnet: &str) -> Option<&'t str> {
    let own = tables.iter().find(|table| table.is_of(subnet));
    let table = own.or_else(|| tables.iter().find(|table| table.is_main()))?;
    Some(&table.route_table_id)
}

/// Sends a prefix somewhere, and nowhere else.
pub(crate) async fn route(
    account: &Account,
    network: &Network,
    table: &RouteTable,
    prefix: &str,
    target: ask::Target<'_>,
) -> Result {
    let id = table.route_table_id.as_str();
    let there = table.route_set.iter().find(|route| route.destination_cidr_block.as_deref() == Some(prefix));
    match there {
        Some(route) if target.is_of(route) && route.state.as_deref() != Some("blackhole") => return Ok(()),
        // Its own addresses.
        Some(route) if route.gateway_id.as_deref() == Some("local") => return Ok(()),
        Some(route) if network.adopted && !target.is_of(route) => {
            return Err(CloudError::conflict(format!(
                "the route table {id} of {} sends {prefix} elsewhere already, and it is not Trestle's; take that \
                 route away or make it more specific",
                network.id
            )));
        }
        Some(_) => {
            let old = ask::DeleteRoute { route_table_id: id, destination_cidr_block: prefix };
            or_gone(account.ec2.ask(&network.region, &old).await)?;
        }
        None => {}
    }
    account.touch(&memory(network));
    let wanted = ask::CreateRoute { route_table_id: id, destination_cidr_block: prefix, target };
    Ok(or_there(account.ec2.ask(&network.region, &wanted).await)?)
}

/// Takes away all routes to something.
pub(crate) async fn unroute(account: &Account, network: &Network, target: ask::Target<'_>) -> Result {
    let tables = match network.adopted {
        true => list(account, network, None).await?,
        false => vec![main_table(account, network).await?],
    };
    for table in &tables {
        let leads = table.route_set.iter().filter(|route| target.is_of(route));
        for prefix in leads.filter_map(|route| route.destination_cidr_block.as_deref()) {
            let old =
                ask::DeleteRoute { route_table_id: &table.route_table_id, destination_cidr_block: prefix };
            or_gone(account.ec2.ask(&network.region, &old).await)?;
            account.touch(&memory(network));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subnet_without_a_table_of_its_own_uses_the_main_one() {
        let table = |id: &str, association: &str| -> RouteTable {
            quick_xml::de::from_str(&format!(
                "<item><routeTableId>{id}</routeTableId><associationSet><item>\
                 <routeTableAssociationId>a</routeTableAssociationId>{association}</item></associationSet></item>"
            ))
            .unwrap()
        };
        let tables = [
            table("rtb-1", "<main>true</main>"),
            table("rtb-2", "<main>false</main><subnetId>subnet-2</subnetId>"),
        ];
        assert_eq!(table_of(&tables, "subnet-1"), Some("rtb-1"));
        assert_eq!(table_of(&tables, "subnet-2"), Some("rtb-2"));
    }
}
