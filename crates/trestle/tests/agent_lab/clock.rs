//! Somebody sets the clock, of the node or of the controller, while packets flow.

use std::time::{Duration, Instant};

use super::{
    clocks::Clocks,
    trouble::{assert_held, forbidden, guarded_in, permitted, reaches},
    world::{World, eventually},
};

const DAY: i64 = 24 * 3600;

/// Permits nothing that was not permitted before.
fn beside(peer: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{namespace: x, name: beside}}\n\
         spec: {{podSelector: {{matchLabels: {{pod: a}}}}, \
         ingress: [{{from: [{{podSelector: {{matchLabels: {{pod: {peer}}}}}}}]}}]}}\n"
    )
}

/// The version of what readers of the watch API are told.
fn version(world: &World) -> u64 {
    let list = watch_api(world, "");
    let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_else(|| panic!("{list}"));
    version.parse().unwrap()
}

fn watch_api(world: &World, query: &str) -> serde_json::Value {
    let data = world.dir.path().join("controller");
    let token = std::fs::read_to_string(data.join("admin.token")).unwrap();
    let url = "https://127.0.0.1:8443/apis/controlplane.antrea.io/v1beta2/networkpolicies";
    let output = world
        .fabric
        .command("curl")
        .args(["-sS", "-m", "20", "-H", &format!("authorization: Bearer {}", token.trim()), "--cacert"])
        .arg(data.join("pki/ca.pem"))
        .arg(format!("{url}{query}"))
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// How often the agent has connected so far.
fn connections(world: &World, index: usize) -> usize {
    world.log(index).matches("in sync with the controller").count()
}

#[test]
fn a_clock_that_is_set_cuts_nobody_off_and_opens_nothing() {
    let clocks = Clocks::new();
    let plain = clocks.shown("controller");
    clocks.set("controller", 10 * DAY);
    assert!(clocks.shown("controller") - plain >= 10 * DAY, "the clock of a process can be set");
    clocks.set("controller", 0);

    let mut world = guarded_in(World::with_clocks(2, Some(clocks)));
    let (open, shut) = (permitted(&world), forbidden(&world));
    let before = [connections(&world, 0), connections(&world, 1)];
    let mut told = version(&world);
    for (round, (controller, node)) in
        [(0, DAY), (0, -DAY), (DAY, -DAY), (-DAY, 0), (-30 * DAY, 30 * DAY), (0, 0)].into_iter().enumerate()
    {
        world.clocks().set("controller", controller);
        world.clocks().set("host-1", node);
        open.more(5);
        // Changes go on as ever: nobody waits for a time that is a day away, or has long passed.
        let started = Instant::now();
        world.apply(&beside(if round % 2 == 0 { "b" } else { "nobody" }));
        world.settle();
        eprintln!("clocks off by {controller} s and {node} s: settled in {:?}", started.elapsed());
        assert_eq!(world.agent_status(0)["connected"], true);
        world.ok(&["tag", "set", &format!("round-{round}"), "--ip", "10.0.0.1"]);
        let newer = version(&world);
        assert!(newer > told, "what changed is newer for readers, whatever the clock says: {told}, {newer}");
        told = newer;
    }
    assert_eq!([connections(&world, 0), connections(&world, 1)], before, "no stream ended");

    // The controller starts again yesterday: a reader who knows something of tomorrow is told to read all anew.
    world.clocks().set("controller", -DAY);
    world.kill_controller();
    world.start_controller();
    world.settle();
    assert!(version(&world) < told, "versions begin with the time");
    let answer = watch_api(&world, &format!("?watch=true&resourceVersion={told}"));
    assert_eq!(answer["code"], 410, "{answer}");
    let tags = world.ok(&["tag", "list"]);
    assert!((0..6).all(|round| tags.contains(&format!("round-{round}"))), "{tags}");
    world.clocks().set("controller", 0);

    // Far in the future every certificate has expired: no stream is opened, and nothing is given up.
    world.clocks().set("host-1", 20_000 * DAY);
    world.kill_agent(0);
    world.start_agent(0);
    eventually("the agent is refused, or refuses", || {
        let status = world.agent_status(0);
        let told = status["connected"] == false
            && status["last_error"].as_str().is_some_and(|text| !text.is_empty());
        if told { Ok(()) } else { Err(status.to_string()) }
    });
    open.more(5);
    assert!(!reaches(&world, "x/c", "x/a") && reaches(&world, "x/b", "x/a"), "as it was");
    world.clocks().set("host-1", 0);
    std::thread::sleep(Duration::from_millis(10));
    world.settle();
    assert_held(open, shut);
}
