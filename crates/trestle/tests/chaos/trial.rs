//! One trial: everything set up, the load and the bad luck, and the judgement.

use std::{
    ops::RangeInclusive,
    path::PathBuf,
    process::Command,
    sync::{Arc, atomic::AtomicBool, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use agent::Agent;
use serde_json::json;
use tokio::{runtime::Runtime, task::JoinHandle};
use wire::trestle::v1::ApplyObjectsRequest;

use testkit::namespaces::Namespace;

use super::{
    book::Book,
    client::Clients,
    crowd::Node,
    judge,
    luck::Luck,
    probe::{Port, Target, ask},
    site::{SIZE, Site, TRESTLE, url},
    traffic::Traffic,
    world::{PATIENCE, World, eventually},
    writers::{self, RESOURCE, Writer},
};

const WRITERS: u64 = 8;

/// `x/b` may reach `x/a` on port 80; nobody else may, and on no other port. Nothing changes this.
const STANDING: &str = "
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: x, name: deny}
spec: {podSelector: {matchLabels: {pod: a}}, policyTypes: [Ingress]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: x, name: permit}
spec:
  podSelector: {matchLabels: {pod: a}}
  ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}], ports: [{protocol: TCP, port: 80}]}]
";

fn port(text: &str) -> Port {
    text.parse().unwrap()
}

fn reaches(world: &World, from: &str, to: &str, port: Port) -> bool {
    let target = Target { address: world.pods[to].addresses[0], port };
    ask(&world.pods[from].namespace, vec![target], Duration::from_secs(1)).join().unwrap()[&target]
}

/// Fields are dropped in this order: agents and clients before what they call, and that before its namespaces.
pub struct Trial {
    runtime: Runtime,
    clients: Clients,
    crowd: Vec<Node>,
    pub site: Site,
    world: World,
}

/// What may pass, and what may not, all the time.
pub struct Streams {
    open: Traffic,
    shut: [Traffic; 2],
}

impl Trial {
    /// Three controllers, two hosts with Pods, and this many agents to come.
    pub fn new(agents: u64) -> Self {
        let mut world = World::without_controller(2, None);
        let site = Site::start(&mut world);
        (0..world.hosts.len()).for_each(|index| world.admit(index));
        guard(&mut world);
        world.ok(&["resource", "create", "far.web", "--description", "west"]);
        let runtime = runtime_in(&world.fabric);
        let clients = {
            let _inside = runtime.enter();
            site.clients()
        };
        let crowd = populate(agents, world.dir.path().join("crowd"), clients.clone());
        let crowd = runtime.block_on(runtime.spawn(crowd)).unwrap();
        Self { runtime, clients, crowd, site, world }
    }

    pub fn traffic(&self) -> Streams {
        let (pause, quick) = (Duration::from_millis(20), Duration::from_millis(150));
        let start = |from: &str, to: &str, patience| {
            Traffic::start(&self.world.pods[from], &self.world.pods["x/a"], false, port(to), patience, pause)
        };
        let shut = [start("x/c", "tcp/80", quick), start("x/b", "tcp/81", quick)];
        Streams { open: start("x/b", "tcp/80", PATIENCE), shut }
    }

    /// Load and bad luck for so long, and then everybody is healed; what was written, and the agents.
    pub fn play(&mut self, seconds: u64, seed: u64) -> (Book, Vec<JoinHandle<Agent>>) {
        let until = Instant::now() + Duration::from_secs(seconds);
        let stop: Arc<AtomicBool> = Arc::default();
        let mut random = fastrand::Rng::with_seed(seed);
        let nodes = self.crowd.len() as u64;
        let writer = |number| {
            let (clients, random, stop) = (self.clients.clone(), random.fork(), Arc::clone(&stop));
            self.runtime.spawn(Writer { number, nodes, clients, random, stop }.run())
        };
        let writers: Vec<_> = (0..WRITERS).map(writer).collect();
        let live = |node: &Node| self.runtime.spawn(node.clone().live(until, random.u64(..)));
        let lives = self.crowd.iter().map(live).collect();
        let tally = Luck::new(&mut self.world, &mut self.site, random.u64(..)).play(until);
        eprintln!("what happened: {tally:#?}");
        stop.store(true, Relaxed);
        let mut book = Book::default();
        writers.into_iter().for_each(|writer| book.add(self.runtime.block_on(writer).unwrap()));
        let (acknowledged, unknown, refused) = (book.acknowledged, book.unknown, book.refused);
        eprintln!("{acknowledged} writes acknowledged, {unknown} of unknown outcome, {refused} refused");
        eprintln!("troubles: {:#?}\nmust be there: {:?}", book.troubles, book.present());
        (book, lives)
    }

    #[track_caller]
    pub fn nothing_is_lost(&mut self, book: Book) {
        assert_eq!(book.wrong, Vec::<String>::new());
        assert!(!book.present().is_empty(), "there was a load: {book:?}");
        (0..SIZE).for_each(|index| self.site.wait_until_it_serves(index));
        self.one(judge::nothing_is_lost(self.clients.clone(), book));
    }

    /// Those in this process, and those with Pods.
    #[track_caller]
    pub fn agents_converge(&self, lives: Vec<JoinHandle<Agent>>) -> Vec<Agent> {
        let lives = lives.into_iter().zip(&self.crowd).map(|(life, node)| {
            let (clients, name) = (self.clients.clone(), node.name.clone());
            self.runtime.spawn(async move { judge::converges(clients, name, life.await.unwrap()).await })
        });
        let running = all(&self.runtime, lives.collect());
        for index in 0..self.world.hosts.len() {
            let (name, socket) = (self.world.hosts[index].name.clone(), self.world.socket(index));
            let asks = move || {
                let mut ask = Command::new(TRESTLE);
                let answer = ask.args(["agent", "objects", "-o", "json", "--socket"]).arg(&socket).output();
                serde_json::from_slice(&answer.unwrap().stdout).map_err(|error| error.to_string())
            };
            self.one(judge::process_converges(self.clients.clone(), name, asks));
        }
        running
    }

    /// How many there are.
    #[track_caller]
    pub fn policies_are_realized(&self) -> usize {
        self.one(judge::policies_are_realized(self.clients.clone()))
    }

    /// The cloud is as it was made, by the word of each controller; and each controller's record of what was done has no
    /// gap, however often it fell while it wrote.
    #[track_caller]
    pub fn clouds_and_records_are_whole(&self) {
        for index in 0..SIZE {
            self.site.lead_commands_to(index);
            eventually("the clouds are as they were made", || match self.world.ok(&["check"]) {
                text if text == "Everything is as it was made.\n" => Ok(()),
                text => Err(text),
            });
            assert!(self.world.ok(&["resource", "get", RESOURCE]).contains("ready"));
            let data = self.site.home(index).join("data").display().to_string();
            self.world.ok(&["audit", "verify", "--data-dir", &data]);
        }
    }

    /// How many objects agents hold, from the least to the most.
    #[track_caller]
    pub fn agents_hold_what_is_told_afresh(&self, agents: Vec<Agent>) -> RangeInclusive<usize> {
        let told = agents.into_iter().zip(&self.crowd).enumerate().map(|(index, (agent, node))| {
            self.runtime.spawn(judge::is_as_told_afresh(node.clone(), agent, index % SIZE))
        });
        let counts = all(&self.runtime, told.collect());
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(*least > 0, "each has a Pod, and policies for it: {counts:?}");
        *least..=*most
    }

    #[track_caller]
    fn one<T: Send + 'static>(&self, task: impl Future<Output = Result<T, String>> + Send + 'static) -> T {
        all(&self.runtime, vec![self.runtime.spawn(task)]).remove(0)
    }
}

impl Streams {
    /// What may pass has passed each time, what may not has never.
    #[track_caller]
    pub fn assert_held(self) {
        let (asked, answered) = self.open.stop();
        eprintln!("{answered} of {asked} permitted connections came through");
        assert!(asked > 5 && asked == answered);
        for shut in self.shut {
            let (asked, answered) = shut.stop();
            eprintln!("{answered} of {asked} forbidden connections came through");
            assert!(asked > 5 && answered == 0);
        }
    }
}

/// Pods, and the standing policies in force.
fn guard(world: &mut World) {
    for (name, host) in [("x/a", 0), ("x/b", 1), ("x/c", 0)] {
        world.add_pod(name, host, "", &[port("tcp/80"), port("tcp/81")]);
    }
    world.apply(STANDING);
    eventually("the standing policies are in force", || {
        let open = reaches(world, "x/b", "x/a", port("tcp/80"));
        let shut =
            !reaches(world, "x/c", "x/a", port("tcp/80")) && !reaches(world, "x/b", "x/a", port("tcp/81"));
        if open && shut { Ok(()) } else { Err(format!("open {open}, shut {shut}\n{}", world.log(0))) }
    });
}

/// Threads of it are in the namespace, and so are the connections that its tasks make.
fn runtime_in(namespace: &Namespace) -> Runtime {
    let build = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    namespace.within(build).join().unwrap().unwrap()
}

/// Nodes with certificates, and a Pod on each.
async fn populate(nodes: u64, dir: PathBuf, clients: Clients) -> Vec<Node> {
    let servers: Vec<_> = (0..SIZE).map(url).collect();
    let mut crowd = Vec::new();
    let mut documents =
        vec![json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "load" } }).to_string()];
    for number in 0..nodes {
        crowd.push(Node::new(format!("n{number}"), &dir, &servers, &clients).await);
        let address = format!("10.64.{}.{}", number / 250, number % 250 + 1);
        let app = format!("a{}", number % 8);
        documents.push(writers::pod(&format!("s{number}"), number, &app, &address).to_string());
    }
    for chunk in documents.chunks(40) {
        let documents = chunk.iter().map(|text| text.clone().into_bytes()).collect();
        let request = ApplyObjectsRequest { documents, ..Default::default() };
        clients.objects(0).apply_objects(request).await.unwrap();
    }
    crowd
}

/// Waits for all of them; all that is wrong.
#[track_caller]
fn all<T>(runtime: &Runtime, tasks: Vec<JoinHandle<Result<T, String>>>) -> Vec<T> {
    let (mut done, mut wrong) = (Vec::new(), Vec::new());
    for task in tasks {
        match runtime.block_on(task).unwrap() {
            Ok(one) => done.push(one),
            Err(why) => wrong.push(why),
        }
    }
    assert!(wrong.is_empty(), "{} are wrong, the first of them: {}", wrong.len(), wrong[0]);
    done
}
