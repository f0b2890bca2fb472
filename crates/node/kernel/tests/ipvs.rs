//! Services in IPVS with real packets, where the kernel has it: `labs/vm/ipvs.sh`.

#[path = "support/lab.rs"]
mod lab;
#[path = "support/namespace.rs"]
mod namespace;
#[path = "support/sctp.rs"]
mod sctp;
#[path = "support/states.rs"]
mod states;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use lab::answered;
use namespace::{in_namespace, run};
use node_kernel::{
    ipvs::{Ipvs, IpvsOpenError},
    services::{IpvsProxy, NftablesProxy, Outcome},
};
use node_nft::Limits;
use node_services::{
    Store,
    cases::{Expected, Row},
    ipvs::Config,
};
use states::{
    BOTH, CLIENT, LOCAL, ONLY_LOCAL, POD, Plane, REMOTE, check, everywhere, http_slice, in_both_families,
    lab, name, play, rules, store,
};

fn start(store: &mut Store) -> (IpvsProxy, Outcome) {
    store.patches();
    IpvsProxy::start(Config::default(), rules(), store).expect("the kernel has IPVS")
}

fn update(proxy: &mut IpvsProxy, store: &mut Store) -> Outcome {
    let patches = store.patches();
    let outcome = proxy.update(store, &patches).expect("the kernel takes the patches");
    assert!(outcome.refused.is_empty() && outcome.refused_addresses.is_empty(), "{outcome:?}");
    outcome
}

#[test]
fn a_kernel_without_ipvs_says_what_to_use_instead() {
    in_namespace(|| match Ipvs::open() {
        Ok(_) => {}
        Err(error @ IpvsOpenError::Missing) => assert!(error.to_string().contains("--services nftables")),
        Err(error) => panic!("{error}"),
    });
}

fn with_ipvs(row: &Row) -> &Expected {
    row.with_ipvs.as_ref().unwrap_or(&row.expected)
}

struct Servers {
    proxy: Option<IpvsProxy>,
    config: node_services::nftables::Config,
}

impl Plane for Servers {
    fn follow(&mut self, store: &mut Store) {
        let patches = store.patches();
        let outcome = match &mut self.proxy {
            Some(proxy) => proxy.update(store, &patches).expect("the kernel takes the patches"),
            None => {
                let started = IpvsProxy::start(Config::default(), self.config.clone(), store);
                let (proxy, outcome) = started.expect("the kernel has IPVS");
                self.proxy = Some(proxy);
                outcome
            }
        };
        assert!(outcome.refused.is_empty() && outcome.refused_addresses.is_empty(), "{outcome:?}");
    }
}

#[test]
#[ignore = "needs IPVS in the kernel: labs/vm/ipvs.sh"]
fn packets_go_where_every_case_says() {
    in_namespace(|| {
        let lab = lab();
        for (cases, node, config, _) in in_both_families() {
            for case in cases {
                let mut plane = Servers { proxy: None, config: config.clone() };
                play(&lab, &case, node.clone(), &mut plane, with_ipvs);
                plane.proxy.expect("it was started").stop().expect("all that is ours can go");
            }
        }
        assert_eq!(run("ipvsadm -Sn; nft list ruleset"), "");
    });
}

#[test]
#[ignore = "needs IPVS in the kernel: labs/vm/ipvs.sh"]
fn a_restart_writes_nothing_and_what_others_made_stays() {
    in_namespace(|| {
        run(
            "ipvsadm -A -t 9.9.9.9:99 -s rr; ipvsadm -a -t 9.9.9.9:99 -r 8.8.8.8:88 -m; ipvsadm -A -u 172.30.0.7:80 -s sh",
        );
        let mut store = store();
        for number in 0..30 {
            let service = format!("s{number}");
            store.set_service(name(&service), states::http(&format!("172.30.1.{number}"), 0));
            store.set_slice(&service, http_slice(&service, &[LOCAL, REMOTE][..number % 3]));
        }
        drop(start(&mut store));
        let before = run("ipvsadm -Sn; ip addr show trestle-ipvs0; nft list ruleset");
        let (mut proxy, outcome) = start(&mut store);
        assert_eq!(outcome.operations, 0, "{outcome:?}");
        assert_eq!(before, run("ipvsadm -Sn; ip addr show trestle-ipvs0; nft list ruleset"));

        run(
            "ipvsadm -D -t 172.30.1.2:80; ipvsadm -d -t 172.30.1.5:80 -r 10.180.0.1:80; ip link del trestle-ipvs0",
        );
        proxy.reconcile(&store).expect("the kernel can be repaired");
        let sorted = |text: String| {
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        let servers = || sorted(run("ipvsadm -Sn"));
        assert_eq!(servers().len(), 30 + 30 + 3);
        assert_eq!(run("ip addr show trestle-ipvs0").matches("inet ").count(), 30);
        proxy.stop().expect("all that is ours can go");
        assert_eq!(servers().len(), 3, "what was there before us");
        assert_eq!(run("nft list ruleset"), "");
    });
}

#[test]
#[ignore = "needs IPVS in the kernel: labs/vm/ipvs.sh"]
fn a_destination_with_connections_drains_before_it_goes() {
    in_namespace(|| {
        let lab = lab();
        let mut store = store();
        store.set_service(name("web"), states::http("172.30.0.41", 0));
        store.set_slice("web", http_slice("web", &[LOCAL]));
        let (mut proxy, _) = start(&mut store);
        check(&lab, &[(POD, "172.30.0.41:80", answered(ONLY_LOCAL, false))]);
        store.set_slice("web", http_slice("web", &[REMOTE]));
        update(&mut proxy, &mut store);
        assert!(proxy.is_draining());
        assert_eq!(proxy.drain().expect("the kernel answers"), 0, "connections in TIME_WAIT count");
        let list = run("ipvsadm -Sn");
        assert!(
            list.contains("-r 10.180.0.1:80 -m -w 0") && list.contains("-r 10.180.2.1:80 -m -w 1"),
            "{list}"
        );
        check(&lab, &[(POD, "172.30.0.41:80", answered(&["10.180.2.1:80"], false))]);
        store.set_slice("web", http_slice("web", &[LOCAL]));
        update(&mut proxy, &mut store);
        check(&lab, &[(POD, "172.30.0.41:80", answered(ONLY_LOCAL, false))]);
        assert!(run("ipvsadm -Sn").contains("-r 10.180.0.1:80 -m -w 1"));
    });
}

#[test]
#[ignore = "needs IPVS in the kernel: labs/vm/ipvs.sh"]
fn a_node_goes_over_from_nftables_to_ipvs_and_no_connection_fails() {
    in_namespace(|| {
        let lab = lab();
        let mut store = store();
        store.set_service(name("web"), everywhere("172.30.0.41"));
        store.set_slice("web", http_slice("web", &[LOCAL, REMOTE]));
        store.patches();
        let nftables = NftablesProxy::start(false, rules(), Limits::default(), &store);
        let (nftables, _) = nftables.expect("the kernel takes the table");
        let done = Arc::new(AtomicBool::new(false));
        let client = lab.keep_connecting(POD, "172.30.0.41:80", done.clone());
        let (_ipvs, outcome) = start(&mut store);
        assert!(outcome.refused.is_empty(), "{outcome:?}");
        nftables.stop().expect("the table can go");
        check(&lab, &[(CLIENT, "1.2.3.4:80", answered(BOTH, true))]);
        done.store(true, Ordering::Relaxed);
        let (connected, failed) = client.join().expect("the client does not fall");
        assert!(connected > 10, "{connected} connections are no traffic");
        assert_eq!(failed, Vec::<String>::new());
    });
}
