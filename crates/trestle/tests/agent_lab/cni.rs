//! The CNI plugin as a container runtime calls it: the binary, in a node's network namespace, with real links, an agent and a controller.

use std::{
    io::Write as _,
    os::unix::fs::symlink,
    path::PathBuf,
    process::{Output, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    lab::probe::{Target, ask},
    world::{World, eventually},
};

/// The runtime of one host.
struct Runtime<'a> {
    world: &'a World,
    program: PathBuf,
}

/// One call, but for what is called.
#[derive(Clone, Copy)]
struct Call<'a> {
    container: &'a str,
    inside: &'a str,
    pod: &'a str,
    uid: &'a str,
    /// Whether the plugin before has answered.
    made: bool,
    wait: u64,
}

const FIRST: Call<'_> = Call { container: "c1", inside: "eth0", pod: "x/b", uid: "", made: true, wait: 30 };

impl<'a> Runtime<'a> {
    fn new(world: &'a World) -> Self {
        let program = world.dir.path().join("trestle-cni");
        if !program.exists() {
            symlink(env!("CARGO_BIN_EXE_trestle"), &program).unwrap();
        }
        Self { world, program }
    }

    /// As the specification has it; what was answered, and whether it is no error.
    fn call(&self, command: &str, call: Call<'_>, more: Value) -> (bool, Value) {
        let Call { container, inside, pod, uid, made, wait } = call;
        let (namespace, name) = pod.split_once('/').unwrap();
        let mut network = json!({
            "cniVersion": "1.1.0", "name": "net", "type": "trestle-cni", "socket": self.world.socket(0), "waitSeconds": wait,
        });
        let pod = &self.world.pods[pod];
        if made {
            let addresses =
                pod.addresses.map(|address| json!({ "address": format!("{address}/32"), "interface": 1 }));
            network["prevResult"] = json!({
                "cniVersion": "1.1.0", "ips": addresses, "dns": {},
                "interfaces": [{"name": pod.interface, "mtu": 1500}, {"name": inside, "sandbox": "/run/netns/x"}],
            });
        }
        network.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let output = self.run(
            &network,
            &[
                ("CNI_COMMAND", command),
                ("CNI_CONTAINERID", container),
                ("CNI_IFNAME", inside),
                ("CNI_NETNS", &format!("/run/netns/{}", pod.namespace.name)),
                ("CNI_PATH", "/opt/cni/bin"),
                (
                    "CNI_ARGS",
                    &format!(
                        "IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};K8S_POD_UID={uid}"
                    ),
                ),
            ],
        );
        let answer = match output.stdout.as_slice() {
            [] => Value::Null,
            text => serde_json::from_slice(text).unwrap_or_else(|err| panic!("{err}: {output:?}")),
        };
        assert_eq!(output.stderr, b"", "a runtime reads no more than the answer");
        (output.status.success(), answer)
    }

    fn run(&self, document: &Value, variables: &[(&str, &str)]) -> Output {
        let mut command = self.world.hosts[0].namespace.command(self.program.to_str().unwrap());
        command
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        process.stdin.take().unwrap().write_all(document.to_string().as_bytes()).unwrap();
        process.wait_with_output().unwrap()
    }

    #[track_caller]
    fn ok(&self, command: &str, call: Call<'_>) -> Value {
        let (ok, answer) = self.call(command, call, json!({}));
        assert!(ok, "{command}: {answer}");
        answer
    }

    /// The code of a refusal.
    #[track_caller]
    fn refused(&self, command: &str, call: Call<'_>) -> u64 {
        let (ok, answer) = self.call(command, call, json!({}));
        assert!(!ok && answer["cniVersion"] == "1.1.0" && answer["msg"] != "", "{command}: {answer}");
        answer["code"].as_u64().unwrap()
    }

    /// The Pods attached, with the node's link, and whether each is closed.
    fn attached(&self) -> Vec<(String, String, bool)> {
        let list: Value = serde_json::from_str(&self.world.agent_ok(0, &["list", "-o", "json"])).unwrap();
        let text = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
        let endpoints = list.as_array().unwrap().iter();
        endpoints.map(|one| (text(one, "pod"), text(one, "interface"), one["closed"] == true)).collect()
    }

    fn has(&self, pod: &str) -> Option<bool> {
        self.attached().into_iter().find(|(name, ..)| name == pod).map(|(.., closed)| closed)
    }

    /// Whether `x/a` is answered by a Pod.
    fn answers(&self, pod: &str) -> bool {
        let target = Target { address: self.world.pods[pod].addresses[0], port: "tcp/80".parse().unwrap() };
        let from = &self.world.pods["x/a"].namespace;
        ask(from, vec![target], Duration::from_millis(1500)).join().unwrap()[&target]
    }
}

/// `x/a` is attached; `x/b` and `x/c` have links of which nobody has heard, and the controller knows them.
fn world() -> World {
    let mut world = World::new(1);
    let port = "tcp/80".parse().unwrap();
    world.add_pod("x/a", 0, "", &[port]);
    for (name, last) in [("x/b", 11), ("x/c", 12)] {
        world.link_pod(
            name,
            0,
            "",
            [format!("10.0.1.{last}"), format!("fd00:0:1::{last}")].map(|text| text.parse().unwrap()),
        );
        super::lab::probe::serve(&world.pods[name].namespace, &[port]);
    }
    world.declare_pods(&["x/b"]);
    world.apply(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {namespace: x, name: c-is-shut}\n\
         spec: {podSelector: {matchLabels: {pod: c}}, policyTypes: [Ingress]}\n",
    );
    world.settle();
    world
}

#[test]
fn a_runtime_has_pods_attached_before_they_start() {
    let world = world();
    let runtime = Runtime::new(&world);
    let answer = runtime.ok("ADD", FIRST);
    assert_eq!(answer["ips"][0]["address"], "10.0.1.11/32", "what was made before is passed on: {answer}");
    assert_eq!(answer["interfaces"][0]["mtu"], 1500, "all of it");
    assert_eq!(runtime.has("x/b"), Some(false), "the controller covers it when the call returns");
    assert!(runtime.answers("x/b"));

    // Called twice, the second time with nothing changed: no packet is lost over it.
    runtime.ok("ADD", FIRST);
    assert_eq!(runtime.has("x/b"), Some(false));
    runtime.ok("CHECK", FIRST);
    assert_eq!(runtime.refused("CHECK", Call { container: "c9", ..FIRST }), 100);
    assert_eq!(runtime.refused("CHECK", Call { pod: "x/c", ..FIRST }), 100);
    assert_eq!(runtime.refused("ADD", Call { inside: "net1", ..FIRST }), 102, "one link of a Pod is guarded");

    // The sandbox is made anew, and its link is called as the one before; the old one's end comes late, twice and without a result.
    runtime.ok("ADD", Call { container: "c2", ..FIRST });
    for _ in 0..2 {
        runtime.ok("DEL", Call { made: false, ..FIRST });
    }
    assert_eq!(runtime.has("x/b"), Some(false));
    assert!(runtime.answers("x/b"));
    runtime.ok("DEL", Call { container: "never", made: false, ..FIRST });

    // What the runtime still has stays, what it has no more goes, and what is of other networks is theirs.
    let gc = |network: &str, valid: Value| {
        let more = json!({ "name": network, "cni.dev/valid-attachments": valid });
        assert!(runtime.call("GC", FIRST, more).0);
    };
    gc("net", json!([{"containerID": "c2", "ifname": "eth0"}]));
    gc("other", json!([]));
    assert_eq!(runtime.has("x/b"), Some(false));
    gc("net", json!([]));
    assert_eq!(runtime.has("x/b"), None);
    assert!(runtime.has("x/a").is_some(), "what was attached otherwise is no runtime's");
    assert_eq!(runtime.refused("GC", FIRST), 7, "it does not say what it has");

    let (_, version) = runtime.call("VERSION", FIRST, json!({}));
    assert!(version["supportedVersions"].as_array().unwrap().contains(&json!("1.1.0")), "{version}");
    runtime.ok("STATUS", FIRST);
}

#[test]
fn a_pod_is_shut_from_its_first_packet_and_stays_so_until_it_is_known() {
    let world = world();
    let runtime = Runtime::new(&world);
    let unknown = Call { pod: "x/c", wait: 0, ..FIRST };
    assert!(runtime.answers("x/c"), "nobody has attached it");
    runtime.ok("ADD", unknown);
    assert_eq!(runtime.has("x/c"), Some(true), "nobody has told of it");
    assert!(!runtime.answers("x/c"));
    world.declare_pods(&["x/c"]);
    eventually("the controller covers it", || match runtime.has("x/c") {
        Some(false) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert!(!runtime.answers("x/c"), "its policy was in force before it was opened");
    world.delete("NetworkPolicy x/c-is-shut");
    world.settle();
    eventually("it is open", || if runtime.answers("x/c") { Ok(()) } else { Err("no answer".to_owned()) });

    // Another life of a Pod is not taken for the one that the controller knows.
    runtime.ok("ADD", Call { container: "c2", uid: "of-another-life", wait: 0, ..FIRST });
    assert_eq!(runtime.has("x/b"), Some(true));
    runtime.ok("ADD", Call { container: "c3", ..FIRST });
    assert_eq!(runtime.has("x/b"), Some(false));
}

#[test]
fn without_an_agent_no_pod_starts_and_every_pod_ends() {
    let mut world = world();
    Runtime::new(&world).ok("ADD", FIRST);
    world.kill_agent(0);
    let runtime = Runtime::new(&world);
    assert_eq!(runtime.refused("ADD", Call { pod: "x/c", ..FIRST }), 11, "a runtime tries again");
    assert_eq!(runtime.refused("STATUS", FIRST), 50);
    assert_eq!(runtime.refused("ADD", Call { made: false, ..FIRST }), 7, "there must be a plugin before");
    // Its end waits for nobody; then its link goes.
    runtime.ok("DEL", Call { made: false, ..FIRST });
    let link = &world.pods["x/b"].interface;
    world.hosts[0].namespace.run(&format!("ip link del {link}"));
    world.start_agent(0);
    let runtime = Runtime::new(&world);
    eventually("the agent forgets what has no link", || match runtime.has("x/b") {
        None => Ok(()),
        Some(_) => Err(format!("{:?}", runtime.attached())),
    });
}

#[test]
fn a_link_that_cannot_be_guarded_lets_no_pod_start() {
    let world = world();
    let runtime = Runtime::new(&world);
    let (host, link) = (&world.hosts[0].namespace, &world.pods["x/b"].interface);
    host.run(&format!("ip link add cni0 type bridge; ip link set {link} master cni0"));
    assert_eq!(runtime.refused("ADD", FIRST), 101, "a port of a bridge");
    host.run(&format!("ip link set {link} nomaster; ip link del cni0"));
    // What the plugin before says is not believed where the kernel knows better.
    let made = json!({ "prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "up0"}], "ips": [{"address": "10.0.1.11/32"}]} });
    let (ok, answer) = runtime.call("ADD", FIRST, made);
    assert!(ok, "{answer}");
    assert!(
        runtime.attached().contains(&("x/b".to_owned(), link.clone(), false)),
        "{:?}",
        runtime.attached()
    );
    runtime.ok("DEL", FIRST);
    host.run(&format!("ip link del {link}"));
    assert_eq!(runtime.refused("ADD", FIRST), 101, "there is none");
}
