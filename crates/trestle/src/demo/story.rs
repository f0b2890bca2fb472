//! The story, as data: what is said, which commands are run, which packets are sent, and what must come of it.
//!
//! In: what this machine can do. Out: chapters of steps, and what had to be left out. Pure; `perform` carries it out.

pub mod public;

/// What this machine can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Network namespaces can be made: clouds, nodes and Pods with real packets.
    pub namespaces: bool,
    /// strongSwan and BIRD are here, for the VPN between clouds.
    pub tunnels: bool,
    pub ping: bool,
    /// `nbdcopy` is here.
    pub nbd_client: bool,
}

/// A Pod of the story; `docs/examples/demo/pods.yaml` says the same to the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pod {
    pub name: &'static str,
    pub node: &'static str,
    pub address: [u8; 4],
    /// The node's end of its link.
    pub interface: &'static str,
    /// Where it answers.
    pub port: Option<u16>,
}

/// A node of the story: its name, its address, and the network of its Pods.
pub const NODES: [(&str, &str, &str); 2] =
    [("node-1", "192.168.50.1", "10.244.1.0/24"), ("node-2", "192.168.50.2", "10.244.2.0/24")];

pub const PODS: [Pod; 4] = [
    Pod { name: "web-1", node: "node-1", address: [10, 244, 1, 10], interface: "pod1", port: Some(8080) },
    Pod { name: "client", node: "node-1", address: [10, 244, 1, 20], interface: "pod2", port: None },
    Pod { name: "web-2", node: "node-2", address: [10, 244, 2, 10], interface: "pod1", port: Some(8080) },
    Pod { name: "db", node: "node-2", address: [10, 244, 2, 20], interface: "pod2", port: Some(5432) },
];

/// Files that the story's commands name, and what is in them.
pub const FILES: [(&str, &str); 4] = [
    ("block.yaml", include_str!("../../../../docs/examples/block.yaml")),
    ("pods.yaml", include_str!("../../../../docs/examples/demo/pods.yaml")),
    ("only-web.yaml", include_str!("../../../../docs/examples/demo/only-web.yaml")),
    ("service.yaml", include_str!("../../../../docs/examples/demo/service.yaml")),
];

/// What should become of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Answered,
    Blocked,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chapter {
    pub title: &'static str,
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Say(&'static str),
    /// A command of the user's. `{dir}` in it is the demonstration's directory.
    Run {
        words: &'static str,
        /// What its output must hold; several parts with `|` between them.
        expect: &'static str,
        /// The file below `{dir}` that takes its output, instead of the reader.
        into: Option<&'static str>,
        /// How much of its output is shown.
        lines: usize,
    },
    /// A ping between two resources, until it ends as it should.
    Ping {
        from: &'static str,
        to: &'static str,
        fate: Fate,
    },
    /// A TCP connection from a Pod to a Pod's port, or to a service.
    Connect {
        from: &'static str,
        to: &'static str,
        fate: Fate,
    },
    /// Connections to a service, until every one of these Pods has answered.
    Spread {
        from: &'static str,
        to: &'static str,
        over: &'static [&'static str],
    },
    /// Asks the simulated wire whether a ping between two resources gets through, until it ends as it should.
    Wire {
        from: &'static str,
        to: &'static str,
        fate: Fate,
    },
    /// These simulated clouds hold nothing any more.
    Gone(&'static [&'static str]),
    /// The list of policies, when every node and cloud has them in force.
    Realised,
    /// Starts the agent of a node.
    Agent(&'static str),
    /// Says on the node which interface is which Pod.
    Attach(Pod),
    /// Writes to the volume of the consumer whose files are in this directory, and reads it back.
    Store(&'static str),
}

/// Longer outputs are cut: the command is there to be typed again.
const LINES: usize = 26;

const fn run(words: &'static str) -> Step {
    run_for(words, "")
}

const fn run_for(words: &'static str, expect: &'static str) -> Step {
    Step::Run { words, expect, into: None, lines: LINES }
}

/// The whole story, as far as this machine can play it.
pub fn story(can: Abilities) -> Vec<Chapter> {
    let mut chapters = Vec::new();
    if can.namespaces && can.ping {
        chapters.extend(clouds(can.tunnels));
    }
    chapters.push(pods(can.namespaces));
    chapters.push(service(can.namespaces));
    chapters.push(storage(can.nbd_client));
    let mut end = vec![run_for("status", "ready")];
    if !can.namespaces {
        end.insert(0, Step::Say("Agents need root, so the nodes below are away."));
    }
    chapters.push(Chapter { title: "How it all is", steps: end });
    chapters
}

/// What this machine cannot play, and what it would take.
pub fn left_out(can: Abilities) -> Vec<&'static str> {
    let mut left = Vec::new();
    if !can.namespaces {
        left.push(
            "clouds, VPN links, agents and all packets between Pods: they are network namespaces, which need root \
             (sudo target/release/trestle up --demo); policies, services and explain are shown without packets",
        );
    } else if !can.ping {
        left.push("the two clouds: `ping` is missing (apt-get install iputils-ping)");
    } else if !can.tunnels {
        left.push(
            "the VPN between clouds: strongSwan and BIRD are missing (scripts/test-deps scripts/demo.packages); the \
             story plays in one cloud",
        );
    }
    if !can.nbd_client {
        left.push("writing to the volume: `nbdcopy` is missing (apt-get install libnbd-bin)");
    }
    left
}

/// Blocked, a rule by tag, a tunnel, reachable, a policy, blocked, and why.
fn clouds(tunnels: bool) -> [Chapter; 3] {
    let db = if tunnels { "b.db" } else { "a.db" };
    let pick = |two: &'static str, one: &'static str| if tunnels { two } else { one };
    let ping = |fate| Step::Ping { from: "a.web", to: db, fate };
    let mut opened = vec![
        Step::Say("A tag names both, and one rule at each end permits pings among the members of the tag."),
        run(pick(
            "tag set shop --children default.a.web,default.b.db",
            "tag set shop --children default.a.web,default.a.db",
        )),
        run("rule add a.web --ping shop"),
        run(pick("rule add b.db --ping shop", "rule add a.db --ping shop")),
    ];
    if tunnels {
        opened.push(Step::Say(
            "The rules needed a way between the clouds, so there is one now: two IPsec tunnels with BGP.",
        ));
        opened.push(run_for("link list", "ready"));
    }
    opened.push(ping(Fate::Answered));
    [
        Chapter {
            title: pick("Two clouds, and nobody may talk", "Two machines, and nobody may talk"),
            steps: vec![
                Step::Say(
                    "A resource here is a network namespace; in AWS it would be an instance. New ones are closed.",
                ),
                run_for("resource create a.web", "ready"),
                run_for(pick("resource create b.db", "resource create a.db"), "ready"),
                ping(Fate::Blocked),
            ],
        },
        Chapter { title: pick("A rule by tag, and a tunnel", "A rule by tag"), steps: opened },
        Chapter {
            title: "A network policy takes it away, and explain says why",
            steps: vec![
                Step::Say(
                    "The rules stay as they are. The policy outranks them: nothing of cloud a may reach the database.",
                ),
                run("apply -f {dir}/block.yaml"),
                ping(Fate::Blocked),
                run_for(pick("explain a.web b.db --proto icmp", "explain a.web a.db --proto icmp"), "denied"),
            ],
        },
    ]
}

fn pods(packets: bool) -> Chapter {
    let mut steps = vec![Step::Say("The same engine, with Kubernetes objects: four Pods on two nodes.")];
    steps.push(run("apply -f {dir}/pods.yaml"));
    if packets {
        steps.push(Step::Say(
            "Each node runs an agent, with a certificate of its own; it programs the node's nftables.",
        ));
        steps.extend([run("cert issue node-1 --role node --out {dir}/node-1"), Step::Agent("node-1")]);
        steps.extend([run("cert issue node-2 --role node --out {dir}/node-2"), Step::Agent("node-2")]);
        steps.extend(PODS.map(Step::Attach));
        steps.push(Step::Connect { from: "client", to: "10.244.2.20:5432", fate: Fate::Answered });
    } else {
        steps.push(run_for("explain shop/client shop/db --port 5432", "allowed"));
    }
    steps.push(Step::Say("Now the database is for the web only."));
    steps.push(run("apply -f {dir}/only-web.yaml"));
    if packets {
        steps.push(Step::Connect { from: "client", to: "10.244.2.20:5432", fate: Fate::Blocked });
        steps.push(Step::Connect { from: "web-1", to: "10.244.2.20:5432", fate: Fate::Answered });
        steps.push(Step::Realised);
    } else {
        steps.push(run_for("explain shop/web-1 shop/db --port 5432", "allowed"));
    }
    steps.push(run_for("explain shop/client shop/db --port 5432", "denied"));
    Chapter { title: "Pods, and who may reach the database", steps }
}

fn service(packets: bool) -> Chapter {
    let mut steps = vec![
        Step::Say("A service is one address for many Pods; every node balances it for itself."),
        run("apply -f {dir}/service.yaml"),
        run_for("service list", "2/2"),
    ];
    if packets {
        steps.push(Step::Spread { from: "client", to: "10.96.0.10:80", over: &["web-1", "web-2"] });
    }
    steps.push(run_for("service explain 10.96.0.10:80 --node node-1 --pods 10.244.0.0/16", "10.244.2.10"));
    Chapter { title: "A service", steps }
}

fn storage(writes: bool) -> Chapter {
    let mut steps = vec![
        Step::Say(
            "Another cluster gets a ticket, and with it a volume that is bounded, encrypted on the way, and revocable.",
        ),
        Step::Run { words: "ticket create --limit 1Gi", expect: "", into: Some("ticket"), lines: LINES },
        Step::Run {
            words: "consumer onboard --ticket-file {dir}/ticket --capacity 16Mi --out {dir}/storage",
            expect: "Storage is ready",
            into: None,
            lines: 4,
        },
    ];
    if writes {
        steps.push(Step::Store("storage"));
    }
    steps.push(run_for("consumer list", "16"));
    Chapter { title: "Storage for another cluster", steps }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Abilities = Abilities { namespaces: true, tunnels: true, ping: true, nbd_client: true };

    fn titles(can: Abilities) -> Vec<&'static str> {
        story(can).iter().map(|chapter| chapter.title).collect()
    }

    fn steps(can: Abilities) -> Vec<Step> {
        story(can).into_iter().flat_map(|chapter| chapter.steps).collect()
    }

    #[test]
    fn blocked_then_answered_then_blocked_then_why() {
        let steps = steps(ALL);
        let fates: Vec<_> = steps
            .iter()
            .filter_map(|step| match step {
                Step::Ping { fate, .. } => Some(*fate),
                _ => None,
            })
            .collect();
        assert_eq!(fates, [Fate::Blocked, Fate::Answered, Fate::Blocked]);
        assert!(left_out(ALL).is_empty());
    }

    #[test]
    fn without_root_no_step_sends_a_packet_to_a_pod_and_it_is_said() {
        let can = Abilities { namespaces: false, tunnels: false, ..ALL };
        let sends = |step: &Step| !matches!(step, Step::Say(_) | Step::Run { .. } | Step::Store(_));
        assert!(!steps(can).iter().any(sends), "{:?}", steps(can));
        assert!(steps(can).contains(&Step::Store("storage")));
        assert!(left_out(can)[0].contains("root"), "{:?}", left_out(can));
        assert_eq!(titles(can).len(), titles(ALL).len() - 3);
    }

    #[test]
    fn without_strongswan_the_story_plays_in_one_cloud() {
        let can = Abilities { tunnels: false, ..ALL };
        let named = |step: &Step| format!("{step:?}").contains("b.db");
        assert!(!steps(can).iter().any(named));
        assert_eq!(titles(can).len(), titles(ALL).len());
        assert_eq!(left_out(can).len(), 1);
    }

    #[test]
    fn the_pods_of_the_story_are_those_the_controller_is_told() {
        let (_, text) = FILES.iter().find(|(name, _)| *name == "pods.yaml").unwrap();
        let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(text).unwrap();
        let told: Vec<_> = documents.iter().filter(|document| document["kind"] == "Pod").collect();
        assert_eq!(told.len(), PODS.len());
        for (told, pod) in told.iter().zip(PODS) {
            let address = std::net::Ipv4Addr::from(pod.address).to_string();
            assert_eq!(told["metadata"]["name"], pod.name);
            assert_eq!(told["spec"]["nodeName"], pod.node);
            assert_eq!(told["status"]["podIP"], address);
            let port = &told["spec"]["containers"][0]["ports"][0]["containerPort"];
            assert_eq!(port.as_u64(), pod.port.map(u64::from));
        }
    }
}
