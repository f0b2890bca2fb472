//! A transaction taken apart, for when the kernel refuses it as a whole: each unit can be committed without the others.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use node_nft::{Element, Key, Op, Transaction};

use crate::{
    ObjectId, ObjectKind, Plane,
    compile::FeatureKey,
    functions::FunctionId,
    layout::{Place, host},
};

/// What belongs together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// What a function decides, which several workloads may be led to.
    Function(FunctionId),
    /// The class of one address.
    Peer(IpAddr),
    /// The classes of all ranges of a family, which depend on each other.
    Blocks { ipv6: bool },
    /// Everything that is decided for one address of a workload.
    Workload(IpAddr),
    /// Interfaces and addresses of workloads.
    Links,
}

#[derive(Clone, Debug)]
pub struct Unit {
    pub subject: Subject,
    pub transaction: Transaction,
}

/// `None` if the transaction does more than change elements: then it cannot be taken apart.
pub fn units(transaction: &Transaction) -> Option<Vec<Unit>> {
    let mut units: BTreeMap<Subject, Transaction> = BTreeMap::new();
    for op in &transaction.ops {
        let (Op::AddElements { set, schema, elements } | Op::DeleteElements { set, schema, elements }) = op
        else {
            return None;
        };
        let place = Place::all().into_iter().find(|place| place.name() == *set)?;
        for (key, element) in elements {
            let (set, schema, elements) = (set.clone(), schema.clone(), vec![(key.clone(), element.clone())]);
            let one = match op {
                Op::AddElements { .. } => Op::AddElements { set, schema, elements },
                _ => Op::DeleteElements { set, schema, elements },
            };
            units.entry(subject(place, key)).or_default().push(one);
        }
    }
    Some(units.into_iter().map(|(subject, transaction)| Unit { subject, transaction }).collect())
}

/// The units as one transaction again.
pub fn join(units: &[Unit]) -> Transaction {
    let mut whole = Transaction::default();
    for unit in units {
        unit.transaction.ops.iter().for_each(|op| whole.push(op.clone()));
    }
    whole
}

fn subject(place: Place, key: &[u8]) -> Subject {
    let address = |ipv6: bool| {
        let bytes = if ipv6 { key.first_chunk::<16>().map(|bytes| (*bytes).into()) } else { None };
        bytes.or_else(|| key.first_chunk::<4>().map(|bytes| (*bytes).into()))
    };
    let (peer, workload) = match place {
        Place::Blocks(ipv6) => return Subject::Blocks { ipv6 },
        Place::Ports | Place::Ranges | Place::Sources | Place::Boxes | Place::Protocols | Place::Defaults => {
            let number = key.first_chunk().expect("such keys begin with a number");
            return Subject::Function(FunctionId::from_ne_bytes(*number));
        }
        Place::Peers(ipv6) => (address(ipv6), None),
        Place::Subjects(_, ipv6)
        | Place::Functions(_, ipv6)
        | Place::Aside(_, ipv6)
        | Place::Closed(ipv6) => (None, address(ipv6)),
        Place::Itself(_)
        | Place::Locals(_)
        | Place::Interfaces
        | Place::Homes(_)
        | Place::Decisions
        | Place::LateDecisions => (None, None),
    };
    peer.map(Subject::Peer).or(workload.map(Subject::Workload)).unwrap_or(Subject::Links)
}

impl Plane {
    /// Closes whom the unit is about, if these are workloads: better nothing than what was not decided. Not the node itself, which
    /// nobody could reach then to mend it: what held for it goes on.
    pub fn closing(&self, subject: &Subject) -> Option<Transaction> {
        let ops = [false, true].map(|ipv6| {
            let place = Place::Closed(ipv6);
            let concerned = self.judged_by(subject).into_iter().filter(|address| address.is_ipv6() == ipv6);
            let workloads = concerned.filter(|address| *address != host(ipv6));
            let element = |address| (Key::new().address(address).into_boxed(), Element::member());
            let elements = workloads.map(element).collect();
            Op::AddElements { set: place.name(), schema: place.schema(), elements }
        });
        let ops: Vec<Op> = ops.into_iter().filter(|op| !op.elements().is_empty()).collect();
        (!ops.is_empty()).then_some(Transaction { ops })
    }

    /// Addresses of workloads here that the unit decides about.
    fn judged_by(&self, subject: &Subject) -> BTreeSet<IpAddr> {
        match subject {
            Subject::Workload(address) => BTreeSet::from([*address]),
            Subject::Function(function) => self.addresses_with(*function),
            Subject::Peer(_) | Subject::Blocks { .. } | Subject::Links => BTreeSet::new(),
        }
    }

    /// The objects that are not in force if this unit is not in the kernel.
    pub fn objects_of(&self, subject: &Subject) -> Vec<ObjectId> {
        let object = |kind: ObjectKind| move |name: Arc<str>| ObjectId::new(kind, &*name);
        match subject {
            Subject::Peer(address) => {
                let sets = self.features_of_address(*address).into_iter().filter_map(|key| match key {
                    FeatureKey::Set(set) => Some(set),
                    FeatureKey::Named { .. } | FeatureKey::Block(_) => None,
                });
                sets.map(object(ObjectKind::AddressSet)).collect()
            }
            Subject::Blocks { ipv6 } => {
                self.policies_with_blocks(*ipv6).into_iter().map(object(ObjectKind::Policy)).collect()
            }
            Subject::Workload(_) | Subject::Function(_) => {
                let addresses = self.judged_by(subject).into_iter();
                let policies: BTreeSet<_> =
                    addresses.flat_map(|address| self.policies_of_address(address)).collect();
                policies.into_iter().map(object(ObjectKind::Policy)).collect()
            }
            Subject::Links => Vec::new(),
        }
    }
}
