//! `trestle up --demo`: a controller with clouds, nodes and Pods of this machine's network namespaces, and a story that
//! uses them as a user would. It stays up afterwards; nothing of it is left when it ends.
//!
//! ```text
//!   ability ─► story ● ─► perform ─► the command line, packets
//!                           └─ home: directory, mark ── lab: nodes, Pods, agents ── net: sockets in namespaces
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
use server::{CloudConfig, Controller, PluginConfig};
use tokio::signal::unix::{SignalKind, signal};

use self::{home::Home, lab::Lab, perform::Stage, story::Abilities};
use crate::{
    args::UpArgs,
    commands::{page, serve},
    context,
    output::print,
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
    let mut lab = Lab::default();
    let asked = async {
        let [interrupt, terminate, hangup] = &mut signals[..] else { return };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    };
    let mut controller = None;
    let ended = tokio::select! {
        ended = show(&args, &home, &clouds, &mut lab, &mut controller) => ended,
        () = asked => Ok(()),
    };
    let cleaned = clean(home, lab, controller).await;
    ended.and(cleaned)
}

/// Plays, and stays unless told not to.
async fn show(
    args: &UpArgs,
    home: &Home,
    clouds: &[Segment],
    lab: &mut Lab,
    held: &mut Option<Controller>,
) -> anyhow::Result<()> {
    let start = Instant::now();
    let (can, why) = ability::find(home).await;
    for (name, text) in story::FILES {
        std::fs::write(home.dir().join(name), text)?;
    }
    let mut config = serve::config(args, home.dir().to_owned());
    if can.namespaces {
        let linux = |name: &Segment| CloudConfig {
            name: name.clone(),
            plugin: PluginConfig::Linux { uplink: Default::default() },
        };
        config.clouds = clouds.iter().map(linux).collect();
    }
    let controller = held.insert(Controller::start(config).await?);
    let noted = serve::note(controller, args.plaintext_loopback)?;
    introduce(home, can, why, &serve::page_link(controller, &noted, args.anonymous_role).await?)?;
    let grpc = reachable(controller.grpc_addr());
    if can.namespaces {
        lab.build(home, grpc).await?;
    }
    tell::done("the controller is up, and so is everything it plays with", start.elapsed())?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let server = noted.grpc.replace(&controller.grpc_addr().to_string(), &grpc.to_string());
    Stage { home, lab, program, server }.play(&story::story(can)).await?;
    tell::say(&format!("That was the story, in {}.", tell::seconds(start.elapsed())))?;
    if args.once {
        return Ok(());
    }
    let link = page::link(&noted.http, controller.login().await?.expose());
    invite(home, can, &link)?;
    pending().await
}

/// Everything away, in the order in which nothing is left behind, whatever fails on the way.
async fn clean(home: Home, mut lab: Lab, controller: Option<Controller>) -> anyhow::Result<()> {
    let start = Instant::now();
    lab.stop().await;
    if let Some(controller) = controller {
        let program = std::env::current_exe().context("cannot find this program")?;
        let stage = Stage { home: &home, lab: &mut lab, program, server: String::new() };
        if let Err(err) = stage.give_back().await {
            tracing::error!(error = format!("{err:#}"), "what was attached may not have been given back");
        }
        controller.stop().await;
    }
    let dir = home.dir().display().to_string();
    home.leave().await.with_context(|| {
        format!("not everything could be taken away; the next demonstration in {dir} tries again")
    })?;
    print(&format!("\nEverything is gone again.  {}", tell::seconds(start.elapsed())))
}

fn introduce(home: &Home, can: Abilities, why: Option<String>, link: &str) -> anyhow::Result<()> {
    print(&format!("Trestle plays. Watch it live, in a browser: {link}"))?;
    print("(It speaks TLS with a CA of its own, so the browser asks once whether that is fine.)")?;
    let left = story::left_out(can);
    if !left.is_empty() {
        print("\nLeft out on this machine:")?;
        left.iter().try_for_each(|text| tell::say(text))?;
    }
    why.iter().try_for_each(|why| tell::say(why))?;
    print(&format!("\nBelow, $demo is {}\n", home.dir().display()))
}

fn invite(home: &Home, can: Abilities, link: &str) -> anyhow::Result<()> {
    let program = std::env::current_exe()?;
    let undo = match can.namespaces && can.ping {
        true => "\n  trestle delete -f $demo/block.yaml       # open the clouds to each other again",
        false => "",
    };
    print(&format!(
        "\nIt stays up. Your turn, in another terminal{}:\n\n  alias trestle={}; demo={}{undo}\n  \
         trestle delete -f $demo/only-web.yaml    # open the database to everybody\n  \
         trestle explain shop/client shop/db --port 5432\n  trestle top\n\nThe page: {link}\n\
         Ctrl-C ends it, and takes everything away.",
        if can.namespaces { " (as root)" } else { "" },
        program.display(),
        home.dir().display(),
    ))
}

/// Where something on this machine reaches a listener.
fn reachable(addr: SocketAddr) -> SocketAddr {
    match addr.ip().is_unspecified() {
        true => SocketAddr::from(([127, 0, 0, 1], addr.port())),
        false => addr,
    }
}
