//! Services with real packets: what kube-proxy promises, on our tables.

mod support;

use std::{
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use node_kernel::{
    conntrack::Conntrack,
    nft::{Applied, Nft, TableId},
    services::NftablesProxy,
};
use node_nft::{Data, Element, Family as NftFamily, Key, Limits, Op, Transaction};
use node_services::{
    Protocol, Service, Store,
    cases::port,
    conntrack::Cleanup,
    nftables::{Bond, Config, Plane as Layout, TABLE},
};
use support::lab::{Fate, answered};
use support::states::{
    BOTH, CLIENT, Family, LOCAL, ONLY_LOCAL, POD, Plane, REMOTE, check, everywhere, http, http_slice,
    in_both_families, lab, name, play, rules, slice, store,
};
use testkit::namespaces::{in_namespace, run};

fn start(store: &mut Store) -> NftablesProxy {
    store.patches();
    NftablesProxy::start(false, rules(), Limits::default(), store).expect("the kernel takes the table").0
}

fn update(proxy: &mut NftablesProxy, store: &mut Store) -> Applied {
    let patches = store.patches();
    proxy.update(store, &patches).expect("the kernel takes the patches")
}

struct Nftables {
    proxy: Option<NftablesProxy>,
    config: Config,
    ipv6: bool,
}

impl Plane for Nftables {
    fn follow(&mut self, store: &mut Store) {
        let patches = store.patches();
        match &mut self.proxy {
            Some(proxy) => drop(proxy.update(store, &patches).expect("the kernel takes the patches")),
            None => {
                let started = NftablesProxy::start(self.ipv6, self.config.clone(), Limits::default(), store);
                self.proxy = Some(started.expect("the kernel takes the table").0);
            }
        }
    }
}

#[test]
fn packets_go_where_every_case_says() {
    let [ipv4, _] = in_both_families();
    packets_go_where_cases_say(ipv4);
}

#[test]
fn packets_go_where_every_case_says_in_ipv6() {
    let [_, ipv6] = in_both_families();
    packets_go_where_cases_say(ipv6);
}

/// The node's own Pods are behind the first and the third link; an endpoint elsewhere and clients behind the others.
#[test]
fn packets_go_where_every_case_says_with_pods_known_by_their_interfaces() {
    for (cases, node, config, ipv6) in in_both_families() {
        let pod_interfaces = ["v1", "v3*"].map(|text| text.parse().expect("interfaces")).into();
        let config = Config { pod_prefixes: Vec::new(), pod_interfaces, ..config };
        packets_go_where_cases_say((cases, node, config, ipv6));
    }
}

fn packets_go_where_cases_say((cases, node, config, ipv6): Family) {
    in_namespace(move || {
        let lab = lab();
        for case in cases {
            let mut plane = Nftables { proxy: None, config: config.clone(), ipv6 };
            play(&lab, &case, node.clone(), &mut plane, |row| &row.expected);
            let mut proxy = plane.proxy.expect("it was started");
            assert_eq!(
                proxy.reconcile(&Store::default()).expect("the kernel answers"),
                Applied::default(),
                "{}",
                case.name
            );
            proxy.stop().expect("the table can go");
        }
        assert_eq!(run("nft list ruleset"), "");
    });
}

#[test]
fn a_client_keeps_its_endpoint_until_that_goes_or_affinity_ends() {
    in_namespace(|| {
        let lab = lab();
        let mut store = store();
        let sticky = Service { affinity: Some(10_800), ..everywhere("172.30.0.41") };
        store.set_service(name("web"), sticky);
        store.set_slice("web", http_slice("web", &[LOCAL, REMOTE]));
        let mut proxy = start(&mut store);
        for to in ["172.30.0.41:80", "1.2.3.4:80"] {
            let Fate::Answered(first, _) = lab.tcp(POD, to, 15, &Fate::Refused) else {
                panic!("{to} is silent")
            };
            assert_eq!(first.len(), 1, "fifteen connections, one endpoint");
            let other = if first.contains("10.180.0.1:80") { REMOTE } else { LOCAL };
            store.set_slice("web", http_slice("web", &[other]));
            update(&mut proxy, &mut store);
            let gone = first.iter().next().expect("it was one").replace(':', " . ");
            clients_forget(&format!(": {gone}"));
            let Fate::Answered(second, _) = lab.tcp(POD, to, 5, &Fate::Refused) else {
                panic!("{to} is silent")
            };
            assert_eq!(second, [format!("{other}:80")].into());
            store.set_slice("web", http_slice("web", &[LOCAL, REMOTE]));
            update(&mut proxy, &mut store);
            let Fate::Answered(third, _) = lab.tcp(POD, to, 15, &Fate::Refused) else {
                panic!("{to} is silent")
            };
            assert_eq!(third, second, "the other one comes back, the client stays");
        }
        let bound = run("nft list map ip trestle-services affinity");
        assert!(bound.contains("10.180.0.2 . 172.30.0.41 . tcp . 80 timeout 3h"), "{bound}");
        let Fate::Answered(bound, _) = lab.tcp(POD, "1.2.3.4:80", 1, &Fate::Refused) else {
            panic!("the balancer is silent")
        };
        for to in ["172.30.0.41:80", "192.168.0.2:3001", "50.60.70.81:80"] {
            let Fate::Answered(again, _) = lab.tcp(POD, to, 10, &Fate::Refused) else {
                panic!("{to} is silent")
            };
            assert_eq!(again, bound, "one endpoint, wherever it comes to");
        }
        let table = run("nft list table ip trestle-services");
        assert!(table.contains("chain sticky-172.30.0.41-6-80"), "nft lists what it has: {table}");
        store.set_service(name("web"), everywhere("172.30.0.41"));
        update(&mut proxy, &mut store);
        check(&lab, &[(POD, "172.30.0.41:80", answered(BOTH, false))]);
        clients_forget("elements");
    });
}

/// Also before its clients are found, and if an earlier run never looked for them.
#[test]
fn no_client_is_sent_to_an_endpoint_that_is_gone() {
    in_namespace(|| {
        let lab = lab();
        let mut store = store();
        store.set_service(name("web"), Service { affinity: Some(10_800), ..everywhere("172.30.0.41") });
        store.set_slice("web", http_slice("web", &[LOCAL]));
        let mut proxy = start(&mut store);
        let bind = |to: &str| {
            let client = "10.180.0.2 . 172.30.0.41 . tcp . 80";
            let endpoint = to.replace(':', " . ");
            run(&format!(
                "nft add element ip trestle-services affinity '{{ {client} timeout 3h : {endpoint} }}'"
            ));
        };
        // A client that is bound stays where it is.
        check(&lab, &[(POD, "172.30.0.41:80", answered(&["10.180.0.1:80"], false))]);
        store.set_slice("web", http_slice("web", &[REMOTE]));
        update(&mut proxy, &mut store);
        clients_forget("10.180.0.1 . 80");
        bind("10.180.0.1:80");
        let other = format!("{REMOTE}:80");
        for expected in [answered(&[&other], false), answered(&[&other], false)] {
            assert_eq!(lab.tcp(POD, "172.30.0.41:80", 1, &expected), expected);
        }
        let table = run("nft list table ip trestle-services");
        assert!(table.contains("10.180.0.2 . 172.30.0.41 . tcp . 80 timeout 3h expires"), "{table}");
        assert!(!table.contains(": 10.180.0.1 . 80"), "bound anew: {table}");
        // What somebody else translates is not ours to drop.
        run("nft add table ip others");
        run("nft add chain ip others pre '{ type nat hook prerouting priority -110; }'");
        run("nft add rule ip others pre ip daddr 172.30.0.41 tcp dport 80 dnat to 10.180.0.1:80");
        run("nft flush map ip trestle-services affinity");
        let foreign = answered(&["10.180.0.1:80"], false);
        assert_eq!(lab.tcp(POD, "172.30.0.41:80", 3, &foreign), foreign);
    });
}

#[test]
fn clients_by_the_thousand_forget_an_endpoint_that_goes() {
    const CLIENTS: u32 = 20_000;
    in_namespace(|| {
        let mut store = store();
        store.set_service(name("web"), Service { affinity: Some(10_800), ..everywhere("172.30.0.41") });
        store.set_slice("web", http_slice("web", &[LOCAL, REMOTE]));
        let mut proxy = start(&mut store);
        let (table, mut nft) = (TableId::new(NftFamily::Ip, TABLE), Nft::open().expect("nftables answer"));
        let (set, schema) = Layout::new(false, rules()).affinity(Bond::Anywhere);
        for chunk in (0..CLIENTS).collect::<Vec<_>>().chunks(5_000) {
            let elements = chunk.iter().map(|number| bound_client(*number)).collect();
            let ops = vec![Op::AddElements { set: set.into(), schema: schema.clone(), elements }];
            nft.commit(&table, &Transaction { ops }).expect("the kernel takes clients");
        }
        let mut bound = |endpoint: &str| {
            let (wanted, mut count) = (endpoint_value(endpoint), 0);
            let scanned = nft.scan_set(&table, set, |_, one| count += u32::from(one.data == wanted));
            scanned.expect("the kernel tells them");
            count
        };
        store.set_slice("web", http_slice("web", &[REMOTE]));
        update(&mut proxy, &mut store);
        let until = Instant::now() + Duration::from_secs(60);
        while bound(LOCAL) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(100));
        }
        assert_eq!((bound(LOCAL), bound(REMOTE)), (0, CLIENTS / 2));
    });
}

fn bound_client(number: u32) -> (Box<[u8]>, Element) {
    let (client, frontend) = (Ipv4Addr::from(0x0b00_0000 + number), Ipv4Addr::new(172, 30, 0, 41));
    let key = Key::new().address(client.into()).address(frontend.into()).proto(6).port(80);
    let data = endpoint_value([LOCAL, REMOTE][number as usize % 2]);
    (key.into_boxed(), Element { end: None, data })
}

fn endpoint_value(address: &str) -> Data {
    Data::Value(Key::new().address(address.parse().expect("an address")).port(80).into_boxed())
}

/// They do so beside other work.
fn clients_forget(text: &str) {
    let bound = || run("nft list map ip trestle-services affinity");
    let forgotten = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        !bound().contains(text)
    });
    assert!(forgotten, "{}", bound());
}

#[test]
fn a_restart_with_nothing_changed_writes_nothing_and_drift_is_repaired() {
    in_namespace(|| {
        let lab = lab();
        let mut store = store();
        for number in 0..40 {
            let service = format!("s{number}");
            store.set_service(
                name(&service),
                Service { external_local: number % 2 == 0, ..everywhere(&format!("172.30.1.{number}")) },
            );
            store.set_slice(&service, http_slice(&service, &[LOCAL, REMOTE][..number % 3]));
        }
        drop(start(&mut store));
        store.set_slice("s1", http_slice("s1", &[REMOTE, LOCAL]));
        store.patches();
        let again = |store: &Store| {
            let config =
                Config { pod_prefixes: vec!["10.0.0.0/8".parse().expect("a prefix")], ..Config::default() };
            NftablesProxy::start(false, config, Limits::default(), store).expect("the kernel takes the table")
        };
        let (proxy, first) = again(&store);
        assert!(first.operations > 0, "other settings, and an endpoint more");
        drop(proxy);
        let (mut proxy, second) = again(&store);
        assert_eq!(second, Applied::default());
        run("nft flush table ip trestle-services; nft flush map ip trestle-services endpoints");
        assert!(proxy.reconcile(&store).expect("the kernel takes the table").weight > 50);
        assert_eq!(proxy.reconcile(&store).expect("the kernel answers"), Applied::default());
        check(&lab, &[(POD, "172.30.1.2:80", answered(BOTH, false))]);
        proxy.stop().expect("the table can go");
        assert_eq!(run("nft list ruleset"), "");
    });
}

#[test]
fn a_udp_flow_to_an_endpoint_that_is_gone_is_cut_and_no_other() {
    in_namespace(|| {
        let lab = lab();
        let mut store = store();
        let ports = vec![port("dns", Protocol::Udp, 53, 0), port("http", Protocol::Tcp, 80, 0)];
        store.set_service(name("dns"), Service { ports, ..http("172.30.0.53", 0) });
        let targets = [("dns", Protocol::Udp, 53), ("http", Protocol::Tcp, 80)];
        store.set_slice("dns", slice("dns", &[LOCAL], &targets));
        let mut proxy = start(&mut store);
        let dns = answered(&["10.180.0.1:53"], false);
        assert_eq!(lab.udp(POD, "172.30.0.53:53", 3, &dns), dns);
        check(&lab, &[(POD, "172.30.0.53:80", answered(ONLY_LOCAL, false))]);
        store.set_slice("dns", slice("dns", &[REMOTE], &targets));
        let patches = store.patches();
        proxy.update(&store, &patches).expect("the kernel takes the patches");
        let mut conntrack = Conntrack::open().expect("the kernel tracks connections");
        let flows = |protocol: &str| run("conntrack -L 2>/dev/null || true").matches(protocol).count();
        let tcp = flows("tcp ");
        assert!(flows("udp ") >= 3);
        let cleanup = Cleanup::after(&store, &patches);
        assert_eq!(conntrack.clean(false, &cleanup).expect("the kernel answers"), 3);
        assert_eq!((flows("udp "), flows("tcp ")), (0, tcp), "TCP ends by itself");
        assert_eq!(conntrack.clean(false, &cleanup).expect("the kernel answers"), 0);
        let moved = answered(&["10.180.2.1:53"], false);
        assert_eq!(lab.udp(POD, "172.30.0.53:53", 3, &moved), moved);
        assert_eq!(conntrack.clean(false, &cleanup).expect("the kernel answers"), 0, "living flows stay");
    });
}

#[test]
fn a_change_that_the_kernel_refuses_is_made_all_the_same() {
    in_namespace(|| {
        let lab = lab();
        let mut store = store();
        store.set_service(name("web"), http("172.30.0.41", 0));
        store.set_slice("web", http_slice("web", &[LOCAL]));
        let mut proxy = start(&mut store);
        // The update wants to exchange this element, and it is not there.
        run("nft delete element ip trestle-services endpoints { 172.30.0.41 . tcp . 80 . 0 }");
        store.set_slice("web", http_slice("web", &[REMOTE]));
        update(&mut proxy, &mut store);
        check(&lab, &[(POD, "172.30.0.41:80", answered(&["10.180.2.1:80"], false))]);
        run("nft delete table ip trestle-services");
        store.set_slice("web", http_slice("web", &[LOCAL, REMOTE]));
        update(&mut proxy, &mut store);
        check(&lab, &[(POD, "172.30.0.41:80", answered(BOTH, false))]);
        assert_eq!(proxy.reconcile(&store).expect("the kernel answers"), Applied::default());
    });
}

#[test]
fn no_connection_fails_while_endpoints_roll_and_the_proxy_restarts() {
    in_namespace(|| {
        let lab = lab();
        let mut store = store();
        store.set_service(name("web"), everywhere("172.30.0.41"));
        store.set_slice("web", http_slice("web", &[LOCAL, REMOTE]));
        let mut proxy = start(&mut store);
        let done = Arc::new(AtomicBool::new(false));
        let clients: Vec<_> = [(POD, "172.30.0.41:80"), (CLIENT, "1.2.3.4:80")]
            .map(|(from, to)| lab.keep_connecting(from, to, done.clone()))
            .into();
        let began = Instant::now();
        // Long enough for traffic on a busy machine too.
        for round in (0..).take_while(|round| *round < 150 || began.elapsed() < Duration::from_secs(3)) {
            let endpoints: &[&str] = [&[LOCAL][..], &[REMOTE], &[LOCAL, REMOTE], &[REMOTE, LOCAL]][round % 4];
            store.set_slice("web", http_slice("web", endpoints));
            update(&mut proxy, &mut store);
            if round % 50 == 49 {
                drop(proxy);
                proxy = start(&mut store);
            }
        }
        done.store(true, Ordering::Relaxed);
        for client in clients {
            let (connected, failed) = client.join().expect("the client does not fall");
            assert!(connected > 100, "{connected} connections are no traffic");
            assert_eq!(failed, Vec::<String>::new());
        }
    });
}
