//! Nothing fails open: a stream of permitted and of forbidden packets through whatever becomes of an agent's files, of its
//! table and of itself. `TRESTLE_LAB_FAULTS=all` tries every place of the files; otherwise some of them.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    stream::Stream,
    world::{World, eventually},
};

/// Packets of each kind that are sent after each fault.
const FEW: u64 = 12;

fn all() -> bool {
    std::env::var("TRESTLE_LAB_FAULTS").is_ok_and(|text| text == "all")
}

/// Every so many-th of a file's bytes, so that there are no more than that many.
fn places(length: usize, at_most: usize) -> impl Iterator<Item = usize> {
    let step = if all() { 1 } else { length.div_ceil(at_most).max(1) };
    (0..length).step_by(step)
}

/// One host; `x/b` may reach `x/a`, `x/c` may not.
fn guarded() -> World {
    let mut world = World::new(1);
    for name in ["x/a", "x/b", "x/c"] {
        world.add_pod(name, 0, "", &[]);
    }
    world.apply(&policy(0));
    world.settle();
    world
}

/// Always the same, and never: the number is all that differs.
fn policy(number: usize) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{namespace: x, name: guard}}\n\
         spec:\n  podSelector: {{matchLabels: {{pod: a}}}}\n  ingress:\n  - from:\n\
         \x20   - podSelector: {{matchLabels: {{pod: b}}}}\n    - ipBlock: {{cidr: 192.0.2.{}/32}}\n",
        number % 250
    )
}

fn stream(world: &World) -> Stream {
    Stream::start(&world.pods["x/b"], &world.pods["x/c"], &world.pods["x/a"])
}

/// The agent's data directory, and what is in it when all is well.
struct Files {
    dir: PathBuf,
    whole: Vec<(PathBuf, Vec<u8>)>,
}

impl Files {
    fn of(world: &World) -> Self {
        let dir = world.data_dir(0);
        let whole = ["state", "endpoints.json"].map(|name| dir.join(name));
        Self { whole: whole.into_iter().map(|path| (path.clone(), fs::read(&path).unwrap())).collect(), dir }
    }

    fn restore(&self) {
        self.whole.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    }

    /// Each file, and what may become of it: nothing left of it, or these bytes.
    fn faults(&self, at_most: usize) -> Vec<(String, &Path, Option<Vec<u8>>)> {
        let mut faults = Vec::new();
        for (path, bytes) in &self.whole {
            let name = path.file_name().unwrap().display();
            for cut in places(bytes.len(), at_most) {
                faults.push((format!("{name} cut at {cut}"), path.as_path(), Some(bytes[..cut].to_vec())));
            }
            let step = if all() { 64 } else { bytes.len().div_ceil(at_most).max(64) };
            for at in (0..bytes.len()).step_by(step) {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << (at % 8);
                faults.push((format!("{name} flipped at {at}"), path, Some(bad)));
            }
            let garbage = [b"trestle node state 9 9.9.9\n".to_vec(), vec![0; 4096]];
            faults.extend(garbage.map(|bytes| (format!("{name} overwritten"), path.as_path(), Some(bytes))));
            faults.push((format!("{name} deleted"), path, None));
        }
        faults
    }
}

fn boot(world: &World, flags: &[&str]) {
    let mut command = world.hosts[0].namespace.command(env!("CARGO_BIN_EXE_trestle"));
    command.args(["agent", "--boot", "--node", "host-1", "--data-dir"]).arg(world.data_dir(0)).args(flags);
    let booted = command.env("TRESTLE_LOG", "error").output().unwrap();
    assert!(booted.status.success(), "{}", String::from_utf8_lossy(&booted.stderr));
}

#[track_caller]
fn none_passed(stream: &Stream, fault: &str) {
    stream.more(FEW);
    let (passed, _) = stream.passed();
    assert_eq!(passed, 0, "forbidden packets came through: {fault}");
}

/// The state or the registry is lost while the controller is away, and the agent starts, with the table of its
/// earlier run in the kernel and without.
#[test]
fn no_file_that_is_lost_opens_a_pod() {
    let mut world = guarded();
    // The seal is written a second after the last step.
    std::thread::sleep(Duration::from_millis(1800));
    world.kill_controller();
    world.kill_agent(0);
    let files = Files::of(&world);
    let stream = stream(&world);
    none_passed(&stream, "nothing");
    let faults = files.faults(10);
    let count = faults.len();
    for (number, (fault, path, bytes)) in faults.into_iter().enumerate() {
        files.restore();
        match bytes {
            Some(bytes) => fs::write(path, bytes).unwrap(),
            None => fs::remove_file(path).unwrap(),
        }
        let before = stream.permitted();
        boot(&world, &[]);
        none_passed(&stream, &fault);
        assert!(stream.permitted() > before, "the table stays, and with it what is permitted: {fault}");
        if number % 7 == 0 {
            world.start_agent(0);
            none_passed(&stream, &format!("{fault}, and the agent stays"));
            world.kill_agent(0);
        }
        if number % 5 == 0 {
            stream.halt();
            world.hosts[0].namespace.run("nft flush ruleset");
            // Where the registry is lost too, links are known by their names alone.
            boot(&world, &["--pod-interfaces", "p"]);
            stream.go_on();
            none_passed(&stream, &format!("{fault}, after a reboot"));
            // As it was, for the next.
            stream.halt();
            world.hosts[0].namespace.run("nft flush ruleset");
            files.restore();
            boot(&world, &[]);
            stream.go_on();
        }
    }
    files.restore();
    eprintln!(
        "{count} faults of {} bytes of files: 0 of {} forbidden packets came through",
        files.whole.iter().map(|(_, bytes)| bytes.len()).sum::<usize>(),
        stream.forbidden_sent()
    );
    // The whole directory, and then the controller comes back: Pods are found again by what the kernel knows of them.
    fs::remove_dir_all(&files.dir).unwrap();
    world.start_agent(0);
    none_passed(&stream, "the directory is gone");
    world.start_controller();
    world.settle();
    let before = stream.permitted();
    none_passed(&stream, "the controller is back");
    assert!(stream.permitted() > before, "{}", world.agent_ok(0, &["list"]));
}

/// Guarded from the first moment, with a fresh directory and a controller that was never reached.
#[test]
fn guarded_links_are_closed_before_anything_was_heard() {
    let mut world = guarded();
    world.kill_controller();
    world.kill_agent(0);
    for stays in [false, true] {
        let stream = stream(&world);
        stream.halt();
        world.hosts[0].namespace.run("nft flush ruleset");
        fs::remove_dir_all(world.data_dir(0)).unwrap();
        match stays {
            true => world.start_agent_with(0, &["--guard", "p"]),
            false => boot(&world, &["--guard", "p"]),
        }
        let before = stream.permitted();
        stream.go_on();
        none_passed(&stream, "a fresh start with --guard");
        assert_eq!(stream.permitted(), before, "nobody has said what is permitted");
    }
    // Attached, and still nobody has said anything.
    world.attach("x/a");
    let stream = stream(&world);
    none_passed(&stream, "attached while nothing is known");
    world.start_controller();
    world.settle();
    ["x/b", "x/c"].iter().for_each(|name| world.attach(name));
    world.settle();
    let before = stream.permitted();
    none_passed(&stream, "all is known");
    assert!(stream.permitted() > before);
}

/// A Pod that is attached before the controller has heard of it.
#[test]
fn a_pod_waits_closed_until_the_controller_covers_it() {
    let mut world = guarded();
    let addresses = ["10.0.1.77", "fd00:0:1::77"].map(|text| text.parse().unwrap());
    world.link_pod("x/new", 0, "", addresses);
    world.apply(&policy(1).replace("name: guard", "name: new").replace("{pod: a}", "{pod: new}"));
    world.settle();
    world.attach("x/new");
    let stream = Stream::start(&world.pods["x/b"], &world.pods["x/c"], &world.pods["x/new"]);
    none_passed(&stream, "the controller has not heard of it");
    let listed = world.agent_ok(0, &["list"]);
    assert!(listed.contains("yes, pending since "), "{listed}");
    eventually("it is told that it waits", || {
        let told = world.ok(&["node", "get", "host-1", "-o", "json"]);
        if told.contains("Pod x/new") && told.contains("closed since") { Ok(()) } else { Err(told) }
    });
    assert_eq!(stream.permitted(), 0, "it is closed to everybody");
    world.declare_pods(&["x/new"]);
    world.settle();
    eventually("what is permitted passes", || match stream.permitted() {
        0 => Err(world.agent_ok(0, &["list"])),
        _ => Ok(()),
    });
    none_passed(&stream, "covered");
    // Another life of it, of which the controller knows nothing.
    let interface = world.pods["x/new"].interface.clone();
    world.agent_ok(
        0,
        &["attach", "x/new", "--interface", &interface, "--address", "10.0.1.77", "--uid", "other"],
    );
    assert!(world.agent_ok(0, &["list"]).contains("pending since"));
}

/// Pods that are there before the agent are found by the addresses that are reached through their links.
#[test]
fn pods_that_were_there_before_the_agent_are_found() {
    let mut world = guarded();
    let stream = stream(&world);
    world.kill_agent(0);
    stream.halt();
    world.hosts[0].namespace.run("nft flush ruleset");
    fs::remove_dir_all(world.data_dir(0)).unwrap();
    let addresses = ["10.0.1.88", "fd00:0:1::88"].map(|text| text.parse().unwrap());
    world.link_pod("x/stranger", 0, "", addresses);
    world.start_agent_with(0, &["--pod-interfaces", "p"]);
    world.settle();
    eventually("the Pods are found", || {
        let listed = world.agent_ok(0, &["list"]);
        if ["x/a", "x/b", "x/c"].iter().all(|name| listed.contains(name)) { Ok(()) } else { Err(listed) }
    });
    stream.go_on();
    let before = stream.permitted();
    none_passed(&stream, "found by their addresses");
    assert!(stream.permitted() > before);
    eventually("a link that nobody knows is told of", || {
        let status = world.agent_status(0).to_string();
        let interface = &world.pods["x/stranger"].interface;
        let told = status.contains(&format!("interface {interface}")) && status.contains("unguarded since");
        if told { Ok(()) } else { Err(status) }
    });
}

/// Our table is deleted, flushed, or replaced by somebody else's: what passes meanwhile is counted.
#[test]
fn a_table_that_is_taken_away_is_back_in_a_moment() {
    let world = guarded();
    let stream = stream(&world);
    let host = &world.hosts[0].namespace;
    none_passed(&stream, "nothing");
    let foreign = "add table inet trestle-policy; add chain inet trestle-policy theirs";
    for damage in [
        "delete table inet trestle-policy".to_owned(),
        "flush table inet trestle-policy".to_owned(),
        "flush ruleset".to_owned(),
        format!("delete table inet trestle-policy; {foreign}"),
    ] {
        host.run(&format!("echo '{damage}' | nft -f -"));
        stream.more(100);
        let (passed, within) = stream.passed();
        eprintln!("{damage}: {passed} packets passed within {within:?}");
        none_passed(&stream, &format!("after {damage}"));
    }
    // Theirs is untouched, and told of, on the node and at the controller.
    assert!(host.run("nft list table inet trestle-policy").contains("theirs"));
    let status = world.agent_status(0);
    assert!(status["ready"] == false && status.to_string().contains("was not made by trestle"), "{status}");
    eventually("the controller's status tells of it", || {
        let told = world.ok(&["status"]);
        if told.contains("not made by trestle") { Ok(()) } else { Err(told) }
    });
    let before = stream.permitted();
    none_passed(&stream, "beside somebody else's table");
    assert!(stream.permitted() > before, "policies are in force all the same");
    host.run("nft delete table inet trestle-policy");
    eventually("ours takes its place again", || {
        let tables = host.run("nft list tables");
        let usual = tables.contains("trestle-policy\n") && !tables.contains("spare");
        if usual { Ok(()) } else { Err(tables) }
    });
    none_passed(&stream, "back in the usual table");
    world.settle();
}

/// Kill -9 at any moment of an update: never a packet that was forbidden before and after.
#[test]
fn an_agent_killed_during_updates_opens_nothing() {
    let mut world = guarded();
    let stream = stream(&world);
    let rounds = if all() { 60 } else { 6 };
    for round in 0..rounds {
        world.apply(&policy(round));
        std::thread::sleep(Duration::from_millis(fastrand::u64(0..25)));
        world.kill_agent(0);
        world.start_agent(0);
    }
    world.settle();
    none_passed(&stream, &format!("{rounds} kills"));
    eprintln!("{rounds} kills: 0 of {} forbidden packets came through", stream.forbidden_sent());
}

/// A policy on a host that no agent guards, or on what nobody can guard, is not said to be in force, by anybody.
#[test]
fn a_policy_on_hosts_is_never_said_to_be_in_force_where_it_is_not() {
    let world = guarded();
    world.apply(
        "apiVersion: v1\nkind: Node\nmetadata: {name: host-9, labels: {role: host}}\n\
         status: {addresses: [{type: InternalIP, address: 10.99.0.9}]}\n\
         ---\napiVersion: crd.antrea.io/v1alpha2\nkind: ExternalEntity\nmetadata: {namespace: x, name: box, labels: {role: box}}\n\
         spec: {externalNode: host-1, endpoints: [{ip: 10.99.0.77}]}\n\
         ---\napiVersion: crd.antrea.io/v1beta1\nkind: ClusterNetworkPolicy\nmetadata: {name: hosts}\n\
         spec:\n  priority: 5\n  tier: application\n  appliedTo: [{nodeSelector: {matchLabels: {role: host}}}]\n\
         \x20 ingress: [{action: Drop, from: [{ipBlock: {cidr: 0.0.0.0/0}}], ports: [{protocol: TCP, port: 22}]}]\n\
         ---\napiVersion: crd.antrea.io/v1beta1\nkind: ClusterNetworkPolicy\nmetadata: {name: boxes}\n\
         spec:\n  priority: 5\n  tier: application\n  appliedTo: [{externalEntitySelector: {matchLabels: {role: box}}}]\n\
         \x20 ingress: [{action: Drop, from: [{ipBlock: {cidr: 0.0.0.0/0}}], ports: [{protocol: TCP, port: 22}]}]\n",
    );
    eventually("it is told", || {
        let listed = world.ok(&["policy", "list"]);
        let line =
            |name: &str| listed.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned();
        let (hosts, boxes) = (line("hosts"), line("boxes"));
        let told = boxes.contains("Failed") && boxes.contains("not enforced for ExternalEntity x/box");
        if told && !hosts.contains("Realized") { Ok(()) } else { Err(listed) }
    });
    let status = world.ok(&["status"]);
    assert!(status.contains("policy boxes is not enforced as written"), "{status}");
    let explained = world.ok(&["explain", "x/b", "node/host-9", "--port", "22"]);
    assert!(explained.contains("NOT ENFORCED"), "{explained}");
    let pod = world.ok(&["explain", "x/c", "x/a", "--port", "80"]);
    assert!(!pod.contains("NOT ENFORCED"), "{pod}");
}
