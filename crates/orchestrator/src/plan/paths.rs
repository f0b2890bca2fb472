//! Paths: which networks must be joined so that what is permitted can flow.
//!
//! A target inside one network asks for a path to it. A wide prefix (say 0.0.0.0/0) asks for a path only to
//! networks where somebody permits the traffic too: "anybody" must not join every cloud to every other.

use std::collections::{BTreeMap, BTreeSet};

use model::{Direction, LinkName, NetworkName, PeeringName, ResourceName};

use super::{Class, Inventory, Phase};

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
        }
    }

    pub(super) fn add(
        &mut self,
        resource: &'p ResourceName,
        home: &'p NetworkName,
        direction: Direction,
        class: &Class<'p>,
    ) {
        match class {
            Class::Inside(network) if *network == home => {}
            Class::Inside(network) => {
                self.specific.insert((direction, home, network));
                if !self.joined.contains(&(home, network)) {
                    self.want(Path::between(home, network), resource, Some((home, network)));
                }
            }
            Class::Wide { networks, public } => {
                let wide =
                    if direction == Direction::Outbound { &mut self.outbound } else { &mut self.inbound };
                for network in networks.iter().filter(|network| **network != home) {
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

    /// Joins the pairs where a wide target is answered from the other end.
    pub(super) fn settle(&mut self) {
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
