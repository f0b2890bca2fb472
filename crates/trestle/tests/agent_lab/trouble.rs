//! Things that happen to nodes while packets flow: restarts, kills, partitions, other people's hands.

use std::time::{Duration, Instant};

use testkit::namespaces::run;

use super::{
    matrix::Scenario,
    probe::{Port, Target, ask, serve},
    traffic::{Flow, Traffic},
    world::{PATIENCE, World, eventually},
};

const QUICK: Duration = Duration::from_millis(150);

fn port(text: &str) -> Port {
    text.parse().unwrap()
}

/// Two hosts; `x/b` may reach `x/a`, others may not.
fn guarded() -> World {
    guarded_in(World::new(2))
}

pub fn guarded_in(mut world: World) -> World {
    let ports = [port("tcp/80"), port("tcp/81")];
    for (name, host) in [("x/a", 0), ("x/b", 1), ("x/c", 0)] {
        world.add_pod(name, host, "", &ports);
    }
    world.apply(&policy("b"));
    world.settle();
    world
}

/// Lets the Pods with this label in to `x/a`.
fn policy(peer: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{namespace: x, name: guard}}\n\
         spec:\n  podSelector: {{matchLabels: {{pod: a}}}}\n  ingress:\n\
         \x20 - from: [{{podSelector: {{matchLabels: {{pod: \"{peer}\"}}}}}}]\n"
    )
}

pub fn permitted(world: &World) -> Traffic {
    Traffic::start(&world.pods["x/b"], &world.pods["x/a"], false, port("tcp/80"), PATIENCE, Duration::ZERO)
}

pub fn forbidden(world: &World) -> Traffic {
    Traffic::start(&world.pods["x/c"], &world.pods["x/a"], false, port("tcp/80"), QUICK, Duration::ZERO)
}

/// What may pass has passed each time, what may not has never.
#[track_caller]
pub fn assert_held(permitted: Traffic, forbidden: Traffic) {
    let (asked, answered) = permitted.stop();
    assert!(asked > 20 && asked == answered, "{answered} of {asked} permitted connections came through");
    let (asked, answered) = forbidden.stop();
    assert!(asked > 5 && answered == 0, "{answered} of {asked} forbidden connections came through");
}

pub fn reaches(world: &World, from: &str, to: &str) -> bool {
    let target = Target { address: world.pods[to].addresses[0], port: port("tcp/80") };
    ask(&world.pods[from].namespace, vec![target], Duration::from_secs(1)).join().unwrap()[&target]
}

/// Policies are replaced again and again; what both the old and the new permit always passes, and what neither does
/// never.
#[test]
fn a_policy_is_replaced_without_a_gap() {
    let world = guarded();
    world.apply(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {namespace: x, name: always}\n\
         spec: {podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}]}]}",
    );
    world.settle();
    let (open, shut) = (permitted(&world), forbidden(&world));
    let flow = Flow::start(&world.pods["x/b"], &world.pods["x/a"], 81);
    for round in 0..8 {
        world.apply(&policy(if round % 2 == 0 { "nobody" } else { "b" }));
        world.settle();
    }
    for _ in 0..3 {
        world.delete("networkpolicy x/guard");
        world.apply(&policy("nobody"));
        world.settle();
    }
    assert!(flow.stop().unwrap() > 20);
    assert_held(open, shut);
}

/// The agent is killed and started again, by itself and with the controller away. Nobody notices.
#[test]
fn agents_and_controllers_come_and_go_and_nobody_notices() {
    let mut world = guarded();
    let (open, shut) = (permitted(&world), forbidden(&world));
    let flow = Flow::start(&world.pods["x/b"], &world.pods["x/a"], 81);
    for _ in 0..3 {
        world.kill_agent(0);
        open.more(10);
        world.start_agent(0);
        open.more(10);
    }
    world.settle();
    // The controller goes; an agent starts without it.
    world.kill_controller();
    open.more(10);
    world.kill_agent(0);
    world.start_agent(0);
    open.more(10);
    let status = world.agent_status(0);
    assert_eq!((&status["ready"], &status["synced"]), (&true.into(), &false.into()), "{status}");
    world.start_controller();
    world.settle();
    // The network goes, and comes back with another policy, made meanwhile.
    world.plug(1, false);
    world.apply(&policy("c"));
    world.settle_one(0);
    world.plug(1, true);
    world.settle();
    assert!(flow.stop().is_ok(), "an established connection lives on");
    drop((open, shut));
    assert!(reaches(&world, "x/c", "x/a") && !reaches(&world, "x/b", "x/a"));
}

/// Kill -9 anywhere: while policies change, again and again; in the end the kernel is as it should be.
#[test]
fn an_agent_killed_anywhere_begins_where_it_ended() {
    let mut world = guarded();
    let shut = forbidden(&world);
    for round in 0..10 {
        world.apply(&policy(if round % 2 == 0 { "nobody" } else { "b" }));
        // Somewhere between the message and the kernel.
        std::thread::sleep(Duration::from_millis(round * 3));
        world.kill_agent(0);
        world.start_agent(0);
    }
    world.settle();
    let (asked, answered) = shut.stop();
    assert!(asked > 5 && answered == 0, "{answered} of {asked} forbidden connections came through");
    assert!(reaches(&world, "x/b", "x/a"));
}

/// Packets vanish and nobody says goodbye. Both sides notice, and find each other again.
#[test]
fn a_host_that_falls_silent_is_noticed_by_both_sides() {
    let world = guarded();
    let connected = || -> bool {
        let told = world.ok(&["node", "get", "host-2", "-o", "json"]);
        serde_json::from_str::<serde_json::Value>(&told).unwrap()["connected"] == true
    };
    assert!(connected());
    world.hosts[1].namespace.run(
        "nft add table inet hole; nft add chain inet hole in '{ type filter hook prerouting priority -400; }'
         nft add chain inet hole out '{ type filter hook output priority -400; }'
         nft add rule inet hole in tcp sport 8081 drop; nft add rule inet hole out tcp dport 8081 drop",
    );
    eventually("both notice", || {
        let (here, there) = (world.agent_status(1)["connected"] == true, connected());
        if here || there { Err(format!("agent {here}, controller {there}")) } else { Ok(()) }
    });
    assert!(!reaches(&world, "x/c", "x/a") && reaches(&world, "x/b", "x/a"), "as it was");
    world.hosts[1].namespace.run("nft delete table inet hole");
    eventually("they find each other", || match connected() {
        true => Ok(()),
        false => Err(world.log(1)),
    });
    world.settle();
}

/// Somebody flushes our table, deletes it, adds to it; it is mended within seconds, and what is not ours stays.
#[test]
fn what_others_do_to_our_table_is_mended_and_what_is_not_ours_stays() {
    let world = guarded();
    let host = &world.hosts[0].namespace;
    host.run(
        "nft add table inet neighbour; nft add chain inet neighbour c; nft add rule inet neighbour c counter",
    );
    for damage in ["flush table inet trestle-policy", "delete table inet trestle-policy", "flush ruleset"] {
        host.run(&format!("nft {damage}"));
        let started = Instant::now();
        eventually(&format!("mended after `nft {damage}`"), || {
            let shut = !reaches(&world, "x/c", "x/a");
            let open = reaches(&world, "x/b", "x/a");
            if shut && open { Ok(()) } else { Err(format!("shut {shut}, open {open}\n{}", world.log(0))) }
        });
        eprintln!("{damage}: mended within {:?}", started.elapsed());
        if damage != "flush ruleset" {
            assert!(host.run("nft list table inet neighbour").contains("counter"));
        }
    }
    assert!(world.log(0).contains("it is mended"));
}

/// An address goes from one Pod to the next while the end of the first is still on its way.
#[test]
fn an_address_that_is_used_again_is_the_new_pods() {
    let mut world = guarded();
    let addresses = world.pods["x/a"].addresses;
    let old = world.pods["x/a"].interface.clone();
    // x/d gets the address of x/a, which nobody has said the end of yet. No policy is for x/d.
    world.link_pod("x/d", 0, "", addresses);
    serve(&world.pods["x/d"].namespace, &[port("tcp/80")]);
    world.attach("x/d");
    world.declare_pods(&["x/d"]);
    world.agent_ok(0, &["detach", "x/a", "--interface", &old]);
    world.ok(&["delete", "pod", "a", "--namespace", "x"]);
    world.settle();
    eventually("the new Pod is open", || {
        if reaches(&world, "x/c", "x/d") { Ok(()) } else { Err(world.agent_ok(0, &["list"])) }
    });
    // A late word of the old Pod's end changes nothing.
    world.agent_ok(0, &["detach", "x/a", "--interface", &old]);
    assert!(reaches(&world, "x/c", "x/d"));
    // And back: the address is a guarded Pod's again, under its old name on a new link.
    world.link_pod("x/a", 0, "", addresses);
    serve(&world.pods["x/a"].namespace, &[port("tcp/80")]);
    world.declare_pods(&["x/a"]);
    world.settle();
    world.attach("x/a");
    assert!(!reaches(&world, "x/c", "x/a"), "guarded from the moment it is attached");
    world.delete("pod x/d");
    world.settle();
    assert!(reaches(&world, "x/b", "x/a") && !reaches(&world, "x/c", "x/a"));
}

/// New Pods are closed while there is no controller to say what is permitted, and open up when there is.
#[test]
fn a_pod_that_comes_while_the_controller_is_away_waits_closed() {
    let mut world = guarded();
    world.kill_controller();
    eventually("the loss is noticed", || match world.agent_status(0)["connected"] == false {
        true => Ok(()),
        false => Err(world.log(0)),
    });
    let addresses = ["10.0.1.77", "fd00:0:1::77"].map(|text| text.parse().unwrap());
    world.link_pod("x/new", 0, "", addresses);
    serve(&world.pods["x/new"].namespace, &[port("tcp/80")]);
    world.attach("x/new");
    assert!(!reaches(&world, "x/c", "x/new") && !reaches(&world, "x/new", "x/c"));
    assert!(world.agent_ok(0, &["list"]).contains("yes"));
    world.kill_agent(0);
    world.start_agent(0);
    assert!(!reaches(&world, "x/c", "x/new"), "also after a restart");
    world.start_controller();
    world.declare_pods(&["x/new"]);
    world.settle();
    assert!(reaches(&world, "x/c", "x/new") && reaches(&world, "x/new", "x/c"));
    assert!(!world.agent_ok(0, &["list"]).contains("yes"));
}

/// The agent's disk is full: it enforces all the same, says so, and makes up for it when there is room.
#[test]
fn a_full_disk_stops_nothing_but_the_memory_of_it() {
    let mut world = guarded();
    world.kill_agent(0);
    let disk = world.data_dir(0);
    let full = Disk::mount(&disk);
    world.start_agent(0);
    for name in ["x/a", "x/c"] {
        world.attach(name);
    }
    world.settle();
    full.fill();
    // Enough to need room for itself.
    let blocks: Vec<_> =
        (0..4000).map(|n| format!("{{ipBlock: {{cidr: 172.16.{}.{}/32}}}}", n / 250, n % 250)).collect();
    world.apply(&format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{namespace: x, name: large}}\n\
         spec:\n  podSelector: {{matchLabels: {{pod: a}}}}\n  ingress:\n  - from: [{}]\n",
        blocks.join(", ")
    ));
    world.apply(&policy("c"));
    eventually("the new policy is in force", || {
        match reaches(&world, "x/c", "x/a") && !reaches(&world, "x/b", "x/a") {
            true => Ok(()),
            false => Err(world.log(0)),
        }
    });
    eventually("the trouble is told", || {
        let told = world.ok(&["node", "get", "host-1", "-o", "json"]);
        if told.contains("No space left") { Ok(()) } else { Err(told) }
    });
    full.free();
    eventually("the trouble is over", || {
        let status = world.agent_status(0);
        if status["failures"].as_array().unwrap().is_empty() { Ok(()) } else { Err(status.to_string()) }
    });
    // What was made up for is what a restart begins with.
    world.kill_controller();
    world.kill_agent(0);
    world.start_agent(0);
    assert!(reaches(&world, "x/c", "x/a") && !reaches(&world, "x/b", "x/a"));
    world.kill_agent(0);
}

/// A small file system of its own.
struct Disk(std::path::PathBuf);

impl Disk {
    fn mount(path: &std::path::Path) -> Self {
        let path = path.to_owned();
        run(&format!("mount -t tmpfs -o size=512k,mode=0700 tmpfs {}", path.display()));
        Self(path)
    }

    fn fill(&self) {
        // Fails when nothing is left, which is the point.
        run(&format!("dd if=/dev/zero of={}/ballast bs=4k 2>/dev/null || true", self.0.display()));
    }

    fn free(&self) {
        std::fs::remove_file(self.0.join("ballast")).unwrap();
        // Room for all of it.
        run(&format!("mount -o remount,size=16m {}", self.0.display()));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").args(["-l"]).arg(&self.0).status();
    }
}

/// At boot: what the disk says is in force before the network opens and before anything is reached.
#[test]
fn what_is_on_disk_is_in_force_before_the_network_opens() {
    let mut world = guarded();
    world.kill_agent(0);
    world.kill_controller();
    // As after a reboot: an empty kernel.
    world.hosts[0].namespace.run("nft flush ruleset");
    assert!(reaches(&world, "x/c", "x/a"), "nothing is enforced");
    let data = world.data_dir(0);
    let booted = world.hosts[0]
        .namespace
        .command(env!("CARGO_BIN_EXE_trestle"))
        .args(["agent", "--boot", "--node", "host-1", "--data-dir"])
        .arg(&data)
        .output()
        .unwrap();
    assert!(booted.status.success(), "{}", String::from_utf8_lossy(&booted.stderr));
    assert!(String::from_utf8_lossy(&booted.stdout).starts_with("In force: "));
    assert!(!reaches(&world, "x/c", "x/a") && reaches(&world, "x/b", "x/a"));
    // The agent takes over what the boot left.
    world.start_agent(0);
    assert!(!reaches(&world, "x/c", "x/a") && reaches(&world, "x/b", "x/a"));
    world.start_controller();
    world.settle();
}

/// A certificate that is taken away ends the stream, not the protection.
#[test]
fn a_node_that_is_no_longer_trusted_keeps_what_it_has() {
    let world = guarded();
    let listed: serde_json::Value = serde_json::from_str(&world.ok(&["cert", "list", "-o", "json"])).unwrap();
    let mine = listed
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["name"] == "host-1")
        .expect("host-1 has a certificate");
    world.ok(&["cert", "revoke", mine["serial"].as_str().unwrap()]);
    eventually("the refusal", || {
        let status = world.agent_status(0);
        let told = status["connected"] == false && status["last_error"].as_str().unwrap().contains("revoked");
        if told { Ok(()) } else { Err(status.to_string()) }
    });
    world.apply(&policy("c"));
    world.settle_one(1);
    assert!(!reaches(&world, "x/c", "x/a") && reaches(&world, "x/b", "x/a"), "as it was");
}

/// Both sides of the same tables: policies that come and go in one scenario while traffic flows in another.
#[test]
fn traffic_flows_while_truth_tables_are_played() {
    let mut world = guarded();
    let (open, shut) = (permitted(&world), forbidden(&world));
    let scenario = Scenario::read(
        "name: beside\nsteps:\n- apply:\n  - {apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, \
         metadata: {namespace: x, name: c}, spec: {podSelector: {matchLabels: {pod: c}}, policyTypes: [Ingress]}}\n  \
         expect:\n    tcp/80: ['x/c -> x/a closed', 'x/a -> x/c closed', 'x/b -> x/c closed']\n",
    );
    scenario.play(&mut world).unwrap_or_else(|text| panic!("{text}"));
    assert_held(open, shut);
}
