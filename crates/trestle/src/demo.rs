//! `trestle up --demo`: a controller with clouds, nodes and Pods of this machine's network namespaces, or with simulated
//! public clouds, and a story that uses them as a user would. It stays up afterwards; nothing of it is left when it ends.
//!
//! ```text
//!   ability ─► story ● ─► perform ─► the command line, packets
//!                           └─ home: directory, mark ── lab: nodes, Pods, agents ── net: sockets in namespaces
//!                           └─ simulated: a program of four public clouds, their plugins, the wire between them
//! ```
//!
//! Not here: anything that the controller would not also do for a user's own commands.

mod ability;
mod home;
mod lab;
mod net;
mod perform;
mod story;
mod tell;

use std::{future::pending, net::SocketAddr, time::Instant};

use anyhow::Context as _;
use model::Segment;
use server::{CloudConfig, Controller, PluginConfig, access::session::LOGIN};
use tokio::signal::unix::{SignalKind, signal};

use self::{home::Home, lab::Lab, perform::Stage, story::Chapter};
use crate::{
    args::{DemoClouds, UpArgs},
    commands::serve,
    context,
    output::print,
    simulated::Simulated,
};

pub async fn run(args: UpArgs) -> anyhow::Result<()> {
    serve::log_to_stderr("error,rustls=off");
    // Before anything is made, so that it is also taken away again.
    let mut signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
        .map(signal)
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    let dir = match &args.data_dir {
        Some(dir) => dir.clone(),
        None => context::demo_data_dir()?,
    };
    let dir = std::path::absolute(&dir).with_context(|| format!("cannot use {}", dir.display()))?;
    let clouds = ["a", "b"].map(|name| name.parse::<Segment>().expect("it is a legal name"));
    let (home, is_old) = Home::enter(dir, clouds.to_vec()).await?;
    if is_old {
        print("An earlier demonstration was cut short; what it had left is gone now.")?;
    }
    let mut world = World::default();
    let asked = async {
        let [interrupt, terminate, hangup] = &mut signals[..] else { return };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    };
    let ended = tokio::select! {
        ended = show(&args, &home, &clouds, &mut world) => ended,
        () = asked => Ok(()),
    };
    let cleaned = clean(home, world).await;
    ended.and(cleaned)
}

/// What is there while it plays.
#[derive(Default)]
struct World {
    lab: Lab,
    controller: Option<Controller>,
    simulated: Option<Simulated>,
}

/// What is played, and with what.
struct Play {
    chapters: Vec<Chapter>,
    files: &'static [(&'static str, &'static str)],
    clouds: Vec<CloudConfig>,
    /// Nodes and Pods are needed.
    lab: bool,
    left_out: Vec<String>,
    /// What is up when it begins.
    up: String,
    /// What the reader may try afterwards.
    turn: String,
}

/// Plays, and stays unless told not to.
async fn show(args: &UpArgs, home: &Home, linux: &[Segment], world: &mut World) -> anyhow::Result<()> {
    let start = Instant::now();
    let play = match args.clouds {
        DemoClouds::Linux => on_this_machine(home, linux).await,
        DemoClouds::Sim => in_simulated_clouds(world.simulated.insert(Simulated::start().await?)),
    };
    for (name, text) in play.files {
        std::fs::write(home.dir().join(name), text)?;
    }
    let mut config = serve::config(args, home.dir().to_owned());
    config.clouds = play.clouds;
    let controller = world.controller.insert(Controller::start(config).await?);
    let noted = serve::note(controller, false)?;
    introduce(home, &play.left_out, &serve::page_link(controller, &noted, None).await?)?;
    let grpc = reachable(controller.grpc_addr());
    if play.lab {
        world.lab.build(home, grpc).await?;
    }
    tell::done(&format!("the controller is up, and so {}", play.up), start.elapsed())?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let server = noted.grpc.replace(&controller.grpc_addr().to_string(), &grpc.to_string());
    let simulated = world.simulated.as_ref();
    Stage { home, lab: &mut world.lab, program, server, simulated }.play(&play.chapters).await?;
    tell::say(&format!("That was the story, in {}.", tell::seconds(start.elapsed())))?;
    if args.once {
        return Ok(());
    }
    let link = serve::page_link(controller, &noted, None).await?;
    invite(home, play.lab, &play.turn, &link)?;
    pending().await
}

/// With real packets, as far as this machine can.
async fn on_this_machine(home: &Home, clouds: &[Segment]) -> Play {
    let (can, why) = ability::find(home).await;
    let linux = |name: &Segment| CloudConfig {
        name: name.clone(),
        plugin: PluginConfig::Linux { uplink: Default::default() },
    };
    let undo = match can.namespaces && can.ping {
        true => "  trestle delete -f $demo/block.yaml       # open the clouds to each other again\n",
        false => "",
    };
    Play {
        chapters: story::story(can),
        files: &story::FILES,
        clouds: if can.namespaces { clouds.iter().map(linux).collect() } else { Vec::new() },
        lab: can.namespaces,
        left_out: story::left_out(can).into_iter().map(str::to_owned).chain(why).collect(),
        up: "is everything it plays with".to_owned(),
        turn: format!(
            "{undo}  trestle delete -f $demo/only-web.yaml    # open the database to everybody\n  \
             trestle explain shop/client shop/db --port 5432"
        ),
    }
}

fn in_simulated_clouds(simulated: &Simulated) -> Play {
    let url = simulated.url();
    Play {
        chapters: story::public::story(),
        files: &story::public::FILES,
        clouds: simulated.clouds(),
        lab: false,
        left_out: Vec::new(),
        up: format!("are four simulated clouds, at {url}"),
        turn: format!(
            "  trestle resource create gcp.db --file $demo/gcp-vm.json\n  \
             trestle rule add gcp.db --ping azure.api && trestle rule add azure.api --ping gcp.db\n  \
             trestle resource list && trestle link list\n  \
             curl '{url}/wire?from=ADDRESS&to=ADDRESS'\n  \
             aws --endpoint-url {url} ec2 describe-vpcs    # their own clients see it too"
        ),
    }
}

/// Everything away, in the order in which nothing is left behind, whatever fails on the way.
async fn clean(home: Home, mut world: World) -> anyhow::Result<()> {
    let start = Instant::now();
    world.lab.stop().await;
    if let Some(controller) = world.controller {
        // Simulated clouds go as they are.
        if world.simulated.is_none() {
            let program = std::env::current_exe().context("cannot find this program")?;
            let lab = &mut world.lab;
            let stage = Stage { home: &home, lab, program, server: String::new(), simulated: None };
            if let Err(err) = stage.give_back().await {
                tracing::error!(error = format!("{err:#}"), "what was attached may not have been given back");
            }
        }
        controller.stop().await?;
    }
    if let Some(simulated) = world.simulated {
        simulated.stop().await?;
    }
    let dir = home.dir().display().to_string();
    home.leave().await.with_context(|| {
        format!("not everything could be taken away; the next demonstration in {dir} tries again")
    })?;
    print(&format!("\nEverything is gone again.  {}", tell::seconds(start.elapsed())))
}

fn introduce(home: &Home, left_out: &[String], link: &str) -> anyhow::Result<()> {
    print(&format!("Trestle plays. Watch it live, in a browser: {link}"))?;
    print("(It speaks TLS with a CA of its own, so the browser asks once whether that is fine.)")?;
    if !left_out.is_empty() {
        print("\nLeft out on this machine:")?;
        left_out.iter().try_for_each(|text| tell::say(text))?;
    }
    print(&format!("\nBelow, $demo is {}\n", home.dir().display()))
}

fn invite(home: &Home, as_root: bool, turn: &str, link: &str) -> anyhow::Result<()> {
    let program = std::env::current_exe()?;
    print(&format!(
        "\nIt stays up. Your turn, in another terminal{}:\n\n  alias trestle={}; demo={}\n{turn}\n  trestle top\n\n\
         The page: {link}\n(logs in once, within {} minutes; then: trestle page)\nCtrl-C ends it, and takes everything away.",
        if as_root { " (as root)" } else { "" },
        program.display(),
        home.dir().display(),
        LOGIN.as_secs() / 60,
    ))
}

/// Where something on this machine reaches a listener.
fn reachable(addr: SocketAddr) -> SocketAddr {
    match addr.ip().is_unspecified() {
        true => SocketAddr::from(([127, 0, 0, 1], addr.port())),
        false => addr,
    }
}
