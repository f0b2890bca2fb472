//! Resources: instances, each in a security group of its own that is closed before the instance exists.

use std::net::IpAddr;

use cloud_api::{CloudError, ResourceSpec, Result};
use cloud_http::{Pace, Progress, wait};
use model::{ResourceState, Segment, Site};

use crate::{
    account::{Account, Place},
    attach,
    description::Description,
    groups,
    lists::Uri,
    marks::{Filter, mark},
    networks::{self, Network},
    shapes::{Instance, Reservation, SecurityGroup, actions as ask},
    subnets,
};

/// States in which an instance counts as there.
const THERE: [&str; 4] = ["pending", "running", "stopping", "stopped"];

async fn list(place: Place<'_>, mut filters: Vec<Filter>) -> Result<Vec<Instance>> {
    filters.push(Filter::new("instance-state-name", THERE));
    let found = place.list::<Reservation>(&filters).await?;
    Ok(found.into_iter().flat_map(|reservation| reservation.instances_set).collect())
}

/// The instances of a site in a region.
pub(crate) async fn instances(place: Place<'_>, more: &[(&str, &str)]) -> Result<Vec<Instance>> {
    list(place, place.marks().filters(more)).await
}

/// Instances of whomever, by their ids. Not known is no error: it may have been made a moment ago.
pub(crate) async fn by_id(place: Place<'_>, ids: &[&str]) -> Result<Vec<Instance>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    list(place, vec![Filter::new("instance-id", ids.iter().copied())]).await
}

/// An instance as the contract knows it. Its id is region, instance, group and name.
pub(crate) fn state_of(instance: &Instance, region: &str) -> Option<ResourceState> {
    let (group, name) = (groups::first_of(instance)?, mark(instance, "name")?);
    Some(ResourceState {
        uri: Uri { region, instance: &instance.instance_id, group, name }.to_string(),
        address: IpAddr::from(instance.private_ip_address?).into(),
        region: region.parse().ok()?,
    })
}

pub(crate) async fn make(place: Place<'_>, spec: &ResourceSpec) -> Result<ResourceState> {
    let Place { account, site, region } = place;
    let description = Description::parse(&spec.description)?;
    let name = spec.name.as_str();
    spec.check_network(&description.region)?;
    let there = instances(place, &[("name", name)]).await?;
    let id = match there.into_iter().next() {
        Some(instance) => instance.instance_id,
        None => {
            let network = networks::need(account, site, region).await?;
            let group = groups::closed(place, &network.id, name, 0, &[]).await?;
            run(place, &network, name, &group, &description).await?
        }
    };
    let what = format!("the instance {id} of {site}.{name}");
    wait(account.ec2.clock(), Pace::QUICK, &what, || async {
        // By its name: an id that was made a moment ago may not be known everywhere yet.
        let found = instances(place, &[("name", name)]).await?;
        let running = found.iter().find(|one| one.instance_state.name == "running" && one.instance_id == id);
        Ok(running.and_then(|one| state_of(one, region)).map_or(Progress::Pending, Progress::Done))
    })
    .await
}

async fn run(
    place: Place<'_>,
    network: &Network,
    name: &str,
    group: &str,
    description: &Description,
) -> Result<String> {
    let subnet = subnets::of_zone(place, network, description.zone.as_deref()).await?;
    let interface = ask::NewInterface {
        device_index: 0,
        subnet_id: &subnet,
        security_group_id: [group],
        associate_public_ip_address: false,
        delete_on_termination: true,
    };
    // The group is new for every new resource, so the token is.
    let token = groups::short(&format!("{group}/{}.{name}", place.site));
    let wanted = ask::RunInstances {
        described: &description.fields,
        min_count: 1,
        max_count: 1,
        network_interface: [interface],
        client_token: format!("trestle-{token}"),
        tag_specification: place.tags::<Reservation>(name, &[("name", name)])?,
    };
    place.touch::<Reservation>();
    let made = place.ask(&wanted).await?.instances_set.into_iter().next();
    let none = || CloudError::unavailable(format!("EC2 made no instance for {}.{name}", place.site));
    Ok(made.ok_or_else(none)?.instance_id)
}

pub(crate) async fn remove(account: &Account, site: &Site, name: &Segment) -> Result {
    account.everywhere(|region| remove_in(account.at(site, region), name.as_str())).await.map(drop)
}

async fn remove_in(place: Place<'_>, name: &str) -> Result {
    attach::let_go(place, name).await?;
    let there = instances(place, &[("name", name)]).await?;
    if !there.is_empty() {
        let instance_id = there.iter().map(|instance| instance.instance_id.as_str()).collect();
        place.ask(&ask::TerminateInstances { instance_id }).await?;
        place.touch::<Reservation>();
    }
    for group in groups::of_resource(place, name).await? {
        // Refused as in use until the instance is gone.
        place.delete::<SecurityGroup>(&group.group_id).await?;
    }
    Ok(())
}
