//! Carries the story out: each step through the command line that users have, or with a packet; and tells what came of it.
//!
//! In: chapters. Out: things done, and lines on standard output. A step that does not end as the story says ends the
//! story, with what to look at.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::{Output, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use tokio::{process::Command, time::sleep};

use super::{
    home::Home,
    lab::Lab,
    net::{self, Answer},
    story::{Chapter, Fate, Pod, Step},
    tell,
};
use crate::{
    output::print,
    simulated::{Meter, Simulated},
};

/// How long something may take to come true.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(100);
/// How long an answer is waited for.
const REPLY: Duration = Duration::from_secs(1);
/// What is written to the volume.
const LETTER: &str = "Written through NBD and TLS by nbdcopy, which knows nothing of Trestle.\n";
/// What points commands elsewhere than at this demonstration.
const OTHERS: [&str; 6] = [
    "TRESTLE_SERVER",
    "TRESTLE_CA",
    "TRESTLE_TOKEN_FILE",
    "TRESTLE_CERT",
    "TRESTLE_KEY",
    "TRESTLE_AGENT_SOCKET",
];

pub struct Stage<'a> {
    pub home: &'a Home,
    pub lab: &'a mut Lab,
    /// This binary.
    pub program: PathBuf,
    /// Where agents find the controller.
    pub server: String,
    /// The clouds, if they are simulated.
    pub simulated: Option<&'a Simulated>,
}

impl Stage<'_> {
    pub async fn play(&mut self, chapters: &[Chapter]) -> anyhow::Result<()> {
        for (index, chapter) in chapters.iter().enumerate() {
            tell::chapter(index + 1, chapter.title)?;
            for step in &chapter.steps {
                self.step(step).await?;
            }
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> anyhow::Result<()> {
        match step {
            Step::Say(text) => tell::say(text),
            Step::Run { words, expect, into, lines } => {
                let is_so = |text: &str| expect.split('|').all(|part| text.contains(part));
                self.run(&self.words(words), is_so, *into, *lines).await
            }
            Step::Realised => {
                let in_force = |text: &str| !text.contains("Realizing") && !text.contains("Pending");
                self.run(&self.words("policy list"), in_force, None, usize::MAX).await
            }
            Step::Ping { from, to, fate } => self.ping(from, to, *fate).await,
            Step::Wire { from, to, fate } => self.wire(from, to, *fate).await,
            Step::Gone(clouds) => self.gone(clouds).await,
            Step::Connect { from, to, fate } => self.connect(from, to, *fate).await,
            Step::Spread { from, to, over } => self.spread(from, to, over).await,
            Step::Agent(node) => self.agent(node).await,
            Step::Attach(pod) => self.attach(*pod).await,
            Step::Store(dir) => self.store(dir).await,
        }
    }

    /// Gives back what the user has attached meanwhile: interfaces and namespaces that are theirs.
    pub async fn give_back(&self) -> anyhow::Result<()> {
        let words = ["resource", "list", "--all", "-o", "json"].map(str::to_owned);
        let listed: Vec<serde_json::Value> = serde_json::from_str(&self.ok(&words).await?)?;
        let is_own = |uri: &str| uri.is_empty() || uri.starts_with("netns:trr.");
        for resource in listed.iter().filter(|resource| !resource["uri"].as_str().is_some_and(is_own)) {
            let name = resource["name"].as_str().unwrap_or_default();
            self.ok(&["resource", "delete", name].map(str::to_owned)).await?;
        }
        Ok(())
    }

    fn path(&self, name: &str) -> String {
        self.home.dir().join(name).display().to_string()
    }

    fn words(&self, text: &str) -> Vec<String> {
        let dir = self.home.dir().display().to_string();
        text.split_whitespace().map(|word| word.replace("{dir}", &dir)).collect()
    }

    async fn trestle(&self, words: &[String]) -> anyhow::Result<Output> {
        let mut command = Command::new(&self.program);
        OTHERS.iter().for_each(|name| {
            command.env_remove(name);
        });
        let command = command.args(words).stdin(Stdio::null()).kill_on_drop(true);
        command.output().await.with_context(|| format!("cannot run {}", self.program.display()))
    }

    /// The output of a command that has to succeed.
    async fn ok(&self, words: &[String]) -> anyhow::Result<String> {
        let output = self.trestle(words).await?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("`trestle {}` failed: {}", tell::quoted(words), said.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A command as the reader is shown it: `$demo` is easier to read than the directory.
    fn shown(&self, words: &[String]) -> String {
        let dir = self.home.dir().display().to_string();
        tell::quoted(&words.iter().map(|word| word.replace(&dir, "$demo")).collect::<Vec<_>>())
    }

    async fn run(
        &self,
        words: &[String],
        is_so: impl Fn(&str) -> bool,
        into: Option<&str>,
        lines: usize,
    ) -> anyhow::Result<()> {
        let shown = format!("trestle {}", self.shown(words));
        let redirected = into.map(|name| format!(" > $demo/{name}")).unwrap_or_default();
        tell::command(&format!("{shown}{redirected}"))?;
        let (before, start) = (self.meter().await?, Instant::now());
        // What must be there may come a moment after the command that brings it about.
        let text = loop {
            let text = self.ok(words).await?;
            if is_so(&text) {
                break text;
            }
            if start.elapsed() > PATIENCE {
                bail!("`{shown}` does not say what it should:\n{text}");
            }
            sleep(PAUSE).await;
        };
        match into {
            Some(name) => files::write(&self.home.dir().join(name), text.as_bytes())?,
            None => tell::output(&text, lines)?,
        }
        let after = self.meter().await?;
        let there = after.time().saturating_sub(before.time());
        tell::done_there("", start.elapsed(), there, after.requests.saturating_sub(before.requests))
    }

    /// Of the simulated clouds, if they are.
    async fn meter(&self) -> anyhow::Result<Meter> {
        match self.simulated {
            Some(simulated) => simulated.meter().await,
            None => Ok(Meter::default()),
        }
    }

    /// Of a resource.
    async fn address(&self, of: &str) -> anyhow::Result<IpAddr> {
        let words = ["resource", "get", of, "-o", "json"].map(str::to_owned);
        let found: serde_json::Value = serde_json::from_str(&self.ok(&words).await?)?;
        let address = found["ip"].as_str().with_context(|| format!("{of} has no address"))?;
        address.parse().with_context(|| format!("{of} has the address {address}"))
    }

    async fn wire(&self, from: &str, to: &str, fate: Fate) -> anyhow::Result<()> {
        let simulated = self.simulated.context("only simulated clouds have a wire to ask")?;
        let (a, b) = (self.address(from).await?, self.address(to).await?);
        tell::command(&format!("curl '{}'", simulated.question(a, b)))?;
        let start = Instant::now();
        loop {
            let (passes, words) = simulated.ping(a, b).await?;
            if passes == (fate == Fate::Answered) {
                return tell::done(&format!("a ping from {from} to {to}: {words}"), start.elapsed());
            }
            if start.elapsed() > PATIENCE {
                bail!("a ping from {from} to {to}: {words}, which it should not be; see `trestle check`");
            }
            sleep(PAUSE).await;
        }
    }

    /// A network goes after the last that was in it, which nobody waits for.
    async fn gone(&self, clouds: &[&str]) -> anyhow::Result<()> {
        let simulated = self.simulated.context("only simulated clouds open their books")?;
        let start = Instant::now();
        loop {
            let mut left = Vec::new();
            for cloud in clouds {
                left.extend(simulated.left_in(cloud).await?);
            }
            if left.is_empty() {
                print("")?;
                let text = format!("nothing is left in {}", clouds.join(" and in "));
                return tell::done(&text, start.elapsed());
            }
            if start.elapsed() > PATIENCE {
                bail!("this is left, and should not be: {}; see `trestle status`", left.join(", "));
            }
            sleep(PAUSE).await;
        }
    }

    async fn ping(&self, from: &str, to: &str, fate: Fate) -> anyhow::Result<()> {
        let address = self.address(to).await?.to_string();
        let words = ["resource", "exec", from, "--", "ping", "-c1", "-W1", &address].map(str::to_owned);
        tell::command(&format!("trestle {}", self.shown(&words)))?;
        let probe = async || {
            let output = self.trestle(&words).await?;
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let took = said.split("time=").nth(1).and_then(|rest| rest.lines().next()).unwrap_or_default();
            Ok(output.status.success().then(|| format!("answered in {took}")))
        };
        self.until(&format!("{from} to {to}"), fate, probe).await
    }

    async fn connect(&self, from: &str, to: &str, fate: Fate) -> anyhow::Result<()> {
        let (namespace, address) = self.shown_question(from, to)?;
        let probe = async || {
            let answer = net::ask(&namespace, address, REPLY).await?;
            Ok(answer.map(|Answer { from, took }| {
                format!("{from} answered in {:.1} ms", took.as_secs_f64() * 1000.0)
            }))
        };
        self.until(&format!("{from} to {to}"), fate, probe).await
    }

    /// Says how a person would ask; where from, and whom.
    fn shown_question(&self, from: &str, to: &str) -> anyhow::Result<(String, SocketAddr)> {
        let namespace = self.home.namespace(from);
        tell::command(&format!("ip netns exec {namespace} curl -m1 http://{to}"))?;
        Ok((namespace, to.parse()?))
    }

    /// Tries until it ends as it should, and says so with the time that took.
    async fn until(
        &self,
        what: &str,
        fate: Fate,
        probe: impl AsyncFn() -> anyhow::Result<Option<String>>,
    ) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            match (fate, probe().await?) {
                (Fate::Answered, Some(answer)) => {
                    return tell::done(&format!("{what}: {answer}"), start.elapsed());
                }
                (Fate::Blocked, None) => {
                    return tell::done(&format!("{what}: blocked, no answer"), start.elapsed());
                }
                (_, _) if start.elapsed() < PATIENCE => sleep(PAUSE).await,
                (Fate::Answered, None) => {
                    bail!("{what}: no answer; see `trestle status` and `trestle check`")
                }
                (Fate::Blocked, Some(answer)) => bail!("{what}: {answer}, and it should have been blocked"),
            }
        }
    }

    async fn spread(&self, from: &str, to: &str, over: &[&str]) -> anyhow::Result<()> {
        let (namespace, address) = self.shown_question(from, to)?;
        let start = Instant::now();
        let mut counts: Vec<(String, usize)> = over.iter().map(|name| ((*name).to_owned(), 0)).collect();
        // A few more than needed, to see how they are shared out.
        let mut asked = 0;
        while asked < 10 || counts.iter().any(|(_, count)| *count == 0) {
            if start.elapsed() > PATIENCE {
                bail!("connections to {to} reached {counts:?} only; see `trestle service get web -n shop`");
            }
            match net::ask(&namespace, address, REPLY).await? {
                Some(answer) => {
                    asked += 1;
                    let count = counts.iter_mut().find(|(name, _)| *name == answer.from);
                    count.with_context(|| format!("{} answered for {to}", answer.from))?.1 += 1;
                }
                None => sleep(PAUSE).await,
            }
        }
        let shares: Vec<_> = counts.iter().map(|(name, count)| format!("{name} ×{count}")).collect();
        tell::done(&format!("{asked} connections answered by {}", shares.join(", ")), start.elapsed())
    }

    async fn agent(&mut self, node: &str) -> anyhow::Result<()> {
        let file = |suffix: &str| self.path(&format!("{node}.{suffix}"));
        // JSON is YAML.
        let config = serde_json::json!({
            "node": node,
            "servers": [self.server],
            "ca": file("ca.pem"),
            "cert": file("pem"),
            "key": file("key"),
            "data_dir": file("data"),
            "socket": file("sock"),
            "services": {
                "mode": "nftables",
                "pod_prefixes": ["10.244.0.0/16"],
                "service_prefixes": ["10.96.0.0/16"],
            },
        });
        fs::write(file("yaml"), format!("{config:#}\n"))?;
        let words = ["agent", "--config", &file("yaml")].map(str::to_owned);
        let (namespace, log) = (self.home.namespace(node), PathBuf::from(file("log")));
        tell::command(&format!("ip netns exec {namespace} trestle {}", self.shown(&words)))?;
        let start = Instant::now();
        self.lab.start_agent(&namespace, &self.program, &words, &log).await?;
        tell::done(&format!("the agent of {node} runs"), start.elapsed())
    }

    async fn attach(&self, pod: Pod) -> anyhow::Result<()> {
        let (name, address) = (format!("shop/{}", pod.name), Ipv4Addr::from(pod.address).to_string());
        let socket = self.path(&format!("{}.sock", pod.node));
        let words = ["agent", "attach", &name, "--interface", pod.interface, "--address", &address];
        let words: Vec<_> = words.into_iter().chain(["--socket", &socket]).map(str::to_owned).collect();
        self.run(&words, |text| text.contains("Attached"), None, usize::MAX).await
    }

    async fn store(&self, dir: &str) -> anyhow::Result<()> {
        let words = ["consumer", "mount-info", &self.path(dir), "-o", "json"].map(str::to_owned);
        let info: serde_json::Value = serde_json::from_str(&self.ok(&words).await?)?;
        let uri = info["uri"].as_str().context("the volume has no address")?.to_owned();
        let (letter, copy) = (self.path("letter"), self.path("copy"));
        let text = LETTER.repeat((1 << 20) / LETTER.len());
        fs::write(&letter, &text)?;
        self.nbdcopy([letter, uri.clone()]).await?;
        self.nbdcopy([uri, copy.clone()]).await?;
        let back = fs::read(&copy)?;
        let same = back.get(..text.len()) == Some(text.as_bytes());
        let beyond = back.get(text.len()..).is_some_and(|rest| rest.iter().all(|byte| *byte == 0));
        if !same || !beyond {
            bail!("what was read from the volume is not what was written");
        }
        tell::output("1 MiB written and read back, the same", 1)
    }

    async fn nbdcopy(&self, words: [String; 2]) -> anyhow::Result<()> {
        tell::command(&format!("nbdcopy {}", self.shown(&words)))?;
        let start = Instant::now();
        let output = Command::new("nbdcopy").args(&words).stdin(Stdio::null()).kill_on_drop(true).output();
        let output = output.await.context("cannot run nbdcopy")?;
        if !output.status.success() {
            bail!("nbdcopy failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        tell::done("", start.elapsed())
    }
}
