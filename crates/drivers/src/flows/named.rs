//! Who addresses are, at the moment when a report comes: workloads with their labels, and tags.
//!
//! A node says itself which of its workloads was at an end, since it tells late what it has seen while no controller was there; who was
//! elsewhere is whoever has the address now.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use ::flows::{Direction, End, Flow, Kind, Verdict};
use model::policy::output::MemberKind;
use model::{Member, TagName};
use parking_lot::Mutex;
use policy::survey::Workload;
use store::Revision;
use tags::TagView;
use wire::trestle::v1::{FlowDirection, FlowVerdict, NodeFlow, NodeFlows};

use crate::{policy::Policy, tags::Tags};

/// Labels and tags that are kept of an end, and characters of a text.
const MOST: usize = 32;
const TEXT: usize = 512;
/// Tags by address are worked out anew not more often than this.
const PAUSE: Duration = Duration::from_secs(5);

pub struct Names {
    policy: Arc<Policy>,
    tags: Arc<Tags>,
    tagged: Mutex<Tagged>,
}

/// The tags of each address, as of a revision.
#[derive(Default)]
struct Tagged {
    revision: Option<Revision>,
    at: Option<Instant>,
    by_address: Arc<HashMap<IpAddr, Vec<String>>>,
}

impl Names {
    pub fn new(policy: Arc<Policy>, tags: Arc<Tags>) -> Self {
        Self { policy, tags, tagged: Mutex::default() }
    }

    /// The flows of a report. What makes no sense is left out; times are not later than now.
    pub fn name(&self, report: NodeFlows, most: usize, now: u64) -> Vec<Flow> {
        let words: Vec<Arc<str>> = report.words.iter().map(|word| short(word).into()).collect();
        let naming = Naming { names: self, node: report.node.into(), words, now, tags: self.tags() };
        let mut known = HashMap::new();
        report.flows.into_iter().take(most).filter_map(|row| naming.flow(&row, &mut known)).collect()
    }

    fn tags(&self) -> Arc<HashMap<IpAddr, Vec<String>>> {
        let mut tagged = self.tagged.lock();
        let is_due = tagged.at.is_none_or(|at| at.elapsed() >= PAUSE);
        if let Some(snapshot) = self.tags.snapshot().ok().filter(|_| is_due)
            && tagged.revision != Some(snapshot.revision)
        {
            tagged.by_address = Arc::new(by_address(&snapshot.graph));
            (tagged.revision, tagged.at) = (Some(snapshot.revision), Some(Instant::now()));
        }
        Arc::clone(&tagged.by_address)
    }
}

/// O(tags). Blocks of addresses are not looked into.
fn by_address(graph: &tags::Graph) -> HashMap<IpAddr, Vec<String>> {
    let mut found: HashMap<IpAddr, Vec<String>> = HashMap::new();
    let mut add = |address: IpAddr, tag: &TagName| {
        let tags = found.entry(address).or_default();
        let above = graph.ancestors(tag).unwrap_or_default();
        for name in std::iter::once(tag).chain(above) {
            if tags.len() < MOST && !tags.iter().any(|known| known == name.as_str()) {
                tags.push(name.to_string());
            }
        }
    };
    for (name, view) in graph.list("") {
        match view {
            TagView::Leaf(leaf) => {
                leaf.ip.and_then(|ip| ip.single()).into_iter().for_each(|ip| add(ip, name))
            }
            TagView::Group(members) => members.iter().for_each(|member| {
                if let Member::Literal(address) = member
                    && let Some(address) = address.single()
                {
                    add(address, name);
                }
            }),
        }
    }
    found.values_mut().for_each(|tags| tags.sort_unstable());
    found
}

struct Naming<'a> {
    names: &'a Names,
    node: Arc<str>,
    words: Vec<Arc<str>>,
    now: u64,
    tags: Arc<HashMap<IpAddr, Vec<String>>>,
}

/// Ends of one report, each looked up once.
type Known = HashMap<(Option<IpAddr>, u32), Arc<End>>;

impl Naming<'_> {
    fn flow(&self, row: &NodeFlow, known: &mut Known) -> Option<Flow> {
        let verdict = match row.verdict() {
            FlowVerdict::Allowed => Verdict::Allowed,
            FlowVerdict::Denied => Verdict::Denied,
            FlowVerdict::Observed => Verdict::Observed,
            FlowVerdict::Unspecified => return None,
        };
        let direction = match row.direction() {
            FlowDirection::In => Direction::In,
            FlowDirection::Out => Direction::Out,
            FlowDirection::Through => Direction::Through,
            FlowDirection::Unspecified => return None,
        };
        let service_port = u16::try_from(row.service_port).ok()?;
        let kind = Kind {
            node: Arc::clone(&self.node),
            verdict,
            direction,
            from: self.end(address(&row.from), row.from_workload, known),
            to: self.end(address(&row.to), row.to_workload, known),
            protocol: u8::try_from(row.protocol).ok()?,
            port: row.port.map(u16::try_from).transpose().ok()?,
            service: address(&row.service).map(|ip| SocketAddr::new(ip, service_port)),
            rule: self.word(row.rule).unwrap_or_default(),
        };
        let last = row.last.min(self.now);
        Some(Flow { kind, count: row.count, bytes: row.bytes, first: row.first.min(last), last })
    }

    /// Places are counted from 1.
    fn word(&self, place: u32) -> Option<Arc<str>> {
        self.words.get(usize::try_from(place.checked_sub(1)?).ok()?).cloned()
    }

    fn end(&self, address: Option<IpAddr>, place: u32, known: &mut Known) -> Arc<End> {
        let make = || Arc::new(self.look_up(address, self.word(place)));
        Arc::clone(known.entry((address, place)).or_insert_with(make))
    }

    fn look_up(&self, address: Option<IpAddr>, said: Option<Arc<str>>) -> End {
        let found = self.names.policy.ask(|engine| match &said {
            Some(name) => {
                let (kind, namespace, name) = parse(name)?;
                engine.workload(kind, namespace, name)
            }
            None => engine.workload_at(address?),
        });
        let workload = match (&said, &found) {
            (Some(name), _) => name.to_string(),
            (None, Some(found)) => name_of(found),
            (None, None) => String::new(),
        };
        let labels = found.map(|found| found.labels).unwrap_or_default();
        let mut labels: Vec<(String, String)> =
            labels.iter().take(MOST).map(|(key, value)| (short(key), short(value))).collect();
        labels.sort_unstable();
        let tags = address.and_then(|address| self.tags.get(&address).cloned()).unwrap_or_default();
        End { address, workload, labels, tags }
    }
}

/// `Pod shop/web-1`, `Node host-1`.
fn name_of(workload: &Workload) -> String {
    let member = &workload.member;
    match &*member.namespace {
        "" => format!("{:?} {}", member.kind, member.name),
        namespace => format!("{:?} {namespace}/{}", member.kind, member.name),
    }
}

fn parse(name: &str) -> Option<(MemberKind, &str, &str)> {
    let (kind, name) = name.split_once(' ')?;
    let kind = [MemberKind::Pod, MemberKind::Node, MemberKind::ExternalEntity]
        .into_iter()
        .find(|one| format!("{one:?}") == kind)?;
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    Some((kind, namespace, name))
}

/// Nodes are trusted with their own flows, not with the controller's memory or with terminals.
fn short(text: &str) -> String {
    text.chars().filter(|char| !char.is_control()).take(TEXT).collect()
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok()
}
