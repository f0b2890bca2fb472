//! A world to plan for: an intent that is easy to write, and a cloud that does what plans say.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

use model::{
    Direction, ExistingNetwork, Leaf, Member, NetworkName, Packet, PeeringName, PermitRule, Ports, Protocol,
    ResourceName, ResourceState, Segment, Site, TagName, Traffic,
};
use tags::{Fact, Graph, Write};

use crate::{
    kinds::traits_of,
    plan::{
        Action, GatewayRecord, Intent, Inventory, LinkRecord, NetworkRecord, Phase, Plan, ResourceIntent,
        ResourceRecord, SimpleRecord, plan, space::overlap,
    },
};

#[derive(Default)]
pub struct World {
    pub intent: Intent,
    pub inventory: Inventory,
    pub groups: BTreeMap<TagName, BTreeSet<Member>>,
}

pub fn resource(text: &str) -> ResourceName {
    text.parse().unwrap()
}

pub fn rule(name: &str, direction: Direction, peers: &[&str]) -> PermitRule {
    let traffic = Traffic::new(direction, Protocol::Any, Ports::Any, Ports::Any).unwrap();
    let peers = peers.iter().map(|peer| peer.parse().unwrap()).collect();
    PermitRule::new(Some(name.parse().unwrap()), traffic, peers).unwrap()
}

pub const PING: Packet = Packet { protocol: 1, src_port: 0, dst_port: 0 };

impl World {
    pub fn new(clouds: &[&str]) -> Self {
        let mut world = Self::default();
        for cloud in clouds {
            world.intent.clouds.insert(cloud.parse().unwrap(), traits_of(cloud));
        }
        world
    }

    pub fn want(&mut self, name: &str, region: &str) {
        let intent = ResourceIntent {
            region: region.parse().unwrap(),
            description: String::new(),
            attach: false,
            adopts: None,
        };
        self.intent.resources.insert(resource(name), intent);
    }

    /// Something that exists, in an existing network of these blocks.
    pub fn attach(&mut self, name: &str, network: &str, blocks: &[&str]) {
        self.want(name, network);
        let mut blocks = blocks.iter().map(|block| block.parse().unwrap());
        let existing = ExistingNetwork { space: blocks.next().unwrap(), beside: blocks.collect() };
        let intent = self.intent.resources.get_mut(&resource(name)).unwrap();
        (intent.attach, intent.adopts) = (true, Some(existing));
    }

    pub fn unwant(&mut self, name: &str) {
        self.intent.resources.remove(&resource(name));
        self.intent.rules.remove(&resource(name));
    }

    pub fn permit(&mut self, name: &str, rule: PermitRule) {
        self.intent.rules.entry(resource(name)).or_default().insert(rule.name.clone(), rule);
    }

    /// Permits both ways between two resources, by tag.
    pub fn join(&mut self, a: &str, b: &str) {
        for (one, other) in [(a, b), (b, a)] {
            let suffix = other.replace('.', "-");
            self.permit(one, rule(&format!("in-{suffix}"), Direction::Inbound, &[other]));
            self.permit(one, rule(&format!("out-{suffix}"), Direction::Outbound, &[other]));
        }
    }

    pub fn group(&mut self, name: &str, members: &[&str]) {
        let members = members.iter().map(|member| member.parse().unwrap()).collect();
        self.groups.insert(name.parse().unwrap(), members);
    }

    /// Tags as the server keeps them: a leaf for each resource that is made, and the groups.
    pub fn refresh_tags(&mut self) {
        let mut writes = Vec::new();
        for (name, record) in &self.inventory.resources {
            if let Some(state) = &record.state {
                let tag = name.to_string().parse().unwrap();
                writes.push(Write::Put(Fact::Leaf(tag, Leaf { uri: None, ip: Some(state.address) })));
            }
        }
        for (group, members) in &self.groups {
            writes.push(Write::Put(Fact::Group(group.clone())));
            writes.extend(
                members.iter().map(|member| Write::Put(Fact::Membership(group.clone(), member.clone()))),
            );
        }
        self.intent.graph = Graph::default();
        self.intent.graph.apply(writes);
    }

    pub fn plan(&mut self) -> Plan {
        self.refresh_tags();
        let first = plan(&self.intent, &self.inventory);
        assert_eq!(first, plan(&self.intent, &self.inventory), "the same input gives the same plan");
        first
    }

    /// Plans and does, until there is nothing to do. A round may fail to do a step, and what waits for it.
    pub fn converge(&mut self, mut fails: impl FnMut(usize, usize) -> bool) {
        for round in 0..12 {
            let plan = self.plan();
            if plan.is_empty() {
                return;
            }
            let mut undone = BTreeSet::new();
            for (id, step) in plan.steps.iter().enumerate() {
                assert!(step.after.iter().all(|before| *before < id), "{plan}");
                if step.after.iter().any(|before| undone.contains(before)) || fails(round, id) {
                    undone.insert(id);
                    continue;
                }
                self.act(&step.action);
            }
        }
        panic!("still not done: {}", self.plan());
    }

    pub fn settle(&mut self) {
        self.converge(|_, _| false);
    }

    /// Does a step, and checks that it could be done.
    pub fn act(&mut self, action: &Action) {
        let inventory = &mut self.inventory;
        match action.clone() {
            Action::CreateNetwork { network, space } => {
                let others = inventory.networks.iter().filter(|(name, _)| **name != network);
                assert!(others.clone().all(|(_, other)| !overlap(other.space, space)), "{network} overlaps");
                inventory.networks.insert(network, NetworkRecord::made(Phase::Ready, space));
            }
            Action::AdoptNetwork { network, existing } => {
                let others = inventory.networks.iter().filter(|(name, _)| **name != network);
                let used: Vec<_> = others.flat_map(|(_, other)| other.blocks()).collect();
                let is_free = |block| used.iter().all(|other| !overlap(*other, block));
                assert!(existing.blocks().all(is_free), "{network} overlaps");
                inventory.networks.insert(network, NetworkRecord::adopted(Phase::Ready, existing));
            }
            Action::DeleteNetwork { network } | Action::ReleaseNetwork { network } => {
                let is_adopted = inventory.networks[&network].adopted.is_some();
                assert_eq!(matches!(action, Action::ReleaseNetwork { .. }), is_adopted, "{network}");
                assert!(
                    inventory.resources.values().all(|record| record.network != network),
                    "{network} is in use"
                );
                assert!(inventory.peerings.keys().all(|peering| !peering.ends().contains(&&network)));
                assert!(!inventory.nats.contains_key(&network));
                inventory.networks.remove(&network);
            }
            Action::CreateResource { resource, network } | Action::AttachResource { resource, network } => {
                let space = inventory.networks[&network].space;
                let used: BTreeSet<IpAddr> = inventory
                    .resources
                    .values()
                    .filter_map(|record| Some(record.state.as_ref()?.address.net().addr()))
                    .collect();
                // The lowest free address: what was just given back comes first.
                let address = space.hosts().map(IpAddr::V4).find(|ip| !used.contains(ip)).unwrap();
                let state = ResourceState {
                    uri: resource.to_string(),
                    address: address.into(),
                    region: network.region.clone(),
                };
                let record = ResourceRecord {
                    phase: Phase::Ready,
                    network,
                    attached: matches!(action, Action::AttachResource { .. }),
                    state: Some(state),
                    permit: BTreeMap::new(),
                    changing: BTreeMap::new(),
                };
                inventory.resources.insert(resource, record);
            }
            Action::DeleteResource { resource } | Action::DetachResource { resource } => {
                inventory.resources.remove(&resource);
            }
            Action::Close { resource, change } | Action::Open { resource, change } => {
                let record = inventory.resources.get_mut(&resource).unwrap();
                record.permit = change.apply(std::mem::take(&mut record.permit));
            }
            Action::CreatePeering { peering } => {
                assert!(peering.ends().iter().all(|end| inventory.networks.contains_key(end)));
                inventory.peerings.insert(peering, SimpleRecord { phase: Phase::Ready });
            }
            Action::DeletePeering { peering } => drop(inventory.peerings.remove(&peering)),
            Action::CreateNat { network } => {
                assert!(inventory.networks[&network].adopted.is_none());
                inventory.nats.insert(network, SimpleRecord { phase: Phase::Ready });
            }
            Action::DeleteNat { network } => drop(inventory.nats.remove(&network)),
            Action::CreateGateway { gateway, asn } => {
                assert!(inventory.gateways.values().all(|other| other.asn != asn), "AS {asn} twice");
                inventory.gateways.insert(gateway, GatewayRecord { phase: Phase::Ready, asn, state: None });
            }
            Action::DeleteGateway { gateway } => {
                assert!(
                    inventory.links.keys().all(|link| !link.ends().contains(&&gateway)),
                    "{gateway} has links"
                );
                inventory.gateways.remove(&gateway);
            }
            Action::CreateLink { link, bgp, spaces } => {
                assert!(link.ends().iter().all(|end| inventory.gateways.contains_key(end)));
                let used: BTreeSet<Ipv4Addr> = inventory
                    .links
                    .iter()
                    .filter(|(name, _)| **name != link)
                    .flat_map(|(_, r)| r.bgp.iter().map(|p| p.a))
                    .collect();
                assert!(bgp.iter().all(|pair| !used.contains(&pair.a)));
                let shared_key = model::Secret::new("");
                let record = LinkRecord { phase: Phase::Ready, bgp, spaces, shared_key, stood: false };
                inventory.links.insert(link, record);
            }
            Action::DeleteLink { link } => drop(inventory.links.remove(&link)),
        }
    }

    /// Whether a packet gets from one resource to another in what was made.
    pub fn reaches(&self, from: &ResourceName, to: &ResourceName) -> bool {
        let (Some(a), Some(b)) = (self.inventory.resources.get(from), self.inventory.resources.get(to))
        else {
            return false;
        };
        let (Some(a_state), Some(b_state)) = (&a.state, &b.state) else { return false };
        self.joined(&a.network, &b.network)
            && a.permit
                .values()
                .any(|entry| entry.permits(Direction::Outbound, b_state.address.net().addr(), &PING))
            && b.permit
                .values()
                .any(|entry| entry.permits(Direction::Inbound, a_state.address.net().addr(), &PING))
    }

    /// Whether a packet that opens a connection gets from one resource to another in what was made.
    pub fn passes(&self, from: &ResourceName, to: &ResourceName, packet: &Packet) -> bool {
        let made = |name: &ResourceName| self.inventory.resources.get(name);
        let (Some(a), Some(b)) = (made(from), made(to)) else { return false };
        let (Some(a_state), Some(b_state)) = (&a.state, &b.state) else { return false };
        let (source, destination) = (a_state.address.net().addr(), b_state.address.net().addr());
        self.joined(&a.network, &b.network)
            && a.permit.values().any(|entry| entry.permits(Direction::Outbound, destination, packet))
            && b.permit.values().any(|entry| entry.permits(Direction::Inbound, source, packet))
    }

    fn joined(&self, a: &NetworkName, b: &NetworkName) -> bool {
        if a == b {
            return true;
        }
        match PeeringName::new(a.clone(), b.clone()) {
            Ok(peering) => self.inventory.peerings.contains_key(&peering),
            Err(_) => {
                let link = model::LinkName::new(a.site.clone(), b.site.clone()).unwrap();
                self.inventory.links.contains_key(&link)
            }
        }
    }

    /// The naive model: both ends' rules, resolved by walking the groups.
    pub fn is_permitted(&self, from: &ResourceName, to: &ResourceName) -> bool {
        let address = |name: &ResourceName| {
            self.inventory.resources.get(name)?.state.as_ref().map(|state| state.address.net().addr())
        };
        let (Some(a), Some(b)) = (address(from), address(to)) else { return false };
        self.names(from, Direction::Outbound, to, b) && self.names(to, Direction::Inbound, from, a)
    }

    fn names(&self, at: &ResourceName, direction: Direction, peer: &ResourceName, address: IpAddr) -> bool {
        let own = self.intent.rules.get(at).into_iter().flat_map(BTreeMap::values);
        let tag = Member::Tag(at.to_string().parse().unwrap());
        let inherited = self
            .intent
            .tag_rules
            .iter()
            .filter(|(name, _)| self.is_below(&tag, name))
            .flat_map(|(_, rules)| rules.values());
        let peer = Member::Tag(peer.to_string().parse().unwrap());
        own.chain(inherited).filter(|rule| rule.traffic.direction == direction).any(|rule| {
            rule.peers.iter().any(|member| match member {
                Member::Literal(literal) => literal.net().contains(&address),
                Member::Tag(tag) => self.holds(tag, &peer, address, 0),
            })
        })
    }

    pub fn is_below(&self, member: &Member, tag: &TagName) -> bool {
        *member == Member::Tag(tag.clone())
            || self.groups.get(tag).is_some_and(|members| {
                members.iter().any(|child| {
                    child == member || matches!(child, Member::Tag(name) if self.is_below(member, name))
                })
            })
    }

    fn holds(&self, tag: &TagName, peer: &Member, address: IpAddr, depth: usize) -> bool {
        if *peer == Member::Tag(tag.clone()) {
            return true;
        }
        assert!(depth < 10);
        self.groups.get(tag).is_some_and(|members| {
            members.iter().any(|member| match member {
                Member::Literal(literal) => literal.net().contains(&address),
                Member::Tag(name) => self.holds(name, peer, address, depth + 1),
            })
        })
    }

    /// What is permitted is reachable, and nothing else is; nothing is left that nobody uses.
    pub fn check(&self) {
        let names: Vec<_> = self.intent.resources.keys().collect();
        for a in &names {
            for b in &names {
                if a != b {
                    assert_eq!(self.reaches(a, b), self.is_permitted(a, b), "{a} to {b}");
                }
            }
        }
        let homes: BTreeSet<NetworkName> =
            self.intent.resources.iter().map(|(name, r)| r.network(name)).collect();
        assert!(self.inventory.networks.keys().eq(homes.iter()), "networks nobody lives in");
        let sites: BTreeSet<&Site> = self.inventory.links.keys().flat_map(|link| link.ends()).collect();
        assert!(self.inventory.gateways.keys().eq(sites.iter().copied()), "gateways without links");
        if self.intent.resources.is_empty() && self.intent.links.is_empty() {
            assert!(self.inventory.is_empty());
        }
    }
}

pub fn segment(text: &str) -> Segment {
    text.parse().unwrap()
}
