//! The service proxy of a node, whole: modes, drift, conflicts, and bad input, with real packets where they matter.

mod support;

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use node_kernel::services::{Mode, Proxy, Settings};
use node_services::{Protocol, Service, SliceEndpoint, Store};
use support::lab::{Fate, answered};
use support::states::{
    self, BOTH, CLIENT, LOCAL, ONLY_LOCAL, POD, REMOTE, check, everywhere, http, http_slice, ip, lab, name,
    rules, store,
};
use testkit::namespaces::{in_namespace, run};

fn proxy(mode: Mode, store: Store) -> Proxy {
    Proxy::new(Settings { rules: rules(), ..Settings::default() }, mode, store)
}

fn web() -> Store {
    let mut store = store();
    store.set_service(name("web"), everywhere("172.30.0.41"));
    store.set_slice("web", http_slice("web", &[LOCAL, REMOTE]));
    store
}

#[test]
fn modes_come_and_go_and_a_kernel_without_ipvs_keeps_what_runs() {
    in_namespace(|| {
        let lab = lab();
        let mut proxy = proxy(Mode::None, web());
        assert_eq!(proxy.sync().expect("nothing is asked").transactions, 0);
        assert_eq!(run("nft list ruleset"), "");
        proxy.switch(Mode::Nftables).expect("the kernel takes the tables");
        check(&lab, &[(POD, "172.30.0.41:80", answered(BOTH, false))]);
        if node_kernel::ipvs::Ipvs::open().is_err() {
            let refused = proxy.switch(Mode::Ipvs).expect_err("there is none here");
            let text = format!("{refused}: {}", std::error::Error::source(&refused).expect("a cause"));
            assert!(text.contains("use `--services nftables`"), "{text}");
            assert_eq!(proxy.mode(), Mode::Nftables);
            check(&lab, &[(CLIENT, "1.2.3.4:80", answered(BOTH, true))]);
        }
        proxy.store().set_slice("web", http_slice("web", &[LOCAL]));
        proxy.sync().expect("the kernel takes the change");
        check(&lab, &[(POD, "172.30.0.41:80", answered(ONLY_LOCAL, false))]);
        proxy.switch(Mode::None).expect("the tables can go");
        assert_eq!(run("nft list ruleset"), "");
    });
}

#[test]
fn a_restart_writes_nothing_and_drift_is_mended_in_time() {
    in_namespace(|| {
        let mut first = proxy(Mode::Nftables, web());
        first.sync().expect("the kernel takes the tables");
        drop(first);
        let mut second = proxy(Mode::Nftables, web());
        let synced = second.sync().expect("the kernel answers");
        assert!(synced.full && synced.transactions == 0, "{synced:?}");
        assert!(second.tend(Instant::now()).expect("the kernel answers").is_none());
        run(
            "nft add table ip other; nft delete element ip trestle-services endpoints { 172.30.0.41 . tcp . 80 . 0 }",
        );
        let later = Instant::now() + Duration::from_secs(60);
        let mended = second.tend(later).expect("the kernel can be repaired").expect("something was wrong");
        assert!(mended.transactions > 0);
        assert!(second.tend(later + Duration::from_secs(60)).expect("the kernel answers").is_none());
        assert!(run("nft list tables").contains("other"), "what is not ours stays");
        second.stop().expect("ours can go");
    });
}

#[test]
fn commits_of_others_to_their_own_tables_cause_no_comparison() {
    in_namespace(|| {
        let mut proxy = proxy(Mode::Nftables, web());
        proxy.sync().expect("the kernel takes the tables");
        run("nft add table inet trestle-services; nft add table ip other;
             nft add set ip other members '{ type ipv4_addr; }'");
        let (mut now, compared) = (Instant::now(), proxy.comparisons());
        let mut tend = |proxy: &mut Proxy| {
            now += Duration::from_secs(60);
            proxy.tend(now).expect("the kernel answers")
        };
        assert!(tend(&mut proxy).is_none());
        for round in 0..12_u8 {
            // Our own commits in between are no news either, nor are those of a table that has our name elsewhere.
            run(&format!(
                "nft add element ip other members {{ 10.0.0.{round} }}; nft add chain inet trestle-services c{round}"
            ));
            proxy.store().set_slice(
                "web",
                http_slice("web", [&[LOCAL][..], &[LOCAL, REMOTE]][usize::from(round % 2)]),
            );
            assert!(proxy.sync().expect("the kernel takes the change").transactions > 0);
            run(&format!("nft add element ip other members {{ 10.0.1.{round} }}"));
            assert!(tend(&mut proxy).is_none());
        }
        assert_eq!(proxy.comparisons(), compared, "somebody else's commits");

        run("nft add element ip trestle-services cluster-ips { 192.0.2.1 }; nft add table ip other2");
        assert!(tend(&mut proxy).is_some_and(|mended| mended.transactions > 0), "this one is ours");
        assert_eq!(proxy.comparisons(), compared + 1);
        run("nft delete table ip6 trestle-services");
        assert!(tend(&mut proxy).is_some_and(|mended| mended.transactions > 0), "and so is this");
        assert!(tend(&mut proxy).is_none());
        assert_eq!(proxy.comparisons(), compared + 2, "mending is no news");

        // Damage right before a change of our own.
        run("nft add element ip trestle-services cluster-ips { 192.0.2.2 }");
        proxy.store().set_slice("web", http_slice("web", &[REMOTE]));
        proxy.sync().expect("the kernel takes the change");
        assert!(tend(&mut proxy).is_some_and(|mended| mended.transactions > 0), "it is not forgotten");
        assert!(!run("nft list set ip trestle-services cluster-ips").contains("192.0.2."));
    });
}

#[test]
fn no_connection_fails_while_modes_restarts_and_floods_go_on() {
    in_namespace(|| {
        let lab = lab();
        let mut proxy = proxy(Mode::Nftables, web());
        proxy.sync().expect("the kernel takes the tables");
        let done = Arc::new(AtomicBool::new(false));
        let client = lab.keep_connecting(POD, "172.30.0.41:80", done.clone());
        lab.echo(REMOTE, 7);
        proxy.store().set_service(name("talk"), http("172.30.0.43", 0));
        proxy.store().set_slice("talk", states::slice("talk", &[REMOTE], &[("http", Protocol::Tcp, 7)]));
        proxy.sync().expect("the kernel takes the change");
        let talker = lab.keep_talking(POD, "172.30.0.43:80", done.clone());
        thread::sleep(Duration::from_millis(200));
        // Its endpoint goes: new connections find nobody, the old one goes on.
        proxy.store().set_slice("talk", states::slice("talk", &[], &[]));
        // A flood of updates of slices, most of which say nothing new, and some of a service beside it.
        for round in 0..300 {
            let endpoints: &[&str] = [&[LOCAL][..], &[LOCAL, REMOTE], &[REMOTE]][round / 2 % 3];
            proxy.store().set_slice("web", http_slice("web", endpoints));
            if round % 3 == 0 {
                proxy.store().set_service(name("other"), http("172.30.0.42", 0));
            } else {
                proxy.store().delete_service(&name("other"));
            }
            proxy.sync().expect("the kernel takes the change");
            if round % 100 == 99 {
                proxy
                    .set_host_addresses(&BTreeSet::from([ip("192.168.0.2"), [10, 9, 9, round as u8].into()]));
                proxy.sync().expect("the planes find what they had");
            }
        }
        done.store(true, Ordering::Relaxed);
        let (connected, failed) = client.join().expect("the client does not fall");
        assert!(connected > 20, "{connected} connections are no traffic");
        assert_eq!(failed, Vec::<String>::new());
        let (answers, failed) = talker.join().expect("the client does not fall");
        assert!(answers > 10 && failed.is_none(), "{answers} answers, then {failed:?}");
    });
}

#[test]
fn ten_thousand_endpoints_stand_behind_one_service() {
    in_namespace(|| {
        let lab = lab();
        let mut store = store();
        store.set_service(name("web"), http("172.30.0.41", 0));
        let endpoints: Vec<_> = (0..10_000_u32)
            .map(|number| SliceEndpoint {
                addresses: vec![std::net::Ipv4Addr::from(0x0ac8_0000 + number).into()],
                node: Some("there".into()),
                ..SliceEndpoint::default()
            })
            .collect();
        for (index, chunk) in endpoints.chunks(1_000).enumerate() {
            let slice = node_services::Slice { endpoints: chunk.to_vec(), ..http_slice("web", &[]) };
            store.set_slice(&format!("web-{index}"), slice);
        }
        let mut proxy = proxy(Mode::Nftables, store);
        proxy.sync().expect("the kernel takes ten thousand");
        assert!(run("nft list map ip trestle-services services").contains("goto pick-10000"));
        for index in 0..10 {
            proxy.store().delete_slice(&format!("web-{index}"));
        }
        proxy.store().set_slice("web", http_slice("web", &[LOCAL]));
        proxy.sync().expect("the kernel lets them go");
        check(&lab, &[(POD, "172.30.0.41:80", answered(ONLY_LOCAL, false))]);
    });
}

#[test]
fn what_is_excluded_is_left_alone() {
    in_namespace(|| {
        let lab = lab();
        let mut store = web();
        store.set_node(node_services::Node {
            excluded: vec!["1.2.3.0/24".parse().expect("a prefix")],
            ..states::node()
        });
        let mut proxy = proxy(Mode::Nftables, store);
        proxy.sync().expect("the kernel takes the tables");
        check(&lab, &[(CLIENT, "50.60.70.81:80", answered(BOTH, true)), (POD, "1.2.3.4:80", Fate::NoRoute)]);
        let twin = Service { cluster_ips: vec![ip("172.30.0.41")], ..everywhere("172.30.0.41") };
        proxy.store().set_service(name("zweb"), twin);
        proxy.sync().expect("the kernel takes the change");
        let conflicts: Vec<_> = proxy.store().conflicts().map(|one| one.to_string()).collect();
        assert_eq!(conflicts.len(), 3, "cluster address, external address and node port: {conflicts:?}");
        assert!(conflicts[0].contains("is served for ns/web"), "{conflicts:?}");
    });
}

#[test]
fn dumps_that_others_disturb_are_read_again() {
    in_namespace(|| {
        let mut store = store();
        for number in 0..2_000_u32 {
            let service = format!("s{number}");
            let address = std::net::Ipv4Addr::from(0xac1e_1000 + number).to_string();
            store.set_service(name(&service), http(&address, 0));
            store.set_slice(&service, http_slice(&service, &[LOCAL, REMOTE]));
        }
        let mut proxy = proxy(Mode::Nftables, store);
        proxy.sync().expect("the kernel takes the tables");
        run("nft add table ip other; nft 'add set ip other s { type ipv4_addr; }'");
        let done = Arc::new(AtomicBool::new(false));
        let stop = done.clone();
        // A thread starts in the namespace of the one that starts it.
        let noise = thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                run("nft add element ip other s { 10.0.0.1 }; nft delete element ip other s { 10.0.0.1 }");
            }
        });
        for _ in 0..10 {
            let synced = proxy.reconcile().expect("a dump can be finished");
            assert_eq!(synced.transactions, 0, "nothing of ours was touched");
        }
        done.store(true, Ordering::Relaxed);
        noise.join().expect("the noise does not fall");
    });
}
