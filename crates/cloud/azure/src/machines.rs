//! Virtual machines, each with one interface in a security group of its own. The group is closed before the interface
//! exists, and the interface before the machine.

use cloud_api::{CloudError, ResourceSpec};
use model::{ResourceState, Segment};

use crate::{
    description::Description,
    names::*,
    place::*,
    rules::{closed, is_same},
    types::*,
};

/// The ids of what a machine consists of.
pub struct Parts {
    pub machine: Id<Machine>,
    pub interface: Id<Interface>,
    pub group: Id<Group>,
}

impl Parts {
    pub fn of(place: &Place<'_>, name: &str) -> Self {
        Self::ending(place, &suffix(name))
    }

    /// Those of a machine by its id; none if no machine of the site could have it.
    pub fn of_uri(place: &Place<'_>, uri: &str) -> Option<Self> {
        place.suffix_of::<Machine>("vm", uri).map(|suffix| Self::ending(place, suffix))
    }

    fn ending(place: &Place<'_>, suffix: &str) -> Self {
        let named = |kind: &str| place.names.ending(kind, suffix);
        Self {
            machine: place.id(&named("vm")),
            interface: place.id(&named("nic")),
            group: place.id(&named("nsg")),
        }
    }
}

/// A machine as the contract knows it; none while it has no address.
pub fn state_of(place: &Place<'_>, machine: &Machine, interface: &Interface) -> Option<ResourceState> {
    Some(ResourceState {
        // Azure may answer with other cases of letters than it was asked with.
        uri: place.id::<Machine>(&machine.name).to_string(),
        address: interface.properties.address()?.into(),
        region: region_of(&machine.location)?,
    })
}

pub async fn make(place: &Place<'_>, spec: &ResourceSpec, description: Description) -> Result<ResourceState> {
    let parts = Parts::of(place, spec.name.as_str());
    let machine = match place.owned(&parts.machine).await? {
        Some(machine) if machine.is_made() => machine,
        there => {
            // One that is there and whose making failed may run, and has its list.
            if there.is_none() {
                make_closed(place, spec, &parts).await?;
            }
            let tags = place.names.tags(&[(NAME, spec.name.as_str())]);
            place.put(&parts.machine, &description.body(tags, &parts.interface)).await?
        }
    };
    let unreadable =
        || CloudError::unavailable(format!("the machine of {}.{} has no address yet", place.site, spec.name));
    let interface = place.get(&parts.interface).await?.ok_or_else(unreadable)?;
    state_of(place, &machine, &interface).ok_or_else(unreadable)
}

/// A security group without permits, then an interface in it.
async fn make_closed(place: &Place<'_>, spec: &ResourceSpec, parts: &Parts) -> Result {
    let (location, tags) = (spec.region.as_str(), place.names.tags(&[(NAME, spec.name.as_str())]));
    let body = Draft::new(location, tags.clone(), GroupProperties::of(closed()));
    place.ensure(&parts.group, &body, |there| is_same(&there.properties.security_rules, &closed())).await?;
    let configuration = IpConfigurationProperties {
        primary: Some(true),
        allocation: Some("Dynamic".to_owned()),
        subnet: Some(Ref { id: place.subnet(location) }),
        ..IpConfigurationProperties::default()
    };
    let properties = InterfaceProperties {
        network_security_group: Some(Ref::to(&parts.group)),
        ip_configurations: vec![Child::new("primary", configuration)],
        ..InterfaceProperties::default()
    };
    let fits = |there: &Interface| is_to(&there.properties.network_security_group, &parts.group);
    place.ensure(&parts.interface, &Draft::new(location, tags, properties), fits).await.map(drop)
}

pub async fn remove(place: &Place<'_>, name: &Segment) -> Result {
    let parts = Parts::of(place, name.as_str());
    // The machine takes its interface along, unless it never came to be.
    place.remove(&parts.machine).await?;
    place.remove(&parts.interface).await?;
    place.remove(&parts.group).await
}
