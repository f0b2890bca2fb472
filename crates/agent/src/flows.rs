//! Connections of this node, seen, added up, and told to the controller.
//!
//! ```text
//!   kernel's connections ─┐                                     ┌─ worker: which rule decides
//!                         ├─► watcher ─ sums by address ─ each second ─► sums by rule, waiting ─► controller
//!   kernel's log group  ──┘    (thread)                          bounded, whatever the traffic and however long nobody asks
//! ```
//!
//! In: events of conntrack, and packets that the table's rules log. Out: [`NodeFlows`], each kept until it is answered. Holds: what has
//! not been told. Nothing here holds up a packet, a verdict or a step of policies: what is too much is counted in wider rows, or sampled.
//! Not here: the thread that hears the kernel (`watcher`), what a log prefix means (`node-policy`), sums (`node-flows`), who the addresses are (the controller).

mod naming;
mod telling;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use node_flows::{Key, Limits, Sum, Sums};
use node_policy::layout::Refusal;
use parking_lot::Mutex;
use tokio::sync::Notify;
use wire::trestle::v1::{FlowDirection, FlowVerdict, NodeFlow, NodeFlows};

pub use naming::{Locals, name};

/// The group to which the table's rules log what they refuse. Only one listener can have it.
pub const LOG_GROUP: u16 = 7411;
/// Rows of one message: some three hundred kilobytes at most.
const MESSAGE: usize = 2_000;

/// Whether the policy table may have rules that log.
pub fn rules_may_log() -> bool {
    node_kernel::log_group::rules_may_log(LOG_GROUP)
}

/// What the kernel says of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Met {
    /// It was opened, or has ended.
    Passed,
    Refused(Arc<Refusal>),
}

/// What is made of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Judged {
    pub verdict: FlowVerdict,
    pub direction: FlowDirection,
    /// `None`: nothing restricts it, or it cannot be told.
    pub rule: Option<Arc<str>>,
    /// The workloads of this node at its ends.
    pub from: Option<Arc<str>>,
    pub to: Option<Arc<str>>,
}

pub type Seen = (Key<Met>, Sum);
pub type Named = (Key<Judged>, Sum);

/// What waits to be told, and figures.
pub struct Flows {
    node: Arc<str>,
    run: u64,
    waiting: Mutex<Waiting>,
    news: Notify,
    pub figures: Figures,
}

/// Since the agent runs.
#[derive(Debug, Default)]
pub struct Figures {
    /// Connections and refused packets.
    pub seen: AtomicU64,
    pub refused: AtomicU64,
    /// Messages of the kernel that were lost.
    pub lost: AtomicU64,
    /// Messages that were counted like the next one that was read.
    pub unread: AtomicU64,
    /// Rows that wait for a controller.
    pub waiting: AtomicU64,
    /// Rows that a controller has.
    pub told: AtomicU64,
}

struct Waiting {
    sums: Sums<Judged>,
    /// Has been sent and not been answered: it is sent again as it is.
    sent: Option<NodeFlows>,
    number: u64,
}

impl Flows {
    pub fn new(node: &str) -> Arc<Self> {
        Arc::new(Self {
            node: node.into(),
            run: fastrand::u64(..),
            waiting: Mutex::new(Waiting { sums: Sums::new(Limits::default()), sent: None, number: 0 }),
            news: Notify::new(),
            figures: Figures::default(),
        })
    }

    pub(crate) fn add(&self, named: Vec<Named>) {
        if named.is_empty() {
            return;
        }
        let mut waiting = self.waiting.lock();
        named.into_iter().for_each(|(key, sum)| waiting.sums.add(key, sum));
        self.figures.waiting.store(waiting.sums.len() as u64, Relaxed);
        drop(waiting);
        self.news.notify_one();
    }

    /// The next message, or the last one again if nobody has answered it.
    fn next_message(&self) -> Option<NodeFlows> {
        let mut waiting = self.waiting.lock();
        if waiting.sent.is_none() && !waiting.sums.is_empty() {
            let rows = waiting.sums.take(MESSAGE);
            self.figures.waiting.store(waiting.sums.len() as u64, Relaxed);
            waiting.number += 1;
            waiting.sent = Some(self.message(waiting.number, rows));
        }
        waiting.sent.clone()
    }

    fn answered(&self) {
        if let Some(sent) = self.waiting.lock().sent.take() {
            self.figures.told.fetch_add(sent.flows.len() as u64, Relaxed);
        }
    }

    fn message(&self, number: u64, rows: Vec<Named>) -> NodeFlows {
        let mut words = Words::default();
        let flows = rows.into_iter().map(|(key, sum)| row(&mut words, key, sum)).collect();
        NodeFlows {
            node: self.node.to_string(),
            run: self.run,
            number,
            flows,
            words: words.list,
            lost: self.figures.lost.load(Relaxed),
            unread: self.figures.unread.load(Relaxed),
        }
    }
}

/// Texts that rows share, each once.
#[derive(Default)]
struct Words {
    list: Vec<String>,
    places: std::collections::HashMap<Arc<str>, u32>,
}

impl Words {
    /// Its place from 1; 0 for nothing.
    fn place(&mut self, word: Option<Arc<str>>) -> u32 {
        let Some(word) = word else { return 0 };
        *self.places.entry(word).or_insert_with_key(|word| {
            self.list.push(word.to_string());
            u32::try_from(self.list.len()).expect("a message has fewer than 2^32 rows")
        })
    }
}

fn row(words: &mut Words, key: Key<Judged>, sum: Sum) -> NodeFlow {
    let bytes = |address: Option<std::net::IpAddr>| match address {
        Some(std::net::IpAddr::V4(address)) => address.octets().to_vec(),
        Some(std::net::IpAddr::V6(address)) => address.octets().to_vec(),
        None => Vec::new(),
    };
    let Judged { verdict, direction, rule, from, to } = key.label;
    NodeFlow {
        verdict: verdict.into(),
        direction: direction.into(),
        from: bytes(key.from),
        to: bytes(key.to),
        protocol: key.protocol.into(),
        port: key.port.map(u32::from),
        service: bytes(key.service.map(|service| service.ip())),
        service_port: key.service.map(|service| service.port().into()).unwrap_or_default(),
        rule: words.place(rule),
        from_workload: words.place(from),
        to_workload: words.place(to),
        count: sum.count,
        bytes: sum.bytes,
        first: sum.first,
        last: sum.last,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(port: u16) -> Named {
        let label = Judged {
            verdict: FlowVerdict::Denied,
            direction: FlowDirection::In,
            rule: Some("isolated by NetworkPolicy shop/web".into()),
            from: None,
            to: Some("Pod shop/web-1".into()),
        };
        let (from, to) = (Some([10, 0, 0, 1].into()), Some([10, 0, 0, 2].into()));
        (Key { label, from, to, protocol: 6, port: Some(port), service: None }, Sum::one(5))
    }

    #[test]
    fn what_is_not_answered_is_told_again_and_what_comes_meanwhile_waits() {
        let flows = Flows::new("n");
        assert_eq!(flows.next_message(), None);
        flows.add(vec![named(80), named(81)]);
        let first = flows.next_message().unwrap();
        assert_eq!((first.number, first.flows.len(), first.words.len()), (1, 2, 2), "texts are told once");
        flows.add(vec![named(80)]);
        assert_eq!(flows.next_message().unwrap(), first, "the same, whatever came");
        flows.answered();
        let second = flows.next_message().unwrap();
        assert_eq!((second.number, second.flows.len()), (2, 1));
        flows.answered();
        assert_eq!(flows.next_message(), None);
        assert_eq!(flows.figures.told.load(Relaxed), 3);
    }

    #[test]
    fn without_a_controller_what_waits_is_bounded_and_counts_are_kept() {
        let flows = Flows::new("n");
        for port in 0..=u16::MAX {
            flows.add(vec![named(port)]);
        }
        assert!(flows.figures.waiting.load(Relaxed) < 100, "a scan of all ports");
        let message = flows.next_message().unwrap();
        assert_eq!(message.flows.iter().map(|flow| flow.count).sum::<u64>(), 65_536);
    }
}
