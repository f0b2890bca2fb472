//! A node's policies as the plane lays them out, beside one chain for each policy by `nft -f`.
//!
//! The node has 250 Pods; each of the policies applies to one of them and permits the members of a set of its own on two
//! ports. In `apps` the sets are of different workloads, as selections by application are; in `mixed` every peer is in
//! several sets at random, which is the worst there is for a layout by classes of peers.

use std::{
    fmt::Write as _,
    io,
    net::IpAddr,
    time::{Duration, Instant},
};

use benches::report;
use model::policy::{
    Kind,
    output::{
        Action, Addresses, Direction, Identifier, Member, MemberKind, NetworkPolicy, PolicySource, PortRef,
        Protocol, Rule, RuleDetail, Service,
    },
};
use node_kernel::policy::PolicyExecutor;
use node_policy::{Change, LocalChange, ObjectKind, Options, SetKind, Workload, WorkloadId};

use super::{CHANGES, cpu_seconds, ip, load, median, millis, report_peer};

pub const PODS: u32 = 250;

/// What the same change took each time.
#[derive(Default)]
pub struct Cost {
    took: Vec<Duration>,
    lock: Duration,
    elements: usize,
}

impl Cost {
    pub fn apply(&mut self, executor: &mut PolicyExecutor, change: Change) {
        let started = Instant::now();
        let outcome = executor.apply([change], []).expect("the kernel takes the change");
        self.took.push(started.elapsed());
        self.lock = self.lock.max(outcome.applied.longest);
        self.elements = self.elements.max(outcome.applied.weight);
    }

    /// The median, and the longest time that any transaction kept others out.
    pub fn report(self, bench: &str) {
        report(bench, "ms", millis(median(self.took)), "ms");
        report(bench, "lock_ms", millis(self.lock), "ms");
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        report(bench, "elements", self.elements as f64, "elements");
    }
}

/// How many policies, members of each set, and peers there are.
pub struct Scene {
    pub name: &'static str,
    pub policies: u32,
    pub members: u32,
    pub peers: u32,
    pub mixed: bool,
}

impl Scene {
    fn peer(&self, policy: u32, index: u32) -> u32 {
        let number = policy * self.members + index;
        let scattered = if self.mixed { number.wrapping_mul(2_654_435_761) >> 7 } else { number };
        scattered % self.peers
    }

    fn address_set(&self, policy: u32) -> Change {
        let put = (0..self.members).map(|index| peer(self.peer(policy, index))).collect();
        set(SetKind::Address, format!("peers-{policy}"), put)
    }

    fn changes(&self) -> Vec<Change> {
        let mut changes: Vec<Change> = (0..self.policies).map(|policy| self.address_set(policy)).collect();
        for pod in 0..PODS {
            let member = Member { addresses: Addresses::None, ..member(format!("pod{pod}"), None) };
            changes.push(set(SetKind::AppliedTo, format!("pod-{pod}"), vec![member]));
        }
        changes.extend((0..self.policies).map(policy));
        changes
    }

    /// A set, a chain and its rules for each policy, a chain for each Pod that asks its policies, a map to the Pods.
    fn script(&self) -> String {
        let mut text = String::from("table inet bench-policies {\n");
        for policy in 0..self.policies {
            let members: Vec<String> =
                (0..self.members).map(|index| peer_ip(self.peer(policy, index)).to_string()).collect();
            let _ =
                writeln!(text, "set s{policy} {{ type ipv4_addr; elements = {{ {} }}\n}}", members.join(","));
            let _ = writeln!(
                text,
                "chain p{policy} {{ ip saddr @s{policy} tcp dport {} accept; ip saddr @s{policy} tcp dport {} accept; }}",
                port(policy),
                port(policy) + 1
            );
        }
        let mut pods = Vec::new();
        for pod in 0..PODS {
            let _ = writeln!(text, "chain pod{pod} {{");
            for policy in (0..self.policies).filter(|policy| policy % PODS == pod) {
                let _ = writeln!(text, "jump p{policy};");
            }
            let _ = writeln!(text, "drop; }}");
            pods.push(format!("{} : goto pod{pod}", pod_ip(pod)));
        }
        let _ = writeln!(
            text,
            "chain forward {{ type filter hook forward priority 0; ct state established accept; ip daddr vmap {{ {} }}; }}\n}}",
            pods.join(",")
        );
        text
    }
}

fn port(policy: u32) -> u16 {
    8_000 + u16::try_from(policy % 50).expect("below 50") * 2
}

pub fn pod_ip(pod: u32) -> IpAddr {
    IpAddr::V4((0x0a63_0000 + pod).into())
}

fn peer_ip(number: u32) -> IpAddr {
    IpAddr::V4(ip(number))
}

pub fn member(name: String, address: Option<IpAddr>) -> Member {
    Member {
        kind: MemberKind::Pod,
        enforced: true,
        namespace: "n".into(),
        name: name.into(),
        addresses: address.into_iter().collect(),
        ports: Box::new([]),
        node: None,
    }
}

pub fn peer(number: u32) -> Member {
    member(format!("peer{number}"), Some(peer_ip(number)))
}

pub fn set(kind: SetKind, name: String, put: Vec<Member>) -> Change {
    Change::PutSet { kind, name, replace: true, put, removed: Vec::new() }
}

fn policy(number: u32) -> Change {
    let service = |port| Service { port: Some(PortRef::Number(port)), ..Service::any(Protocol::Tcp) };
    let detail = RuleDetail {
        services: vec![service(port(number)), service(port(number) + 1)],
        ..RuleDetail::default()
    };
    let name = format!("policy-{number}");
    let rule = Rule {
        direction: Direction::In,
        action: Some(Action::Allow),
        priority: -1,
        enable_logging: false,
        address_groups: vec![Identifier::parse(&format!("peers-{number}"))],
        applied_to_groups: Vec::new(),
        detail: detail.into(),
    };
    let policy = NetworkPolicy {
        uid: Identifier::parse(&name),
        generation: 1,
        source: PolicySource {
            kind: Kind::NetworkPolicy,
            namespace: "n".into(),
            name: name.as_str().into(),
            uid: Identifier::parse(&name),
        },
        tier_priority: None,
        priority: None,
        rules: vec![rule],
        applied_to_groups: vec![Identifier::parse(&format!("pod-{}", number % PODS))],
        applied_to_per_rule: false,
    };
    Change::PutPolicy { name, policy: Box::new(policy) }
}

pub fn workloads() -> Vec<LocalChange> {
    let workload = |pod| Workload::new(WorkloadId::pod("n", format!("pod{pod}")), [pod_ip(pod)]);
    (0..PODS).map(|pod| LocalChange::Put(workload(pod))).collect()
}

pub fn run(scene: &Scene) -> io::Result<()> {
    ours(scene);
    peer_layout(scene)
}

fn ours(scene: &Scene) {
    let bench = format!("nft.{}", scene.name);
    let mut executor = PolicyExecutor::open(Options::default()).expect("the kernel has nftables");
    let (changes, local) = (scene.changes(), workloads());
    let (started, cpu) = (Instant::now(), cpu_seconds());
    let outcome = executor.apply(changes, local).expect("the kernel takes the policies");
    report(&bench, "seconds", started.elapsed().as_secs_f64(), "s");
    report(&bench, "cpu_seconds", cpu_seconds() - cpu, "s");
    report(&format!("{bench}.floor"), "seconds", outcome.applied.in_kernel.as_secs_f64(), "s");
    report(&bench, "lock_ms", millis(outcome.applied.longest), "ms");
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    report(&bench, "elements", outcome.applied.weight as f64, "elements");

    let mut took = Vec::new();
    for number in 0..CHANGES {
        let put = vec![peer(scene.peers + number)];
        let change = Change::PutSet {
            kind: SetKind::Address,
            name: "peers-0".into(),
            replace: false,
            put,
            removed: Vec::new(),
        };
        let started = Instant::now();
        executor.apply([change], []).expect("the kernel takes the member");
        took.push(started.elapsed());
    }
    report(&format!("{bench}.member"), "ms", millis(median(took)), "ms");

    let (mut put, mut removed) = (Cost::default(), Cost::default());
    for number in 0..scene.policies.min(20) {
        let remove = Change::Remove { kind: ObjectKind::Policy, name: format!("policy-{number}") };
        removed.apply(&mut executor, remove);
        put.apply(&mut executor, policy(number));
    }
    put.report(&format!("{bench}.policy_put"));
    removed.report(&format!("{bench}.policy_removed"));

    let mut again = PolicyExecutor::open(Options::default()).expect("the kernel has nftables");
    let mut changes = scene.changes();
    let put = (0..CHANGES).map(|number| peer(scene.peers + number)).collect();
    changes.push(Change::PutSet {
        kind: SetKind::Address,
        name: "peers-0".into(),
        replace: false,
        put,
        removed: Vec::new(),
    });
    let started = Instant::now();
    let outcome = again.apply(changes, workloads()).expect("the kernel can be read");
    report(&format!("{bench}.restart"), "seconds", started.elapsed().as_secs_f64(), "s");
    report(&format!("{bench}.restart"), "lock_ms", millis(outcome.applied.longest), "ms");
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    report(&format!("{bench}.restart"), "writes", outcome.applied.operations as f64, "operations");
    executor.stop().expect("the table can go");
}

fn peer_layout(scene: &Scene) -> io::Result<()> {
    let bench = format!("nft.{}", scene.name);
    report_peer(&bench, &load(&scene.script())?);
    let mut took = Vec::new();
    for number in 0..10 {
        let address = peer_ip(scene.peers + number);
        took.push(load(&format!("add element inet bench-policies s0 {{ {address} }}\n"))?.wall);
    }
    report(&format!("{bench}.member.peer"), "ms", millis(median(took)), "ms");
    load("delete table inet bench-policies\n").map(drop)
}
