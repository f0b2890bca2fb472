//! Services with real packets: what kube-proxy promises, on our tables.

#[path = "support/lab.rs"]
mod lab;
#[path = "support/namespace.rs"]
mod namespace;
#[path = "support/states.rs"]
mod states;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use lab::{Fate, Lab, answered};
use namespace::{in_namespace, run};
use node_kernel::{conntrack::Conntrack, nft::Applied, services::NftablesProxy};
use node_nft::Limits;
use node_services::{
    Ingress, IngressMode, Node, Protocol, Service, Store, conntrack::Cleanup, nftables::Config, parse_prefix,
};
use states::{
    BLOCKED, BOTH, CLIENT, LOCAL, NODE, ONLY_LOCAL, POD, REMOTE, check, everywhere, http, http_slice, ip,
    lab, name, port, rules, slice, store,
};

fn start(store: &mut Store) -> NftablesProxy {
    store.patches();
    NftablesProxy::start(false, rules(), Limits::default(), store).expect("the kernel takes the table").0
}

fn update(proxy: &mut NftablesProxy, store: &mut Store) -> Applied {
    proxy.update(&store.patches()).expect("the kernel takes the patches")
}

#[test]
fn cluster_addresses_balance_and_a_pod_reaches_itself() {
    in_namespace(|| {
        let lab = lab();
        let mut store = store();
        store.set_service(name("one"), http("172.30.0.41", 0));
        store.set_slice("one", http_slice("one", &[LOCAL]));
        let ports = vec![
            port("http", Protocol::Tcp, 80, 0),
            port("https", Protocol::Tcp, 443, 0),
            port("dns", Protocol::Udp, 53, 0),
            port("dns-tcp", Protocol::Tcp, 53, 0),
        ];
        store.set_service(name("two"), Service { ports, ..http("172.30.0.42", 0) });
        let targets = [
            ("http", Protocol::Tcp, 80),
            ("https", Protocol::Tcp, 8443),
            ("dns", Protocol::Udp, 53),
            ("dns-tcp", Protocol::Tcp, 5353),
        ];
        store.set_slice("two", slice("two", &[LOCAL, REMOTE], &targets));
        let _proxy = start(&mut store);
        check(
            &lab,
            &[
                (POD, "172.30.0.41:80", answered(ONLY_LOCAL, false)),
                (LOCAL, "172.30.0.41:80", answered(ONLY_LOCAL, true)),
                (CLIENT, "172.30.0.41:80", answered(ONLY_LOCAL, true)),
                (POD, "172.30.0.42:80", answered(BOTH, false)),
                (POD, "172.30.0.42:443", answered(&["10.180.0.1:8443", "10.180.2.1:8443"], false)),
                (POD, "172.30.0.42:53", answered(&["10.180.0.1:5353", "10.180.2.1:5353"], false)),
                (POD, "172.30.0.41:443", Fate::Refused),
                (POD, "172.30.0.50:80", Fate::Silent),
                (NODE, "172.30.0.42:80", answered(BOTH, true)),
            ],
        );
        let dns = answered(&["10.180.0.1:53", "10.180.2.1:53"], false);
        assert_eq!(lab.udp(POD, "172.30.0.42:53", 20, &dns), dns);
        assert_eq!(lab.udp(POD, "172.30.0.42:80", 1, &Fate::Refused), Fate::Refused);
        assert!(run("nft list ruleset").contains("172.30.0.42 . udp . 53 : goto pick-2"));
    });
}

#[test]
fn without_endpoints_clients_are_refused_everywhere() {
    in_namespace(|| {
        let lab = lab();
        let mut store = store();
        store.set_service(name("web"), everywhere("172.30.0.41"));
        let mut proxy = start(&mut store);
        let refused = [
            (POD, "172.30.0.41:80", Fate::Refused),
            (CLIENT, "50.60.70.81:80", Fate::Refused),
            (POD, "192.168.0.2:3001", Fate::Refused),
            (CLIENT, "192.168.0.2:3001", Fate::Refused),
            (POD, "1.2.3.4:80", Fate::Refused),
            (CLIENT, "1.2.3.4:80", Fate::Refused),
        ];
        check(&lab, &refused);
        store.set_slice("web", http_slice("web", &[LOCAL]));
        update(&mut proxy, &mut store);
        check(&lab, &[(POD, "172.30.0.41:80", answered(ONLY_LOCAL, false))]);
        store.delete_slice("web");
        update(&mut proxy, &mut store);
        check(&lab, &refused);
    });
}

#[test]
fn source_ranges_guard_the_balancer_and_nothing_else() {
    in_namespace(|| {
        let lab = lab();
        let mut store = store();
        let ranges = ["192.168.0.0/24", " 203.0.113.0/25"];
        let guarded = Service {
            load_balancers: ["1.2.3.4", "5.6.7.8"]
                .map(|address| Ingress { address: ip(address), mode: IngressMode::Vip })
                .to_vec(),
            source_ranges: ranges.iter().filter_map(|text| parse_prefix(text)).collect(),
            ..http("172.30.0.41", 3001)
        };
        store.set_service(name("web"), guarded.clone());
        store.set_slice("web", http_slice("web", &[LOCAL]));
        let mut proxy = start(&mut store);
        check(
            &lab,
            &[
                (POD, "172.30.0.41:80", answered(ONLY_LOCAL, false)),
                (CLIENT, "192.168.0.2:3001", answered(ONLY_LOCAL, true)),
                (BLOCKED, "192.168.0.2:3001", answered(ONLY_LOCAL, true)),
                (CLIENT, "1.2.3.4:80", answered(ONLY_LOCAL, true)),
                (CLIENT, "5.6.7.8:80", answered(ONLY_LOCAL, true)),
                (BLOCKED, "1.2.3.4:80", Fate::Silent),
                (BLOCKED, "5.6.7.8:80", Fate::Silent),
                (POD, "1.2.3.4:80", Fate::Silent),
                (NODE, "1.2.3.4:80", answered(ONLY_LOCAL, true)),
            ],
        );
        store.set_service(name("web"), Service { source_ranges: Vec::new(), ..guarded });
        update(&mut proxy, &mut store);
        check(&lab, &[(BLOCKED, "1.2.3.4:80", answered(ONLY_LOCAL, true))]);
    });
}

#[test]
fn an_external_policy_keeps_the_source_or_hides_it() {
    in_namespace(|| {
        let lab = lab();
        let mut store = store();
        store.set_service(name("web"), Service { external_local: true, ..everywhere("172.30.0.41") });
        store.set_slice("web", http_slice("web", &[LOCAL, REMOTE]));
        let mut proxy = start(&mut store);
        let external = ["50.60.70.81:80", "1.2.3.4:80", "192.168.0.2:3001"];
        check(&lab, &[(POD, "172.30.0.41:80", answered(BOTH, false))]);
        for to in external {
            check(&lab, &[(POD, to, answered(BOTH, false)), (CLIENT, to, answered(ONLY_LOCAL, false))]);
        }
        store.set_slice("web", http_slice("web", &[REMOTE]));
        update(&mut proxy, &mut store);
        for to in external {
            check(&lab, &[(CLIENT, to, Fate::Silent), (POD, to, answered(&["10.180.2.1:80"], false))]);
        }
        store.set_slice("web", http_slice("web", &[LOCAL, REMOTE]));
        store.set_service(name("web"), everywhere("172.30.0.41"));
        update(&mut proxy, &mut store);
        check(&lab, &[(POD, "172.30.0.41:80", answered(BOTH, false))]);
        for to in external {
            check(&lab, &[(POD, to, answered(BOTH, true)), (CLIENT, to, answered(BOTH, true))]);
        }
    });
}

#[test]
fn an_internal_policy_keeps_traffic_on_the_node_or_drops_it() {
    in_namespace(|| {
        let lab = lab();
        let mut store = store();
        store.set_service(name("web"), Service { internal_local: true, ..http("172.30.0.41", 0) });
        store.set_slice("web", http_slice("web", &[LOCAL, REMOTE]));
        let mut proxy = start(&mut store);
        check(&lab, &[(POD, "172.30.0.41:80", answered(ONLY_LOCAL, false))]);
        store.set_slice("web", http_slice("web", &[REMOTE]));
        update(&mut proxy, &mut store);
        check(&lab, &[(POD, "172.30.0.41:80", Fate::Silent)]);
        store.set_slice("web", http_slice("web", &[]));
        update(&mut proxy, &mut store);
        check(&lab, &[(POD, "172.30.0.41:80", Fate::Refused)]);
        store.set_slice("web", http_slice("web", &[LOCAL, REMOTE]));
        store.set_service(name("web"), http("172.30.0.41", 0));
        update(&mut proxy, &mut store);
        check(&lab, &[(POD, "172.30.0.41:80", answered(BOTH, false))]);
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
        assert!(bound.contains("10.180.0.2 . 1.2.3.4 . tcp . 80 timeout 3h"), "{bound}");
        store.set_service(name("web"), everywhere("172.30.0.41"));
        update(&mut proxy, &mut store);
        check(&lab, &[(POD, "172.30.0.41:80", answered(BOTH, false))]);
        assert!(!run("nft list map ip trestle-services affinity").contains("elements"));
    });
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
        assert!(proxy.reconcile().expect("the kernel takes the table").weight > 50);
        assert_eq!(proxy.reconcile().expect("the kernel answers"), Applied::default());
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
        proxy.update(&patches).expect("the kernel takes the patches");
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
        assert_eq!(proxy.reconcile().expect("the kernel answers"), Applied::default());
    });
}

#[test]
fn ipv6_has_all_of_it() {
    in_namespace(|| {
        let (here, there, pod, client, blocked) = ("fd10::1", "fd10::2", "fd10::3", "fd20::1", "fd20::8001");
        let mut lab = Lab::new();
        lab.host(&[here], &[80])
            .host(&[there], &[80])
            .host(&[pod], &[])
            .host(&[client, blocked], &[])
            .gateway();
        let mut store =
            Store::new(Node { name: "here".into(), addresses: vec![ip("fd00:168::2")], ..Node::default() });
        let web = Service {
            load_balancers: vec![Ingress { address: ip("fd30::4"), mode: IngressMode::Vip }],
            source_ranges: vec!["fd20::/113".parse().expect("a prefix")],
            external_local: true,
            ..http("fd40::41", 3001)
        };
        store.set_service(name("web"), web.clone());
        let mut both = http_slice("web", &[here, there]);
        both.endpoints[0].node = Some("here".into());
        store.set_slice("web", both);
        store.set_service(name("none"), http("fd40::42", 0));
        store.patches();
        let config = Config {
            pod_prefixes: vec!["fd10::/16".parse().expect("a prefix")],
            service_prefixes: vec!["fd40::/16".parse().expect("a prefix")],
            ..Config::default()
        };
        let started = NftablesProxy::start(true, config, Limits::default(), &store);
        let (mut proxy, _) = started.expect("the kernel takes the table");
        let (all, local) = (&["fd10::1:80", "fd10::2:80"], &["fd10::1:80"]);
        check(
            &lab,
            &[
                (pod, "[fd40::41]:80", answered(all, false)),
                (client, "[fd40::41]:80", answered(all, true)),
                (client, "[fd30::4]:80", answered(local, false)),
                (client, "[fd00:168::2]:3001", answered(local, false)),
                (blocked, "[fd30::4]:80", Fate::Silent),
                (pod, "[fd40::42]:80", Fate::Refused),
                (pod, "[fd40::41]:81", Fate::Refused),
                (pod, "[fd40::99]:80", Fate::Silent),
            ],
        );
        store.set_service(name("web"), Service { affinity: Some(60), ..web });
        update(&mut proxy, &mut store);
        let Fate::Answered(one, _) = lab.tcp(pod, "[fd40::41]:80", 12, &Fate::Refused) else {
            panic!("silent")
        };
        assert_eq!(one.len(), 1);
        assert!(run("nft list table ip6 trestle-services").contains("fd40::41 . tcp . 80 : goto sticky-2"));
        assert_eq!(proxy.reconcile().expect("the kernel answers"), Applied::default());
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
        for round in 0..150 {
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
