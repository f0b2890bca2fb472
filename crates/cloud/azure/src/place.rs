//! Where a site is: its resource group, its names, and the client. What makes, finds and deletes the site's objects there.
//!
//! "Get, is it ours, does it fit, put, wait" is `cloud_http::ensure`. Azure differs in two points: an object whose making
//! failed is written again instead of deleted, and whoever deletes waits until work on the object is over, because an earlier
//! controller may have asked for it.

pub use cloud_api::Result;
use cloud_api::{CloudError, cluster_network};
use cloud_http::{Fit, Objects as _, Turn, Turns, Wanted};
use model::{Segment, Site};
use serde::Serialize;

use crate::{
    arm::{Arm, sent},
    names::*,
    options::Settings,
    types::*,
};

/// The one subnet of a network.
pub const SUBNET: &str = "default";

pub struct Place<'c> {
    pub arm: &'c Arm,
    pub settings: &'c Settings,
    turns: &'c Turns,
    pub site: Site,
    /// `/subscriptions/S/resourceGroups/G`.
    pub group: String,
    pub names: Names,
}

impl<'c> Place<'c> {
    /// A deployment is `/subscriptions/S/resourceGroups/G`.
    pub fn of(
        arm: &'c Arm,
        settings: &'c Settings,
        turns: &'c Turns,
        site: &Site,
        deployment: &str,
    ) -> Result<Self> {
        let bad = || {
            CloudError::invalid(format!(
                "the namespace {} has the deployment {deployment:?} in Azure; write it as \
                 /subscriptions/SUBSCRIPTION/resourceGroups/GROUP",
                site.namespace
            ))
        };
        let none = || {
            CloudError::invalid(format!(
                "the namespace {} names no resource group of Azure, and the plugin has none; set one with \
                 `trestle namespace`, or `subscription` and `resource_group` in the configuration",
                site.namespace
            ))
        };
        let parts: Vec<&str> = deployment.trim_matches('/').split('/').collect();
        let group = match parts.as_slice() {
            [""] => settings.group.clone().ok_or_else(none)?,
            [a, subscription, b, group]
                if a.eq_ignore_ascii_case("subscriptions") && b.eq_ignore_ascii_case("resourceGroups") =>
            {
                group_path(subscription, group).map_err(|_| bad())?
            }
            _ => return Err(bad()),
        };
        Ok(Self { arm, settings, turns, site: site.clone(), group, names: Names::new(&settings.owner, site) })
    }

    /// The place of another site.
    pub fn elsewhere(&self, site: &Site, deployment: &str) -> Result<Self> {
        Self::of(self.arm, self.settings, self.turns, site, deployment)
    }

    /// Calls that change one thing take turns.
    pub async fn turn(&self, thing: &str) -> Turn {
        self.turns.take(thing).await
    }

    /// Calls that change the site's networks, or who is joined with its gateway.
    pub async fn networks_turn(&self) -> Turn {
        self.turn(&format!("networks {}", self.site)).await
    }

    /// Calls that change the site's gateway, which may take an hour.
    pub async fn gateway_turn(&self) -> Turn {
        self.turn(&format!("gateway {}", self.site)).await
    }

    /// `/subscriptions/S`.
    pub fn subscription(&self) -> &str {
        self.group.split("/resourceGroups").next().unwrap_or_default()
    }

    pub fn id<K: Object>(&self, name: &str) -> Id<K> {
        Id::new(format!("{}/providers/{}/{name}", self.group, K::TYPE))
    }

    /// The virtual network that was made for a region or a cluster.
    pub fn vnet(&self, network: &str) -> Id<Vnet> {
        self.id(&self.names.of("net", network))
    }

    pub fn subnet(&self, network: &str) -> Id<Subnet> {
        self.vnet(network).child(SUBNET)
    }

    /// The end of the names of all objects that are for something, by the id of one of them; none if the site could not
    /// have that one.
    pub fn suffix_of<'i, K: Object>(&self, kind: &str, id: &'i str) -> Option<&'i str> {
        let start = self.id::<K>(&format!("{}-{kind}-", self.names.prefix()));
        let (given, suffix) = id.split_at_checked(start.as_str().len())?;
        (given.eq_ignore_ascii_case(start.as_str()) && !suffix.contains('/')).then_some(suffix)
    }

    pub fn owns<P>(&self, object: &Resource<P>) -> bool {
        self.names.owns(&object.tags)
    }

    /// Those that are the site's, and made.
    pub fn mine<'o, P>(&self, objects: &'o [Resource<P>]) -> impl Iterator<Item = &'o Resource<P>>
    where
        Resource<P>: Object,
    {
        objects.iter().filter(|object| self.owns(object) && object.is_made())
    }

    /// All objects of a kind in the resource group, whoever's.
    pub async fn list<K: Object>(&self) -> Result<Vec<K>> {
        Ok(self.arm.list(&self.group).await?)
    }

    pub async fn get<K: Object>(&self, id: &Id<K>) -> Result<Option<K>> {
        Ok(self.arm.get(id).await?)
    }

    /// An object that nobody works on any more; none if there is no such.
    pub async fn settled<K: Object>(&self, id: &Id<K>) -> Result<Option<K>> {
        cloud_http::settled(self.arm, id).await
    }

    /// Makes an object or replaces it, and answers with it when that is done.
    pub async fn put<K: Object>(&self, id: &Id<K>, body: &impl Serialize) -> Result<K> {
        self.arm.put(id, &sent(body)).await?;
        let gone =
            || CloudError::unavailable(format!("{id} was made and is not there; look at it in the portal"));
        self.settled(id).await?.ok_or_else(gone)
    }

    /// One that is not there is fine.
    pub async fn delete<K: Object>(&self, id: &Id<K>) -> Result {
        Ok(self.arm.delete(id).await?)
    }

    /// Makes an object unless it is there, made, and fits. One of that name that is somebody else's is left alone.
    pub async fn ensure<P>(
        &self,
        id: &Id<Resource<P>>,
        body: &Draft<P>,
        fits: impl Fn(&Resource<P>) -> bool + Sync,
    ) -> Result<Resource<P>>
    where
        Resource<P>: Object,
        P: Serialize,
    {
        let fits =
            |object: &Resource<P>| if object.is_made() && fits(object) { Fit::Yes } else { Fit::Rewrite };
        let wanted =
            Wanted { body: &sent(body), is_ours: &|object: &Resource<P>| self.owns(object), fits: &fits };
        cloud_http::ensure(self.arm, id, wanted).await
    }

    /// An object that nobody works on; refused if it is not the site's.
    pub async fn owned<P>(&self, id: &Id<Resource<P>>) -> Result<Option<Resource<P>>>
    where
        Resource<P>: Object,
    {
        match self.settled(id).await? {
            Some(there) if !self.owns(&there) => {
                Err(CloudError::conflict(format!("{id} is there and was not made for {}", self.site)))
            }
            there => Ok(there),
        }
    }

    /// Deletes an object if it is the site's, when nobody works on it any more.
    pub async fn remove<P>(&self, id: &Id<Resource<P>>) -> Result
    where
        Resource<P>: Object,
    {
        match self.settled(id).await? {
            Some(there) if self.owns(&there) => self.delete(id).await,
            _ => Ok(()),
        }
    }

    /// Writes a group with the tags that it has here, and these rules.
    pub async fn write_group(&self, group: &Group, rules: Vec<Rule>) -> Result {
        let body = Draft::new(&group.location, group.tags.clone(), GroupProperties::of(rules));
        self.put(&group.id, &body).await.map(drop)
    }

    pub fn no_network(&self, network: &Segment) -> CloudError {
        CloudError::conflict(format!("there is no network {}.{network}", self.site))
    }
}

/// `West US 2` and `westus2` are one region.
pub fn region_of(location: &str) -> Option<Segment> {
    location.replace(' ', "").to_ascii_lowercase().parse().ok()
}

/// The location of a network that was made.
pub fn location_of(network: &Segment) -> Segment {
    cluster_network(network).map_or_else(|| network.clone(), |(region, _)| region)
}

/// The network that an object of ours is, or is for: a tag says so, or it is the one of its location.
pub fn network_of<P>(object: &Resource<P>) -> Option<Segment> {
    match object.tags.get(NETWORK) {
        Some(network) => network.parse().ok(),
        None => region_of(&object.location),
    }
}
