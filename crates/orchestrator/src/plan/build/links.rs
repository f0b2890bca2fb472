//! Links between sites and their gateways: numbers and addresses, what comes after what, and the way back.

use std::collections::BTreeSet;

use model::{LinkName, Site};

use super::{Builder, Object};
use crate::plan::{
    Action, Phase, ProblemKind, find_asn, find_bgp,
    paths::Path,
    unreadable::{Record, Subject},
};

impl Builder<'_> {
    pub(super) fn links(&mut self, links: &BTreeSet<LinkName>) {
        let mut asns = self.inventory.used_asns();
        let mut bgp = self.inventory.used_bgp();
        let mut links: Vec<_> = links.iter().filter(|link| self.knows_link(link)).collect();
        links.retain(|link| match self.hidden_from(link) {
            Some(record) => {
                self.tell_link(link, &(&record).into());
                false
            }
            None => true,
        });
        let sites: BTreeSet<&Site> = links.iter().flat_map(|link| link.ends()).collect();
        for site in sites {
            self.gateway(site, &mut asns);
        }
        for link in links {
            let [a, b] = link.ends();
            let spaces = [self.inventory.spaces_of(a), self.inventory.spaces_of(b)];
            let record = self.inventory.links.get(link);
            let phase = record.map(|record| match record.phase {
                Phase::Ready if self.is_static(link) && record.spaces != spaces && !self.is_held(link) => {
                    Phase::Making
                }
                phase => phase,
            });
            let pairs = match record {
                Some(record) => Ok(record.bgp.clone()),
                None => find_bgp(&self.intent.clouds[&a.cloud], &self.intent.clouds[&b.cloud], &bgp),
            };
            let pairs = match pairs {
                Ok(pairs) => pairs,
                Err(error) => {
                    self.tell_link(link, &ProblemKind::NoNumbers { message: error.to_string() });
                    continue;
                }
            };
            bgp.extend(pairs.iter().flat_map(|pair| [pair.a, pair.b]));
            let ends = link.ends();
            if ends.iter().any(|end| self.deleting.contains_key(&Object::Gateway((*end).clone()))) {
                continue;
            }
            let after = ends
                .iter()
                .filter_map(|end| self.creating.get(&Object::Gateway((*end).clone())).copied())
                .collect();
            let create = Action::CreateLink { link: link.clone(), bgp: pairs, spaces };
            self.ensure(
                Path::Link(link.clone()),
                phase,
                create,
                Action::DeleteLink { link: link.clone() },
                after,
            );
        }
    }

    /// The record that cannot be read and without which nothing can be done about a link: its own, a gateway's, or one
    /// that may hold what would be chosen for it.
    fn hidden_from(&self, link: &LinkName) -> Option<Record> {
        let unreadable = &self.inventory.unreadable;
        let own = unreadable.get(&Subject::MadeLink(link.clone()));
        let gateway =
            || link.ends().into_iter().find_map(|end| unreadable.get(&Subject::Gateway(end.clone())));
        let asn = || {
            let chooses = |end: &&Site| {
                let is_fixed = self.intent.clouds.get(&end.cloud).is_some_and(|traits| traits.asn.is_some());
                !is_fixed && !self.inventory.gateways.contains_key(*end)
            };
            unreadable.hides_an_asn().filter(|_| link.ends().iter().any(chooses))
        };
        let bgp = || unreadable.hides_bgp().filter(|_| !self.inventory.links.contains_key(link));
        own.or_else(gateway).or_else(asn).or_else(bgp).cloned()
    }

    fn is_held(&self, link: &LinkName) -> bool {
        link.ends().into_iter().any(|end| self.held.contains(end))
    }

    /// Whether a link can be taken down now.
    fn can_end(&self, link: &LinkName) -> bool {
        let both_delete = link.ends().into_iter().all(|end| self.deletes(&end.cloud));
        self.knows_link(link) && both_delete && !self.is_held(link)
    }

    fn is_static(&self, link: &LinkName) -> bool {
        link.ends().iter().any(|end| self.intent.clouds.get(&end.cloud).is_some_and(|traits| !traits.bgp))
    }

    /// Tells the resources at both ends that they cannot be linked.
    fn tell_link(&mut self, link: &LinkName, kind: &ProblemKind) {
        let at_ends: Vec<_> = self
            .intent
            .resources
            .keys()
            .filter(|name| link.ends().contains(&&Site::of(name)))
            .cloned()
            .collect();
        for resource in at_ends {
            self.problem(&resource, kind.clone());
        }
    }

    fn gateway(&mut self, site: &Site, asns: &mut BTreeSet<u32>) {
        let record = self.inventory.gateways.get(site);
        let asn = match (record, self.intent.clouds.get(&site.cloud).and_then(|traits| traits.asn)) {
            (Some(record), _) => record.asn,
            (None, Some(fixed)) => fixed,
            // Four billion numbers do not run out before memory does.
            (None, None) => find_asn(asns, &self.reserved_asns()).unwrap_or(64_512),
        };
        asns.insert(asn);
        match record.map(|record| record.phase) {
            Some(Phase::Ready) => {}
            Some(Phase::Removing) => {
                let step = self.push(Action::DeleteGateway { gateway: site.clone() }, []);
                self.deleting.insert(Object::Gateway(site.clone()), step);
            }
            Some(Phase::Making) | None => {
                // A gateway stands in the site's networks, so these come first.
                let after: Vec<_> = self
                    .creating
                    .iter()
                    .filter(|(object, _)| matches!(object, Object::Network(network) if network.site == *site))
                    .map(|(_, step)| *step)
                    .collect();
                let step = self.push(Action::CreateGateway { gateway: site.clone(), asn }, after);
                self.creating.insert(Object::Gateway(site.clone()), step);
            }
        }
    }

    /// What any cloud refuses: a gateway may come to face each of them.
    fn reserved_asns(&self) -> Vec<(u32, u32)> {
        self.intent.clouds.values().flat_map(|traits| traits.asn_reserved.iter().copied()).collect()
    }

    pub(super) fn remove_links(&mut self, wanted: &BTreeSet<LinkName>) {
        let stale: Vec<_> = self
            .inventory
            .links
            .keys()
            .filter(|link| !wanted.contains(*link) && self.can_end(link))
            .cloned()
            .collect();
        for link in stale {
            let step = self.push(Action::DeleteLink { link: link.clone() }, []);
            self.deleting.insert(Object::Path(Path::Link(link)), step);
        }
        // A gateway is needed by links that are wanted, and by those that cannot be taken down now.
        let kept = self.inventory.links.keys().filter(|link| !self.can_end(link));
        let needed: BTreeSet<&Site> = wanted.iter().chain(kept).flat_map(LinkName::ends).collect();
        let gateways = self.inventory.gateways.keys();
        let stale = gateways
            .filter(|site| !needed.contains(site) && self.knows(&site.cloud) && !self.held.contains(*site))
            .filter(|site| self.deletes(&site.cloud));
        let stale: Vec<_> = stale.cloned().collect();
        for gateway in stale {
            let after: Vec<_> = self
                .deleting
                .iter()
                .filter(|(object, _)| matches!(object, Object::Path(Path::Link(link)) if link.ends().contains(&&gateway)))
                .map(|(_, step)| *step)
                .collect();
            let step = self.push(Action::DeleteGateway { gateway: gateway.clone() }, after);
            self.deleting.insert(Object::Gateway(gateway), step);
        }
    }
}
