//! Four simulated public clouds behind their plugins: the lab program `trestle-clouds`, which is no part of this binary.
//!
//! In: nothing but that it is installed. Out: the clouds' configuration, as of any plugin in a process of its own, and what the
//! wire, the clouds' clock and their books say, asked over HTTP. Holds the program, which ends with this process however
//! that ends: its standard input is a pipe of which only this process has the other end.

use std::{collections::BTreeMap, env, iter, net::IpAddr, path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context as _, bail};
use http_body_util::BodyExt as _;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use model::Segment;
use serde::{Deserialize, de::DeserializeOwned};
use server::{CloudConfig, PluginConfig};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, ChildStdin, Command},
    sync::oneshot,
    task::JoinHandle,
};

const PROGRAM: &str = "trestle-clouds";

pub struct Simulated {
    at: Places,
    client: Client<HttpConnector, String>,
    /// Ends the program when it is gone.
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

/// The first line that the program says.
#[derive(Deserialize)]
struct Places {
    url: String,
    plugins: BTreeMap<Segment, String>,
}

/// What the clouds have done since they are there, by their own clock.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Meter {
    seconds: f64,
    pub requests: usize,
}

impl Meter {
    pub fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

impl Simulated {
    pub async fn start() -> anyhow::Result<Self> {
        let program = find()?;
        let mut child = Command::new(&program)
            .args(["--plugins", "--listen", "127.0.0.1:0"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for this process, which ends the program when nobody needs it any more.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let (hold, says) = child.stdin.take().zip(child.stdout.take()).context("a pipe is missing")?;
        let mut line = String::new();
        BufReader::new(says).read_line(&mut line).await?;
        let Ok(at) = serde_json::from_str(&line) else {
            bail!(
                "{} has not said where its clouds are, but {line:?}; is it as old as this?",
                program.display()
            );
        };
        let client = Client::builder(TokioExecutor::new()).build_http();
        let (stop, stopped) = oneshot::channel();
        Ok(Self { at, client, stop, running: tokio::spawn(run(child, hold, stopped)) })
    }

    /// The program has ended when this returns.
    pub async fn stop(self) -> anyhow::Result<()> {
        drop(self.stop);
        Ok(self.running.await?)
    }

    pub fn clouds(&self) -> Vec<CloudConfig> {
        self.at.plugins.keys().filter_map(|name| self.cloud(name).ok()).collect()
    }

    /// The cloud of this name: `aws`, `azure`, `gcp` or `ibm`.
    pub fn cloud(&self, name: &Segment) -> anyhow::Result<CloudConfig> {
        let Some(url) = self.at.plugins.get(name) else {
            let names: Vec<_> = self.at.plugins.keys().map(ToString::to_string).collect();
            bail!("no simulated cloud is called {name}: {} are", names.join(", "));
        };
        let plugin = PluginConfig::Remote { url: url.clone(), ca: None, client: None, revision: None };
        Ok(CloudConfig { name: name.clone(), plugin })
    }

    /// Where the clouds' own clients find them.
    pub fn url(&self) -> &str {
        &self.at.url
    }

    /// Where is asked, by people too, whether a ping gets from one address to another.
    pub fn question(&self, from: IpAddr, to: IpAddr) -> String {
        format!("{}/wire?from={from}&to={to}", self.at.url)
    }

    /// Whether a ping gets through, and in words.
    pub async fn ping(&self, from: IpAddr, to: IpAddr) -> anyhow::Result<(bool, String)> {
        let words = self.get(&self.question(from, to)).await?;
        let words = words.trim_end();
        Ok((words.starts_with("reached"), words.to_owned()))
    }

    pub async fn meter(&self) -> anyhow::Result<Meter> {
        self.read("/meter").await
    }

    /// What somebody has to pay for in a cloud.
    pub async fn left_in(&self, cloud: &str) -> anyhow::Result<Vec<String>> {
        self.read(&format!("/left?cloud={cloud}")).await
    }

    async fn read<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let url = format!("{}{path}", self.at.url);
        let text = self.get(&url).await?;
        serde_json::from_str(&text).with_context(|| format!("{url} answers {text:?}"))
    }

    async fn get(&self, url: &str) -> anyhow::Result<String> {
        let asked = async {
            let answer = self.client.get(url.parse()?).await?;
            let bytes = answer.into_body().collect().await?.to_bytes();
            anyhow::Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        asked.await.with_context(|| format!("cannot ask the simulated clouds at {url}"))
    }
}

/// The program's life: until it is told to end, by the end of its standard input. Says so if it ends before.
async fn run(mut child: Child, hold: ChildStdin, stopped: oneshot::Receiver<()>) {
    tokio::select! {
        how = child.wait() => {
            let how = how.map_or_else(|err| err.to_string(), |status| status.to_string());
            tracing::error!("{PROGRAM}, and with it the simulated clouds, has ended: {how}");
        }
        _ = stopped => {
            drop(hold);
            // What could go wrong is that it is no child of ours, which it is.
            let _ = child.wait().await;
        }
    }
}

/// Beside this program, or in PATH.
fn find() -> anyhow::Result<PathBuf> {
    let own = env::current_exe().context("cannot find this program")?;
    let path = env::var_os("PATH").unwrap_or_default();
    let places =
        iter::once(own.with_file_name(PROGRAM)).chain(env::split_paths(&path).map(|dir| dir.join(PROGRAM)));
    places.into_iter().find(|place| place.is_file()).with_context(|| {
        format!(
            "simulated clouds need the program {PROGRAM}, which is neither beside {} nor in PATH. It is no part of the \
             product: in Trestle's source tree, `cargo build --release -p {PROGRAM}` builds it into target/release, and \
             `make up CLOUDS=sim` builds and plays",
            own.display()
        )
    })
}
