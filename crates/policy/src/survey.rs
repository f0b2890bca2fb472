//! What is open between many ends: `explain` for all pairs, protocols and ports at once, and without its reasons.
//!
//! In: the ends ([`Party`]): workloads, and resources with their permit lists. Out: [`Open`] for a pair, or for groups of
//! ends how many pairs have what open. Taking a survey reads the engine in O(ends); everything else is worked out from
//! what was taken, so nobody waits for it.
//!
//! ```text
//!   a → b  =  what a may send to b  ∩  what b may take from a
//!             policies on a ∩ a's permit list     policies on b ∩ b's permit list
//!
//!   one side of one end:   its rules and entries split the others into those that meet the same of them,
//!                          and each such part is decided once
//! ```
//!
//! Exact: decisions change only where some rule's range begins or ends, so one packet per such place is asked about.
//! Ends that nothing tells apart are looked at once (`kinds`), and of ends that all differ only pairs about which some rule
//! has a word of its own (`rows`). Memory is O(ends), and at most a tile of pairs (`count`).

mod count;
mod index;
mod kinds;
mod parts;
mod rows;
mod side;

use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
};

use model::{
    Address, Open, PermitEntry,
    policy::{
        output::{Direction, Member, MemberKind, NamedPort},
        workload::HOST_NETWORK_LABEL,
    },
};
use rustc_hash::FxHashMap;

pub use count::{Tally, TooManyPairs};

use crate::{
    engine::{
        Engine,
        tables::{EntityId, GroupId, IdSet},
    },
    explain::{
        Endpoint, ExplainError,
        ends::{Resolved, addresses_of, entities},
    },
    selection::SERVICE_ACCOUNT_LABEL,
};
use index::Index;
use parts::Tile;
use rows::Rows;
use side::Rules;

/// An end to be asked about.
#[derive(Debug, Clone)]
pub struct Party {
    pub endpoint: Endpoint,
    /// What a resource of a cloud has beside policies.
    pub resource: Option<Listed>,
}

/// A resource: its addresses and its permit list.
#[derive(Debug, Clone)]
pub struct Listed {
    /// One address, or all of a cluster: then the other end's list must permit all of it.
    pub block: Address,
    pub list: Arc<Vec<PermitEntry>>,
}

/// A workload as a list shows it.
#[derive(Debug, Clone)]
pub struct Workload {
    pub member: Arc<Member>,
    pub labels: Vec<(Arc<str>, Arc<str>)>,
}

/// What was taken of the ends. Ends are known by their place in what was asked about.
#[derive(Debug)]
pub struct Survey {
    ends: Vec<Option<Surveyed>>,
    sides: Vec<LocalSide>,
    /// Named ports that ends have, each once.
    ports: Vec<Vec<NamedPort>>,
    /// Made when it is first needed: not while the engine is read.
    index: OnceLock<Index>,
}

#[derive(Debug)]
struct Surveyed {
    /// The workload, if there is exactly one: to itself it may always talk.
    entity: Option<EntityId>,
    shape: Shape,
    /// Its first address of IPv4 and of IPv6, with the AddressGroups that contain it.
    faces: [Option<Face>; 2],
    /// Of a cluster.
    block: Option<Address>,
    /// Out and in, of `Survey::sides`.
    sides: [u32; 2],
    /// Of `Survey::ports`.
    ports: u32,
}

#[derive(Debug)]
struct Face {
    address: IpAddr,
    groups: IdSet<GroupId>,
}

/// Which families an end has addresses of, the preferred one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Shape {
    None,
    Four,
    Six,
    FourSix,
    SixFour,
}

impl Shape {
    fn of(addresses: &[IpAddr]) -> Self {
        let has = |six: bool| addresses.iter().any(|address| address.is_ipv6() == six);
        match (addresses.first().map(IpAddr::is_ipv6), has(false) && has(true)) {
            (None, _) => Self::None,
            (Some(false), false) => Self::Four,
            (Some(true), false) => Self::Six,
            (Some(false), true) => Self::FourSix,
            (Some(true), true) => Self::SixFour,
        }
    }

    /// Whether each is of IPv6, in order of preference.
    fn families(self) -> &'static [bool] {
        match self {
            Self::None => &[],
            Self::Four => &[false],
            Self::Six => &[true],
            Self::FourSix => &[false, true],
            Self::SixFour => &[true, false],
        }
    }

    /// Which families source and destination use: the first they share, as `explain` takes it; else each its own.
    fn meet(self, destination: Self) -> [Option<bool>; 2] {
        let shared = self.families().iter().find(|family| destination.families().contains(family));
        match shared {
            Some(family) => [Some(*family); 2],
            None => [self.families().first().copied(), destination.families().first().copied()],
        }
    }
}

/// One side of ends: whoever shares it decides alike about the same others.
#[derive(Debug)]
struct LocalSide {
    direction: Direction,
    rules: Arc<Rules>,
    shape: Shape,
    /// Of the end itself, where it is the destination.
    ports: u32,
    list: Option<Arc<Vec<PermitEntry>>>,
}

impl Engine {
    /// Takes what is needed to answer for these ends, as of the last drain. Ends that are not known are left out.
    pub fn survey(&self, parties: &[Party]) -> Survey {
        let mut taking = Taking::new(self);
        let ends: Vec<Option<Surveyed>> = parties.iter().map(|party| taking.end(party).ok()).collect();
        let mut ports = vec![Vec::new(); taking.ports.len()];
        taking.ports.into_iter().for_each(|(named, at)| ports[at as usize] = named);
        Survey { ends, sides: taking.sides, ports, index: OnceLock::new() }
    }

    /// Every workload with its labels, in no order.
    pub fn workloads(&self) -> impl Iterator<Item = Workload> {
        self.entities.rows.iter().filter_map(|(id, _)| self.workload_of(id))
    }

    /// A workload by its name.
    pub fn workload(&self, kind: MemberKind, namespace: &str, name: &str) -> Option<Workload> {
        self.workload_of(self.entities.live(kind, namespace, name)?)
    }

    /// The workload that has the address, if it is one alone.
    pub fn workload_at(&self, address: IpAddr) -> Option<Workload> {
        let mut claiming = self.entities.with_address(address);
        let only = claiming.next()?;
        if claiming.next().is_some() { None } else { self.workload_of(only) }
    }

    fn workload_of(&self, id: EntityId) -> Option<Workload> {
        let entity = &self.entities.rows[id];
        let labels = self.entities.profiles[entity.profile?].labels.iter();
        let labels = labels.map(|(key, value)| (self.label(*key), self.label(*value)));
        let labels = labels
            .filter(|(key, _)| **key != *SERVICE_ACCOUNT_LABEL && **key != *HOST_NETWORK_LABEL)
            .collect();
        Some(Workload { member: Arc::clone(&entity.member), labels })
    }
}

/// Groups, direction, shape, ports, list: what makes a side.
type SideKey = (Vec<GroupId>, Direction, Shape, u32, usize);

struct Taking<'a> {
    engine: &'a Engine,
    rules: FxHashMap<(Vec<GroupId>, Direction), Arc<Rules>>,
    known: FxHashMap<SideKey, u32>,
    sides: Vec<LocalSide>,
    ports: FxHashMap<Vec<NamedPort>, u32>,
}

impl<'a> Taking<'a> {
    fn new(engine: &'a Engine) -> Self {
        let (rules, known, ports) = Default::default();
        Self { engine, rules, known, sides: Vec::new(), ports }
    }

    fn end(&mut self, party: &Party) -> Result<Surveyed, ExplainError> {
        let found = entities(self.engine, &party.endpoint)?;
        let addresses = addresses_of(self.engine, &party.endpoint, &found);
        let face = |six: bool| {
            let address = *addresses.iter().find(|address| address.is_ipv6() == six)?;
            let groups = Resolved::new(self.engine, Vec::new(), Some(address)).addresses;
            Some(Face { address, groups })
        };
        let (faces, shape) = ([face(false), face(true)], Shape::of(&addresses));
        let entity = <[EntityId; 1]>::try_from(found.as_slice()).ok().map(|[one]| one);
        let end = Resolved::new(self.engine, found, None);
        let named = end.members(self.engine).flat_map(|member| member.ports.iter().cloned()).collect();
        let next = count_of(self.ports.len());
        let ports = *self.ports.entry(named).or_insert(next);
        let list = party.resource.as_ref().map(|resource| &resource.list);
        let sides = [(Direction::Out, 0), (Direction::In, ports)]
            .map(|(direction, ports)| self.side(&end.applied_to, direction, shape, ports, list));
        let block =
            party.resource.as_ref().map(|resource| resource.block).filter(|block| block.single().is_none());
        Ok(Surveyed { entity, shape, faces, block, sides, ports })
    }

    fn side(
        &mut self,
        applied_to: &IdSet<GroupId>,
        direction: Direction,
        shape: Shape,
        ports: u32,
        list: Option<&Arc<Vec<PermitEntry>>>,
    ) -> u32 {
        let groups: Vec<GroupId> = applied_to.to_vec();
        let pointer = list.map_or(0, |list| Arc::as_ptr(list) as usize);
        let key = (groups.clone(), direction, shape, ports, pointer);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let make = || Arc::new(Rules::of(self.engine, applied_to, direction));
        let rules = Arc::clone(self.rules.entry((groups, direction)).or_insert_with(make));
        let number = count_of(self.sides.len());
        self.sides.push(LocalSide { direction, rules, shape, ports, list: list.cloned() });
        self.known.insert(key, number);
        number
    }
}

/// Ends, sides and answers are counted in 32 bits, to have many of them.
fn count_of(many: usize) -> u32 {
    u32::try_from(many).expect("fewer than 2^32 ends fit in memory")
}

impl Survey {
    fn index(&self) -> &Index {
        self.index.get_or_init(|| Index::new(&self.ends))
    }

    /// What is open from one end to another; none if one of the two is not known.
    pub fn between(&self, source: usize, destination: usize) -> Option<Open> {
        let (a, b) = (self.ends.get(source)?.as_ref()?, self.ends.get(destination)?.as_ref()?);
        if a.entity.is_some() && a.entity == b.entity {
            return Some(Open::all());
        }
        let [from, to] = self.at_ends(source, destination)?;
        Some(from.intersect(&to))
    }

    /// What the source may send, and what the destination may take.
    pub fn at_ends(&self, source: usize, destination: usize) -> Option<[Open; 2]> {
        let (a, b) = (self.ends.get(source)?.as_ref()?, self.ends.get(destination)?.as_ref()?);
        if a.entity.is_some() && a.entity == b.entity {
            return Some([Open::all(), Open::all()]);
        }
        let mut rows = Rows::new(self);
        Some([(a.sides[0], destination), (b.sides[1], source)].map(|(side, other)| {
            let answer = rows.row(side, &mut Tile::new(vec![count_of(other)])).at(0);
            Open::clone(rows.open(answer))
        }))
    }
}
