//! The policy plane with a real kernel and real packets. Needs root.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod support;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use model::policy::output::{Action, Direction, Protocol, RuleDetail, Service};
use node_kernel::{nft::Nft, policy::PolicyExecutor};
use node_policy::{Change, LocalChange, Options, SetKind, naive::Naive};
use support::{
    lab::{Lab, within},
    pods::{
        address_set, addresses, applied_set, differences, id, ip, lab, member, named, policy, port,
        remove_policy, rule,
    },
    probe::{Fate, Probe, patience},
};
use testkit::namespaces::{in_namespace, run};

use Action::{Allow, Drop, Pass, Reject};
use Direction::{In, Out};
use Protocol::{Icmp, Sctp, Tcp, Udp};

const ANYBODY: &[(&str, &[&str])] = &[("0.0.0.0/0", &[]), ("::/0", &[])];

struct Bench {
    lab: Lab,
    executor: PolicyExecutor,
    naive: Naive,
}

impl Bench {
    fn new() -> Self {
        Self::with(Options::default())
    }

    fn with(options: Options) -> Self {
        let (lab, local) = lab();
        let mut bench =
            Self { lab, executor: PolicyExecutor::open(options).unwrap(), naive: Naive::default() };
        bench.apply(sets(), local);
        bench
    }

    fn apply(&mut self, changes: Vec<Change>, local: Vec<LocalChange>) {
        changes.iter().cloned().for_each(|change| self.naive.take(change));
        local.iter().cloned().for_each(|change| self.naive.take_local(change));
        self.executor.apply(changes, local).unwrap();
    }

    /// Puts these policies in force and takes them away again.
    fn scenario(&mut self, name: &str, policies: Vec<Change>) {
        let names: Vec<String> = policies.iter().map(|change| change.object().name).collect();
        self.apply(policies, Vec::new());
        let differences = differences(&self.lab, &self.naive);
        assert!(differences.is_empty(), "{name}:\n{}\n{}", differences.join("\n"), listing());
        self.apply(names.iter().map(|name| remove_policy(name)).collect(), Vec::new());
    }
}

fn sets() -> Vec<Change> {
    vec![
        address_set("b", &["b"]),
        address_set("x", &["x"]),
        address_set("pods", &["a", "b", "c"]),
        applied_set("on-a", &["a"]),
        applied_set("on-ab", &["a", "b"]),
        applied_set("on-all", &["a", "b", "c"]),
    ]
}

fn listing() -> String {
    run("nft list table inet trestle-policy")
}

#[test]
fn kubernetes_policies_with_real_packets() {
    in_namespace(|| {
        let mut bench = Bench::new();
        bench.scenario("no policies", Vec::new());
        let isolate = |direction| rule(direction, None, &[], &[], &[]);
        bench.scenario("nothing comes in", vec![policy("p", None, "on-a", vec![isolate(In)])]);
        bench.scenario("nothing goes out", vec![policy("p", None, "on-ab", vec![isolate(Out)])]);
        let web = [port(Tcp, 80, 80), port(Sctp, 80, 81)];
        bench.scenario(
            "members of a set, on some ports",
            vec![policy("p", None, "on-a", vec![rule(In, Some(Allow), &["b"], &[], &web)])],
        );
        bench.scenario(
            "policies add up, and both sides must permit",
            vec![
                policy("p", None, "on-all", vec![rule(In, Some(Allow), &["b"], &[], &[port(Udp, 80, 80)])]),
                policy("q", None, "on-a", vec![rule(In, Some(Allow), &["x"], &[], &[Service::any(Icmp)])]),
                policy("r", None, "on-ab", vec![rule(Out, Some(Allow), &["pods"], &[], &[])]),
            ],
        );
        bench.scenario(
            "everybody but",
            vec![policy(
                "p",
                None,
                "on-all",
                vec![
                    rule(In, Some(Allow), &[], &[("0.0.0.0/0", &["10.77.0.2/31", "0.0.0.0/1"])], &[]),
                    rule(
                        In,
                        Some(Allow),
                        &[],
                        &[("::/0", &["8000::/1", "fd77::1/128"])],
                        &[port(Tcp, 1, 80)],
                    ),
                ],
            )],
        );
        bench.scenario(
            "names of ports, at each member and at the workload",
            vec![
                policy(
                    "p",
                    None,
                    "on-ab",
                    vec![rule(In, Some(Allow), &["pods"], ANYBODY, &[named(Tcp, "web")])],
                ),
                policy(
                    "q",
                    None,
                    "on-all",
                    vec![rule(Out, Some(Allow), &["pods"], &[], &[named(Tcp, "web"), named(Udp, "web")])],
                ),
            ],
        );
    });
}

#[test]
fn tiers_with_real_packets() {
    in_namespace(|| {
        let mut bench = Bench::new();
        let ordered = |direction, action, sets: &[&str], services: &[Service]| {
            rule(direction, Some(action), sets, if sets.is_empty() { ANYBODY } else { &[] }, services)
        };
        bench.scenario(
            "the first match decides",
            vec![
                policy(
                    "p",
                    Some((50, 1.0)),
                    "on-all",
                    vec![
                        ordered(In, Allow, &["b"], &[port(Tcp, 80, 80)]),
                        ordered(In, Reject, &["pods"], &[]),
                        ordered(In, Drop, &["x"], &[port(Udp, 0, 80)]),
                    ],
                ),
                policy("q", Some((40, 9.0)), "on-a", vec![ordered(In, Drop, &["b"], &[port(Tcp, 80, 80)])]),
            ],
        );
        bench.scenario(
            "passed on to Kubernetes' policies, and the baseline below",
            vec![
                policy(
                    "p",
                    Some((50, 1.0)),
                    "on-all",
                    vec![ordered(In, Pass, &["b"], &[]), ordered(In, Allow, &[], &[port(Tcp, 81, 81)])],
                ),
                policy("q", None, "on-a", vec![rule(In, Some(Allow), &[], ANYBODY, &[port(Udp, 81, 81)])]),
                policy("r", Some((253, 1.0)), "on-all", vec![ordered(In, Reject, &[], &[Service::any(Udp)])]),
            ],
        );
        let mut unsaid = rule(Out, Some(Allow), &["b"], ANYBODY, &[]);
        let detail =
            RuleDetail { untranslatable: vec!["l7Protocols".into()], ..RuleDetail::clone(&unsaid.detail) };
        unsaid.detail = detail.into();
        let names =
            [policy("P", None, "on-a", vec![unsaid]), policy("p", Some((50, 1.0)), "on-ab", Vec::new())];
        bench.scenario("what cannot be said permits nothing", names.to_vec());
    });
}

#[test]
fn the_node_reaches_its_pods_and_strangers_get_nothing_through() {
    in_namespace(|| {
        let (lab, mut local) = lab();
        let options = || Options { guarded_prefixes: vec!["v".into()], ..Options::default() };
        let mut executor = PolicyExecutor::open(options()).unwrap();
        let isolate = policy("p", None, "on-all", vec![rule(In, None, &[], &[], &[])]);
        // Pod c is not registered; x is, as the host behind the uplink.
        local.pop();
        let mut uplink = node_policy::Workload::new(id("x"), [ip("x", false), ip("x", true)]);
        uplink.interface = Some(lab.interface());
        local.push(LocalChange::Put(uplink));
        let changes = [applied_set("on-all", &["a", "b"]), isolate];
        executor.apply(changes, local).unwrap();
        let node = "192.168.0.2".parse().unwrap();
        let from_node = Probe::Tcp(80).send(node, ip("a", false), patience(Fate::Passed));
        assert_eq!(from_node, Fate::Passed, "{}", listing());
        let send = |from: &str, source: &str, to: &str| {
            let (source, to) = (source.parse().unwrap(), ip(to, source.contains(':')));
            let namespace = lab.namespace_of(ip(from, false)).unwrap().to_owned();
            within(&namespace, move || Probe::Udp(80).send(source, to, patience(Fate::Dropped)))
        };
        assert_eq!(send("a", addresses("a")[0], "x"), Fate::Passed, "a may go out");
        assert_eq!(send("c", addresses("c")[0], "x"), Fate::Dropped, "nobody knows c");
        assert_eq!(send("c", addresses("c")[1], "x"), Fate::Dropped, "nobody knows c");
        run(&format!(
            "ip -n {} addr add 10.77.0.9/32 dev eth0; ip route add 10.77.0.9/32 via 169.254.1.2",
            lab.namespace_of(ip("a", false)).unwrap()
        ));
        assert_eq!(send("a", "10.77.0.9", "x"), Fate::Dropped, "not an address of a");
        let closed = Options { host_to_own: false, ..options() };
        drop(executor);
        let mut executor = PolicyExecutor::open(closed).unwrap();
        let isolate = policy("p", None, "on-all", vec![rule(In, None, &[], &[], &[])]);
        let mut workload = node_policy::Workload::new(id("a"), [ip("a", false)]);
        workload.interface = Some("v1".into());
        executor.apply([applied_set("on-all", &["a"]), isolate], [LocalChange::Put(workload)]).unwrap();
        let from_node = Probe::Tcp(80).send(node, ip("a", false), patience(Fate::Dropped));
        assert_eq!(from_node, Fate::Dropped, "{}", listing());
    });
}

#[test]
fn a_pending_workload_is_closed_until_it_is_known() {
    in_namespace(|| {
        let mut bench = Bench::new();
        let mut workload = node_policy::Workload::new(id("a"), [ip("a", false), ip("a", true)]);
        workload.interface = Some("v1".into());
        workload.pending = true;
        bench.apply(Vec::new(), vec![LocalChange::Put(workload.clone())]);
        bench.scenario("pending", Vec::new());
        workload.pending = false;
        bench.apply(Vec::new(), vec![LocalChange::Put(workload)]);
        bench.scenario("known", Vec::new());
    });
}

/// Both policies permit b to a; one of them names the set of b, the other a block that it is in.
#[test]
fn while_a_policy_is_replaced_no_packet_meets_anything_but_the_old_or_the_new_one() {
    in_namespace(|| replace_under_traffic(Options::default()));
}

/// As if the policy were too large for one transaction: what holds is replaced aside.
#[test]
fn while_a_large_policy_is_replaced_no_packet_meets_anything_but_the_old_or_the_new_one() {
    let limits = node_nft::Limits { elements: 2 };
    in_namespace(move || replace_under_traffic(Options { limits, ..Options::default() }));
}

fn replace_under_traffic(options: Options) {
    let in_pieces = options.limits.elements < 10;
    let mut bench = Bench::with(options);
    let by_set = || policy("p", None, "on-a", vec![rule(In, Some(Allow), &["b"], &[], &[port(Tcp, 80, 80)])]);
    let block: &[(&str, &[&str])] = &[("10.77.0.2/32", &[])];
    let by_block = || policy("p", None, "on-a", vec![rule(In, Some(Allow), &[], block, &[port(Tcp, 1, 80)])]);
    bench.apply(vec![by_set()], Vec::new());
    let done = Arc::new(AtomicBool::new(false));
    let permitted = bench.lab.keep_connecting(addresses("b")[0], "10.77.0.1:80", done.clone());
    let forbidden = {
        let (done, namespace) = (done.clone(), bench.lab.namespace_of(ip("c", false)).unwrap().to_owned());
        std::thread::spawn(move || {
            within(&namespace, move || {
                let mut passed = 0;
                while !done.load(Ordering::Relaxed) {
                    let fate = Probe::Tcp(80).send(
                        ip("c", false),
                        ip("a", false),
                        std::time::Duration::from_millis(20),
                    );
                    passed += usize::from(fate != Fate::Dropped);
                }
                passed
            })
        })
    };
    // A busy machine connects slowly.
    let started = std::time::Instant::now();
    for round in 0.. {
        if round >= 300 && started.elapsed() > std::time::Duration::from_secs(4) {
            break;
        }
        let change = if round % 2 == 0 { by_block() } else { by_set() };
        let outcome = bench.executor.apply([change], []).unwrap();
        assert_eq!(outcome.applied.transactions > 5, in_pieces, "{outcome:?}");
        if round % 10 == 0 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    done.store(true, Ordering::Relaxed);
    let (connected, failed) = permitted.join().unwrap();
    assert!(connected > 50, "{connected} connections are too few to tell");
    assert_eq!(failed, Vec::<String>::new(), "of {connected}");
    assert_eq!(forbidden.join().unwrap(), 0, "connections that neither policy permits");
}

#[test]
fn a_restart_writes_nothing_and_drift_is_repaired() {
    in_namespace(|| {
        run(
            "nft add table inet foreign; nft add chain inet foreign c '{ type filter hook forward priority 5; }'; nft add rule inet foreign c counter accept",
        );
        let everything = || {
            let mut changes = sets();
            changes.push(policy(
                "p",
                None,
                "on-a",
                vec![rule(
                    In,
                    Some(Allow),
                    &["b"],
                    &[("10.0.0.0/8", &["10.77.0.0/24"])],
                    &[port(Tcp, 80, 90)],
                )],
            ));
            changes.push(policy(
                "q",
                Some((50, 1.0)),
                "on-ab",
                vec![rule(Out, Some(Reject), &["x"], &[], &[])],
            ));
            changes
        };
        let mut workload = node_policy::Workload::new(id("a"), [ip("a", false), ip("a", true)]);
        workload.interface = Some("v1".into());
        let local = || vec![LocalChange::Put(workload.clone())];
        let mut executor = PolicyExecutor::open(Options::default()).unwrap();
        assert!(executor.apply(everything(), local()).unwrap().applied.transactions > 0);
        let before = listing();

        let mut executor = PolicyExecutor::open(Options::default()).unwrap();
        let outcome = executor.apply(everything(), local()).unwrap();
        assert_eq!(outcome.applied.transactions, 0, "{outcome:?}");
        assert!(!executor.verify().unwrap().compared, "nobody changed anything");

        let damages = [
            "nft flush set inet trestle-policy in-subjects4",
            "nft delete table inet trestle-policy",
            "nft flush chain inet trestle-policy in4",
            "nft insert rule inet trestle-policy forward accept",
            "nft add element inet trestle-policy in-functions4 '{ 10.77.0.1 . 0x0000beef : 1 }'",
            "nft add chain inet trestle-policy another; nft add set inet trestle-policy more '{ type ipv4_addr; }'",
            "nft flush map inet trestle-policy peers6; nft flush map inet trestle-policy blocks4",
        ];
        for damage in damages {
            run(damage);
            assert!(executor.verify().unwrap().applied.transactions > 0, "{damage}");
            assert_eq!(listing(), before, "{damage}");
        }
        let foreign = run("nft list table inet foreign");
        assert!(foreign.contains("counter"), "{foreign}");
        executor.stop().unwrap();
        assert!(!run("nft list tables").contains("trestle-policy"));
    });
}

#[test]
fn a_table_of_our_name_that_is_not_ours_is_left_alone() {
    in_namespace(|| {
        run("nft add table inet trestle-policy");
        let mut executor = PolicyExecutor::open(Options::default()).unwrap();
        let problem = executor.apply([], []).unwrap().problem.expect("it is told");
        assert!(problem.contains("was not made by trestle"), "{problem}");
        assert_eq!(listing().lines().count(), 2, "the other stays empty");
    });
}

/// The number of rules does not depend on what is enforced, and `nft` can print it all.
#[test]
fn the_number_of_rules_is_constant() {
    in_namespace(|| {
        let rules = || {
            let json: serde_json::Value =
                serde_json::from_str(&run("nft -j list table inet trestle-policy")).unwrap();
            json["nftables"].as_array().unwrap().iter().filter(|one| one.get("rule").is_some()).count()
        };
        let mut executor = PolicyExecutor::open(Options::default()).unwrap();
        executor.apply([], []).unwrap();
        let empty = rules();
        let mut changes = sets();
        for number in 0..200_u16 {
            let services =
                [port(Tcp, number * 10, number * 10 + 9), port(Udp, number, number), Service::any(Icmp)];
            let block = format!("10.{number}.0.0/16");
            let rules = vec![rule(In, Some(Allow), &["b"], &[(&block, &[])], &services)];
            changes.push(policy(&format!("p{number}"), None, "on-all", rules));
        }
        let local = ["a", "b", "c"].map(|pod| {
            LocalChange::Put(node_policy::Workload::new(id(pod), [ip(pod, false), ip(pod, true)]))
        });
        executor.apply(changes, local).unwrap();
        assert_eq!(rules(), empty);
        let text = listing();
        for expected in [
            "meta mark set ip daddr . meta mark map @in-functions4 goto in-decide",
            "meta mark set meta mark . meta l4proto . th dport map @function-ranges",
            "meta mark set meta mark . meta l4proto . th sport map @function-sources",
            "meta mark set meta mark . meta l4proto . th sport . th dport map @function-boxes",
            "meta mark set meta mark map @function-defaults",
        ] {
            assert!(text.contains(expected), "{expected} is not in\n{text}");
        }
        assert!(text.contains("meta mark set ip saddr map @peers4"), "{text}");
    });
}

#[test]
fn connections_that_a_new_policy_forbids_are_cut_if_asked_for() {
    in_namespace(|| {
        let (lab, local) = lab();
        let mut executor =
            PolicyExecutor::open(Options { cut_established: true, ..Options::default() }).unwrap();
        let allow = |set: &str| policy("p", None, "on-a", vec![rule(In, Some(Allow), &[set], &[], &[])]);
        let mut changes = sets();
        changes.push(allow("pods"));
        executor.apply(changes, local).unwrap();
        let ask = |socket: &std::net::UdpSocket| {
            socket.send(b"who").unwrap();
            socket.recv(&mut [0; 64]).is_ok()
        };
        let open = |from: &str| {
            let (namespace, source) =
                (lab.namespace_of(ip(from, false)).unwrap().to_owned(), ip(from, false));
            let socket = within(&namespace, move || std::net::UdpSocket::bind((source, 0)).unwrap());
            socket.set_read_timeout(Some(patience(Fate::Dropped))).unwrap();
            socket.connect((ip("a", false), 80)).unwrap();
            assert!(ask(&socket));
            assert!(ask(&socket), "established by now");
            socket
        };
        let (b, c) = (open("b"), open("c"));
        let outcome = executor.apply([allow("b")], []).unwrap();
        assert_eq!(outcome.cut, 1, "{outcome:?}");
        assert!(ask(&b), "still permitted");
        assert!(!ask(&c), "cut, and not permitted anew");
    });
}

#[test]
fn a_large_set_goes_in_pieces_and_comes_back_whole() {
    in_namespace(|| {
        let mut executor = PolicyExecutor::open(Options::default()).unwrap();
        let many = |from: u32, to: u32| Change::PutSet {
            kind: SetKind::Address,
            name: "many".into(),
            replace: true,
            put: (from..to)
                .map(|number| {
                    let address = std::net::IpAddr::from((0x0b00_0000 + number).to_be_bytes());
                    let name = format!("p{number}").into();
                    model::policy::output::Member {
                        name,
                        addresses: [address].into_iter().collect(),
                        ..member("x")
                    }
                })
                .collect(),
            removed: Vec::new(),
        };
        let mut changes = sets();
        changes.push(policy("p", None, "on-a", vec![rule(In, Some(Allow), &["b"], &[], &[])]));
        let workload = node_policy::Workload::new(id("a"), [ip("a", false)]);
        executor.apply(changes, [LocalChange::Put(workload)]).unwrap();
        let use_it =
            policy("q", None, "on-a", vec![rule(In, Some(Allow), &["many"], &[], &[port(Tcp, 80, 80)])]);
        let outcome = executor.apply([many(0, 30_000), use_it], []).unwrap();
        assert!(outcome.applied.transactions > 3 && !outcome.compared, "{outcome:?}");
        executor.apply([many(10_000, 40_000)], []).unwrap();
        // Somebody else's commit to the table makes verify read and compare everything.
        run("nft add element inet trestle-policy closed4 { 192.0.2.1 }
             nft delete element inet trestle-policy closed4 { 192.0.2.1 }");
        let outcome = executor.verify().unwrap();
        assert!(outcome.compared && outcome.applied.transactions == 0, "{outcome:?}");
        executor.apply([remove_policy("q")], []).unwrap();
        let mut nft = Nft::open().unwrap();
        let table = nft
            .read(&node_kernel::nft::TableId::new(node_nft::Family::Inet, "trestle-policy"))
            .unwrap()
            .unwrap();
        assert_eq!(table.sets["peers4"].elements.len(), 1, "only b is asked for");
    });
}
