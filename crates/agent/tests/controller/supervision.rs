//! A part of the agent that is gone is missed at once: the agent is not ready, stops, and says why.

use std::time::Duration;

use agent::{Agent, Config, Uplink, local::Client, part::Part, services::ServiceSettings};
use life::{Fault, Reason};
use tempfile::TempDir;
use testkit_controllers::agents::Falls;
use tokio::time::timeout;

const TASKS: [&str; 6] =
    ["feed", "health", "health of services", "health of the proxy", "local API", "worker"];
const SOON: Duration = Duration::from_secs(20);

struct Lab {
    agent: Agent,
    part: Falls,
    /// Others than the worker ask it how services are.
    _services: Box<dyn Part>,
    dir: TempDir,
}

impl Lab {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let registry = r#"[{"pod": "ns/a", "interface": "v1", "closed": true}]"#;
        std::fs::create_dir(dir.path().join("data")).unwrap();
        std::fs::write(dir.path().join("data/endpoints.json"), registry).unwrap();
        let (services_part, services) = agent::services(ServiceSettings::default());
        let loopback = Some("127.0.0.1:0".parse().unwrap());
        let config = Config {
            uplink: Uplink { servers: vec!["http://127.0.0.1:1".into()], ..Uplink::default() },
            data_dir: dir.path().join("data"),
            socket: dir.path().join("socket"),
            health: loopback,
            services: Some(services),
            services_health: loopback,
            joined: false,
            patience: agent::Patience::default(),
        };
        let part = Falls::default();
        let agent = Agent::start(config, vec![Box::new(part.clone())]).await.unwrap();
        Self { agent, part, _services: services_part, dir }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_task_has_a_name_and_none_is_gone_without_being_missed() {
    for name in TASKS {
        let lab = Lab::new().await;
        assert_eq!(lab.agent.life().running(), TASKS);
        assert_eq!(lab.agent.local().ailment(), None);
        match name {
            "worker" => lab.part.fall(),
            _ => assert!(lab.agent.life().kill(name)),
        }
        timeout(SOON, lab.agent.life().faulted()).await.unwrap_or_else(|_| panic!("{name} is not missed"));
        let status = lab.agent.local().status();
        assert!(!status.ready && !status.failures.is_empty(), "{name}: {status:?}");
        let ended = timeout(SOON, lab.agent.stop()).await.unwrap_or_else(|_| panic!("{name}: it goes on"));
        let Err(Fault { task, reason: Reason::Panicked(text) }) = ended else { panic!("{name}: {ended:?}") };
        assert_eq!(task, name);
        let expected = if name == "worker" { "the part has fallen, at " } else { "killed by a test, at " };
        assert!(text.starts_with(expected), "{text}");
        assert!(!lab.dir.path().join("socket").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_told_to_stop_has_lost_nothing() {
    let lab = Lab::new().await;
    let client = Client { socket: lab.dir.path().join("socket") };
    assert!(!client.status().await.unwrap().version.is_empty());
    assert_eq!(timeout(SOON, lab.agent.stop()).await.unwrap(), Ok(()));
}
