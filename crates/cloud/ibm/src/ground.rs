//! A site's place in the account: what every concern of the plugin works with.

use std::sync::Arc;

use cloud_http::{Turn, Turns};
use model::Site;

use crate::names::Names;
use crate::shapes::Reference;
use crate::{Api, Collection, Listed, Place};

/// The API, for a site, with its resource group and its names.
#[derive(Clone)]
pub(crate) struct Ground {
    pub(crate) api: Arc<Api>,
    pub(crate) turns: Arc<Turns>,
    pub(crate) owner: String,
    pub(crate) site: Site,
    pub(crate) group: Option<String>,
    pub(crate) names: Names,
}

impl Ground {
    /// What a request says of the resource group; none where the account's default one will do.
    pub(crate) fn group(&self) -> Option<Reference> {
        self.group.clone().map(Reference::to)
    }

    /// The Kubernetes Service, told the resource group.
    pub(crate) fn containers(&self) -> Place<'_> {
        Place::Containers(self.group.as_deref())
    }

    /// The resource group's objects in a region.
    pub(crate) fn within<'g, K: Listed>(&'g self, region: &'g str) -> Collection<'g, K> {
        let all = self.api.in_region(region);
        match &self.group {
            Some(id) => all.with("resource_group.id", id),
            None => all,
        }
    }

    /// Changes of a site's networks, peerings and gateway take turns: they share its transit gateway.
    pub(crate) async fn turn(&self) -> Turn {
        self.turns.take(&self.site.to_string()).await
    }
}
