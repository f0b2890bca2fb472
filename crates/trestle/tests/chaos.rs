//! Bad luck in a whole system, in network namespaces of its own: etcd, controllers and agents are killed and halted while
//! clients write and packets flow. Needs root.
//!
//! `TRESTLE_CHAOS_SECONDS` and `TRESTLE_CHAOS_AGENTS` make it long; `TRESTLE_CHAOS_SEED` chooses what happens, not when
//! exactly.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    dead_code,
    reason = "a test may fail where it stands, and uses a part of the lab"
)]

#[path = "chaos/book.rs"]
mod book;
#[path = "chaos/client.rs"]
mod client;
#[path = "lab/clocks.rs"]
mod clocks;
#[path = "chaos/crowd.rs"]
mod crowd;
#[path = "chaos/disk.rs"]
mod disk;
mod harness;
#[path = "chaos/judge.rs"]
mod judge;
#[path = "chaos/luck.rs"]
mod luck;
#[path = "lab/net.rs"]
mod net;
#[path = "../../node/kernel/tests/support/packet.rs"]
mod packet;
#[path = "lab/probe.rs"]
mod probe;
#[path = "chaos/process.rs"]
mod process;
#[path = "lab/raw.rs"]
mod raw;
#[path = "lab/restore.rs"]
mod restore;
#[path = "chaos/site.rs"]
mod site;
#[path = "lab/traffic.rs"]
mod traffic;
#[path = "lab/world.rs"]
mod world;
#[path = "chaos/writers.rs"]
mod writers;

use std::{
    process::Command,
    sync::{Arc, atomic::AtomicBool, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use agent::Agent;
use book::Book;
use crowd::Node;
use judge::{converges, is_as_told_afresh, nothing_is_lost, policies_are_realized, process_converges};
use luck::Luck;
use net::Namespace;
use probe::{Port, Target, ask};
use serde_json::json;
use site::{SIZE, Site, TRESTLE};
use tokio::{runtime::Runtime, task::JoinHandle};
use traffic::Traffic;
use wire::trestle::v1::ApplyObjectsRequest;
use world::{PATIENCE, World, eventually};
use writers::{RESOURCE, Writer};

const WRITERS: u64 = 8;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// Threads of it are in the namespace, and so are the connections that its tasks make.
fn runtime_in(namespace: &Namespace) -> Runtime {
    let build = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    namespace.within(build).join().unwrap().unwrap()
}

fn port(text: &str) -> Port {
    text.parse().unwrap()
}

fn reaches(world: &World, from: &str, to: &str, port: Port) -> bool {
    let target = Target { address: world.pods[to].addresses[0], port };
    ask(&world.pods[from].namespace, vec![target], Duration::from_secs(1)).join().unwrap()[&target]
}

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

/// What a lab of three controllers needs before anything happens to it.
fn guarded() -> (World, Site) {
    let mut world = World::without_controller(2, None);
    let site = Site::start(&mut world);
    for index in 0..world.hosts.len() {
        world.admit(index);
    }
    for (name, host) in [("x/a", 0), ("x/b", 1), ("x/c", 0)] {
        world.add_pod(name, host, "", &[port("tcp/80"), port("tcp/81")]);
    }
    world.apply(STANDING);
    eventually("the standing policies are in force", || {
        let open = reaches(&world, "x/b", "x/a", port("tcp/80"));
        let shut =
            !reaches(&world, "x/c", "x/a", port("tcp/80")) && !reaches(&world, "x/b", "x/a", port("tcp/81"));
        if open && shut { Ok(()) } else { Err(format!("open {open}, shut {shut}\n{}", world.log(0))) }
    });
    (world, site)
}

/// Nodes with certificates, and a Pod on each.
async fn populate(nodes: u64, dir: std::path::PathBuf, clients: client::Clients) -> Vec<Node> {
    let servers: Vec<_> = (0..SIZE).map(site::url).collect();
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

#[test]
fn nothing_acknowledged_is_lost_and_nothing_forbidden_passes() {
    let seed = number("TRESTLE_CHAOS_SEED", 1);
    let seconds = number("TRESTLE_CHAOS_SECONDS", 12);
    let agents = number("TRESTLE_CHAOS_AGENTS", 12);
    eprintln!("{agents} agents for {seconds} s, TRESTLE_CHAOS_SEED={seed}");
    let (mut world, mut site) = guarded();
    world.ok(&["resource", "create", "far.web", "--description", "west"]);
    let runtime = runtime_in(&world.fabric);
    let clients = {
        let _inside = runtime.enter();
        site.clients()
    };
    let crowd = populate(agents, world.dir.path().join("crowd"), clients.clone());
    let crowd = runtime.block_on(runtime.spawn(crowd)).unwrap();
    let pause = Duration::from_millis(20);
    let open = Traffic::start(&world.pods["x/b"], &world.pods["x/a"], false, port("tcp/80"), PATIENCE, pause);
    let quick = Duration::from_millis(150);
    let shut = [("x/c", "tcp/80"), ("x/b", "tcp/81")].map(|(from, to)| {
        Traffic::start(&world.pods[from], &world.pods["x/a"], false, port(to), quick, pause)
    });

    let until = Instant::now() + Duration::from_secs(seconds);
    let stop: Arc<AtomicBool> = Arc::default();
    let mut random = fastrand::Rng::with_seed(seed);
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            let (clients, random, stop) = (clients.clone(), random.fork(), Arc::clone(&stop));
            runtime.spawn(Writer { number, nodes: agents, clients, random, stop }.run())
        })
        .collect();
    let lives: Vec<JoinHandle<Agent>> =
        crowd.iter().map(|node| runtime.spawn(node.clone().live(until, random.u64(..)))).collect();
    let tally = Luck::new(&mut world, &mut site, random.u64(..)).play(until);
    eprintln!("what happened: {tally:#?}");
    stop.store(true, Relaxed);
    let mut book = Book::default();
    writers.into_iter().for_each(|writer| book.add(runtime.block_on(writer).unwrap()));
    let (acknowledged, unknown, refused) = (book.acknowledged, book.unknown, book.refused);
    eprintln!("{acknowledged} writes acknowledged, {unknown} of unknown outcome, {refused} refused");
    eprintln!("troubles: {:#?}\nmust be there: {:?}", book.troubles, book.present());
    assert_eq!(book.wrong, Vec::<String>::new());
    assert!(!book.present().is_empty(), "there was a load: {book:?}");

    let peace = Instant::now();
    (0..SIZE).for_each(|index| site.wait_until_it_serves(index));
    all(&runtime, vec![runtime.spawn(nothing_is_lost(clients.clone(), book))]);
    eprintln!("nothing is lost; {:?} after peace", peace.elapsed());

    let lives = lives.into_iter().zip(&crowd).map(|(life, node)| {
        let (clients, name) = (clients.clone(), node.name.clone());
        runtime.spawn(async move { converges(clients, name, life.await.unwrap()).await })
    });
    let running = all(&runtime, lives.collect());
    for index in 0..world.hosts.len() {
        let (name, socket) = (world.hosts[index].name.clone(), world.socket(index));
        let asks = move || {
            let mut objects = Command::new(TRESTLE);
            let objects = objects.args(["agent", "objects", "-o", "json", "--socket"]).arg(&socket).output();
            serde_json::from_slice(&objects.unwrap().stdout).map_err(|error| error.to_string())
        };
        all(&runtime, vec![runtime.spawn(process_converges(clients.clone(), name, asks))]);
    }
    eprintln!("all agents hold what the controllers mean; {:?} after peace", peace.elapsed());
    let policies = all(&runtime, vec![runtime.spawn(policies_are_realized(clients.clone()))]);
    eprintln!("{} policies are realized; {:?} after peace", policies[0], peace.elapsed());

    for index in 0..SIZE {
        site.lead_commands_to(index);
        eventually("the clouds are as they were made", || match world.ok(&["check"]) {
            text if text == "Everything is as it was made.\n" => Ok(()),
            text => Err(text),
        });
        assert!(world.ok(&["resource", "get", RESOURCE]).contains("ready"));
        audit_is_whole(&world, &site, index);
    }
    let (asked, answered) = open.stop();
    assert!(asked > 5 && asked == answered, "{answered} of {asked} permitted connections came through");
    for shut in shut {
        let (asked, answered) = shut.stop();
        eprintln!("{answered} of {asked} forbidden connections came through");
        assert!(asked > 5 && answered == 0);
    }
    eprintln!("{answered} of {asked} permitted connections came through");

    let afresh = running
        .into_iter()
        .zip(crowd)
        .enumerate()
        .map(|(index, (agent, node))| runtime.spawn(is_as_told_afresh(node, agent, index % SIZE)));
    let objects = all(&runtime, afresh.collect());
    let (least, most) = (objects.iter().min(), objects.iter().max());
    eprintln!("agents hold {least:?} to {most:?} objects, to the letter; {:?} after peace", peace.elapsed());
    assert!(objects.iter().all(|count| *count > 0));
    for controller in &mut site.controllers {
        controller.stop();
    }
}

/// The record of what was done has no gap, however often the controller fell while it wrote.
#[track_caller]
fn audit_is_whole(world: &World, site: &Site, index: usize) {
    let data = site.home(index).join("data").display().to_string();
    world.ok(&["audit", "verify", "--data-dir", &data]);
}

/// Of three controllers on etcd.
#[test]
fn agents_follow_a_restore_of_an_older_backup() {
    let mut world = World::without_controller(2, None);
    let mut site = Site::start(&mut world);
    (0..world.hosts.len()).for_each(|index| world.admit(index));
    restore::play(&mut world, |world, file| {
        site.controllers.iter_mut().for_each(process::Process::stop);
        let config = site.config(0).display().to_string();
        world.ok(&["store", "restore", file, "--config", &config, "--replace"]);
        site.controllers.iter_mut().for_each(process::Process::start);
        (0..SIZE).for_each(|index| site.wait_until_it_serves(index));
    });
}
