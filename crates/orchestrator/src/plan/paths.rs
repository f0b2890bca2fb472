//! Paths: which networks must be joined so that what is permitted can flow.
//!
//! A target inside one network asks for a peering with it. A wide prefix (say 0.0.0.0/0) asks for one only with
//! networks where somebody permits the traffic too: "anybody" must not join every network to every other.
//!
//! A link costs and takes long, so it is made only when both ends agree ([`agreement`](super::agreement)), or when a rule is
//! reason enough by itself. One that stands stays as long as anybody at either end asks for it: what took half an hour to
//! build does not go because a rule is written anew.

use std::collections::{BTreeMap, BTreeSet};

use model::{Address, Direction, LinkName, NetworkName, PeeringName, ResourceName};

use super::{
    Class, Inventory, LinkRecord, Phase,
    agreement::{Ask, Asks, Located, agreed},
};

/// What joins two places.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Path {
    Peering(PeeringName),
    Link(LinkName),
    Nat(NetworkName),
}

impl Path {
    pub(super) fn between(a: &NetworkName, b: &NetworkName) -> Option<Self> {
        match a.site.cloud == b.site.cloud {
            true => PeeringName::new(a.clone(), b.clone()).ok().map(Self::Peering),
            false => LinkName::new(a.site.clone(), b.site.clone()).ok().map(Self::Link),
        }
    }

    /// Whether it is a link that packets pass, or did until it was to be made anew.
    fn stands(&self, inventory: &Inventory) -> bool {
        matches!(self, Self::Link(name) if inventory.links.get(name).is_some_and(LinkRecord::stands))
    }

    fn is_ready(&self, inventory: &Inventory) -> bool {
        let phase = match self {
            Self::Peering(name) => inventory.peerings.get(name).map(|record| record.phase),
            Self::Link(name) => inventory.links.get(name).map(|record| record.phase),
            Self::Nat(name) => inventory.nats.get(name).map(|record| record.phase),
        };
        phase == Some(Phase::Ready)
    }
}

/// Directed pairs of networks, with the resources at the first whose wide targets cover the second.
type Wide<'p> = BTreeMap<(&'p NetworkName, &'p NetworkName), BTreeSet<&'p ResourceName>>;

pub(super) struct Paths<'p> {
    inventory: &'p Inventory,
    pub wanted: BTreeSet<Path>,
    /// Who waits for which path. Only paths that are not there yet.
    pub waiting: BTreeMap<Path, BTreeSet<&'p ResourceName>>,
    /// Pairs that somebody's specific target already joins; the common case, answered without making names.
    joined: BTreeSet<(&'p NetworkName, &'p NetworkName)>,
    outbound: Wide<'p>,
    inbound: Wide<'p>,
    /// The same for specific targets, which a wide one at the other end may meet; resources are not needed.
    specific: BTreeSet<(Direction, &'p NetworkName, &'p NetworkName)>,
    /// What is asked for between clouds.
    asks: Asks<'p>,
}

impl<'p> Paths<'p> {
    pub(super) fn new(inventory: &'p Inventory) -> Self {
        Self {
            inventory,
            wanted: BTreeSet::new(),
            waiting: BTreeMap::new(),
            joined: BTreeSet::new(),
            outbound: BTreeMap::new(),
            inbound: BTreeMap::new(),
            specific: BTreeSet::new(),
            asks: Asks::new(),
        }
    }

    /// Takes in what a list asks for. `build`: it is reason enough for a link.
    pub(super) fn add(&mut self, ask: Ask<'p>, home: &'p NetworkName, class: &Class<'p>, build: bool) {
        let (resource, direction) = (ask.resource, ask.traffic.direction);
        let elsewhere = |network: &NetworkName| network.site.cloud != home.site.cloud;
        match class {
            Class::Inside(network) if *network == home => {}
            Class::Inside(network) if elsewhere(network) => {
                if self.joined.contains(&(home, network)) {
                    return;
                }
                let path = Path::between(home, network);
                if build || path.as_ref().is_some_and(|path| path.stands(self.inventory)) {
                    self.want(path, resource, Some((home, network)));
                } else {
                    self.asks.entry((home, network)).or_default().push(ask);
                }
            }
            Class::Inside(network) => {
                self.specific.insert((direction, home, network));
                if !self.joined.contains(&(home, network)) {
                    self.want(Path::between(home, network), resource, Some((home, network)));
                }
            }
            Class::Wide { networks, public } => {
                for network in networks.iter().filter(|network| elsewhere(network)) {
                    self.asks.entry((home, network)).or_default().push(ask);
                }
                let wide =
                    if direction == Direction::Outbound { &mut self.outbound } else { &mut self.inbound };
                for network in networks.iter().filter(|network| **network != home && !elsewhere(network)) {
                    wide.entry((home, network)).or_default().insert(resource);
                }
                if *public && direction == Direction::Outbound {
                    self.want(Some(Path::Nat(home.clone())), resource, None);
                }
            }
            Class::Public if direction == Direction::Outbound => {
                self.want(Some(Path::Nat(home.clone())), resource, None);
            }
            Class::Public | Class::Unplaced => {}
        }
    }

    /// Joins the pairs where what one end asks for is answered from the other.
    pub(super) fn settle(&mut self, placed: impl IntoIterator<Item = (&'p ResourceName, Address)>) {
        self.link(&Located::new(placed));
        let (outbound, inbound) = (std::mem::take(&mut self.outbound), std::mem::take(&mut self.inbound));
        for (wide, other, answer) in
            [(&outbound, &inbound, Direction::Inbound), (&inbound, &outbound, Direction::Outbound)]
        {
            for ((home, network), resources) in wide {
                let answered = other.contains_key(&(*network, *home))
                    || self.specific.contains(&(answer, network, home));
                if answered {
                    for resource in resources {
                        self.want(Path::between(home, network), resource, None);
                    }
                }
            }
        }
    }

    fn link(&mut self, located: &Located<'p>) {
        let asks = std::mem::take(&mut self.asks);
        let agreed: BTreeSet<Path> = agreed(&asks, located)
            .into_iter()
            .filter_map(|(home, other)| Path::between(home, other))
            .collect();
        for ((home, other), asked) in &asks {
            let Some(path) = Path::between(home, other) else { continue };
            if agreed.contains(&path) {
                let waiting: BTreeSet<&ResourceName> = asked.iter().map(|ask| ask.resource).collect();
                waiting.into_iter().for_each(|resource| self.want(Some(path.clone()), resource, None));
            }
        }
    }

    fn want(
        &mut self,
        path: Option<Path>,
        resource: &'p ResourceName,
        pair: Option<(&'p NetworkName, &'p NetworkName)>,
    ) {
        let Some(path) = path else { return };
        if path.is_ready(self.inventory) {
            self.joined.extend(pair);
        } else {
            self.waiting.entry(path.clone()).or_default().insert(resource);
        }
        self.wanted.insert(path);
    }
}
