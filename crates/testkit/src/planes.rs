//! Random policies, sets and Pods of one node from a small world, so that they meet: few names, few addresses, few ports.

use std::net::IpAddr;

use model::policy::{
    Kind,
    output::{
        Action, Direction, Identifier, IpBlock, Member, MemberKind, NamedPort, NetworkPolicy, PolicySource,
        PortRef, Protocol, Rule, RuleDetail, Service,
    },
};
use node_policy::{Change, L4, LocalChange, ObjectKind, Packet, Permit, SetKind, Workload, WorkloadId};

pub struct Dice {
    state: u64,
    /// The node's name: half of the worlds are an ExternalNode's.
    pub node: &'static str,
}

impl Dice {
    pub fn new(seed: u64) -> Self {
        let node = if seed.is_multiple_of(2) { "here" } else { "n/here" };
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, node }
    }

    pub fn roll(&mut self, sides: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) % sides
    }

    pub fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }

    fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list[usize::try_from(self.roll(list.len() as u64)).unwrap()].clone()
    }

    fn some<T: Clone>(&mut self, list: &[T], most: u64) -> Vec<T> {
        let count = self.roll(most + 1);
        (0..count).map(|_| self.pick(list)).collect()
    }
}

const PROTOCOLS: [Protocol; 4] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp, Protocol::Icmp];
const PORTS: [u16; 7] = [0, 79, 80, 81, 8080, 8090, 65535];
const BLOCKS: [&str; 9] = [
    "0.0.0.0/0",
    "::/0",
    "10.0.0.0/24",
    "10.0.0.2/31",
    "10.0.0.0/30",
    "192.0.2.0/24",
    "128.0.0.0/1",
    "fd00::/64",
    "fd00::2/127",
];

fn addresses(number: u64, dual: bool) -> Vec<IpAddr> {
    let mut addresses = vec![format!("10.0.0.{number}").parse().unwrap()];
    if dual {
        addresses.push(format!("fd00::{number}").parse().unwrap());
    }
    addresses
}

/// Pods 0 to 3 are on this node.
fn member(dice: &mut Dice, applied: bool) -> Member {
    let number = dice.roll(if applied { 5 } else { 8 });
    let ports = dice.some(
        &[
            NamedPort { name: "web".into(), port: 80, protocol: Protocol::Tcp },
            NamedPort { name: "web".into(), port: 8080, protocol: Protocol::Tcp },
            NamedPort { name: "dns".into(), port: 81, protocol: Protocol::Udp },
        ],
        2,
    );
    // Now and then another Pod's address: it is being reused.
    let address = if dice.one_in(12) { dice.roll(8) } else { number };
    let dual = !dice.one_in(3);
    if applied && dice.one_in(5) {
        return host(dice, ports.into());
    }
    Member {
        kind: MemberKind::Pod,
        enforced: true,
        namespace: "n".into(),
        name: format!("p{number}").into(),
        addresses: if applied { Vec::new() } else { addresses(address, dual) }.into_iter().collect(),
        ports: ports.into(),
        node: applied.then(|| if number < 4 { dice.node.into() } else { "there".into() }),
    }
}

/// This node or another, as a Node or as an ExternalEntity; also one that only says that it is enforced here.
fn host(dice: &mut Dice, ports: Box<[NamedPort]>) -> Member {
    let (kind, namespace, names) = match dice.one_in(2) {
        true => (MemberKind::Node, "", ["here", "there"]),
        false => (MemberKind::ExternalEntity, "n", ["here-1", "here-2"]),
    };
    let name = dice.pick(&names);
    let node = if name == "there" { name } else { dice.node };
    let (namespace, name, node) = (namespace.into(), name.into(), Some(node.into()));
    Member { kind, enforced: true, namespace, name, addresses: [].into_iter().collect(), ports, node }
}

fn service(dice: &mut Dice) -> Service {
    let mut service = Service::any(dice.pick(&PROTOCOLS));
    if service.protocol == Protocol::Icmp {
        service.icmp_type = dice.one_in(2).then_some(8);
        service.icmp_code = service.icmp_type.and_then(|_| dice.one_in(2).then_some(0));
        return service;
    }
    match dice.roll(4) {
        0 => {}
        1 => {
            service.protocol = dice.pick(&[Protocol::Tcp, Protocol::Udp]);
            service.port = Some(PortRef::Name(dice.pick(&["web", "dns"]).into()));
        }
        2 => service.port = Some(PortRef::Number(dice.pick(&PORTS))),
        _ => {
            let (a, b) = (dice.pick(&PORTS), dice.pick(&PORTS));
            service.port = Some(PortRef::Number(a.min(b)));
            service.end_port = Some(a.max(b));
        }
    }
    if dice.one_in(5) {
        service.source_port = Some(79);
        service.source_end_port = dice.one_in(2).then_some(81);
    }
    service
}

fn rule(dice: &mut Dice, ordered: bool, per_rule: bool) -> Rule {
    let actions = [Action::Allow, Action::Drop, Action::Reject, Action::Pass];
    let action = if ordered { Some(dice.pick(&actions)) } else { (!dice.one_in(5)).then_some(Action::Allow) };
    let blocks: Vec<IpBlock> = dice
        .some(&BLOCKS, 2)
        .into_iter()
        .map(|cidr| {
            let cidr: ipnet::IpNet = cidr.parse().unwrap();
            let within = |text: &&&str| cidr.contains(&text.parse::<ipnet::IpNet>().unwrap());
            let inner: Vec<&str> = BLOCKS.iter().filter(within).copied().collect();
            let except = if dice.one_in(2) { dice.some(&inner, 2) } else { Vec::new() };
            IpBlock { cidr, except: except.iter().map(|text| text.parse().unwrap()).collect() }
        })
        .collect();
    let detail = RuleDetail {
        ip_blocks: blocks,
        services: if dice.one_in(3) {
            Vec::new()
        } else {
            (0..=dice.roll(2)).map(|_| service(dice)).collect()
        },
        fqdns: if dice.one_in(15) { vec!["example.com".into()] } else { Vec::new() },
        untranslatable: if dice.one_in(15) { vec!["l7Protocols".into()] } else { Vec::new() },
        ..RuleDetail::default()
    };
    Rule {
        direction: dice.pick(&[Direction::In, Direction::Out]),
        action,
        priority: if ordered { i32::try_from(dice.roll(3)).unwrap() } else { -1 },
        enable_logging: false,
        address_groups: dice.some(&["s0", "s1", "s2", "s3"], 2).into_iter().map(Identifier::parse).collect(),
        applied_to_groups: if per_rule { applied_to(dice) } else { Vec::new() },
        detail: detail.into(),
    }
}

fn applied_to(dice: &mut Dice) -> Vec<Identifier> {
    dice.some(&["a0", "a1", "a2"], 2).into_iter().map(Identifier::parse).collect()
}

fn policy(dice: &mut Dice, name: &str) -> NetworkPolicy {
    let tier_priority = dice.pick(&[None, None, Some(1), Some(5), Some(250), Some(253)]);
    let per_rule = tier_priority.is_some() && dice.one_in(3);
    let rules = dice.roll(4);
    NetworkPolicy {
        uid: Identifier::parse(name),
        generation: 1,
        source: PolicySource {
            kind: Kind::AntreaNetworkPolicy,
            namespace: "n".into(),
            name: name.into(),
            uid: Identifier::parse(name),
        },
        tier_priority,
        priority: tier_priority.map(|_| dice.pick(&[1.0, 1.5, 5.0])),
        rules: (0..rules).map(|_| rule(dice, tier_priority.is_some(), per_rule)).collect(),
        applied_to_groups: if per_rule { Vec::new() } else { applied_to(dice) },
        applied_to_per_rule: per_rule,
    }
}

pub fn set_change(dice: &mut Dice) -> Change {
    let applied = dice.one_in(2);
    let (kind, name) = match applied {
        true => (SetKind::AppliedTo, format!("a{}", dice.roll(3))),
        false => (SetKind::Address, format!("s{}", dice.roll(4))),
    };
    if dice.one_in(8) {
        return Change::Remove { kind: kind.into(), name };
    }
    let count = dice.roll(4);
    let put = (0..count).map(|_| member(dice, applied)).collect();
    let count = dice.roll(3);
    let removed = (0..count).map(|_| member(dice, applied)).collect();
    Change::PutSet { kind, name, replace: dice.one_in(4), put, removed }
}

pub fn policy_change(dice: &mut Dice) -> Change {
    let name = format!("policy{}", dice.roll(5));
    if dice.one_in(4) {
        Change::Remove { kind: ObjectKind::Policy, name }
    } else {
        let policy = policy(dice, &name);
        Change::PutPolicy { name, policy: Box::new(policy) }
    }
}

fn permits(dice: &mut Dice) -> Vec<Permit> {
    let permit = |dice: &mut Dice| Permit {
        direction: dice.pick(&[Direction::In, Direction::Out]),
        prefixes: dice.some(&BLOCKS, 2).iter().map(|text| text.parse().unwrap()).collect(),
        protocol: dice.pick(&[None, Some(6), Some(47), Some(17)]),
        source_ports: dice.pick(&[None, None, Some((79, 81))]),
        ports: dice.pick(&[None, Some((80, 80)), Some((80, 8080))]),
    };
    (0..dice.roll(4)).map(|_| permit(dice)).collect()
}

pub fn local_change(dice: &mut Dice) -> LocalChange {
    if dice.one_in(4) {
        return LocalChange::Host { fail_safes: permits(dice) };
    }
    let number = dice.roll(4);
    let id = WorkloadId::pod("n", format!("p{number}"));
    if dice.one_in(4) {
        return LocalChange::Remove(id);
    }
    let dual = !dice.one_in(3);
    let own = if dice.one_in(4) {
        Vec::new()
    } else {
        addresses(if dice.one_in(8) { dice.roll(4) } else { number }, dual)
    };
    let mut workload = Workload::new(id, own);
    workload.pending = dice.one_in(10);
    if dice.one_in(4) {
        workload.ports = vec![NamedPort { name: "web".into(), port: 8090, protocol: Protocol::Tcp }];
    }
    if dice.one_in(5) {
        workload.permits = Some(permits(dice));
    }
    LocalChange::Put(workload)
}

pub fn packet(dice: &mut Dice) -> Packet {
    let ipv6 = dice.one_in(3);
    let address = |dice: &mut Dice| -> IpAddr {
        let outside = if ipv6 { ["2001:db8::1", "fd00::99"] } else { ["192.0.2.7", "10.0.0.77"] };
        match dice.roll(5) {
            0 => dice.pick(&outside).parse().unwrap(),
            _ => addresses(dice.roll(8), true)[usize::from(ipv6)],
        }
    };
    let (source, destination) = (address(dice), address(dice));
    let protocol = dice.pick(&[6, 6, 6, 17, 132, 1, 58, 47]);
    let (first, second) = match protocol {
        1 | 58 => (dice.pick(&[0x800, 0x801, 0x300]), 7),
        _ => (dice.pick(&[79, 81, 40_000]), dice.pick(&[80, 81, 79, 8080, 8085, 65535, 1])),
    };
    Packet { source, destination, l4: L4 { protocol, first, second } }
}
