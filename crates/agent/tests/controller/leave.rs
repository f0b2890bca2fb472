//! Controllers that die, fall silent or have nothing to say: the agent goes to another one in time, and does not say
//! that it is connected when it is not.

use std::{
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use agent::Agent;
use tempfile::TempDir;

use testkit_controllers::{agents::Node, nodes::eventually};

use super::fakes::Line;

/// What is promised for a controller that does not say goodbye.
const BOUND: Duration = Duration::from_secs(10);

struct Lab {
    lines: Vec<Line>,
    node: Node,
    agent: Agent,
    _dir: TempDir,
}

impl Lab {
    async fn new(lines: Vec<Line>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let node = Node {
            name: "n1".into(),
            dir: dir.path().to_owned(),
            server: String::new(),
            serial: String::new(),
            part: Default::default(),
        };
        let mut config = node.config();
        config.uplink.servers = lines.iter().map(Line::url).collect();
        let agent = node.start_with(config).await;
        Self { lines, node, agent, _dir: dir }
    }

    async fn of_two() -> Self {
        let lab = Self::new(vec![Line::new().await, Line::new().await]).await;
        lab.synced().await;
        lab
    }

    async fn synced(&self) {
        eventually("the sync", || self.agent.local().status().synced).await;
    }

    /// The line that the agent is on.
    fn line(&self) -> &Line {
        let server = self.agent.local().status().server;
        self.lines.iter().find(|line| line.url() == server).unwrap()
    }

    /// How long it takes until the agent is in sync with another controller.
    async fn leaves(&self, what: &str, happens: impl Fn(&Line)) -> Duration {
        let line = self.line();
        let before = Instant::now();
        happens(line);
        eventually(what, || {
            let status = self.agent.local().status();
            status.synced && status.server != line.url()
        })
        .await;
        before.elapsed()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_killed_is_left_at_once() {
    let mut fastest = Duration::MAX;
    // The machine may be busy with other things.
    for _ in 0..3 {
        let lab = Lab::of_two().await;
        fastest = fastest.min(lab.leaves("the other controller", Line::cut).await);
        lab.agent.stop().await.unwrap();
    }
    assert!(fastest <= Duration::from_secs(1), "{fastest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_not_heard_any_more_is_left() {
    let lab = Lab::of_two().await;
    let took = lab.leaves("the other controller", |line| line.mute(false, true)).await;
    assert!(took <= BOUND, "{took:?}");
    lab.agent.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_does_not_hear_any_more_is_left() {
    let lab = Lab::of_two().await;
    let took = lab.leaves("the other controller", |line| line.mute(true, false)).await;
    assert!(took <= BOUND, "{took:?}");
    lab.agent.stop().await.unwrap();
}

/// Nobody answers from the first byte on: TCP connects, and that is all.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_mute_from_the_start_holds_nobody_up() {
    let lines = vec![Line::new().await, Line::new().await];
    lines.iter().for_each(|line| line.mute(true, true));
    let before = Instant::now();
    let lab = Lab::new(lines).await;
    let tried = |line: &&Line| line.connections() > 0;
    eventually("a first try", || lab.lines.iter().any(|line| tried(&line))).await;
    let other = lab.lines.iter().find(|line| !tried(line)).unwrap();
    other.mute(false, false);
    lab.synced().await;
    assert_eq!(lab.line().url(), other.url());
    assert!(before.elapsed() <= BOUND, "{:?}", before.elapsed());
    lab.agent.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_without_its_store_is_left_and_returned_to_last() {
    let lab = Lab::of_two().await;
    let took = lab.leaves("the other controller", |line| line.controller.lose_store()).await;
    assert!(took <= BOUND, "{took:?}");
    let (good, bad) = match lab.line().url() == lab.lines[0].url() {
        true => (&lab.lines[0], &lab.lines[1]),
        false => (&lab.lines[1], &lab.lines[0]),
    };
    assert_eq!(bad.controller.streams.load(Relaxed), 1, "it was not asked again");
    // Now both have lost theirs; each is asked in its turn.
    let served = good.controller.streams.load(Relaxed);
    good.controller.lose_store();
    eventually("some turns", || good.controller.streams.load(Relaxed) >= served + 3).await;
    let (asked, others) =
        (good.controller.streams.load(Relaxed) - served, bad.controller.streams.load(Relaxed) - 1);
    assert!(asked.abs_diff(others) <= 1, "{asked} and {others} times");
    bad.controller.find_store();
    lab.synced().await;
    assert_eq!(lab.line().url(), bad.url());
    lab.agent.stop().await.unwrap();
}

/// A controller that has just started and does not reach its store says that it waits, and no more.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_waits_for_ever_is_left_for_one_that_does_not() {
    let lines = vec![Line::new().await, Line::new().await];
    lines.iter().for_each(|line| line.controller.waits.store(true, Relaxed));
    let lab = Lab::new(lines).await;
    eventually("the wait", || lab.agent.local().status().waiting == ["store"]).await;
    let other = lab.lines.iter().find(|line| line.url() != lab.line().url()).unwrap();
    other.controller.waits.store(false, Relaxed);
    lab.synced().await;
    assert_eq!(lab.line().url(), other.url());
    lab.agent.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn while_nobody_is_heard_everything_stays_and_the_status_says_since_when() {
    let lab = Lab::of_two().await;
    assert_eq!(lab.agent.local().status().disconnected_since, None);
    let before = Instant::now();
    lab.lines.iter().for_each(|line| line.mute(true, true));
    eventually("the truth", || !lab.agent.local().status().connected).await;
    assert!(before.elapsed() <= BOUND, "{:?}", before.elapsed());
    let status = lab.agent.local().status();
    assert!(status.disconnected_since.is_some() && !status.synced && status.ready, "{status:?}");
    assert_eq!(lab.node.part.objects().len(), 1);
    lab.lines.iter().for_each(|line| line.mute(false, false));
    lab.synced().await;
    assert_eq!(lab.agent.local().status().disconnected_since, None);
    lab.agent.stop().await.unwrap();
}
