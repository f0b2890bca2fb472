//! The thread that hears the kernel of connections, adds them up, and once a second has them named.
//!
//! In: conntrack's events, the log group of the policy table. Out: sums for [`Flows`]. Holds: two sockets, one interval's sums.
//! Opened on the thread whose network namespace is meant.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant, SystemTime},
};

use life::Life;
use node_flows::{Key, Limits, Sampler, Sum, Sums};
use node_kernel::{
    conntrack::Connection,
    conntrack_events::{ConntrackEvents, Event, Kind},
    log_group::LogGroup,
    netlink::NetlinkError,
};
use node_policy::layout::Refusal;
use tracing::{debug, info, warn};

use crate::{
    flows::{Flows, LOG_GROUP, Met, Named, Seen},
    worker::Handle,
};

/// While there is something to hear, and while there is nothing: the kernel keeps so long what it tells.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(100)];
/// Sums are named and handed on this often.
const INTERVAL: Duration = Duration::from_secs(1);
/// Messages of one kind and interval that are all read; of more, only some.
const BUDGET: u64 = 30_000;
/// Rows that the worker names at once, so that policies do not wait for it.
const PORTION: usize = 256;
/// Rows of an interval that are named; of more, rules are not told.
const NAMED: usize = 4_096;

/// Hears the kernel of one network namespace.
pub struct Watcher {
    connections: ConntrackEvents,
    refused: LogGroup,
    prefixes: Prefixes,
    /// Of what is opened, of what ends, and of what is refused: none stands for another.
    samplers: [Sampler; 3],
    seen: Sums<Met>,
    /// What was heard and lost in this interval.
    count: u64,
    denied: u64,
    lost: u64,
}

/// The few prefixes that our rules have, each read once.
#[derive(Default)]
struct Prefixes(Vec<(String, Option<Met>)>);

impl Prefixes {
    /// `None`: it is somebody else's, who logs to our group.
    fn read(&mut self, prefix: &str) -> Option<Met> {
        if let Some((_, met)) = self.0.iter().find(|(known, _)| known == prefix) {
            return met.clone();
        }
        let met = Refusal::parse(prefix).map(|refusal| Met::Refused(Arc::new(refusal)));
        // Somebody may make them up.
        if self.0.len() < 64 {
            self.0.push((prefix.to_owned(), met.clone()));
        }
        met
    }
}

impl Watcher {
    /// Acts in the network namespace of the calling thread.
    pub fn open() -> Result<Self, NetlinkError> {
        Ok(Self {
            connections: ConntrackEvents::open()?,
            refused: LogGroup::open(LOG_GROUP)?,
            prefixes: Prefixes::default(),
            samplers: [Sampler::new(BUDGET); 3],
            seen: Sums::new(Limits::default()),
            count: 0,
            denied: 0,
            lost: 0,
        })
    }

    /// Takes in what there is, without waiting; how much that was. `now` in milliseconds since 1970.
    pub fn read(&mut self, now: u64) -> u64 {
        let Self { connections, refused, prefixes, samplers, seen, count, denied, lost } = self;
        let [opened, ended, logged] = samplers;
        let before = *count;
        let heard = connections.read(
            |kind| match kind {
                Kind::Opened => opened.weigh(),
                Kind::Ended => ended.weigh(),
            },
            |weight, event| {
                let (connection, sum) = match event {
                    Event::Opened(connection) => (connection, Sum::one(now)),
                    Event::Ended(connection, Some(bytes)) => {
                        (connection, Sum { count: 0, bytes: Some(bytes), ..Sum::one(now) })
                    }
                    Event::Ended(_, None) => return,
                };
                let sum = sum.times(weight);
                *count += sum.count;
                add(seen, Met::Passed, connection, sum);
            },
        );
        note(heard, lost);
        let heard = refused.read(
            || logged.weigh(),
            |weight, prefix, connection| {
                let Some(met) = prefixes.read(prefix) else { return };
                *count += weight;
                *denied += weight;
                add(seen, met, connection, Sum::one(now).times(weight));
            },
        );
        note(heard, lost);
        self.count - before
    }

    /// What has been seen since, added up.
    pub fn take(&mut self) -> Vec<Seen> {
        self.seen.take(usize::MAX)
    }

    /// Messages of the kernel that were lost in this interval.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// What cannot be read is lost, and no reason to end.
fn note(heard: Result<u64, NetlinkError>, lost: &mut u64) {
    *lost += heard.unwrap_or_else(|error| {
        debug!(error = common::chain(&error), "something that the kernel told of connections cannot be read");
        1
    });
}

fn add(seen: &mut Sums<Met>, label: Met, connection: Connection, sum: Sum) {
    let Connection { protocol, source, destination, answered_by, .. } = connection;
    if source.is_loopback() || source == answered_by {
        return;
    }
    let has_ports = connection.destination_port.is_some() || connection.answering_port.is_some();
    let (port, source_port) = match has_ports {
        true => (connection.answering_port.or(connection.destination_port), connection.source_port),
        false => (connection.source_port, None),
    };
    let translated = answered_by != destination || (has_ports && port != connection.destination_port);
    let service =
        translated.then(|| SocketAddr::new(destination, connection.destination_port.unwrap_or_default()));
    let key = Key { label, from: Some(source), to: Some(answered_by), protocol, port, service };
    seen.add(key, Sum { source_port: source_port.unwrap_or_default(), ..sum });
}

/// Runs a watcher on a thread of its own.
pub fn start(life: &Life, watcher: Watcher, worker: Handle, flows: Arc<Flows>) -> io::Result<()> {
    let stopping = life.stopping();
    life.thread("flows", move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a timer can be had");
        runtime.block_on(async move {
            info!("flows are recorded");
            stopping.run_until_cancelled(watch(watcher, worker, &flows)).await;
        });
    })
}

/// Ends when the worker does, which ends the agent.
async fn watch(mut watcher: Watcher, worker: Handle, flows: &Flows) {
    let (mut begun, mut warned) = (Instant::now(), false);
    loop {
        let heard = watcher.read(now());
        if begun.elapsed() >= INTERVAL {
            begun = Instant::now();
            watcher.samplers.iter_mut().for_each(Sampler::renew);
            if watcher.lost > 0 && !std::mem::replace(&mut warned, true) {
                warn!(lost = watcher.lost, "more connections than can be heard; what is lost is counted");
            }
            let figures = &flows.figures;
            figures.seen.fetch_add(std::mem::take(&mut watcher.count), Relaxed);
            figures.refused.fetch_add(std::mem::take(&mut watcher.denied), Relaxed);
            figures.lost.fetch_add(std::mem::take(&mut watcher.lost), Relaxed);
            figures.unread.store(watcher.samplers.iter().map(Sampler::unread).sum(), Relaxed);
            if hand_on(watcher.take(), &worker, flows).await.is_none() {
                return;
            }
        }
        tokio::time::sleep(PAUSES[usize::from(heard == 0)]).await;
    }
}

/// Has it named by portions; none if the worker is gone.
async fn hand_on(seen: Vec<Seen>, worker: &Handle, flows: &Flows) -> Option<()> {
    let mut seen = seen.into_iter().peekable();
    let mut handed = 0;
    while seen.peek().is_some() {
        let portion: Vec<Seen> = seen.by_ref().take(PORTION).collect();
        handed += portion.len();
        let named: Vec<Named> = worker.name_flows(portion, handed <= NAMED).await.ok()?;
        flows.add(named);
    }
    Some(())
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(destination: &str, answered_by: &str) -> Connection {
        let [destination, answered_by]: [SocketAddr; 2] =
            [destination, answered_by].map(|text| text.parse().unwrap());
        Connection {
            protocol: 6,
            source: [10, 0, 0, 1].into(),
            destination: destination.ip(),
            answered_by: answered_by.ip(),
            answered_to: [10, 0, 0, 1].into(),
            source_port: Some(40_000),
            destination_port: Some(destination.port()),
            answering_port: Some(answered_by.port()),
            answered_port: Some(40_000),
        }
    }

    #[test]
    fn who_answers_is_told_and_what_was_asked_for_if_it_is_another() {
        let mut seen = Sums::new(Limits::default());
        add(&mut seen, Met::Passed, connection("10.0.0.2:80", "10.0.0.2:80"), Sum::one(1));
        add(&mut seen, Met::Passed, connection("10.96.0.1:80", "10.0.0.2:8080"), Sum::one(1));
        add(&mut seen, Met::Passed, connection("10.0.0.1:80", "10.0.0.1:80"), Sum::one(1));
        let mut found: Vec<_> =
            seen.iter().map(|(key, _)| (key.port, key.service.map(|one| one.to_string()))).collect();
        found.sort();
        assert_eq!(found, [(Some(80), None), (Some(8080), Some("10.96.0.1:80".to_owned()))]);
    }

    #[test]
    fn prefixes_that_are_made_up_are_not_kept() {
        let mut prefixes = Prefixes::default();
        assert!(prefixes.read("trestle workload in").is_some());
        assert!((0..1_000).all(|number| prefixes.read(&format!("x{number}")).is_none()));
        assert!(prefixes.0.len() <= 64);
    }
}
