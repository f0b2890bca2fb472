//! Hosts are guarded: one that is a Kubernetes node too, with Pods, a published port, several interfaces and addresses that come
//! and go; one that is an ExternalNode. The worlds are shared, since starting one costs more than what is asked of it.

use std::{fs, net::IpAddr, time::Duration};

use testkit::namespaces::Namespace;

use super::{
    probe::{Port, Target, ask, serve},
    stream::Stream,
    traffic::Flow,
    world::{World, eventually},
};

/// Of the host that is guarded: what everybody has, an address that IPv6 makes up for privacy, and another interface's.
const ADDRESSES: [&str; 4] = ["10.99.0.1", "fd99::1", "fd99::a:b:c:d", "10.98.0.1"];
const FRIEND: usize = 1;
const STRANGER: usize = 2;

/// Whether a port answers: whoever is refused waits this long.
fn reaches(from: &Namespace, address: &str, port: &str) -> bool {
    let target = Target { address: address.parse().unwrap(), port: port.parse().unwrap() };
    ask(from, vec![target], Duration::from_secs(1)).join().unwrap()[&target]
}

#[track_caller]
fn all(from: &Namespace, addresses: &[&str], port: &str, expected: bool) {
    let port: Port = port.parse().unwrap();
    let address = |text: &&str| text.parse::<IpAddr>().unwrap();
    let targets = addresses.iter().map(address).map(|address| Target { address, port }).collect();
    let answers = ask(from, targets, Duration::from_secs(1)).join().unwrap();
    assert!(answers.values().all(|answered| *answered == expected), "{answers:?}, expected {expected}");
}

fn node(number: usize, addresses: &[&str]) -> String {
    let addresses = addresses.iter().map(|address| format!("{{type: InternalIP, address: \"{address}\"}}"));
    format!(
        "---\napiVersion: v1\nkind: Node\nmetadata: {{name: host-{number}}}\nstatus: {{addresses: [{}]}}\n",
        addresses.collect::<Vec<_>>().join(", ")
    )
}

/// The friend may use TCP 80 and UDP 9000 of the host, and nobody anything else; the host may not use TCP 81 of the stranger.
fn guard(selector: &str) -> String {
    let everybody = "[{ipBlock: {cidr: 0.0.0.0/0}}, {ipBlock: {cidr: \"::/0\"}}]";
    let host =
        |number: usize| format!("[{{nodeSelector: {{matchLabels: {{trestle.dev/host: host-{number}}}}}}}]");
    format!(
        "---\napiVersion: crd.antrea.io/v1beta1\nkind: ClusterNetworkPolicy\nmetadata: {{name: guard}}\n\
         spec:\n  priority: 5\n  tier: application\n  appliedTo: [{{{selector}}}]\n\
         \x20 ingress:\n  - {{action: Allow, from: {friend}, ports: [{{protocol: TCP, port: 80}}, {{protocol: UDP, port: 9000}}]}}\n\
         \x20 - {{action: Drop, from: {everybody}}}\n\
         \x20 egress:\n  - {{action: Drop, to: {stranger}, ports: [{{protocol: TCP, port: 81}}]}}\n",
        friend = host(2),
        stranger = host(3),
    )
}

/// Three hosts; the first is to be guarded, and has two Pods of which nobody may reach one.
fn three_hosts() -> World {
    let mut world = World::new(3);
    let port = |text: &str| text.parse::<Port>().unwrap();
    let ports = ["tcp/22", "tcp/80", "tcp/81", "udp/80"].map(port);
    world.hosts.iter().for_each(|host| serve(&host.namespace, &ports));
    world.hosts[0].namespace.run(
        "ip addr add fd99::a:b:c:d/64 dev up0 nodad; ip link add other0 type bridge; ip link set other0 up
         ip addr add 10.98.0.1/24 dev other0",
    );
    for host in [FRIEND, STRANGER] {
        let also =
            "sysctl -qw net.ipv4.conf.all.promote_secondaries=1; ip route add 10.98.0.0/24 via 10.99.0.1";
        world.hosts[host].namespace.run(also);
    }
    world.add_pod("x/a", 0, "", &[port("tcp/80")]);
    world.add_pod("x/b", 0, "", &[port("tcp/80")]);
    let hosts: Vec<_> = (1..=3)
        .map(|number| node(number, &[&format!("10.99.0.{number}"), &format!("fd99::{number}")]))
        .collect();
    world.apply(&hosts.concat());
    world.apply(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {namespace: x, name: closed}\n\
         spec: {podSelector: {matchLabels: {pod: a}}, policyTypes: [Ingress]}",
    );
    world.settle();
    world
}

/// What lives behind the first host: a container, as container engines run it, and a network that the host routes for.
struct Behind {
    container: Namespace,
    lan: Namespace,
}

/// Of the machine on the network behind, and of the container.
const LAN: [&str; 2] = ["10.97.0.2", "fd97::2"];
const CONTAINER: [&str; 2] = ["172.18.0.2", "fd18::2"];

fn behind(world: &World) -> Behind {
    let (container, lan) = (Namespace::new("container"), Namespace::new("lan"));
    let host = &world.hosts[0].namespace;
    host.run(&format!(
        "ip link add docker0 type bridge forward_delay 0; ip link set docker0 up
         ip addr add 172.18.0.1/16 dev docker0; ip addr add fd18::1/64 dev docker0 nodad
         ip link add c0 type veth peer name eth0 netns {}; ip link set c0 master docker0 up
         ip link add lan0 type veth peer name eth0 netns {}; ip link set lan0 up
         ip addr add 10.97.0.1/24 dev lan0; ip addr add fd97::1/64 dev lan0 nodad",
        container.name, lan.name
    ));
    publish(world);
    for (namespace, [v4, v6], [via4, via6]) in
        [(&container, CONTAINER, ["172.18.0.1", "fd18::1"]), (&lan, LAN, ["10.97.0.1", "fd97::1"])]
    {
        namespace.run(&format!(
            "ip link set eth0 up; ip addr add {v4}/16 dev eth0; ip addr add {v6}/64 dev eth0 nodad
             ip route add default via {via4}; ip -6 route add default via {via6}"
        ));
        serve(namespace, &["tcp/80", "tcp/81", "udp/80"].map(|text| text.parse().unwrap()));
    }
    for other in [FRIEND, STRANGER] {
        world.hosts[other].namespace.run(
            "ip route add 10.97.0.0/24 via 10.99.0.1; ip -6 route add fd97::/64 via fd99::1
             ip route add 172.18.0.0/16 via 10.99.0.1; ip -6 route add fd18::/64 via fd99::1",
        );
    }
    Behind { container, lan }
}

/// Where the container's ports are published: at addresses of the host to which nothing else is sent that has these ports.
const PUBLISHED: [&str; 2] = ["10.98.0.1", "fd99::a:b:c:d"];

/// What a container engine puts into the kernel.
fn publish(world: &World) {
    world.hosts[0].namespace.run(
        "nft add table inet engine
         nft 'add chain inet engine pre { type nat hook prerouting priority dstnat; }'
         nft add rule inet engine pre ip daddr 10.98.0.1 tcp dport 9090 dnat ip to 172.18.0.2:80
         nft add rule inet engine pre ip daddr 10.98.0.1 udp dport 9000 dnat ip to 172.18.0.2:80
         nft add rule inet engine pre ip6 daddr fd99::a:b:c:d tcp dport 9090 dnat ip6 to [fd18::2]:80
         nft add rule inet engine pre ip6 daddr fd99::a:b:c:d udp dport 9000 dnat ip6 to [fd18::2]:80
         nft 'add chain inet engine post { type nat hook postrouting priority srcnat; }'
         nft add rule inet engine post ip saddr 172.18.0.0/16 oifname != docker0 masquerade
         nft add rule inet engine post ip6 saddr fd18::/64 oifname != docker0 masquerade",
    );
}

/// What the host forwards is its own as far as others know it as the host's.
fn forwards(world: &World, behind: &Behind) {
    let (friend, stranger) = (&world.hosts[FRIEND].namespace, &world.hosts[STRANGER].namespace);
    // A published port is judged by the port that is asked for: 9000 of UDP is the friend's, whatever it is in the container.
    all(friend, &PUBLISHED, "udp/9000", true);
    all(stranger, &PUBLISHED, "udp/9000", false);
    all(friend, &PUBLISHED, "tcp/9090", false);
    all(stranger, &PUBLISHED, "tcp/9090", false);
    // What leaves under the host's address.
    all(&behind.container, &["10.99.0.3", "fd99::3"], "tcp/81", false);
    all(&behind.container, &["10.99.0.3", "fd99::3"], "tcp/80", true);
    all(&behind.container, &["10.99.0.2", "fd99::2"], "tcp/81", true);
    // What it routes from one network into another.
    all(friend, &LAN, "tcp/80", true);
    all(friend, &LAN, "tcp/81", false);
    all(stranger, &LAN, "tcp/80", false);
    all(&behind.lan, &["10.99.0.3", "fd99::3"], "tcp/80", false);
    // A container by an address of its own is not the host.
    all(stranger, &CONTAINER, "tcp/80", true);
}

/// What a host cannot live without passes: its addresses are renewed, and its neighbours are found again.
fn stays_alive(world: &World) {
    let (host, stranger) = (&world.hosts[0].namespace, &world.hosts[STRANGER].namespace);
    serve(host, &["udp/68", "udp/546"].map(|text| text.parse().unwrap()));
    let answered = |from: u16, to: &'static str| {
        let asking = stranger.within(move || {
            let any = if to.starts_with('[') { "[::]" } else { "0.0.0.0" };
            let socket = std::net::UdpSocket::bind(format!("{any}:{from}")).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(400))).unwrap();
            (0..3).any(|_| {
                socket.send_to(b"offer", to).unwrap();
                socket.recv(&mut [0; 64]).is_ok()
            })
        });
        asking.join().unwrap()
    };
    assert!(answered(67, "10.99.0.1:68"), "DHCP");
    assert!(answered(547, "[fd99::1]:546"), "DHCPv6");
    assert!(!answered(1067, "10.99.0.1:68"), "nobody but servers");
    host.run("ip neigh flush all; ip -6 neigh flush all");
    stranger.run("ip neigh flush all; ip -6 neigh flush all");
    all(stranger, &ADDRESSES[..3], "tcp/22", true);
    all(host, &["fd99::3"], "tcp/80", true);
}

fn policy_line(world: &World) -> String {
    let listed = world.ok(&["policy", "list"]);
    listed.lines().find(|line| line.contains("guard")).unwrap_or_default().to_owned()
}

#[track_caller]
fn realized(world: &World) {
    eventually("the policy is in force, and said to be", || {
        let line = policy_line(world);
        if line.contains("Realized") { Ok(()) } else { Err(line) }
    });
}

#[track_caller]
fn none_passed(stream: &Stream, when: &str) {
    stream.more(25);
    let (passed, within) = stream.passed();
    assert_eq!(passed, 0, "forbidden packets came through within {within:?}: {when}");
}

#[test]
fn a_host_is_guarded_as_its_pods_are() {
    let mut world = three_hosts();
    // A container with a published port, as container engines make it.
    let pod = world.pods["x/b"].addresses[0];
    world.hosts[0].namespace.run(&format!(
        "nft add table ip engine; nft 'add chain ip engine pre {{ type nat hook prerouting priority dstnat; }}'
         nft add rule ip engine pre tcp dport 8080 dnat to {pod}:80"
    ));
    all(&world.hosts[STRANGER].namespace, &ADDRESSES, "tcp/81", true);
    let behind = behind(&world);
    for from in [FRIEND, STRANGER].map(|host| &world.hosts[host].namespace) {
        all(from, &PUBLISHED, "tcp/9090", true);
        all(from, &PUBLISHED, "udp/9000", true);
        all(from, &LAN, "tcp/81", true);
        all(from, &CONTAINER, "tcp/80", true);
    }
    all(&behind.container, &["10.99.0.3", "fd99::3"], "tcp/81", true);
    all(&behind.lan, &["10.99.0.3", "fd99::3"], "tcp/80", true);
    let flow = Flow::between(&world.hosts[STRANGER].namespace, "10.99.0.1:81".parse().unwrap());
    eventually("a connection is used", || if flow.exchanges() > 5 { Ok(()) } else { Err(String::new()) });

    world.apply(&guard("nodeSelector: {matchLabels: {trestle.dev/host: host-1}}"));
    world.settle();
    realized(&world);
    let (host, friend, stranger) =
        (&world.hosts[0].namespace, &world.hosts[FRIEND].namespace, &world.hosts[STRANGER].namespace);
    all(friend, &ADDRESSES, "tcp/80", true);
    all(friend, &ADDRESSES, "tcp/81", false);
    all(stranger, &ADDRESSES, "tcp/80", false);
    all(stranger, &ADDRESSES, "udp/80", false);
    all(stranger, &ADDRESSES[..2], "icmp", false);
    // Fail-safe ports, loopback, what is established, the Pods of the host, what it forwards.
    all(stranger, &ADDRESSES, "tcp/22", true);
    all(host, &["127.0.0.1", "::1", "10.99.0.1", "fd99::1"], "tcp/81", true);
    all(host, &["10.99.0.3", "fd99::3"], "tcp/81", false);
    all(host, &["10.99.0.3", "fd99::3"], "tcp/80", true);
    let before = flow.exchanges();
    eventually("it goes on", || if flow.exchanges() > before + 5 { Ok(()) } else { Err(String::new()) });
    flow.stop().expect("what is established is not cut");
    let [closed, open] = ["x/a", "x/b"].map(|name| world.pods[name].addresses.map(|one| one.to_string()));
    for number in [0, 1] {
        assert!(reaches(host, &closed[number], "tcp/80"), "the node probes its Pods");
        assert!(!reaches(stranger, &closed[number], "tcp/80"), "a Pod's policies hold");
        assert!(reaches(stranger, &open[number], "tcp/80"), "what is forwarded to Pods is not the host's");
        assert!(
            !reaches(&world.pods["x/b"].namespace, ADDRESSES[number], "tcp/80"),
            "its Pods are judged too"
        );
    }
    assert!(reaches(stranger, "10.99.0.1", "tcp/8080"), "a Pod's published port is the Pod's");
    forwards(&world, &behind);
    stays_alive(&world);
    let explained = world.ok(&["explain", "node/host-3", "node/host-1", "--port", "80"]);
    assert!(explained.contains("guards itself") && explained.contains("tcp:22"), "{explained}");
    assert!(!explained.contains("NOT ENFORCED"), "{explained}");
    let told = world.ok(&["node", "get", "host-1"]);
    assert!(told.contains("in and out") && told.contains("fd99::a:b:c:d"), "{told}");
    assert!(world.agent_ok(0, &["status"]).contains("guarded"));
    // It can be read by those who look.
    assert!(host.run("nft list table inet trestle-policy").contains("host-in-judge"));

    addresses_change(&world);
    let stream = Stream::between(friend, stranger, host, "10.99.0.1".parse().unwrap());
    none_passed(&stream, "all is well");
    for damage in ["delete table inet trestle-policy", "flush table inet trestle-policy", "flush ruleset"] {
        host.run(&format!("nft {damage}"));
        stream.more(100);
        let (passed, within) = stream.passed();
        eprintln!("{damage}: {passed} packets passed within {within:?}");
        none_passed(&stream, damage);
    }
    world.settle();
    publish(&world);
    agent_falls(&mut world, &stream);
    drop(stream);
    observes(&mut world);
    lockdown(&world);
    tries(&mut world);
}

/// DHCP gives another address: the host is guarded under it from the first packet, and its peers know it.
fn addresses_change(world: &World) {
    let (host, friend) = (&world.hosts[0].namespace, &world.hosts[FRIEND].namespace);
    let stranger = &world.hosts[STRANGER].namespace;
    host.run("ip addr add 10.99.0.71/24 dev up0");
    let stream = Stream::between(friend, stranger, host, "10.99.0.71".parse().unwrap());
    none_passed(&stream, "a new address");
    eventually("the controller is told", || {
        let told = world.ok(&["node", "get", "host-1"]);
        if told.contains("10.99.0.71") { Ok(()) } else { Err(told) }
    });
    drop(stream);
    // The friend's address becomes the stranger's, while packets flow: nobody is taken for who had it.
    friend.run("ip addr add 10.99.0.72/24 dev up0; ip addr del 10.99.0.2/24 dev up0");
    world.apply(&node(2, &["10.99.0.72", "fd99::2"]));
    world.settle_one(0);
    assert!(reaches(friend, "10.99.0.1", "tcp/80"));
    stranger.run("ip addr add 10.99.0.2/24 dev up0; ip addr del 10.99.0.3/24 dev up0");
    assert!(!reaches(stranger, "10.99.0.1", "tcp/80"));
    stranger.run("ip addr add 10.99.0.3/24 dev up0; ip addr del 10.99.0.2/24 dev up0");
    friend.run("ip addr add 10.99.0.2/24 dev up0; ip addr del 10.99.0.72/24 dev up0");
    world.apply(&node(2, &["10.99.0.2", "fd99::2"]));
    world.settle_one(0);
}

fn boot(world: &World, flags: &[&str]) {
    let mut command = world.hosts[0].namespace.command(env!("CARGO_BIN_EXE_trestle"));
    command.args(["agent", "--boot", "--node", "host-1", "--data-dir"]).arg(world.data_dir(0));
    let booted = command.args(flags).env("TRESTLE_LOG", "error").output().unwrap();
    assert!(booted.status.success(), "{}", String::from_utf8_lossy(&booted.stderr));
}

fn agent_falls(world: &mut World, stream: &Stream) {
    for _ in 0..3 {
        world.kill_agent(0);
        none_passed(stream, "killed");
        world.start_agent(0);
        none_passed(stream, "started again");
    }
    world.settle();
    // A reboot: from disk, before anything is heard; then with the state lost.
    std::thread::sleep(Duration::from_millis(1800));
    world.kill_controller();
    world.kill_agent(0);
    for lost in [false, true] {
        stream.halt();
        world.hosts[0].namespace.run("nft delete table inet trestle-policy");
        if lost {
            fs::remove_file(world.data_dir(0).join("state")).unwrap();
        }
        boot(world, &[]);
        let before = stream.permitted();
        stream.go_on();
        none_passed(stream, &format!("after a reboot, state lost: {lost}"));
        assert_eq!(stream.permitted() > before, !lost, "what is not known to be permitted is not");
        let published = reaches(&world.hosts[FRIEND].namespace, PUBLISHED[0], "udp/9000");
        assert_eq!(published, !lost, "nor is what it forwards");
        assert_eq!(reaches(&world.hosts[FRIEND].namespace, LAN[0], "tcp/80"), !lost);
        assert!(reaches(&world.hosts[STRANGER].namespace, "10.99.0.1", "tcp/22"), "nobody is locked out");
    }
    // All of it is lost. A host that has joined is closed nonetheless, and finds its controller.
    stream.halt();
    world.hosts[0].namespace.run("nft delete table inet trestle-closed");
    fs::remove_dir_all(world.data_dir(0)).unwrap();
    let config = world.dir.path().join("joined.yaml");
    fs::write(&config, "joined: true\n").unwrap();
    boot(world, &["--config", config.to_str().unwrap()]);
    stream.go_on();
    none_passed(stream, "everything is lost");
    let stranger = &world.hosts[STRANGER].namespace;
    assert!(!reaches(stranger, "10.99.0.1", "tcp/80") && reaches(stranger, "10.99.0.1", "tcp/22"));
    world.start_agent(0);
    world.start_controller();
    world.settle();
    world.attach("x/a");
    world.attach("x/b");
    none_passed(stream, "the controller is back");
    let before = stream.permitted();
    eventually("what is permitted passes", || {
        if stream.permitted() > before { Ok(()) } else { Err(String::new()) }
    });
}

/// Nothing is refused, all of it is counted, and nobody says that it is in force.
fn observes(world: &mut World) {
    world.kill_agent(0);
    world.start_agent_with(0, &["--observe"]);
    world.settle();
    let stranger = &world.hosts[STRANGER].namespace;
    all(stranger, &ADDRESSES, "tcp/80", true);
    assert!(reaches(stranger, &world.pods["x/a"].addresses[0].to_string(), "tcp/80"));
    eventually("it is counted", || {
        let status = world.agent_status(0);
        if status["host"]["observed"].as_u64() >= Some(5) { Ok(()) } else { Err(status.to_string()) }
    });
    eventually("it is told", || {
        let line = policy_line(world);
        if line.contains("Failed") && line.contains("only observed") { Ok(()) } else { Err(line) }
    });
    let explained = world.ok(&["explain", "node/host-3", "node/host-1", "--port", "80"]);
    assert!(explained.contains("NOT ENFORCED") && explained.contains("observes"), "{explained}");
    world.kill_agent(0);
    world.start_agent(0);
    world.settle();
    all(&world.hosts[STRANGER].namespace, &ADDRESSES, "tcp/80", false);
    realized(world);
}

/// A policy that locks out even those who could take it back goes by itself, also if the controller falls meanwhile.
fn tries(world: &mut World) {
    let refuse = "apiVersion: crd.antrea.io/v1beta1\nkind: Tier\nmetadata: {name: host-lockdown}\nspec: {priority: 1}\n\
         ---\napiVersion: crd.antrea.io/v1beta1\nkind: ClusterNetworkPolicy\nmetadata: {name: guard}\n\
         spec:\n  priority: 1\n  tier: host-lockdown\n\
         \x20 appliedTo: [{nodeSelector: {matchLabels: {trestle.dev/host: host-1}}}]\n\
         \x20 ingress: [{action: Drop, from: [{ipBlock: {cidr: 10.99.0.0/24}}]}]\n";
    fs::write(world.dir.path().join("try.yaml"), refuse).unwrap();
    world.ok(&["try", "-f", "try.yaml", "--for", "10s"]);
    let closed = |world: &World| !reaches(&world.hosts[FRIEND].namespace, "10.99.0.1", "tcp/22");
    eventually("nobody comes in", || if closed(world) { Ok(()) } else { Err(String::new()) });
    assert!(world.ok(&["try"]).contains("as before"));
    world.kill_controller();
    world.start_controller();
    eventually("it is over", || {
        let friend = &world.hosts[FRIEND].namespace;
        if reaches(friend, "10.99.0.1", "tcp/22") && reaches(friend, "10.99.0.1", "tcp/80") {
            Ok(())
        } else {
            Err(world.ok(&["try"]))
        }
    });
    let stored = world.ok(&["get", "acnp", "guard", "-o", "yaml"]);
    assert!(stored.contains("application") && !stored.contains("trestle.dev/try"), "{stored}");
    // Confirmed, it stays.
    world.ok(&["try", "-f", "try.yaml", "--for", "3s"]);
    world.ok(&["try", "--confirm"]);
    std::thread::sleep(Duration::from_secs(4));
    let stored = world.ok(&["get", "acnp", "guard", "-o", "yaml"]);
    assert!(stored.contains("host-lockdown") && !stored.contains("trestle.dev/try"), "{stored}");
}

/// A policy of a first tier is asked before what stays open otherwise.
fn lockdown(world: &World) {
    let stranger = &world.hosts[STRANGER].namespace;
    world.apply(
        "apiVersion: crd.antrea.io/v1beta1\nkind: Tier\nmetadata: {name: host-lockdown}\nspec: {priority: 1}\n\
         ---\napiVersion: crd.antrea.io/v1beta1\nkind: ClusterNetworkPolicy\nmetadata: {name: no-ssh}\n\
         spec:\n  priority: 1\n  tier: host-lockdown\n\
         \x20 appliedTo: [{nodeSelector: {matchLabels: {trestle.dev/host: host-1}}}]\n\
         \x20 ingress: [{action: Reject, from: [{ipBlock: {cidr: 10.99.0.3/32}}], ports: [{protocol: TCP, port: 22}]}]\n",
    );
    world.settle();
    assert!(!reaches(stranger, "10.99.0.1", "tcp/22"));
    assert!(reaches(stranger, "fd99::1", "tcp/22"), "the rule is for one address");
    assert!(reaches(&world.hosts[FRIEND].namespace, "10.99.0.1", "tcp/22"));
}

#[test]
fn an_external_node_is_guarded_by_its_own_agent() {
    let mut world = three_hosts();
    world.kill_agent(0);
    let dir = world.dir.path().join("vms");
    fs::create_dir(dir).unwrap();
    world.ok(&["cert", "issue", "vms.host-1", "--role", "node", "--out", "vms/host-1"]);
    world.delete("Node host-1");
    world.apply(
        "apiVersion: crd.antrea.io/v1alpha1\nkind: ExternalNode\nmetadata: {namespace: vms, name: host-1, labels: {role: vm}}\n\
         spec: {interfaces: [{ips: [10.99.0.1]}]}\n",
    );
    world.hosts[0].name = "vms/host-1".to_owned();
    fs::remove_dir_all(world.data_dir(0)).unwrap();
    world.hosts[0].namespace.run("nft delete table inet trestle-policy");
    world.start_agent(0);
    world.apply(&guard("externalEntitySelector: {matchLabels: {role: vm, trestle.dev/host: host-1}}"));
    world.settle();
    realized(&world);
    all(&world.hosts[FRIEND].namespace, &ADDRESSES, "tcp/80", true);
    all(&world.hosts[STRANGER].namespace, &ADDRESSES, "tcp/80", false);
    all(&world.hosts[STRANGER].namespace, &ADDRESSES, "tcp/22", true);
    // Its agent is away: nobody else guards it, and what is in the kernel stays.
    world.kill_agent(0);
    all(&world.hosts[STRANGER].namespace, &ADDRESSES, "tcp/80", false);
}
