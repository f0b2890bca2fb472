//! Address spaces for plugins that choose their networks by themselves, and what such plugins have chosen.
//!
//! A plugin is answered what no record and no cloud has, after all clouds were asked; nothing is held for it. What it then
//! uses is learnt from its own listing, and becomes the record of the network that its resource lives in.

use std::collections::{BTreeMap, BTreeSet};

use cloud_api::Listing;
use futures::future::try_join_all;
use ipnet::{IpNet, Ipv4Net};
use model::{Address, NetworkName, ResourceName, Segment, Site};
use tracing::warn;

use super::{CloudState, Orchestrator, OrchestratorError};
use crate::plan::{NetworkRecord, Phase, find_asn, overlap};

impl Orchestrator {
    /// An address space that nobody uses.
    ///
    /// A plugin of Paraglider's asks while it makes a resource. The network it makes is then the one whose record waits
    /// for it, and so its space is the answer, if it is free; without such a record any is.
    pub async fn find_unused_space(&self, namespace: Option<&Segment>) -> Result<Ipv4Net, OrchestratorError> {
        let told = self.ask_spaces().await?;
        let waiting = {
            let state = self.state.lock();
            let mut making = state.inventory.resources.values().filter(|record| {
                let is_here = namespace.is_none_or(|namespace| record.network.site.namespace == *namespace);
                record.phase == Phase::Making && is_here
            });
            match (making.next(), making.next()) {
                (Some(record), None) => {
                    state.inventory.networks.get(&record.network).map(|network| network.space)
                }
                _ => None,
            }
        };
        let is_free = |space: &Ipv4Net| !told.values().flatten().any(|used| overlap(*used, *space));
        match waiting.filter(is_free) {
            Some(space) => Ok(space),
            None => Ok(self.free_spaces(&told, &[0])?[0]),
        }
    }

    /// One space for each number of addresses, of the default size without any.
    pub async fn find_unused_spaces(&self, sizes: &[u32]) -> Result<Vec<Ipv4Net>, OrchestratorError> {
        match sizes {
            [] => Ok(vec![self.find_unused_space(None).await?]),
            sizes => self.free_spaces(&self.ask_spaces().await?, sizes),
        }
    }

    /// An AS number that no gateway has.
    pub fn find_unused_asn(&self) -> Result<u32, OrchestratorError> {
        let inventory = self.state.lock().ahead();
        if let Some(record) = inventory.unreadable.hides_an_asn() {
            return Err(record.into());
        }
        let reserved: Vec<_> =
            self.clouds.lock().values().flat_map(|(_, traits)| traits.asn_reserved.clone()).collect();
        let message = |err: crate::plan::NoAsnLeft| OrchestratorError::NoNumbers { message: err.to_string() };
        find_asn(&inventory.used_asns(), &reserved).map_err(message)
    }

    fn free_spaces(
        &self,
        told: &BTreeMap<Site, Vec<Ipv4Net>>,
        sizes: &[u32],
    ) -> Result<Vec<Ipv4Net>, OrchestratorError> {
        let inventory = self.state.lock().ahead();
        if let Some(record) = inventory.unreadable.hides_a_space() {
            return Err(record.into());
        }
        let used = inventory.used_spaces().chain(told.values().flatten().copied());
        Ok(self.options.pools.find(used, sizes)?)
    }

    /// What every cloud says it uses, in every namespace. A cloud that cannot be asked may use anything.
    async fn ask_spaces(&self) -> Result<BTreeMap<Site, Vec<Ipv4Net>>, OrchestratorError> {
        self.settled().await;
        let waits = self.cloud_views().into_iter().find(|view| view.state == CloudState::Waiting);
        if let Some(view) = waits {
            return Err(self.no_cloud(&view.name));
        }
        let sites = self.sites(&self.cloud_names()).await?;
        let asked = sites.into_iter().map(|site| async move {
            let spaces = self.spaces_at(&site).await?;
            Ok::<_, OrchestratorError>((site, spaces))
        });
        let told: BTreeMap<_, _> = try_join_all(asked).await?.into_iter().collect();
        self.remember_spaces(&told);
        Ok(told)
    }

    /// Asks a cloud that finds networks by itself which it has: nothing else is to be put there.
    pub(super) async fn learn_spaces(&self, cloud: &Segment) {
        if !self.traits(cloud).is_some_and(|traits| traits.places_resources) {
            return;
        }
        let told = async {
            let sites = self.sites(std::slice::from_ref(cloud)).await?;
            let asked = sites.into_iter().map(|site| async move {
                let spaces = self.spaces_at(&site).await?;
                Ok::<_, OrchestratorError>((site, spaces))
            });
            try_join_all(asked).await
        };
        match told.await {
            Ok(told) => self.remember_spaces(&told.into_iter().collect()),
            Err(err) => {
                warn!(%cloud, error = common::chain(&err), "a cloud does not say which spaces it uses")
            }
        }
    }

    async fn sites(&self, clouds: &[Segment]) -> Result<BTreeSet<Site>, OrchestratorError> {
        let known = self.deployments.namespaces().await;
        let known = known.map_err(|err| OrchestratorError::Namespaces { message: common::chain(&err) })?;
        let site = |namespace: &Segment, cloud: &Segment| Site {
            namespace: namespace.clone(),
            cloud: cloud.clone(),
        };
        Ok(known
            .iter()
            .flat_map(|namespace| clouds.iter().map(move |cloud| site(namespace, cloud)))
            .collect())
    }

    async fn spaces_at(&self, site: &Site) -> Result<Vec<Ipv4Net>, OrchestratorError> {
        let (cloud, at) = (self.cloud(&site.cloud)?, self.at(site).await?);
        let listing: Listing = self.call(&site.cloud, "list", cloud.list(&at)).await?;
        Ok(listing.networks.into_iter().map(|(_, space)| space).collect())
    }

    /// What plugins say that choose for themselves is kept for the next plan; all else is on record here.
    fn remember_spaces(&self, told: &BTreeMap<Site, Vec<Ipv4Net>>) {
        let chooses = |site: &Site| self.traits(&site.cloud).is_some_and(|traits| traits.places_resources);
        let told: Vec<_> = told.iter().filter(|(site, _)| chooses(site)).collect();
        self.told_spaces.lock().extend(told.into_iter().map(|(site, spaces)| (site.clone(), spaces.clone())));
    }

    /// The network that a resource has been found a place in, if it is not the one that is on record, and what that is.
    pub(super) async fn found_home(
        &self,
        name: &ResourceName,
        network: &NetworkName,
        address: Address,
    ) -> Result<Option<(NetworkName, NetworkRecord)>, OrchestratorError> {
        let has = |space: &Ipv4Net| IpNet::from(*space).contains(&address.net());
        let (recorded, others) = {
            let state = self.state.lock();
            let mut residents = state.inventory.resources.iter();
            let others = residents.any(|(other, record)| other != name && record.network == *network);
            (state.inventory.networks.get(network).cloned(), others)
        };
        if recorded.is_some_and(|record| has(&record.space)) {
            return Ok(None);
        }
        let spaces = self.spaces_at(&network.site).await?;
        self.remember_spaces(&[(network.site.clone(), spaces.clone())].into());
        let Some(space) = spaces.into_iter().find(has) else { return Ok(None) };
        let region = match others {
            false => network.region.clone(),
            // Others live in the network of that name: this one is named after its space.
            true => {
                let text = format!("net-{}", space.to_string().replace(['.', '/'], "-"));
                text.parse().expect("digits and hyphens are a legal segment")
            }
        };
        let home = NetworkName { site: network.site.clone(), region };
        Ok(Some((home, NetworkRecord::made(Phase::Ready, space))))
    }

    /// The spaces in use by site; those of one namespace, or of all. Refused if nobody knows all of them.
    pub fn used_spaces(
        &self,
        namespace: Option<&Segment>,
    ) -> Result<BTreeMap<Site, Vec<Ipv4Net>>, OrchestratorError> {
        let mut spaces: BTreeMap<Site, BTreeSet<Ipv4Net>> = BTreeMap::new();
        {
            let state = self.state.lock();
            if let Some(record) = state.inventory.unreadable.hides_a_space() {
                return Err(record.into());
            }
            for (name, record) in &state.inventory.networks {
                spaces.entry(name.site.clone()).or_default().extend(record.blocks());
            }
        }
        for (site, told) in self.told_spaces.lock().iter().filter(|(_, told)| !told.is_empty()) {
            spaces.entry(site.clone()).or_default().extend(told);
        }
        spaces.retain(|site, _| namespace.is_none_or(|namespace| *namespace == site.namespace));
        Ok(spaces.into_iter().map(|(site, spaces)| (site, spaces.into_iter().collect())).collect())
    }
}
