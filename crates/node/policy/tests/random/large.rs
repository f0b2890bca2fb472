//! One policy for every Pod of a node over many peers: it comes, is replaced, and goes, in transactions none of which is
//! large, and between any two of them each packet meets the old policy or the new one.

use std::net::IpAddr;

use model::policy::{
    Kind,
    output::{
        Action, Addresses, Direction, Identifier, IpBlock, Member, MemberKind, NetworkPolicy, PolicySource,
        PortRef, Protocol, Rule, RuleDetail, Service,
    },
};
use node_nft::{Limits, Live, Op, Plan, Transaction, fake::FakeKernel};
use node_policy::{
    Change, Decision, L4, LocalChange, ObjectKind, Options, Packet, Passage, Plane, SetKind, Workload,
    WorkloadId, naive::Naive,
};

use super::{Met, as_in_kernel, assert_converged, by_table};

const LIMIT: usize = 64;
const PODS: u8 = 12;
const SETS: u8 = 20;

fn pod(number: u8) -> IpAddr {
    [10, 1, 0, number].into()
}

fn peer(number: u8) -> IpAddr {
    [10, 2, 0, number].into()
}

fn member(name: String, address: Option<IpAddr>) -> Member {
    Member {
        kind: MemberKind::Pod,
        enforced: true,
        namespace: "n".into(),
        name: name.into(),
        addresses: address.map_or(Addresses::None, |address| [address].into_iter().collect()),
        ports: Box::new([]),
        node: None,
    }
}

fn set(kind: SetKind, name: String, put: Vec<Member>) -> Change {
    Change::PutSet { kind, name, replace: true, put, removed: Vec::new() }
}

/// Each set may use a port, or a range of ports, of its own; and a block with holes port 9 to 9 + `shift`.
fn policy(shift: u16) -> Change {
    let service = |port, more| Service {
        port: Some(PortRef::Number(port)),
        end_port: (more > 0).then_some(port + more),
        ..Service::any(Protocol::Tcp)
    };
    let rule = |groups: Vec<Identifier>, ip_blocks, services| Rule {
        direction: Direction::In,
        action: Some(Action::Allow),
        priority: -1,
        enable_logging: false,
        address_groups: groups,
        applied_to_groups: Vec::new(),
        detail: RuleDetail { services, ip_blocks, ..RuleDetail::default() }.into(),
    };
    let mut rules: Vec<Rule> = (0..SETS)
        .map(|number| {
            let port = 100 + u16::from(number) + shift;
            let services = vec![service(port, u16::from(number % 3 == 0) * 5)];
            rule(vec![Identifier::parse(&format!("peers-{number}"))], Vec::new(), services)
        })
        .collect();
    let hole = |number: u8| ipnet::IpNet::from(IpAddr::from([10, 3, 0, number]));
    let more = (0..20 * shift).map(|number| hole(u8::try_from(number * 2 + 1).unwrap()));
    let except = (0..100).map(|number| hole(number * 2)).chain(more).collect();
    let block = IpBlock { cidr: "10.3.0.0/16".parse().unwrap(), except };
    rules.push(rule(Vec::new(), vec![block], vec![service(9, shift)]));
    let uid = || Identifier::parse("wide");
    let policy = NetworkPolicy {
        uid: uid(),
        generation: 1,
        source: PolicySource {
            kind: Kind::NetworkPolicy,
            namespace: "n".into(),
            name: "wide".into(),
            uid: uid(),
        },
        tier_priority: None,
        priority: None,
        rules,
        applied_to_groups: vec![Identifier::parse("pods")],
        applied_to_per_rule: false,
    };
    Change::PutPolicy { name: "wide".into(), policy: Box::new(policy) }
}

fn packets() -> Vec<Packet> {
    let sources = (0..SETS / 2).map(peer).chain((0..10).map(|number| [10, 3, 0, number * 25].into()));
    let ports = [9, 12, 100, 103, 105, 112];
    let packet = |source: IpAddr, port: u16| Packet {
        source,
        destination: pod(port.to_le_bytes()[0] % PODS),
        l4: L4 { protocol: 6, first: 40_000, second: port },
    };
    sources.flat_map(|source| ports.map(|port| packet(source, port))).collect()
}

fn weight(transaction: &Transaction) -> usize {
    transaction.ops.iter().map(Op::weight).sum()
}

struct World {
    plane: Plane,
    naive: Naive,
    kernel: FakeKernel,
}

impl World {
    fn new() -> Self {
        let limits = Limits { elements: LIMIT };
        let mut plane = Plane::new(Options { limits, ..Options::default() });
        let mut changes: Vec<Change> = (0..SETS)
            .map(|number| {
                let put = vec![member(format!("peer{number}"), Some(peer(number)))];
                set(SetKind::Address, format!("peers-{number}"), put)
            })
            .collect();
        let pods = (0..PODS).map(|number| member(format!("pod{number}"), None)).collect();
        changes.push(set(SetKind::AppliedTo, "pods".into(), pods));
        let workload = |number| Workload::new(WorkloadId::pod("n", format!("pod{number}")), [pod(number)]);
        let local: Vec<_> = (0..PODS).map(|number| LocalChange::Put(workload(number))).collect();
        let mut naive = Naive::new("");
        changes.iter().cloned().for_each(|change| naive.take(change));
        local.iter().cloned().for_each(|change| naive.take_local(change));
        plane.load(changes, local);
        let mut kernel = FakeKernel::new(&plane.table());
        for one in Plan::new(&plane.table(), None, Live::Atomic, limits).unwrap().transactions {
            kernel.commit(&one).unwrap();
        }
        Self { plane, naive, kernel }
    }

    /// The transactions that it took.
    fn change(&mut self, change: Change) -> Vec<Transaction> {
        let packets = packets();
        let before: Vec<Decision> = packets.iter().map(|packet| self.naive.decide(packet)).collect();
        self.naive.take(change.clone());
        let after: Vec<Decision> = packets.iter().map(|packet| self.naive.decide(packet)).collect();
        assert_ne!(before, after, "the change is seen");
        let transactions = self.plane.step([change], []).transactions;
        for one in &transactions {
            self.kernel.commit(one).unwrap();
            let table = as_in_kernel(&self.plane, &self.kernel);
            let seen: Vec<Decision> =
                packets.iter().map(|packet| by_table(&table, packet, Met::Forward(Passage::Inner))).collect();
            assert!(seen == before || seen == after, "all packets meet one policy");
        }
        assert_converged(&self.plane, &self.kernel, 0);
        transactions
    }
}

#[test]
fn a_policy_over_many_peers_comes_changes_and_goes_in_small_transactions() {
    let mut world = World::new();
    let is_aside = |transactions: &[Transaction]| {
        let mut ops = transactions.iter().flat_map(|one| &one.ops);
        ops.any(|op| matches!(op, Op::AddElements { set, .. } if set.contains("aside")))
    };
    let put = world.change(policy(0));
    let replaced = world.change(policy(3));
    let removed = world.change(Change::Remove { kind: ObjectKind::Policy, name: "wide".into() });
    for transactions in [&put, &replaced, &removed] {
        assert!(transactions.len() > 5);
        let largest = transactions.iter().map(weight).max().unwrap();
        assert!(largest <= LIMIT, "{largest} elements in one transaction");
    }
    assert_eq!((is_aside(&put), is_aside(&replaced), is_aside(&removed)), (false, true, false));
}

/// As [`node_policy::retreat`] leads back from anywhere.
#[test]
fn a_change_that_was_cut_short_is_led_back_without_a_gap() {
    let mut world = World::new();
    world.change(policy(0));
    let packets = packets();
    let decide = |world: &World| packets.iter().map(|packet| world.naive.decide(packet)).collect::<Vec<_>>();
    let before = decide(&world);
    world.naive.take(policy(3));
    let after = decide(&world);
    let transactions = world.plane.step([policy(3)], []).transactions;
    let mut stopped_aside = 0;
    for stop in (0..transactions.len()).step_by(4) {
        let mut kernel = world.kernel.clone();
        transactions[..stop].iter().for_each(|one| kernel.commit(one).unwrap());
        let desired = world.plane.table();
        let steps = node_policy::retreat(&desired, kernel.table.as_ref().unwrap());
        stopped_aside += usize::from(!steps.is_empty());
        let limits = Limits { elements: LIMIT };
        for (index, target) in steps.iter().chain([&desired]).enumerate() {
            // As the executor does with what is not too much for one transaction.
            let live = if index == 1 { Live::Atomic } else { Live::Chunked };
            let plan = Plan::new(target, kernel.table.as_ref(), live, limits).unwrap();
            for one in plan.transactions {
                kernel.commit(&one).unwrap();
                let table = as_in_kernel(&world.plane, &kernel);
                let seen: Vec<Decision> = packets
                    .iter()
                    .map(|packet| by_table(&table, packet, Met::Forward(Passage::Inner)))
                    .collect();
                // Without an address aside a repair in pieces is a mixture, as after any restart.
                if !steps.is_empty() {
                    assert!(seen == before || seen == after, "stopped after {stop}, on the way to {index}");
                }
            }
        }
        assert_converged(&world.plane, &kernel, 0);
    }
    assert!(stopped_aside > 2, "{stopped_aside} of {}", transactions.len());
}
