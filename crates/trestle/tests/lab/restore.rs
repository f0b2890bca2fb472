//! An older backup is restored while agents live: they end with what it says, and with nothing that came after it.

use std::time::Duration;

use super::{
    probe::{Port, Target, ask},
    traffic::Traffic,
    world::{World, eventually},
};

const PODS: [(&str, usize); 4] = [("x/a", 0), ("x/b", 1), ("x/c", 0), ("x/d", 1)];

fn port() -> Port {
    "tcp/80".parse().unwrap()
}

/// Lets Pods with this label in to one Pod, and nobody else.
fn admits(name: &str, pod: &str, peer: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{namespace: x, name: {name}}}\n\
         spec: {{podSelector: {{matchLabels: {{pod: {pod}}}}}, policyTypes: [Ingress], \
         ingress: [{{from: [{{podSelector: {{matchLabels: {{pod: {peer}}}}}}}]}}]}}\n"
    )
}

/// Pairs that connect; all others of these Pods do not.
#[track_caller]
fn expect(world: &World, what: &str, open: &[(&str, &str)]) {
    let target = |to: &str| Target { address: world.pods[to].addresses[0], port: port() };
    eventually(what, || {
        let asked = PODS.map(|(from, _)| {
            let targets = PODS.iter().filter(|(to, _)| *to != from).map(|(to, _)| target(to)).collect();
            (from, ask(&world.pods[from].namespace, targets, Duration::from_secs(1)))
        });
        let mut wrong = Vec::new();
        for (from, answers) in asked {
            let answers = answers.join().unwrap();
            let is_wrong =
                |to: &str| answers.get(&target(to)).is_some_and(|came| *came != open.contains(&(from, to)));
            wrong.extend(PODS.iter().filter(|(to, _)| is_wrong(to)).map(|(to, _)| format!("{from} to {to}")));
        }
        if wrong.is_empty() { Ok(()) } else { Err(format!("{wrong:?}\n{}", world.log(0))) }
    });
}

/// Names, and the number of members of a set.
type Names = Vec<(String, Option<u64>)>;

/// What a node holds, by its own word and by the controller's.
fn objects(world: &World, index: usize) -> [Names; 2] {
    let read = |text: String| {
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let list = if value.is_array() { &value } else { &value["objects"] };
        let one = |object: &serde_json::Value| {
            (object["name"].as_str().unwrap().to_owned(), object["members"].as_u64())
        };
        let mut objects: Names = list.as_array().unwrap().iter().map(one).collect();
        objects.sort();
        objects
    };
    let name = &world.hosts[index].name;
    [
        read(world.agent_ok(index, &["objects", "-o", "json"])),
        read(world.ok(&["node", "get", name, "-o", "json"])),
    ]
}

/// `restore` stops what serves, restores the file and starts again.
pub fn play(world: &mut World, restore: impl FnOnce(&mut World, &str)) {
    for (name, host) in PODS {
        world.add_pod(name, host, "", &[port()]);
    }
    // Nobody is ever let in to x/d, nor is x/d let in to x/a.
    world.apply(&[admits("a", "a", "b"), admits("c", "c", "b"), admits("d", "d", "nobody")].join("---\n"));
    let before = [("x/b", "x/a"), ("x/b", "x/c"), ("x/a", "x/b"), ("x/c", "x/b"), ("x/d", "x/b")];
    expect(world, "before the backup", &before);
    let never = [("x/a", "x/d"), ("x/d", "x/a")].map(|(from, to)| {
        let quick = Duration::from_millis(150);
        Traffic::start(&world.pods[from], &world.pods[to], false, port(), quick, Duration::ZERO)
    });
    world.ok(&["store", "backup", "older.backup"]);

    // One is changed, one is deleted, one is added; and the controllers' numbers run far ahead.
    for round in 0..20 {
        world.apply(&admits("a", "a", if round % 2 == 0 { "b" } else { "c" }));
    }
    world.delete("networkpolicy x/c");
    world.apply(&admits("b", "b", "c"));
    let after = [("x/c", "x/a"), ("x/a", "x/c"), ("x/b", "x/c"), ("x/d", "x/c"), ("x/c", "x/b")];
    expect(world, "after the backup", &after);

    restore(world, "older.backup");
    // One agent lived on, the other begins with what its disk has of a future that is no more.
    world.kill_agent(1);
    world.start_agent(1);
    expect(world, "as restored", &before);
    for index in 0..world.hosts.len() {
        eventually("the agent holds what it is meant to", || {
            let [held, meant] = objects(world, index);
            let status = world.agent_status(index);
            let told = status["synced"] == true && held == meant && !held.is_empty();
            if told { Ok(()) } else { Err(format!("{held:?}\n{meant:?}\n{status:#}")) }
        });
    }
    // What comes next is not taken for something old.
    for (peer, open) in [("c", ("x/c", "x/a")), ("b", ("x/b", "x/a"))] {
        world.apply(&admits("a", "a", peer));
        let mut now = before.to_vec();
        now[0] = open;
        expect(world, "after the restore", &now);
    }
    for never in never {
        let (asked, answered) = never.stop();
        assert!(asked > 5 && answered == 0, "{answered} of {asked} forbidden connections came through");
    }
}
