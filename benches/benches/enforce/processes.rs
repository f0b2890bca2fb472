//! What the processes of this program do that are no measurement: a controller, and an agent.

use std::{
    fs::Permissions,
    io::{Read as _, Write as _},
    net::{IpAddr, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use agent::{
    Agent, Patience, PolicySettings, Uplink,
    endpoints::{Attachment, Pod},
    local::Client,
};
use anyhow::Context as _;
use server::{Config, Controller};

use super::world::{CONTROLLER, interface};

/// The end of its input is the end of a process.
async fn until_told() -> anyhow::Result<()> {
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}

fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Says where its CA and its administrator's token are.
pub fn controller(dir: &Path) -> anyhow::Result<()> {
    std::fs::set_permissions(dir, Permissions::from_mode(0o700))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let mut config = Config::in_dir(dir.to_owned());
        config.listen.http = "127.0.0.1:0".parse()?;
        config.listen.watch = "127.0.0.1:0".parse()?;
        config.listen.grpc = CONTROLLER.parse()?;
        let controller = Controller::start(config).await?;
        say(&format!("{} {}", controller.ca_path().display(), controller.token_path().display()))?;
        until_told().await?;
        Ok(controller.stop().await?)
    })
}

/// Says that it runs, and at its end what it took: memory, at its end and at most, and the longest lock.
pub fn agent(node: &str, dir: &Path) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let parts = agent::parts(node, &PolicySettings::default())?;
        let uplink = Uplink {
            node: node.to_owned(),
            servers: vec![format!("https://{CONTROLLER}")],
            ca: Some(dir.join("ca")),
            identity: Some((dir.join("cert"), dir.join("key"))),
        };
        let config = agent::Config {
            uplink,
            data_dir: dir.join("data"),
            socket: dir.join("socket"),
            health: Some("127.0.0.1:0".parse()?),
            services: None,
            services_health: None,
            patience: Patience::default(),
            joined: false,
        };
        let agent = Agent::start(config, parts).await?;
        let health = agent.health_addr().context("health is served")?;
        attach(&Client { socket: dir.join("socket") }, dir).await?;
        say("runs")?;
        until_told().await?;
        let lock = tokio::task::spawn_blocking(move || lock_micros(TcpStream::connect(health)?)).await??;
        say(&format!("{} {} {lock}", status("VmRSS:")?, status("VmHWM:")?))?;
        Ok(agent.stop().await?)
    })
}

/// All Pods of the host, as a plugin of the container runtime does when it makes their links.
async fn attach(client: &Client, dir: &Path) -> anyhow::Result<()> {
    let pods: Vec<(String, String, IpAddr)> = serde_json::from_slice(&std::fs::read(dir.join("pods"))?)?;
    for (index, (namespace, name, address)) in pods.into_iter().enumerate() {
        let attachment =
            Attachment { interface: interface(index), addresses: vec![address], ..Attachment::default() };
        client.attach(&Pod { namespace, name }, &attachment).await?;
    }
    Ok(())
}

fn lock_micros(mut stream: TcpStream) -> anyhow::Result<u64> {
    write!(stream, "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let line = text.lines().find_map(|line| line.strip_prefix("trestle_agent_policy_lock_microseconds "));
    line.context("the agent does not tell of its locks")?.trim().parse().context("that is no number")
}

/// Of this process, in KiB.
fn status(name: &str) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)).context("a line is missing")?;
    Ok(line.trim_matches(|c: char| !c.is_ascii_digit()).parse()?)
}
