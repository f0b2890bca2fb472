//! The workloads that are enforced here: which programs are in force for which address.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use model::policy::output::{Direction, MemberKind, NamedPort, NetworkPolicy};
use node_nft::{Element, Key};

use super::{Bound, Plane};
use crate::{
    compile::{CompiledRule, Rank},
    layout::Place,
    object::{ObjectError, ObjectId, ObjectKind, WorkloadId},
    program::{Part, Program, ProgramRule, Stage},
    programs::ProgramId,
};

pub(super) const DIRECTIONS: [Direction; 2] = [Direction::Out, Direction::In];

/// A workload of this node as it is enforced.
#[derive(Default)]
pub(super) struct Endpoint {
    interface: Option<String>,
    addresses: BTreeSet<IpAddr>,
    programs: InForce,
}

/// By family, then out and in.
type InForce = [[Option<ProgramId>; 2]; 2];

/// A rule that applies, with what ranks it.
pub(super) struct Ranked<'a> {
    rank: &'a Rank,
    pub rule: &'a CompiledRule,
    /// Its place among its policy's.
    pub index: usize,
    features: &'a [u32],
    /// `None`: it is of the workload's own list.
    pub policy: Option<&'a NetworkPolicy>,
}

impl Plane {
    /// Brings what is enforced for the workload up to what is known of it.
    pub(super) fn refresh(&mut self, id: WorkloadId) {
        let old = self.endpoints.remove(&id).unwrap_or_default();
        let new = if self.is_self(&id) { None } else { self.endpoint(&id, &old.programs) };
        self.host.note(&id, self.is_self(&id) && self.is_on_node(&id));
        let (before, after) =
            (&old.addresses, new.as_ref().map(|new| new.addresses.clone()).unwrap_or_default());
        let touched: BTreeSet<IpAddr> = before.union(&after).copied().collect();
        for address in before {
            let claim = (old.interface.is_some(), id.clone());
            if let Some(claims) = self.claims.get_mut(address) {
                claims.remove(&claim);
                if claims.is_empty() {
                    self.claims.remove(address);
                }
            }
        }
        if let Some(new) = &new {
            self.count_links(new, 1);
            for address in &new.addresses {
                self.claims.entry(*address).or_default().insert((new.interface.is_some(), id.clone()));
            }
        }
        self.count_links(&old, -1);
        if new.is_some() && id.kind != MemberKind::Pod && !self.workloads.contains_key(&id) {
            self.hosts.insert(id.clone());
        } else {
            self.hosts.remove(&id);
        }
        // From an interface nothing comes but the workload's own addresses, so one without is closed.
        if new.as_ref().is_some_and(|new| new.addresses.is_empty() && new.interface.is_none()) {
            self.unknown.insert(id.clone());
        } else {
            self.unknown.remove(&id);
        }
        self.endpoints.extend(new.map(|new| (id, new)));
        for address in touched {
            self.place(address);
        }
        for program in old.programs.into_iter().flatten().flatten() {
            self.programs.release(program);
        }
    }

    /// Puts in force what applies to the workload that has the address.
    fn place(&mut self, address: IpAddr) {
        let owner = self.claims.get(&address).and_then(|claims| claims.last());
        let endpoint = owner.and_then(|(_, id)| self.endpoints.get(id));
        let wanted = endpoint.map(|one| one.programs[usize::from(address.is_ipv6())]).unwrap_or_default();
        self.put_in_force(address, wanted);
    }

    /// Out and in.
    pub(super) fn put_in_force(&mut self, address: IpAddr, wanted: [Option<ProgramId>; 2]) {
        let current = self.placed.get(&address).copied().unwrap_or_default();
        for (new, old) in wanted.into_iter().zip(current) {
            if new == old {
                continue;
            }
            match (old, new) {
                (Some(old), Some(new)) => self.programs.exchange(old, new, address, &mut self.mirror),
                (Some(old), None) => self.programs.withdraw(old, address, &mut self.mirror),
                (None, Some(new)) => self.programs.place(new, address, &mut self.mirror),
                (None, None) => {}
            }
        }
        if wanted == [None; 2] {
            self.placed.remove(&address);
        } else {
            self.placed.insert(address, wanted);
        }
    }

    /// What does not depend on policies: where the workload is, and that it may talk to itself.
    fn count_links(&mut self, endpoint: &Endpoint, by: isize) {
        let mut elements: Vec<(Place, Key)> = Vec::new();
        if let Some(interface) = &endpoint.interface {
            elements.push((Place::Interfaces, Key::new().interface(interface)));
        }
        for address in &endpoint.addresses {
            let ipv6 = address.is_ipv6();
            elements.push((Place::Locals(ipv6), Key::new().address(*address)));
            if let Some(interface) = &endpoint.interface {
                elements.push((Place::Homes(ipv6), Key::new().interface(interface).address(*address)));
            }
            let others = endpoint.addresses.iter().filter(|other| other.is_ipv6() == ipv6);
            elements.extend(
                others.map(|other| (Place::Itself(ipv6), Key::new().address(*address).address(*other))),
            );
        }
        for (place, key) in elements {
            self.count(place, key.into_boxed(), by);
        }
    }

    /// An element that several workloads may need.
    fn count(&mut self, place: Place, key: Box<[u8]>, by: isize) {
        let count = self.counted.entry((place, key.clone())).or_default();
        *count = count.checked_add_signed(by).expect("taken back as often as given");
        if *count == 0 {
            self.counted.remove(&(place, key.clone()));
            self.mirror.remove(place, key);
        } else {
            self.mirror.put(place, key, Element::member());
        }
    }

    /// `None` if the workload is not here; `before`: what was in force, which is released next.
    fn endpoint(&mut self, id: &WorkloadId, before: &InForce) -> Option<Endpoint> {
        let local = self.workloads.get(id);
        if local.is_none() && !self.is_on_node(id) {
            return None;
        }
        let workload = local.map(|local| &local.workload);
        let given = workload.map(|workload| workload.addresses.as_slice()).unwrap_or_default();
        let addresses =
            if given.is_empty() { self.known_addresses(id) } else { given.iter().copied().collect() };
        let interface = workload.and_then(|workload| workload.interface.clone());
        let pending = workload.is_some_and(|workload| workload.pending);
        let ports = self.ports(id);
        let mut programs = [[None; 2]; 2];
        for ipv6 in [false, true] {
            for (slot, direction) in DIRECTIONS.into_iter().enumerate() {
                let program = match pending {
                    true => Program::closed(direction, ipv6),
                    false => {
                        let no_sets = BTreeSet::new();
                        let sets = self.selected_by.get(id).unwrap_or(&no_sets);
                        let own = self.workloads.get(id).and_then(|local| local.permits.as_ref());
                        self.program(sets, own, direction, ipv6, &ports)
                    }
                };
                if program.restricts() {
                    let before = before[usize::from(ipv6)][slot];
                    let number = self.programs.acquire(program, before, &self.peers, &mut self.mirror);
                    programs[usize::from(ipv6)][slot] = Some(number);
                }
            }
        }
        Some(Endpoint { interface, addresses, programs })
    }

    /// O(address sets).
    fn known_addresses(&self, id: &WorkloadId) -> BTreeSet<IpAddr> {
        self.address_sets().flat_map(|set| set.of(id)).flat_map(|peer| peer.addresses()).collect()
    }

    pub(super) fn known_ports(&self, id: &WorkloadId) -> Vec<NamedPort> {
        let ports: BTreeSet<&NamedPort> = self.applied_sets(id).flat_map(|set| set.ports(id)).collect();
        ports.into_iter().cloned().collect()
    }

    /// Ports that names stand for at the workload.
    pub(super) fn ports(&self, id: &WorkloadId) -> Vec<NamedPort> {
        let own = self.workloads.get(id).map(|local| &local.workload.ports);
        own.filter(|ports| !ports.is_empty()).cloned().unwrap_or_else(|| self.known_ports(id))
    }

    /// The rules that apply to who is in these sets, with a list of its own, in the order in which they are asked.
    pub(super) fn ranked<'a>(
        &'a self,
        sets: &'a BTreeSet<Arc<str>>,
        own: Option<&'a Bound>,
        direction: Direction,
    ) -> Vec<Ranked<'a>> {
        let names: BTreeSet<&Arc<str>> =
            sets.iter().filter_map(|set| self.applied_by.get(set)).flatten().collect();
        let records = names.into_iter().filter_map(|name| self.policies.get(name));
        let mut ranked: Vec<Ranked<'_>> = records
            .flat_map(|record| ranked(&record.bound, record.policy.as_deref(), direction, Some(sets)))
            .collect();
        ranked.extend(own.into_iter().flat_map(|bound| self::ranked(bound, None, direction, None)));
        ranked.sort_by(Ranked::order);
        ranked
    }

    /// O(rules of the policies that apply to who is in these sets), with a list of its own.
    pub(super) fn program(
        &self,
        sets: &BTreeSet<Arc<str>>,
        own: Option<&Bound>,
        direction: Direction,
        ipv6: bool,
        ports: &[NamedPort],
    ) -> Program {
        let ranked = self.ranked(sets, own, direction);
        let isolated = ranked.iter().any(|one| one.rule.stage == Stage::Kubernetes);
        let rules = ranked.iter().filter_map(|one| {
            let verb = one.rule.verb?;
            let mut parts = one.parts(ipv6, ports);
            parts.retain(|part| {
                (part.anyone || !part.features.is_empty())
                    && part.services.as_ref().is_none_or(|some| !some.is_empty())
            });
            parts.iter_mut().for_each(|part| part.features.sort_unstable());
            (!parts.is_empty()).then_some(ProgramRule { stage: one.rule.stage, verb, parts })
        });
        Program { direction, ipv6, isolated, rules: rules.collect() }
    }

    pub(super) fn is_itself(&self, source: IpAddr, destination: IpAddr) -> bool {
        let key = Key::new().address(source).address(destination);
        self.mirror.get(Place::Itself(source.is_ipv6()), key.as_bytes()).is_some()
    }

    /// Workloads that policies apply to and that have no address: nothing of them can be told from other traffic.
    pub(super) fn endpoint_errors(&self) -> Vec<ObjectError> {
        let mut without: BTreeMap<&Arc<str>, Vec<String>> = BTreeMap::new();
        for id in self.unknown.difference(&self.hosts) {
            for set in self.selected_by.get(id).into_iter().flatten() {
                without.entry(set).or_default().push(id.to_string());
            }
        }
        let error = |(set, mut ids): (&Arc<str>, Vec<String>)| {
            ids.sort_unstable();
            let message =
                format!("no address is known of {}: attach it to this node's registry", ids.join(", "));
            ObjectError { object: ObjectId::new(ObjectKind::AppliedToSet, &**set), message }
        };
        without.into_iter().map(error).collect()
    }
}

/// The rules of a direction that apply to members of these sets; all of them if the rules are the workload's own.
fn ranked<'a>(
    bound: &'a Bound,
    policy: Option<&'a NetworkPolicy>,
    direction: Direction,
    sets: Option<&'a BTreeSet<Arc<str>>>,
) -> impl Iterator<Item = Ranked<'a>> {
    let compiled = &bound.compiled;
    let applies = move |rule: &CompiledRule| {
        let Some(sets) = sets else { return true };
        let to = compiled.applied_to.as_ref().unwrap_or(&rule.applied_to);
        to.iter().any(|set| sets.contains(set))
    };
    let rules = compiled.rules.iter().enumerate();
    rules.filter(move |(_, rule)| rule.direction == direction && applies(rule)).map(move |(index, rule)| {
        Ranked { rank: &compiled.rank, rule, index, features: &bound.features, policy }
    })
}

impl Ranked<'_> {
    /// Peers and what is said of them, for a workload that has these ports.
    pub fn parts(&self, ipv6: bool, ports: &[NamedPort]) -> Vec<Part> {
        let number = |index: u32| self.features[usize::try_from(index).expect("32 bits fit")];
        self.rule.parts(ipv6, ports, number)
    }

    fn order(&self, other: &Self) -> std::cmp::Ordering {
        let key = |one: &Self| (one.rule.stage, one.rank.tier);
        key(self)
            .cmp(&key(other))
            .then(self.rank.priority.total_cmp(&other.rank.priority))
            .then(self.rule.order.cmp(&other.rule.order))
            .then_with(|| self.rank.name.cmp(&other.rank.name))
            .then(self.index.cmp(&other.index))
    }
}
