//! The same services through IPVS, beside `ipvsadm -R`. Only where the kernel has IPVS: `labs/vm/bench.sh` brings one.
//!
//! Ours and the peer's each in a fresh network namespace: adding again after a flush is slower in the kernel.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    process::{Command, Stdio},
    time::Instant,
};

use nix::sched::{CloneFlags, unshare};
use node_kernel::{ipvs::Ipvs, services::IpvsProxy};
use node_services::{Node, Store, ipvs::Config, nftables};

use super::{SERVICES, changes, cluster_ip, endpoint_ip, key, millis, report, service, slice};

const ENDPOINTS: u32 = 10;

pub fn measure() -> io::Result<()> {
    if Ipvs::open().is_err() {
        return writeln!(
            io::stderr(),
            "services.ipvs.* NOT MEASURED: this kernel has no IPVS; labs/vm/bench.sh runs it in a VM"
        );
    }
    fresh()?;
    let state = (0..SERVICES).map(|number| (service(number), slice(number, ENDPOINTS, 0)));
    let (services, slices): (Vec<_>, Vec<_>) = state.unzip();
    let mut store = Store::new(Node { name: "here".into(), ..Node::default() });
    let started = Instant::now();
    store.replace(services, slices);
    store.patches();
    let (proxy, rules) = (IpvsProxy::start, nftables::Config::default());
    let (mut proxy, outcome) = proxy(Config::default(), rules.clone(), &store).expect("the kernel has IPVS");
    report("services.ipvs.cold10", "seconds", started.elapsed().as_secs_f64(), "s");
    report("services.ipvs.cold10", "operations", outcome.operations as f64, "");
    let endpoint = changes(|number| {
        store.set_slice(&key(number), slice(number, ENDPOINTS, 1).1);
        let patches = store.patches();
        proxy.update(&store, &patches).expect("the kernel takes the patch");
    });
    report("services.ipvs.endpoint10", "ms", millis(endpoint.0), "ms");
    drop(proxy);
    let started = Instant::now();
    let (_, outcome) = IpvsProxy::start(Config::default(), rules, &store).expect("the kernel has IPVS");
    report("services.ipvs.restart10", "seconds", started.elapsed().as_secs_f64(), "s");
    report("services.ipvs.restart10", "writes", outcome.operations as f64, "");
    fresh()?;
    peer()
}

/// A namespace of its own, with its loopback up: IPVS wants a routing table.
fn fresh() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status()?;
    assert!(up.success(), "ip link set lo up");
    Ok(())
}

fn peer() -> io::Result<()> {
    let mut text = String::new();
    for number in 0..SERVICES {
        let server = format!("-t {}:80", cluster_ip(number));
        let _ = writeln!(text, "-A {server} -s rr");
        for index in 0..ENDPOINTS {
            let _ = writeln!(text, "-a {server} -r {}:8080 -m -w 1", endpoint_ip(20 * number + index));
        }
    }
    let started = Instant::now();
    let mut child = match Command::new("ipvsadm").arg("-R").stdin(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(_) => {
            let text = "services.ipvs.cold10.peer NOT MEASURED: install the Debian package ipvsadm";
            return writeln!(io::stderr(), "{text}");
        }
    };
    child.stdin.take().expect("it is piped").write_all(text.as_bytes())?;
    assert!(child.wait()?.success(), "ipvsadm -R");
    report("services.ipvs.cold10.peer", "seconds", started.elapsed().as_secs_f64(), "s");
    Ok(())
}
