//! Programs in use, what each decides about each class of peers, and the elements that say so in the kernel.
//!
//! Holds, per program: the workloads' addresses it is in force for, and a [`Function`] for everybody and for each class
//! that is treated otherwise.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use node_nft::{Element, Key};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    function::Function,
    l4::{Decision, L4},
    layout::{Place, code},
    mirror::Mirror,
    peers::{ClassId, Peers, Settled},
    program::Program,
};

pub type ProgramId = u32;
/// The class of those whom no rule tells from others.
pub const EVERYBODY: ClassId = 0;

#[derive(Default)]
pub struct Programs {
    ids: FxHashMap<Program, ProgramId>,
    records: FxHashMap<ProgramId, Record>,
    next: ProgramId,
    by_feature: FxHashMap<u32, FxHashSet<ProgramId>>,
    by_class: FxHashMap<ClassId, FxHashSet<ProgramId>>,
}

struct Record {
    program: Program,
    users: usize,
    addresses: BTreeSet<IpAddr>,
    /// Always has [`EVERYBODY`]; others only if they differ from it.
    functions: BTreeMap<ClassId, Function>,
}

impl Programs {
    /// O(classes that have a feature of the program), if it is new.
    pub fn acquire(&mut self, program: Program, peers: &Peers) -> ProgramId {
        if let Some(id) = self.ids.get(&program) {
            self.records.get_mut(id).expect("ids are of records").users += 1;
            return *id;
        }
        let id = self.next;
        self.next += 1;
        let everybody = Function::new(&program, |_| false);
        let mut functions = BTreeMap::from([(EVERYBODY, everybody)]);
        let features: BTreeSet<u32> = program.features().collect();
        let classes: BTreeSet<ClassId> =
            features.iter().flat_map(|feature| peers.classes_with(*feature)).collect();
        for class in classes {
            if let Some(function) = treated(&program, class, &functions[&EVERYBODY], peers) {
                functions.insert(class, function);
                self.by_class.entry(class).or_default().insert(id);
            }
        }
        for feature in features {
            self.by_feature.entry(feature).or_default().insert(id);
        }
        self.ids.insert(program.clone(), id);
        self.records.insert(id, Record { program, users: 1, addresses: BTreeSet::new(), functions });
        id
    }

    /// When nobody uses it any more it is in force nowhere.
    pub fn release(&mut self, id: ProgramId) {
        let record = self.records.get_mut(&id).expect("released as often as acquired");
        record.users -= 1;
        if record.users > 0 {
            return;
        }
        let record = self.records.remove(&id).expect("it was there a moment ago");
        for feature in record.program.features() {
            unlink(&mut self.by_feature, feature, id);
        }
        for class in record.functions.keys() {
            unlink(&mut self.by_class, *class, id);
        }
        self.ids.remove(&record.program);
    }

    /// Puts the program in force for an address.
    pub fn place(&mut self, id: ProgramId, address: IpAddr, mirror: &mut Mirror) {
        let record = self.records.get_mut(&id).expect("programs in use are known");
        record.addresses.insert(address);
        let subjects = Place::Subjects(record.program.direction, record.program.ipv6);
        mirror.put(subjects, Key::new().address(address), Element::member());
        for (class, function) in &record.functions {
            record.program.elements(address, *class, function, |place, key, element| {
                mirror.put(place, key, element);
            });
        }
    }

    pub fn withdraw(&mut self, id: ProgramId, address: IpAddr, mirror: &mut Mirror) {
        let record = self.records.get_mut(&id).expect("programs in use are known");
        record.addresses.remove(&address);
        let subjects = Place::Subjects(record.program.direction, record.program.ipv6);
        mirror.remove(subjects, Key::new().address(address));
        for (class, function) in &record.functions {
            record.program.elements(address, *class, function, |place, key, _| mirror.remove(place, key));
        }
    }

    /// Classes came and went; nobody's program changed.
    pub fn follow(&mut self, settled: &Settled, peers: &Peers, mirror: &mut Mirror) {
        for class in &settled.new {
            let Some(signature) = peers.signature(*class) else { continue };
            let concerned: BTreeSet<ProgramId> = signature
                .features
                .iter()
                .filter_map(|feature| self.by_feature.get(feature))
                .flatten()
                .copied()
                .collect();
            for id in concerned {
                let record = self.records.get_mut(&id).expect("programs in use are known");
                let Some(function) = treated(&record.program, *class, &record.functions[&EVERYBODY], peers)
                else {
                    continue;
                };
                for address in &record.addresses {
                    record.program.elements(*address, *class, &function, |place, key, element| {
                        mirror.put(place, key, element);
                    });
                }
                record.functions.insert(*class, function);
                self.by_class.entry(*class).or_default().insert(id);
            }
        }
        for class in &settled.gone {
            for id in self.by_class.remove(class).into_iter().flatten() {
                let record = self.records.get_mut(&id).expect("programs in use are known");
                let Some(function) = record.functions.remove(class) else { continue };
                for address in &record.addresses {
                    record
                        .program
                        .elements(*address, *class, &function, |place, key, _| mirror.remove(place, key));
                }
            }
        }
    }

    pub fn decide(&self, id: ProgramId, class: ClassId, packet: L4) -> Decision {
        let functions = &self.records[&id].functions;
        functions.get(&class).unwrap_or(&functions[&EVERYBODY]).decide(packet)
    }
}

fn unlink<K: std::hash::Hash + Eq>(index: &mut FxHashMap<K, FxHashSet<ProgramId>>, key: K, id: ProgramId) {
    if let Some(ids) = index.get_mut(&key) {
        ids.remove(&id);
        if ids.is_empty() {
            index.remove(&key);
        }
    }
}

/// How the program treats a class, if otherwise than everybody.
fn treated(program: &Program, class: ClassId, everybody: &Function, peers: &Peers) -> Option<Function> {
    let signature = peers.signature(class).filter(|signature| signature.ipv6 == program.ipv6)?;
    let function = Function::new(program, |feature| signature.features.binary_search(&feature).is_ok());
    (function != *everybody).then_some(function)
}

impl Program {
    /// The elements that say what holds between an address of a workload and a class of peers.
    fn elements(
        &self,
        address: IpAddr,
        class: ClassId,
        function: &Function,
        mut each: impl FnMut(Place, Key, Element),
    ) {
        let (direction, ipv6) = (self.direction, self.ipv6);
        let pair = || Key::new().address(address).mark(class);
        each(Place::Defaults(direction, ipv6), pair(), value(function.default));
        for (protocol, decision) in &function.protocols {
            each(Place::Protocols(direction, ipv6), pair().proto(*protocol), value(*decision));
        }
        for (protocol, port, decision) in &function.ports {
            each(Place::Ports(direction, ipv6), pair().proto(*protocol).port(*port), value(*decision));
        }
        let trees = [
            (Place::Ranges(direction, ipv6), &function.ranges),
            (Place::Sources(direction, ipv6), &function.sources),
        ];
        for (place, ranges) in trees {
            for (protocol, (low, high), decision) in ranges {
                let border = |port| pair().proto(*protocol).port(port);
                each(place, border(*low), value(*decision).until(border(*high)));
            }
        }
        for (range, decision) in &function.boxes {
            let corner = |first, second| pair().proto(range.protocol).port(first).port(second);
            let (low, high) = (corner(range.first.0, range.second.0), corner(range.first.1, range.second.1));
            each(Place::Boxes(direction, ipv6), low, value(*decision).until(high));
        }
    }
}

fn value(decision: Decision) -> Element {
    Element::value(Key::new().mark(code(decision)))
}
