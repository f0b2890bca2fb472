//! Services in IPVS with real packets, where the kernel has it: `labs/vm/ipvs.sh`.

mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use node_kernel::{
    ipvs::{Ipvs, IpvsOpenError, Timeouts},
    services::{IpvsProxy, Mode, Outcome, Proxy, Settings},
};
use node_services::{
    Protocol, Service, Store,
    cases::{Expected, Row},
    ipvs::Config,
};
use support::lab::answered;
use support::refusing::Refusing;
use support::states::{
    self, BOTH, CLIENT, LOCAL, ONLY_LOCAL, POD, Plane, REMOTE, check, everywhere, http_slice,
    in_both_families, lab, name, play, rules, store,
};
use testkit::namespaces::{in_namespace, run};

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
fn a_node_goes_over_to_ipvs_and_back_and_no_connection_fails() {
    in_namespace(|| {
        let lab = lab();
        let mut store = store();
        store.set_service(name("web"), everywhere("172.30.0.41"));
        store.set_slice("web", http_slice("web", &[LOCAL, REMOTE]));
        lab.echo(REMOTE, 7);
        store.set_service(name("talk"), states::http("172.30.0.43", 0));
        store.set_slice("talk", states::slice("talk", &[REMOTE], &[("http", Protocol::Tcp, 7)]));
        let settings = Settings { rules: rules(), ..Settings::default() };
        let mut proxy = Proxy::new(settings.clone(), Mode::Nftables, store.clone());
        proxy.sync().expect("the kernel takes the tables");
        let done = Arc::new(AtomicBool::new(false));
        let client = lab.keep_connecting(POD, "172.30.0.41:80", done.clone());
        let first = lab.keep_talking(POD, "172.30.0.43:80", done.clone());
        thread::sleep(Duration::from_millis(500));
        proxy.switch(Mode::Ipvs).expect("the kernel has IPVS");
        assert!(!run("nft list tables").contains("trestle-services"));
        check(&lab, &[(CLIENT, "1.2.3.4:80", answered(BOTH, true))]);
        let second = lab.keep_talking(POD, "172.30.0.43:80", done.clone());
        // Endpoints roll while it runs.
        for round in 0..12 {
            let endpoints: &[&str] = [&[LOCAL][..], &[LOCAL, REMOTE], &[REMOTE]][round % 3];
            proxy.store().set_slice("web", http_slice("web", endpoints));
            let synced = proxy.sync().expect("the kernel takes the change");
            assert!(synced.refused.is_empty(), "{synced:?}");
        }
        // So does the proxy itself.
        drop(proxy);
        let mut proxy = Proxy::new(settings, Mode::Ipvs, store);
        proxy.sync().expect("the kernel has IPVS");
        thread::sleep(Duration::from_millis(500));
        proxy.switch(Mode::Nftables).expect("the kernel takes the tables");
        assert!(proxy.is_leaving(), "a connection through IPVS is alive");
        proxy.tend(Instant::now()).expect("the kernel answers");
        assert!(proxy.is_leaving() && run("ipvsadm -Sn").contains("172.30.0.43:80"));
        check(&lab, &[(CLIENT, "1.2.3.4:80", answered(BOTH, true))]);
        thread::sleep(Duration::from_millis(500));
        done.store(true, Ordering::Relaxed);
        let (connected, failed) = client.join().expect("the client does not fall");
        assert!(connected > 10, "{connected} connections are no traffic");
        assert_eq!(failed, Vec::<String>::new());
        for talker in [first, second] {
            let (answers, failed) = talker.join().expect("the client does not fall");
            assert!(answers > 5 && failed.is_none(), "{answers} answers, then {failed:?}");
        }
        proxy.tend(Instant::now() + Duration::from_secs(3600)).expect("IPVS can go");
        assert_eq!((proxy.is_leaving(), run("ipvsadm -Sn").as_str()), (false, ""));
    });
}

#[test]
#[ignore = "needs IPVS in the kernel: labs/vm/ipvs.sh"]
fn a_table_that_somebody_else_has_filled_is_left_and_reported() {
    in_namespace(|| {
        run("ipvsadm -A -t 172.30.0.41:80 -s sh; ipvsadm -a -t 172.30.0.41:80 -r 8.8.8.8:88 -m");
        let mut store = store();
        store.set_service(name("web"), everywhere("172.30.0.41"));
        store.set_slice("web", http_slice("web", &[LOCAL]));
        let settings = Settings { rules: rules(), ..Settings::default() };
        let mut proxy = Proxy::new(settings, Mode::Ipvs, store);
        let synced = proxy.sync().expect("the others are served");
        assert!(synced.refused[&name("web")].contains("somebody else's"), "{synced:?}");
        let list = run("ipvsadm -Sn");
        assert!(list.contains("-t 172.30.0.41:80 -s sh") && list.contains("8.8.8.8:88"), "{list}");
        assert!(list.contains("-t 1.2.3.4:80 -s rr"), "the others are served: {list}");
        run("ip link del trestle-ipvs0");
        let mended = proxy.tend(Instant::now() + Duration::from_secs(5)).expect("it can be repaired");
        assert!(mended.is_some() && run("ip addr show trestle-ipvs0").contains("1.2.3.4/32"));
        // A scheduler that this kernel does not have is one service's trouble.
        proxy.store().set_service(
            name("odd"),
            Service { scheduler: Some("nosuch".into()), ..states::http("172.30.0.77", 0) },
        );
        proxy.store().set_service(name("good"), states::http("172.30.0.78", 0));
        let synced = proxy.sync().expect("the others are served");
        assert!(
            synced.refused.contains_key(&name("odd")) && !synced.refused.contains_key(&name("good")),
            "{synced:?}"
        );
        assert!(run("ipvsadm -Sn").contains("172.30.0.78:80"));
        // It is told until it is taken, others go on meanwhile, and it is tried again by itself.
        proxy.store().set_slice("good", http_slice("good", &[LOCAL]));
        let synced = proxy.sync().expect("the others are served");
        assert!(synced.refused.contains_key(&name("odd")) && !synced.full, "{synced:?}");
        let tried = proxy.tend(Instant::now() + Duration::from_secs(3)).expect("the kernel answers");
        assert!(tried.expect("its time has come").refused.contains_key(&name("odd")));
        proxy.store().set_service(name("odd"), states::http("172.30.0.77", 0));
        let synced = proxy.sync().expect("the kernel takes it");
        let tried = proxy.tend(Instant::now() + Duration::from_secs(60)).expect("the kernel answers");
        let left = tried.map_or(synced.refused, |tried| tried.refused);
        assert!(!left.contains_key(&name("odd")), "{left:?}");
        assert!(run("ipvsadm -Sn").contains("172.30.0.77:80"));
        proxy.stop().expect("ours can go");
        assert!(run("ipvsadm -Sn").contains("8.8.8.8:88"), "theirs stays");
    });
}

#[test]
#[ignore = "needs IPVS in the kernel: labs/vm/ipvs.sh"]
fn ten_thousand_endpoints_a_flood_of_changes_and_a_disturbed_dump() {
    in_namespace(|| {
        let lab = lab();
        let mut store = store();
        store.set_service(name("web"), states::http("172.30.0.41", 0));
        let many = |from: u32| {
            let endpoints = (from..from + 10_000).map(|number| node_services::SliceEndpoint {
                addresses: vec![std::net::Ipv4Addr::from(0x0ac8_0000 + number).into()],
                node: Some("there".into()),
                ..node_services::SliceEndpoint::default()
            });
            node_services::Slice { endpoints: endpoints.collect(), ..http_slice("web", &[]) }
        };
        store.set_slice("web", many(0));
        let (mut proxy, outcome) = start(&mut store);
        assert!(outcome.refused.is_empty(), "{:?}", outcome.refused.first());
        assert_eq!(run("ipvsadm -Sn | grep -c -- -r").trim(), "10000");
        store.set_slice("web", many(5_000));
        update(&mut proxy, &mut store);
        // Most of a flood says nothing new.
        for round in 0..200_usize {
            store.set_slice("web", http_slice("web", [&[LOCAL][..], &[LOCAL, REMOTE]][round / 2 % 2]));
            update(&mut proxy, &mut store);
        }
        check(&lab, &[(POD, "172.30.0.41:80", answered(BOTH, false))]);
        // Somebody changes IPVS while it is read.
        let done = Arc::new(AtomicBool::new(false));
        let stop = done.clone();
        let noise = thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                run("ipvsadm -A -t 9.9.9.9:99 -s rr; ipvsadm -D -t 9.9.9.9:99");
            }
        });
        for _ in 0..10 {
            let outcome = proxy.reconcile(&store).expect("a dump can be finished");
            assert_eq!(outcome.operations, 0, "{outcome:?}");
        }
        done.store(true, Ordering::Relaxed);
        noise.join().expect("the noise does not fall");
        proxy.stop().expect("all that is ours can go");
    });
}

#[test]
#[ignore = "needs IPVS in the kernel: labs/vm/ipvs.sh"]
fn a_server_that_cannot_be_guarded_is_not_made_and_the_others_are() {
    in_namespace(|| {
        let lab = lab();
        let mut store = store();
        for (service, address) in [("web", "172.30.0.41"), ("shop", "172.30.0.42")] {
            store.set_service(name(service), states::http(address, 0));
            store.set_slice(service, http_slice(service, &[LOCAL, REMOTE]));
        }
        store.patches();
        let nft = Refusing::new(Some(vec![172, 30, 0, 42]));
        let started =
            IpvsProxy::start_on(nft.clone(), Config::default(), rules(), Timeouts::default(), &store);
        let (mut proxy, outcome) = started.expect("one element is no reason to fail");
        let unguarded: Vec<_> = outcome.unguarded.keys().map(|id| id.address.to_string()).collect();
        assert_eq!(unguarded, ["172.30.0.42"]);
        check(&lab, &[(POD, "172.30.0.41:80", answered(BOTH, false))]);
        let made = || run("ipvsadm -Sn; ip addr show trestle-ipvs0");
        assert!(made().contains("172.30.0.41") && !made().contains("172.30.0.42"), "{}", made());

        // Changes of others go on, and it is still told.
        store.set_slice("web", http_slice("web", &[LOCAL]));
        let patches = store.patches();
        let outcome = proxy.update(&store, &patches).expect("the kernel takes the patches");
        assert_eq!(outcome.unguarded.len(), 1);
        check(&lab, &[(POD, "172.30.0.41:80", answered(ONLY_LOCAL, false))]);
        assert!(proxy.is_due(Instant::now() + Duration::from_secs(600)), "it is tried again by itself");

        nft.relent();
        let outcome = proxy.reconcile(&store).expect("the kernel takes it all");
        assert!(outcome.unguarded.is_empty());
        check(&lab, &[(POD, "172.30.0.42:80", answered(BOTH, false))]);
        assert!(!proxy.is_due(Instant::now() + Duration::from_secs(600)));
        proxy.stop().expect("all that is ours can go");
    });
}
