//! Faults between the proxy and the kernel, with real packets: one port that is not taken among others that are, and
//! an end between any two transactions.

mod support;

use std::time::{Duration, Instant};

use node_kernel::{
    netlink::NetlinkError,
    nft::{Applied, CommitError, Nft, ReadError, ReconcileError, TableId},
    services::{Mode, NftablesProxy, Proxy, Settings, Tables},
};
use node_nft::{CurrentTable, Elements, Limits, SetSchema, Transaction};
use node_services::Store;
use support::lab::answered;
use support::refusing::Refusing;
use support::states::{
    self, BOTH, LOCAL, ONLY_LOCAL, POD, REMOTE, check, http, http_slice, lab, name, rules, store,
};
use testkit::namespaces::{in_namespace, run};

fn web_and_shop(web: &[&str], shop: &[&str]) -> Store {
    let mut store = store();
    for (service, address, endpoints) in [("web", "172.30.0.41", web), ("shop", "172.30.0.42", shop)] {
        store.set_service(name(service), http(address, 0));
        store.set_slice(service, http_slice(service, endpoints));
    }
    store.patches();
    store
}

#[test]
fn a_refused_port_keeps_its_endpoints_while_others_roll_and_follows_when_it_is_taken() {
    in_namespace(|| {
        let lab = lab();
        let mut store = web_and_shop(&[LOCAL], &[LOCAL]);
        let hated = Some(vec![172, 30, 0, 41]);
        let nft = Refusing::new;
        let on = |nft, store: &Store| {
            NftablesProxy::start_on(nft, false, rules(), Limits::default(), store).expect("it starts").0
        };
        drop(on(nft(None), &store));
        let mut proxy = on(nft(hated), &store);
        for endpoints in [&[LOCAL, REMOTE][..], &[REMOTE], &[LOCAL, REMOTE]] {
            store.set_slice("web", http_slice("web", endpoints));
            store.set_slice("shop", http_slice("shop", endpoints));
            let patches = store.patches();
            proxy.update(&store, &patches).expect("only a port is refused");
            let held: Vec<_> = proxy.refused().map(|(id, _)| id.to_string()).collect();
            assert_eq!(held, ["ns/web:http/tcp ipv4"]);
        }
        check(
            &lab,
            &[
                (POD, "172.30.0.41:80", answered(ONLY_LOCAL, false)),
                (POD, "172.30.0.42:80", answered(BOTH, false)),
            ],
        );
        // A restart finds the same, and takes nothing away.
        drop(proxy);
        let mut proxy = on(nft(Some(vec![172, 30, 0, 41])), &store);
        assert_eq!(proxy.refused().count(), 1);
        check(&lab, &[(POD, "172.30.0.41:80", answered(ONLY_LOCAL, false))]);
        drop(proxy);
        proxy = on(nft(None), &store);
        assert_eq!(proxy.refused().count(), 0);
        check(&lab, &[(POD, "172.30.0.41:80", answered(BOTH, false))]);
        proxy.stop().expect("the table can go");
    });
}

/// The kernel itself refuses a way that leads back to where it came from.
#[test]
fn a_loop_that_somebody_built_is_undone_and_nobody_is_blamed() {
    in_namespace(|| {
        let lab = lab();
        let store = web_and_shop(&[LOCAL, REMOTE], &[LOCAL]);
        let mut proxy = Proxy::new(Settings { rules: rules(), ..Settings::default() }, Mode::Nftables, store);
        proxy.sync().expect("the kernel takes the tables");
        proxy.store().set_slice("web", http_slice("web", &[LOCAL]));
        proxy.sync().expect("the kernel takes the change");
        // Nothing leads to this class at the moment. Who is sent there now would run in a circle.
        run("nft add rule ip trestle-services pick-2 jump dispatch");
        proxy.store().set_slice("web", http_slice("web", &[LOCAL, REMOTE]));
        proxy.store().set_slice("shop", http_slice("shop", &[REMOTE]));
        let synced = proxy.sync().expect("the kernel takes it once the circle is gone");
        assert_eq!(synced.refused.len(), 0, "{synced:?}");
        check(
            &lab,
            &[
                (POD, "172.30.0.41:80", answered(BOTH, false)),
                (POD, "172.30.0.42:80", answered(&["10.180.2.1:80"], false)),
            ],
        );
        assert!(!run("nft list chain ip trestle-services pick-2").contains("dispatch"));
        let later = Instant::now() + Duration::from_secs(60);
        assert!(proxy.tend(later).expect("the kernel answers").is_none());
        proxy.stop().expect("ours can go");
    });
}

/// nftables that can be reached for so many transactions only, as for an agent that is killed then.
struct Dying {
    nft: Nft,
    left: usize,
}

impl Tables for Dying {
    fn glance(&mut self, table: &TableId) -> Result<Option<CurrentTable>, ReadError> {
        self.nft.glance(table)
    }

    fn read(&mut self, table: &TableId) -> Result<Option<CurrentTable>, ReadError> {
        self.nft.read(table)
    }

    fn read_set(&mut self, table: &TableId, set: &str, schema: &SetSchema) -> Result<Elements, ReadError> {
        self.nft.read_set(table, set, schema)
    }

    fn commit(&mut self, table: &TableId, transaction: &Transaction) -> Result<Applied, CommitError> {
        if self.left == 0 {
            let source = NetlinkError::Silent;
            return Err(CommitError::Netlink { table: table.clone(), source });
        }
        self.left -= 1;
        self.nft.commit(table, transaction)
    }

    fn delete(&mut self, table: &TableId) -> Result<bool, ReconcileError> {
        self.nft.delete(table)
    }
}

#[test]
fn killed_between_any_two_transactions_the_next_run_completes_it() {
    in_namespace(|| {
        let lab = lab();
        let small = Limits { elements: 3 };
        let on = |left: usize, store: &Store| {
            let nft = Dying { nft: Nft::open().expect("there is nftables"), left };
            NftablesProxy::start_on(nft, false, rules(), small, store)
        };
        let state = |round: usize| {
            let endpoints: [&[&str]; 3] = [&[LOCAL, REMOTE], &[REMOTE], &[LOCAL]];
            let mut store = web_and_shop(endpoints[round % 3], endpoints[(round + 1) % 3]);
            let sticky = node_services::Service { affinity: Some(60), ..states::everywhere("172.30.0.43") };
            store.set_service(name("sticky"), sticky);
            store.set_slice("sticky", http_slice("sticky", endpoints[(round + 2) % 3]));
            store.patches();
            store
        };
        let mut died = 0;
        for left in 0..40 {
            // Died while it began, and while it changed.
            let old = state(left);
            let mut store = old.clone();
            if let Ok((mut proxy, _)) = on(left, &old) {
                let new = state(left + 1);
                for service in ["web", "shop", "sticky"] {
                    let endpoints = new.ports().filter(|(id, ..)| id.service == name(service) && !id.ipv6);
                    let endpoints: Vec<_> =
                        endpoints.flat_map(|(.., all)| all.map(|one| one.address)).collect();
                    let endpoints: Vec<_> = endpoints.iter().map(ToString::to_string).collect();
                    let endpoints: Vec<_> = endpoints.iter().map(String::as_str).collect();
                    store.set_slice(service, http_slice(service, &endpoints));
                }
                let patches = store.patches();
                died += usize::from(proxy.update(&store, &patches).is_err());
            } else {
                died += 1;
            }
            let (mut proxy, _) = on(usize::MAX, &store).expect("the next run finds its way");
            assert_eq!(
                proxy.reconcile(&store).expect("the kernel answers"),
                Applied::default(),
                "after {left}"
            );
            assert_eq!(proxy.refused().count(), 0);
            if left % 10 == 9 {
                let web: Vec<_> = store
                    .ports()
                    .find(|(id, ..)| id.service == name("web"))
                    .expect("it is there")
                    .2
                    .collect();
                let by: Vec<_> = web.iter().map(|one| format!("{}:80", one.address)).collect();
                let by: Vec<_> = by.iter().map(String::as_str).collect();
                check(&lab, &[(POD, "172.30.0.41:80", answered(&by, false))]);
            }
            if left % 2 == 0 {
                proxy.stop().expect("the table can go");
            }
        }
        assert!(died > 10, "{died} deaths");
    });
}
