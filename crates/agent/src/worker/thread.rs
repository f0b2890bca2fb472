//! The worker's thread, and the handle by which others speak to it.

use std::{
    collections::BTreeSet,
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use life::Life;
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::{mpsc, oneshot, watch},
};
use tracing::debug;
use wire::trestle::v1::ToNode;

use super::{AttachError, Opening, Worker};
use crate::{
    endpoints::{Attachment, Endpoint, Pod},
    flows::{Named, Seen},
    held::{Content, Key},
    metrics::Metrics,
    pulse::Pulse,
    status::State,
};

/// Messages on their way to the worker. When they are this many the stream is not read, and so the controller waits
/// too, and sends the newest state of what changed meanwhile.
const QUEUE: usize = 1024;
/// Steps that are taken in before they are made true, when they come that fast.
const MERGE: usize = 64;
const TICK: Duration = Duration::from_millis(500);
/// What others commit in one go is looked at once.
const GATHER: Duration = Duration::from_millis(2);
/// Before the other work of the machine: while a table that was deleted is not back, packets pass that must not. Steps are short.
const NICE: i32 = -10;
/// The worker comes round at every tick. If it has not for so long it is stuck: no step takes nearly as much.
const STUCK: Duration = Duration::from_secs(60);

enum Command {
    Open(oneshot::Sender<Opening>),
    Take(Box<ToNode>),
    Lost,
    Controllers(BTreeSet<SocketAddr>, oneshot::Sender<()>),
    Attach(Pod, Attachment, oneshot::Sender<Result<Endpoint, AttachError>>),
    Detach(Pod, Option<String>, oneshot::Sender<Result<bool, AttachError>>),
    Found(Vec<(Pod, Attachment)>),
    DetachContainer(String, Option<String>, oneshot::Sender<Result<bool, AttachError>>),
    Endpoints(oneshot::Sender<Vec<Endpoint>>),
    Objects(oneshot::Sender<Vec<HeldObject>>),
    NameFlows(Vec<Seen>, bool, oneshot::Sender<Vec<Named>>),
}

/// An object as `trestle agent objects` shows it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct HeldObject {
    pub kind: i32,
    pub name: String,
    pub hash: u64,
    /// Members of a set.
    pub members: Option<usize>,
}

/// The worker has stopped.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the agent's worker is gone: the agent stops")]
pub struct Gone;

/// Speaks to the worker; cheap to clone. The worker stops when the last handle is gone.
#[derive(Clone)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
    state: watch::Receiver<Arc<State>>,
    pulse: Pulse,
}

/// Runs a worker on a thread of its own.
pub fn start(life: &Life, worker: Worker, metrics: Arc<Metrics>) -> io::Result<Handle> {
    let (commands, inbox) = mpsc::channel(QUEUE);
    let (publish, state) = watch::channel(Arc::new(worker.state()));
    let pulse = Pulse::default();
    let beating = pulse.clone();
    life.thread("worker", move || {
        // Of this thread alone. Where it may not be, as in a container without CAP_SYS_NICE, it has its turn among the others.
        if let Err(err) = rustix::process::setpriority_process(None, NICE) {
            debug!(error = %err, "the worker has no priority over other work of this machine");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a timer and an event queue can be had");
        runtime.block_on(work(worker, inbox, &publish, &metrics, &beating));
    })?;
    Ok(Handle { commands, state, pulse })
}

async fn work(
    mut worker: Worker,
    mut inbox: mpsc::Receiver<Command>,
    publish: &watch::Sender<Arc<State>>,
    metrics: &Metrics,
    pulse: &Pulse,
) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let alarm = worker.alarm().and_then(listen);
    let mut steps = 0;
    loop {
        pulse.beat();
        tokio::select! {
            command = inbox.recv() => {
                let Some(command) = command else { break };
                obey(&mut worker, command, metrics);
            }
            () = rung(alarm.as_ref()) => {
                tokio::time::sleep(GATHER).await;
                worker.mend();
            }
            _ = tick.tick() => worker.tend(Instant::now()),
        }
        if worker.is_due() {
            steps += 1;
            if !inbox.is_empty() && steps < MERGE {
                continue;
            }
            worker.settle();
        } else if !inbox.is_empty() {
            continue;
        }
        steps = 0;
        let state = worker.state();
        publish.send_if_modified(|published| {
            let differs = **published != state;
            *published = Arc::new(state);
            differs
        });
    }
    worker.finish();
}

#[expect(
    deprecated,
    reason = "what takes its place is unsafe; a descriptor that is owned and never replaced is sound"
)]
fn listen(alarm: OwnedFd) -> Option<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(alarm, Interest::READABLE).ok()
}

/// Somebody has done something that may be to our state. Whoever reads the alarm silences it, so that only news ring.
async fn rung(alarm: Option<&AsyncFd<OwnedFd>>) {
    match alarm {
        Some(alarm) => match alarm.readable().await {
            Ok(mut ready) => ready.clear_ready(),
            Err(_) => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

fn obey(worker: &mut Worker, command: Command, metrics: &Metrics) {
    // Whoever asked may have gone; then nobody needs the answer.
    match command {
        Command::Open(reply) => drop(reply.send(worker.open())),
        Command::Take(message) => {
            metrics.note_received();
            worker.take(*message);
        }
        Command::Lost => worker.lost(),
        Command::Controllers(controllers, reply) => {
            worker.controllers(controllers);
            reply.send(()).ok();
        }
        Command::Attach(pod, attachment, reply) => drop(reply.send(worker.attach(pod, attachment))),
        Command::Detach(pod, interface, reply) => drop(reply.send(worker.detach(&pod, interface.as_deref()))),
        Command::Found(found) => worker.found(found),
        Command::DetachContainer(id, interface, reply) => {
            drop(reply.send(worker.detach_container(&id, interface.as_deref())));
        }
        Command::Endpoints(reply) => drop(reply.send(worker.endpoints().iter().cloned().collect())),
        Command::Objects(reply) => drop(reply.send(objects(worker))),
        Command::NameFlows(seen, rules, reply) => drop(reply.send(worker.name_flows(seen, rules))),
    }
}

fn objects(worker: &Worker) -> Vec<HeldObject> {
    let object = |(key, object): (&Key, &crate::held::Object)| HeldObject {
        kind: key.kind,
        name: key.name.clone(),
        hash: object.hash,
        members: match &object.content {
            Content::Set(members) => Some(members.len()),
            Content::Whole(_) | Content::Unknown => None,
        },
    };
    worker.held().objects().map(object).collect()
}

impl Handle {
    /// The state, and a way to wait for another.
    pub fn state(&self) -> watch::Receiver<Arc<State>> {
        self.state.clone()
    }

    /// Time since the worker was last seen at work.
    pub fn silence(&self) -> Duration {
        self.pulse.age()
    }

    /// What is wrong with the worker, if something is: it is gone, or stuck.
    pub fn ailment(&self) -> Option<String> {
        if self.commands.is_closed() {
            return Some("the worker is gone".to_owned());
        }
        let silence = self.silence();
        (silence >= STUCK).then(|| format!("the worker is stuck for {} s", silence.as_secs()))
    }

    /// Messages that wait to be taken in.
    pub fn queued(&self) -> usize {
        self.commands.max_capacity() - self.commands.capacity()
    }

    pub async fn open(&self) -> Result<Opening, Gone> {
        self.ask(Command::Open).await
    }

    pub async fn take(&self, message: ToNode) -> Result<(), Gone> {
        self.commands.send(Command::Take(Box::new(message))).await.map_err(|_| Gone)
    }

    pub async fn lost(&self) -> Result<(), Gone> {
        self.commands.send(Command::Lost).await.map_err(|_| Gone)
    }

    /// Answers when they may be reached.
    pub async fn controllers(&self, controllers: BTreeSet<SocketAddr>) -> Result<(), Gone> {
        self.ask(|reply| Command::Controllers(controllers, reply)).await
    }

    /// Answers when it is true in the kernel.
    pub async fn attach(
        &self,
        pod: Pod,
        attachment: Attachment,
    ) -> Result<Result<Endpoint, AttachError>, Gone> {
        self.ask(|reply| Command::Attach(pod, attachment, reply)).await
    }

    /// Answers when it is true in the kernel.
    pub async fn detach(
        &self,
        pod: Pod,
        interface: Option<String>,
    ) -> Result<Result<bool, AttachError>, Gone> {
        self.ask(|reply| Command::Detach(pod, interface, reply)).await
    }

    /// Pods that were here before. Those that a controller covers are attached, sooner or later.
    pub async fn found(&self, found: Vec<(Pod, Attachment)>) -> Result<(), Gone> {
        self.commands.send(Command::Found(found)).await.map_err(|_| Gone)
    }

    /// Answers when it is true in the kernel.
    pub async fn detach_container(
        &self,
        id: String,
        interface: Option<String>,
    ) -> Result<Result<bool, AttachError>, Gone> {
        self.ask(|reply| Command::DetachContainer(id, interface, reply)).await
    }

    pub async fn endpoints(&self) -> Result<Vec<Endpoint>, Gone> {
        self.ask(Command::Endpoints).await
    }

    pub async fn objects(&self) -> Result<Vec<HeldObject>, Gone> {
        self.ask(Command::Objects).await
    }

    /// Names connections that were seen, with the rules that decide if those are wanted.
    pub async fn name_flows(&self, seen: Vec<Seen>, rules: bool) -> Result<Vec<Named>, Gone> {
        self.ask(|reply| Command::NameFlows(seen, rules, reply)).await
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Gone> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_| Gone)?;
        answer.await.map_err(|_| Gone)
    }
}
