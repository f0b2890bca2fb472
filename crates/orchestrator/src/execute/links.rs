//! Links between sites, as users ask for them and see them.

use std::{collections::BTreeSet, sync::Arc};

use ipnet::Ipv4Net;
use model::{BgpPair, ConnectionStatus, LinkName, Site};
use serde::Serialize;

use super::{
    Orchestrator, OrchestratorError,
    facts::Fact,
    orchestrator::expected,
    perform::new_key,
    requests::{Asked, JobOrPlan, phase_text},
};
use crate::plan::{LinkRecord, Phase, Subject};

/// A link as users see it.
#[derive(Clone, Debug, Serialize)]
pub struct LinkView {
    pub name: LinkName,
    pub state: &'static str,
    /// It stays whether or not a rule needs it.
    pub pinned: bool,
    pub bgp: Vec<BgpPair>,
    /// AS numbers of both gateways.
    pub asns: [Option<u32>; 2],
    pub spaces: [Vec<Ipv4Net>; 2],
    /// How both ends are; absent where a cloud does not say.
    pub ends: [Option<ConnectionStatus>; 2],
    pub message: String,
}

impl Orchestrator {
    /// Links two sites and keeps them linked. Asked again, or by many at once, it is one link.
    pub async fn connect(&self, link: LinkName, dry_run: bool) -> Result<JobOrPlan, OrchestratorError> {
        for site in link.ends() {
            self.check_site(site).await?;
        }
        let before = {
            let state = self.state.lock();
            let pinned = state.intent.links.contains(&link).then_some(());
            state.before(Fact::Link(link.clone(), pinned))
        };
        let granted = before == Fact::Link(link.clone(), Some(()));
        let [a, b] = link.ends();
        let asked = Asked {
            judged_on: Vec::new(),
            what: format!("link {a} and {b}"),
            resources: BTreeSet::new(),
            objects: [format!("link/{link}"), format!("gateway/{a}"), format!("gateway/{b}")].into(),
            facts: if granted { Vec::new() } else { vec![Fact::Link(link.clone(), Some(()))] },
            undo: if granted { Vec::new() } else { vec![before] },
        };
        match self.ask(asked, dry_run).await {
            // Somebody else has just asked for the same.
            Err(OrchestratorError::Superseded) if self.state.lock().intent.links.contains(&link) => {
                Box::pin(self.connect(link, dry_run)).await
            }
            other => other,
        }
    }

    /// Lets a link go when no rule needs it.
    pub async fn disconnect(&self, link: LinkName, dry_run: bool) -> Result<JobOrPlan, OrchestratorError> {
        if !self.state.lock().intent.links.contains(&link) {
            return Err(OrchestratorError::UnknownLink { link });
        }
        let asked = Asked {
            judged_on: Vec::new(),
            what: format!("let link {link} go"),
            resources: BTreeSet::new(),
            objects: [format!("link/{link}")].into(),
            facts: vec![Fact::Link(link, None)],
            undo: Vec::new(),
        };
        self.ask(asked, dry_run).await
    }

    /// Gives a link's tunnels a new key. Both ends have it before either shows it to the other, so packets go on.
    pub async fn rotate(&self, link: LinkName, dry_run: bool) -> Result<JobOrPlan, OrchestratorError> {
        let key = Fact::MadeLink(link.clone(), None).key();
        let (record, as_read) = {
            let state = self.state.lock();
            (state.inventory.links.get(&link).cloned(), expected(state.revisions.get(&key)))
        };
        let record = match record {
            Some(record) if record.phase == Phase::Ready => record,
            Some(_) => return Err(OrchestratorError::NotReady { what: format!("link {link}") }),
            None => return Err(OrchestratorError::UnknownLink { link }),
        };
        let asked = Asked {
            judged_on: vec![(key, as_read)],
            what: format!("give link {link} a new key"),
            resources: BTreeSet::new(),
            objects: [format!("link/{link}")].into(),
            facts: vec![Fact::MadeLink(
                link.clone(),
                Some(LinkRecord { phase: Phase::Making, shared_key: new_key(), stood: true, ..record }),
            )],
            // The old key may be known to somebody; there is no way back to it.
            undo: Vec::new(),
        };
        self.ask(asked, dry_run).await
    }

    /// All links, with how their ends are.
    pub async fn links(&self) -> Vec<LinkView> {
        let (inventory, pinned) = {
            let state = self.state.lock();
            (Arc::clone(&state.inventory), state.intent.links.clone())
        };
        let (made, gateways) = (&inventory.links, &inventory.gateways);
        let unreadable = inventory.unreadable.iter().filter_map(|(subject, _)| match subject {
            Subject::MadeLink(name) => Some(name),
            _ => None,
        });
        let names: BTreeSet<&LinkName> = made.keys().chain(&pinned).chain(unreadable).collect();
        let mut views = Vec::new();
        for name in names {
            let record = made.get(name);
            let asn = |site: &Site| gateways.get(site).map(|gateway| gateway.asn);
            let [a, b] = name.ends();
            let unreadable = inventory.unreadable.get(&Subject::MadeLink(name.clone()));
            let failure =
                self.failures.lock().get(&format!("link/{name}")).map(|failure| failure.message.clone());
            let failure = failure.or(unreadable.map(|record| OrchestratorError::from(record).to_string()));
            views.push(LinkView {
                name: name.clone(),
                state: match unreadable {
                    Some(_) => "unreadable",
                    None => record.map_or("wanted", |record| phase_text(record.phase)),
                },
                pinned: pinned.contains(name),
                bgp: record.map(|record| record.bgp.clone()).unwrap_or_default(),
                asns: [asn(a), asn(b)],
                spaces: record.map(|record| record.spaces.clone()).unwrap_or_default(),
                ends: [self.end_status(a, b).await, self.end_status(b, a).await],
                message: failure.unwrap_or_default(),
            });
        }
        views
    }

    async fn end_status(&self, site: &Site, peer: &Site) -> Option<ConnectionStatus> {
        let (cloud, at) = (self.cloud(&site.cloud).ok()?, self.at(site).await.ok()?);
        let limit = std::time::Duration::from_secs(5);
        tokio::time::timeout(limit, cloud.connection_status(&at, peer)).await.ok()?.ok()
    }
}
