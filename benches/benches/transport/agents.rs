//! The second process: all agents, told what to do over its standard input, heard over its standard output.

use std::{
    env, fs,
    io::Write as _,
    path::Path,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use server::Controller;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::{Mutex, Semaphore, mpsc},
    task::JoinSet,
};

use crate::{
    Latencies, Outcome,
    agent::{self, Memory},
    certificates::Identity,
};

/// Says in the environment what this process is.
pub const ROLE: &str = "TRESTLE_BENCH_ROLE";
/// Handshakes at once: agents back off and jitter, they do not all knock in the same millisecond.
const HANDSHAKES: usize = 256;
/// How long the other process may be silent.
const PATIENCE: Duration = Duration::from_secs(180);

/// The agents, as the controller's process sees them.
pub struct Agents {
    _child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    pub count: usize,
    queue: Vec<u8>,
}

impl Agents {
    pub fn start(controller: &Controller, count: usize, certificates: &Path) -> Outcome<Self> {
        let role = format!("{} {}", controller.grpc_addr(), controller.ca_path().display());
        let agents = Self::spawn(&format!("agents {} {role}", certificates.display()), count)?;
        Ok(agents)
    }

    pub fn spawn(role: &str, count: usize) -> Outcome<Self> {
        let mut child = Command::new(crate::own_program()?)
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = child.stdout.take().ok_or("the agents have no output")?;
        let stdin = child.stdin.take();
        Ok(Self { _child: child, stdin, lines: BufReader::new(stdout).lines(), count, queue: Vec::new() })
    }

    /// Sent with the next wait.
    pub fn say(&mut self, line: &str) -> Outcome<()> {
        Ok(writeln!(self.queue, "{line}")?)
    }

    /// Waits for a line that starts with these words; gives back the rest.
    pub async fn hear(&mut self, words: &str) -> Outcome<String> {
        if let Some(stdin) = &mut self.stdin {
            stdin.write_all(&std::mem::take(&mut self.queue)).await?;
            stdin.flush().await?;
        }
        loop {
            let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
            let line = line.map_err(|_| format!("the agents did not say {words:?} in time"))??;
            let line = line.ok_or_else(|| format!("the agents ended before they said {words:?}"))?;
            if let Some(rest) = line.strip_prefix(words) {
                return Ok(rest.to_owned());
            }
        }
    }
}

/// What the agents of this process have seen together.
#[derive(Default)]
pub struct Seen {
    pub count: usize,
    pub synced: AtomicUsize,
    pub sync_bytes: AtomicU64,
    pub applied: AtomicUsize,
    pub expected: AtomicUsize,
    latencies: std::sync::Mutex<(i64, Vec<i64>)>,
}

impl Seen {
    pub fn new(count: usize) -> Self {
        Self { count, ..Self::default() }
    }

    /// One agent got the event of time `event` after `latency`.
    pub fn tick(&self, event: i64, latency: i64) {
        let Ok(mut latencies) = self.latencies.lock() else { return };
        if latencies.0 != event {
            *latencies = (event, Vec::with_capacity(self.count));
        }
        latencies.1.push(latency);
        if latencies.1.len() == self.count {
            let Latencies { p50, p99, last } = Latencies::of(std::mem::take(&mut latencies.1));
            tell(&format!("tick {event} {p50} {p99} {last}"));
        }
    }

    pub fn synced(&self, bytes: u64) {
        let total = self.sync_bytes.fetch_add(bytes, Relaxed) + bytes;
        if self.synced.fetch_add(1, Relaxed) + 1 == self.count {
            tell(&format!("synced {total}"));
        }
    }

    pub fn applied(&self) {
        if self.applied.fetch_add(1, Relaxed) + 1 == self.expected.load(Relaxed) {
            tell("received");
        }
    }
}

pub fn tell(line: &str) {
    // If the other process is gone there is nobody to tell.
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// The agents' process.
pub async fn run(role: &str) -> Outcome<()> {
    let words: Vec<_> = role.split(' ').collect();
    match words[..] {
        ["agents", certificates, addr, ca] => run_agents(certificates, addr.to_owned(), ca).await,
        ["floor", count, addr] => crate::floor::run(count.parse()?, addr.parse()?).await,
        _ => Err(format!("{role:?} is no role").into()),
    }
}

/// The lines of standard input.
fn commands() -> mpsc::UnboundedReceiver<String> {
    let (line_tx, line_rx) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if line_tx.send(line).is_err() {
                break;
            }
        }
    });
    line_rx
}

async fn run_agents(certificates: &str, addr: String, ca: &str) -> Outcome<()> {
    let ca = CertificateDer::from_pem_slice(&fs::read(ca)?)?;
    let identities: Vec<Identity> =
        fs::read_to_string(certificates)?.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let seen = Arc::new(Seen::new(identities.len()));
    let memories: Vec<_> = identities.iter().map(|_| Arc::new(Mutex::new(Memory::default()))).collect();
    let mut open: JoinSet<()> = JoinSet::new();
    let mut commands = commands();
    while let Some(command) = commands.recv().await {
        match command.split(' ').collect::<Vec<_>>()[..] {
            ["expect", number] => {
                seen.applied.store(0, Relaxed);
                seen.expected.store(number.parse()?, Relaxed);
                tell("expecting");
            }
            ["connect", from] => {
                open.shutdown().await;
                seen.synced.store(0, Relaxed);
                seen.sync_bytes.store(0, Relaxed);
                let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
                for (identity, memory) in identities.iter().zip(&memories) {
                    if from == "nothing" {
                        *memory.lock().await = Memory::default();
                    }
                    let agent = agent::Agent {
                        identity: identity.clone(),
                        ca: ca.clone(),
                        addr: addr.clone(),
                        seen: Arc::clone(&seen),
                        memory: Arc::clone(memory),
                    };
                    open.spawn(agent.run(Arc::clone(&handshakes)));
                }
            }
            _ => return Err(format!("{command:?} is no command of {:?}", env::args().next()).into()),
        }
    }
    Ok(())
}
