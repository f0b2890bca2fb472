//! Peerings: networks attached to one transit gateway, and a note at the first end that remembers who asked for it.

use cloud_api::{CloudError, PeeringSpec};
use futures::future::try_join_all;
use model::PeeringName;

use crate::{
    api::text,
    cloud::{Ground, IbmCloud, Result},
    joints::Joint,
    names::Names,
    networks::noted_peerings,
};

impl IbmCloud {
    fn ends(&self, spec: &PeeringSpec) -> [Ground; 2] {
        let [a, b] = spec.name.ends();
        [self.ground(&a.site, &spec.deployments[0]), self.ground(&b.site, &spec.deployments[1])]
    }

    /// Both sites' turns, in an order that everybody keeps.
    async fn turns_of(&self, [a, b]: &[Ground; 2]) -> Vec<tokio::sync::OwnedMutexGuard<()>> {
        let mut sites = vec![&a.site, &b.site];
        sites.sort();
        sites.dedup();
        let mut held = Vec::new();
        for site in sites {
            held.push(self.turn(site).await);
        }
        held
    }

    pub(crate) async fn make_peering(&self, spec: &PeeringSpec) -> Result<()> {
        let grounds = self.ends(spec);
        let _turns = self.turns_of(&grounds).await;
        let [near, far] = spec.name.ends();
        let (vpc, _) = futures::try_join!(
            self.need_vpc(&grounds[0], near.region.as_str()),
            self.need_vpc(&grounds[1], far.region.as_str())
        )?;
        let groups = self.groups(&vpc).await?;
        if !noted_peerings(&grounds[0], &groups).contains(&spec.name) {
            let name = grounds[0].names.peering_note(&spec.name);
            self.note_down(&grounds[0], &vpc, &name, "a peering", &spec.name.to_string()).await?;
        }
        self.settle_peerings(&grounds).await
    }

    pub(crate) async fn remove_peering(&self, spec: &PeeringSpec) -> Result<()> {
        let grounds = self.ends(spec);
        let _turns = self.turns_of(&grounds).await;
        let [near, _] = spec.name.ends();
        if let Some(vpc) = self.vpc(&grounds[0], near.region.as_str()).await? {
            let name = grounds[0].names.peering_note(&spec.name);
            let groups = self.groups(&vpc).await?;
            for group in groups.iter().filter(|group| text(group, "name") == name) {
                self.forget(&vpc, group).await?;
            }
        }
        self.settle_peerings(&grounds).await
    }

    /// Brings the transit gateway of a site, or of a pair of sites, to what the notes ask for.
    async fn settle_peerings(&self, grounds: &[Ground; 2]) -> Result<()> {
        let [a, b] = grounds;
        if a.site == b.site {
            return self.settle_hub(a, None).await;
        }
        let (near, far) = futures::try_join!(self.vpcs(a), self.vpcs(b))?;
        let mut peerings: Vec<PeeringName> = Vec::new();
        for (ground, vpcs) in [(a, &near), (b, &far)] {
            let groups = try_join_all(vpcs.networks.iter().map(|vpc| self.groups(vpc))).await?;
            peerings.extend(groups.iter().flat_map(|groups| noted_peerings(ground, groups)));
        }
        let both = |name: &&PeeringName| {
            let [one, two] = name.ends();
            [&one.site, &two.site].iter().all(|site| **site == a.site || **site == b.site)
                && one.site != two.site
        };
        let mut networks = Vec::new();
        for end in peerings.iter().filter(both).flat_map(PeeringName::ends) {
            let vpcs = if end.site == a.site { &near } else { &far };
            let none = || CloudError::conflict(format!("there is no network {end}"));
            let vpc = vpcs.network(end.region.as_str()).ok_or_else(none)?;
            if !networks.iter().any(|one: &crate::vpcs::Vpc| one.id == vpc.id) {
                networks.push(vpc.clone());
            }
        }
        let names = Names::pair(&self.owner, &a.site, &b.site);
        let location = networks.first().map(|vpc| vpc.region.clone()).unwrap_or_default();
        self.join(&Joint { names: &names, location, networks, gateway: None, ground: a }).await
    }
}
