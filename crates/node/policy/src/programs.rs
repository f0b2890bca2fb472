//! Programs in use, and which function each treats a class of peers by.
//!
//! Holds, per program: the workloads' addresses it is in force for, and a [`Function`](crate::function::Function) for everybody
//! and for each class that is treated otherwise.

mod change;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use node_nft::{Element, Key};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    function::Function,
    functions::{FunctionId, Functions},
    l4::{Decision, L4},
    layout::Place,
    mirror::Mirror,
    peers::{ClassId, Peers, Settled},
    program::{Concern, Program},
};

pub type ProgramId = u32;
/// The class of those whom no rule tells from others.
pub const EVERYBODY: ClassId = 0;

#[derive(Default)]
pub struct Programs {
    ids: FxHashMap<Arc<Program>, ProgramId>,
    records: FxHashMap<ProgramId, Record>,
    next: ProgramId,
    by_feature: FxHashMap<u32, FxHashSet<ProgramId>>,
    by_class: FxHashMap<ClassId, FxHashSet<ProgramId>>,
    functions: Functions,
}

struct Record {
    program: Arc<Program>,
    concern: Concern,
    users: usize,
    addresses: BTreeSet<IpAddr>,
    /// Always has [`EVERYBODY`]; others only if they differ from it.
    functions: BTreeMap<ClassId, FunctionId>,
}

/// Functions of a program by the parts of it that they are made of, while many are asked for.
type Made = FxHashMap<Vec<u32>, FunctionId>;

impl Record {
    /// By which function a class is treated, if otherwise than everybody. It is acquired.
    fn treated(
        &self,
        class: ClassId,
        peers: &Peers,
        made: &mut Made,
        functions: &mut Functions,
        mirror: &mut Mirror,
    ) -> Option<FunctionId> {
        let signature = peers.signature(class).filter(|signature| signature.ipv6 == self.program.ipv6)?;
        let parts = self.concern.with(&signature.features);
        let function = match made.get(&parts) {
            Some(function) => {
                functions.share(*function);
                *function
            }
            None => {
                let function = functions.acquire(Function::new(&self.program, &parts), mirror);
                made.insert(parts, function);
                function
            }
        };
        if function == self.functions[&EVERYBODY] {
            functions.release(function);
            return None;
        }
        Some(function)
    }

    fn place(&self) -> Place {
        Place::Functions(self.program.direction, self.program.ipv6)
    }
}

impl Programs {
    /// In the place of one that the caller releases next, if there is one: who is the only one to use that has it changed. Otherwise
    /// O(classes that have a feature of the program), if it is new.
    pub fn acquire(
        &mut self,
        program: Program,
        before: Option<ProgramId>,
        peers: &Peers,
        mirror: &mut Mirror,
    ) -> ProgramId {
        if let Some(id) = self.ids.get(&program) {
            self.records.get_mut(id).expect("ids are of records").users += 1;
            return *id;
        }
        let program = Arc::new(program);
        let own = before.filter(|id| self.records.get(id).is_some_and(|record| record.users == 1));
        if let Some(id) = own
            && self.change(id, &program, peers, mirror)
        {
            self.records.get_mut(&id).expect("it was changed a moment ago").users += 1;
            return id;
        }
        let id = self.next;
        self.next += 1;
        let concern = Concern::new(&program);
        let of_everybody = concern.with(&[]);
        let everybody = self.functions.acquire(Function::new(&program, &of_everybody), mirror);
        let functions = BTreeMap::from([(EVERYBODY, everybody)]);
        let mut record =
            Record { program: program.clone(), concern, users: 1, addresses: BTreeSet::new(), functions };
        let features: BTreeSet<u32> = program.features().collect();
        let classes: BTreeSet<ClassId> =
            features.iter().flat_map(|feature| peers.classes_with(*feature)).collect();
        let mut made = Made::from_iter([(of_everybody, everybody)]);
        for class in classes {
            let function = record.treated(class, peers, &mut made, &mut self.functions, mirror);
            if let Some(function) = function {
                record.functions.insert(class, function);
                self.by_class.entry(class).or_default().insert(id);
            }
        }
        for feature in features {
            self.by_feature.entry(feature).or_default().insert(id);
        }
        self.ids.insert(program, id);
        self.records.insert(id, record);
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
        for (class, function) in &record.functions {
            unlink(&mut self.by_class, *class, id);
            self.functions.release(*function);
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
            mirror.put(record.place(), pair(address, *class), value(*function));
        }
    }

    pub fn withdraw(&mut self, id: ProgramId, address: IpAddr, mirror: &mut Mirror) {
        let record = self.records.get_mut(&id).expect("programs in use are known");
        record.addresses.remove(&address);
        let subjects = Place::Subjects(record.program.direction, record.program.ipv6);
        mirror.remove(subjects, Key::new().address(address));
        for class in record.functions.keys() {
            mirror.remove(record.place(), pair(address, *class));
        }
    }

    /// Puts a program in force in the place of another of the same direction. Costs the kernel what differs.
    pub fn exchange(&mut self, old: ProgramId, new: ProgramId, address: IpAddr, mirror: &mut Mirror) {
        self.records.get_mut(&old).expect("programs in use are known").addresses.remove(&address);
        self.records.get_mut(&new).expect("programs in use are known").addresses.insert(address);
        let (old, new) = (&self.records[&old], &self.records[&new]);
        for class in old.functions.keys().filter(|class| !new.functions.contains_key(class)) {
            mirror.remove(old.place(), pair(address, *class));
        }
        for (class, function) in &new.functions {
            if old.functions.get(class) != Some(function) {
                mirror.put(new.place(), pair(address, *class), value(*function));
            }
        }
    }

    /// Classes came and went; nobody's program changed.
    pub fn follow(&mut self, settled: &Settled, peers: &Peers, mirror: &mut Mirror) {
        let mut made: FxHashMap<ProgramId, Made> = FxHashMap::default();
        for class in &settled.new {
            let Some(signature) = peers.signature(*class) else { continue };
            let of_features = signature.features.iter().filter_map(|feature| self.by_feature.get(feature));
            let concerned: BTreeSet<ProgramId> = of_features.flatten().copied().collect();
            for id in concerned {
                let record = self.records.get_mut(&id).expect("programs in use are known");
                let made = made.entry(id).or_default();
                let Some(function) = record.treated(*class, peers, made, &mut self.functions, mirror) else {
                    continue;
                };
                for address in &record.addresses {
                    mirror.put(record.place(), pair(*address, *class), value(function));
                }
                record.functions.insert(*class, function);
                self.by_class.entry(*class).or_default().insert(id);
            }
        }
        for class in &settled.gone {
            for id in self.by_class.remove(class).into_iter().flatten() {
                let record = self.records.get_mut(&id).expect("programs in use are known");
                let Some(function) = record.functions.remove(class) else { continue };
                self.functions.release(function);
                for address in &record.addresses {
                    mirror.remove(record.place(), pair(*address, *class));
                }
            }
        }
    }

    /// Takes away what nobody is led to any more.
    pub fn sweep(&mut self, mirror: &mut Mirror) {
        self.functions.sweep(mirror);
    }

    /// Addresses for which the function says something. O(what all programs say).
    pub fn addresses_with(&self, function: FunctionId) -> impl Iterator<Item = IpAddr> {
        let with = move |record: &&Record| record.functions.values().any(|used| *used == function);
        self.records.values().filter(with).flat_map(|record| record.addresses.iter().copied())
    }

    pub fn decide(&self, id: ProgramId, class: ClassId, packet: L4) -> Decision {
        let functions = &self.records[&id].functions;
        let function = functions.get(&class).unwrap_or(&functions[&EVERYBODY]);
        self.functions.get(*function).decide(packet)
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

fn pair(address: IpAddr, class: ClassId) -> Key {
    Key::new().address(address).mark(class)
}

fn value(function: FunctionId) -> Element {
    Element::value(Key::new().mark(function))
}
