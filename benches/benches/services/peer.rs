//! The same services as kube-proxy lays them out, by the `nft` command.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    process::Command,
    time::{Duration, Instant},
};

use super::{SERVICES, cluster_ip, endpoint_ip, millis, report};

const CHANGES: u32 = 10;
const SETUP: &str = "table ip kube-proxy {
  map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; }
  chain services { ip daddr . meta l4proto . th dport vmap @service-ips; }
  chain nat-prerouting { type nat hook prerouting priority -100; jump services; }
  chain nat-output { type nat hook output priority -100; jump services; }
}\n";

pub fn measure() -> io::Result<()> {
    if Command::new("nft").arg("--version").output().is_err() {
        return writeln!(
            io::stderr(),
            "services.cold.peer NOT MEASURED: install the Debian package nftables"
        );
    }
    let mut rules = SETUP.to_owned();
    (0..SERVICES).for_each(|number| add(&mut rules, number));
    report("services.cold.peer", "seconds", nft(&rules)?.as_secs_f64(), "s");
    let mut changed = Vec::new();
    for number in 0..CHANGES {
        let chain = chain(number);
        let mut change = format!("flush chain ip kube-proxy {chain}\n");
        let _ = writeln!(change, "add rule ip kube-proxy {chain} {}", balance(number, 500_000));
        changed.push(nft(&change)?);
    }
    changed.sort_unstable();
    report("services.endpoint.peer", "ms", millis(changed[changed.len() / 2]), "ms");
    let mut added = Vec::new();
    for number in SERVICES..SERVICES + CHANGES {
        let mut change = String::new();
        add(&mut change, number);
        added.push(nft(&change)?);
    }
    added.sort_unstable();
    report("services.add.peer", "ms", millis(added[added.len() / 2]), "ms");
    Ok(())
}

fn chain(number: u32) -> String {
    format!("service-{:08X}-bench/service-{number}/tcp/http", number.wrapping_mul(2_654_435_761))
}

fn add(rules: &mut String, number: u32) {
    let (chain, address) = (chain(number), cluster_ip(number));
    let _ = writeln!(rules, "add chain ip kube-proxy {chain}");
    let _ = writeln!(rules, "add rule ip kube-proxy {chain} {}", balance(number, 0));
    let _ =
        writeln!(rules, "add element ip kube-proxy service-ips {{ {address} . tcp . 80 : goto {chain} }}");
}

fn balance(number: u32, shift: u32) -> String {
    let (one, two) = (endpoint_ip(20 * number + shift), endpoint_ip(20 * number + 1));
    format!("meta l4proto tcp dnat ip to numgen random mod 2 map {{ 0 : {one} . 8080, 1 : {two} . 8080 }}")
}

fn nft(rules: &str) -> io::Result<Duration> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), rules)?;
    let started = Instant::now();
    let output = Command::new("nft").arg("-f").arg(file.path()).output()?;
    let took = started.elapsed();
    if output.status.success() {
        Ok(took)
    } else {
        Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}
