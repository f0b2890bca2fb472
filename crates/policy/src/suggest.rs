//! Policies written from connections that were seen: the fewest words that permit them, and nothing else that labels can tell apart.
//!
//! In: the Pods that there are ([`Known`]), and connections ([`Seen`]), as nodes or a file tell them. Out:
//! Kubernetes NetworkPolicies of one direction ([`Suggestion`]). Pure; the order of what comes in decides nothing. Not here: what a
//! suggestion would change (`server`, by the matrix of the engine with it).
//!
//! ```text
//!   classes    Pods of one namespace with the same labels, those that a controller makes up for each Pod left out
//!   needs      for each class as a destination (of egress: as a source): the other class or address, protocol, port
//!   subjects   classes with the same needs ─► fewest selectors that select them and no others       (one policy each)
//!   rules      ports with the same peers, or peers with the same ports, whichever is shorter
//!   peers      fewest selectors that select these and no class that was not seen                    (`cover`)
//! ```
//!
//! A selector may select classes that were not seen only if there are none: so whatever it permits among Pods that are there was seen
//! between Pods with these labels. Addresses become blocks of one address each. What was seen to reach nobody else of a namespace is not
//! needed: the rest of the namespace is closed by one more policy.

mod cover;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use model::policy::{
    LabelSelector, Labels, ObjectMeta,
    kubernetes::{
        EgressRule, IngressRule, IntOrString, IpBlock, NetworkPolicy, NetworkPolicySpec, Peer, Port,
    },
    output::{Direction, Protocol},
};

use cover::{Choice, cover, selectors};

/// Labels that tell Pods of one workload apart, and so say nothing of what it is.
const OF_EACH_POD: [&str; 10] = [
    "pod-template-hash",
    "pod-template-generation",
    "controller-revision-hash",
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "controller-uid",
    "batch.kubernetes.io/controller-uid",
    "job-name",
    "batch.kubernetes.io/job-name",
    "trestle.dev/pod",
];
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Why there is always a choice.
const ALONE: &str = "each class of a namespace can be selected alone";
/// What a note says of addresses to which something went, where only ingress is suggested.
pub const LEFT_OPEN: &str =
    "connections to them are left as they are, for policies of ingress leave egress open";
/// Addresses that a note names.
const NAMED: usize = 5;

/// A Pod that is there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Known {
    pub namespace: String,
    pub labels: Labels,
}

/// Connections that are alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub from: SeenEnd,
    pub to: SeenEnd,
    /// None: one that NetworkPolicies have no word for.
    pub protocol: Option<Protocol>,
    pub port: u16,
    pub count: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SeenEnd {
    /// Whoever has all of these labels; if nobody is there any more, one that had them.
    Labelled(Known),
    Address(IpAddr),
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Suggestion {
    pub policies: Vec<Suggested>,
    /// What could not be said by labels, and what is left as it is.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Suggested {
    pub policy: NetworkPolicy,
    /// The connections it is for.
    pub because: Vec<String>,
}

/// A class by its place among all.
type Class = usize;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Other {
    Class(Class),
    Address(IpAddr),
}

type Passage = (&'static str, u16);
/// Whom a class has to do with, by which port.
type Needs = BTreeSet<(Other, Passage)>;

/// A rule of either direction.
#[derive(Clone, Debug)]
struct Rule {
    ports: Vec<Port>,
    peers: Vec<Peer>,
}

/// What is known of Pods, and what is needed.
struct World {
    way: Direction,
    classes: Vec<Known>,
    needs: BTreeMap<Class, Needs>,
    because: BTreeMap<Class, BTreeMap<String, u64>>,
    notes: BTreeSet<String>,
    /// Peers of which no labels are known, and those to which something went that no policy of ingress here is about.
    alone: BTreeSet<IpAddr>,
    outside: BTreeSet<IpAddr>,
}

/// Of one direction. `only`: for what is in this namespace.
pub fn suggest(known: &[Known], seen: &[Seen], only: Option<&str>, way: Direction) -> Suggestion {
    let world = World::new(known, seen, only, way);
    let (allow, deny, nothing) = match way {
        Direction::In => ("allow-to", "deny-the-rest", "nothing was seen to come to"),
        Direction::Out => ("allow-from", "deny-the-rest-out", "nothing was seen to leave"),
    };
    let mut groups: BTreeMap<(&str, &Needs), BTreeSet<Class>> = BTreeMap::new();
    for (class, needs) in &world.needs {
        groups.entry((&world.classes[*class].namespace, needs)).or_default().insert(*class);
    }
    let mut suggestion = Suggestion::default();
    let mut names = BTreeSet::new();
    let mut selected: BTreeMap<&str, BTreeSet<Class>> = BTreeMap::new();
    for ((namespace, needs), classes) in groups {
        selected.entry(namespace).or_default().extend(&classes);
        let rules = world.rules(namespace, needs);
        let choices = world.chosen(&classes, Some(namespace), 1 + length_of(&rules));
        for choice in choices.expect(ALONE) {
            let name = unique(&mut names, namespace, &format!("{allow}-{}", words(&choice.selector)));
            let because = choice.classes.iter().filter_map(|class| world.because.get(class)).flatten();
            let because = because.map(|(text, count)| format!("{text}, {count} times")).collect();
            suggestion.policies.push(Suggested {
                policy: policy(namespace, name, choice.selector, rules.clone(), way),
                because,
            });
        }
    }
    for (namespace, selected) in selected {
        let rest = (0..world.classes.len()).filter(|class| world.classes[*class].namespace == namespace);
        let rest: Vec<String> =
            rest.filter(|class| !selected.contains(class)).map(|class| world.name(class)).collect();
        if !rest.is_empty() {
            let name = unique(&mut names, namespace, deny);
            let because = vec![format!("{nothing} {}", rest.join(", "))];
            let policy = policy(namespace, name, LabelSelector::default(), Vec::new(), way);
            suggestion.policies.push(Suggested { policy, because });
        }
    }
    suggestion.notes = world.notes.iter().cloned().collect();
    let notes =
        [(&world.alone, "known by their addresses only, and permitted by them"), (&world.outside, LEFT_OPEN)];
    for (addresses, what) in notes.into_iter().filter(|(addresses, _)| !addresses.is_empty()) {
        let named = addresses.iter().take(NAMED).map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let more = addresses.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        suggestion.notes.push(format!("{named}{more}: {what}"));
    }
    suggestion
}

impl World {
    fn new(known: &[Known], seen: &[Seen], only: Option<&str>, way: Direction) -> Self {
        let of_seen = seen.iter().flat_map(|seen| [&seen.from, &seen.to]);
        let labelled = of_seen.filter_map(|end| match end {
            SeenEnd::Labelled(known) => Some(known),
            SeenEnd::Address(_) => None,
        });
        let there: BTreeSet<Known> = known.iter().map(class).collect();
        // Of those who are gone the labels that they had are known.
        let gone = labelled.filter(|end| !there.iter().any(|class| has(class, end))).map(class);
        let gone: BTreeSet<Known> = gone.collect();
        let classes: Vec<Known> = there.union(&gone).cloned().collect();
        let mut world = Self {
            way,
            classes,
            needs: BTreeMap::new(),
            because: BTreeMap::new(),
            notes: BTreeSet::new(),
            alone: BTreeSet::new(),
            outside: BTreeSet::new(),
        };
        seen.iter().for_each(|seen| world.take(seen, only));
        world
    }

    fn take(&mut self, seen: &Seen, only: Option<&str>) {
        let (subject, other) = match self.way {
            Direction::In => (&seen.to, &seen.from),
            Direction::Out => (&seen.from, &seen.to),
        };
        let subject = match (subject, self.way) {
            (SeenEnd::Labelled(subject), _) => subject,
            (SeenEnd::Address(address), Direction::In) => {
                self.outside.insert(*address);
                return;
            }
            (SeenEnd::Address(_), Direction::Out) => return,
        };
        if only.is_some_and(|only| only != subject.namespace) {
            return;
        }
        let (from, to) = (name_of(&seen.from), name_of(&seen.to));
        let protocol = match seen.protocol {
            Some(Protocol::Tcp) => "TCP",
            Some(Protocol::Udp) => "UDP",
            Some(Protocol::Sctp) => "SCTP",
            Some(Protocol::Icmp | Protocol::Igmp) | None => {
                let (side, who) = if self.way == Direction::In { ("to", to) } else { ("from", from) };
                self.notes.insert(format!(
                    "connections {side} {who} without ports were seen, for which a NetworkPolicy has no word: they would be refused"
                ));
                return;
            }
        };
        let passage = (protocol, seen.port);
        let others: Vec<Other> = match other {
            SeenEnd::Address(address) => {
                self.alone.insert(*address);
                vec![Other::Address(*address)]
            }
            SeenEnd::Labelled(other) => self.those(other).into_iter().map(Other::Class).collect(),
        };
        for class in self.those(subject) {
            self.needs.entry(class).or_default().extend(others.iter().map(|other| (other.clone(), passage)));
            let text = format!("{from} to {to} {} {}", protocol.to_lowercase(), seen.port);
            *self.because.entry(class).or_default().entry(text).or_default() += seen.count.max(1);
        }
    }

    /// The class that is just that; else whoever has these labels and more.
    fn those(&self, end: &Known) -> Vec<Class> {
        match self.classes.binary_search(&class(end)) {
            Ok(at) => vec![at],
            Err(_) => (0..self.classes.len()).filter(|at| has(&self.classes[*at], end)).collect(),
        }
    }

    fn name(&self, class: Class) -> String {
        name(&self.classes[class])
    }

    /// The fewest selectors of one namespace (none: of all) that select these and no others; each costs so much beside its words.
    fn chosen(&self, classes: &BTreeSet<Class>, within: Option<&str>, each: usize) -> Option<Vec<Choice>> {
        let universe: Vec<Class> = (0..self.classes.len())
            .filter(|at| within.is_none_or(|namespace| self.classes[*at].namespace == namespace))
            .collect();
        let labels = |class: Class| &self.classes[class].labels;
        cover(classes, &selectors(&universe, classes, labels), each)
    }

    /// By port or by peer, whichever is shorter.
    fn rules(&self, namespace: &str, needs: &Needs) -> Vec<Rule> {
        let mut by_passage: BTreeMap<Passage, BTreeSet<Other>> = BTreeMap::new();
        let mut by_source: BTreeMap<Other, BTreeSet<Passage>> = BTreeMap::new();
        for (source, passage) in needs {
            by_passage.entry(*passage).or_default().insert(source.clone());
            by_source.entry(source.clone()).or_default().insert(*passage);
        }
        let mut ports: BTreeMap<BTreeSet<Other>, BTreeSet<Passage>> = BTreeMap::new();
        for (passage, sources) in by_passage {
            ports.entry(sources).or_default().insert(passage);
        }
        let mut sources: BTreeMap<BTreeSet<Passage>, BTreeSet<Other>> = BTreeMap::new();
        for (source, passages) in by_source {
            sources.entry(passages).or_default().insert(source);
        }
        let one: Vec<_> = ports.iter().map(|(sources, ports)| self.rule(namespace, sources, ports)).collect();
        let other: Vec<_> =
            sources.iter().map(|(ports, sources)| self.rule(namespace, sources, ports)).collect();
        if length_of(&other) < length_of(&one) { other } else { one }
    }

    fn rule(&self, namespace: &str, sources: &BTreeSet<Other>, passages: &BTreeSet<Passage>) -> Rule {
        let mut peers = self.peers(namespace, sources);
        peers.extend(sources.iter().filter_map(|source| match source {
            Other::Class(_) => None,
            Other::Address(address) => {
                let bits = if address.is_ipv4() { 32 } else { 128 };
                let block = IpBlock { cidr: format!("{address}/{bits}"), except: Vec::new() };
                Some(Peer { ip_block: Some(block), ..Peer::default() })
            }
        }));
        let ports = passages.iter().map(|(protocol, port)| Port {
            protocol: Some((*protocol).to_owned()),
            port: Some(IntOrString::Int(i32::from(*port))),
            ..Port::default()
        });
        Rule { ports: ports.collect(), peers }
    }

    /// Each namespace by itself, or by the same labels in all of them, whichever is shorter.
    fn peers(&self, own: &str, sources: &BTreeSet<Other>) -> Vec<Peer> {
        let classes: BTreeSet<Class> = sources
            .iter()
            .filter_map(|source| match source {
                Other::Class(class) => Some(*class),
                Other::Address(_) => None,
            })
            .collect();
        let mut by_namespace: BTreeMap<&str, BTreeSet<Class>> = BTreeMap::new();
        for class in &classes {
            by_namespace.entry(&self.classes[*class].namespace).or_default().insert(*class);
        }
        let mut apart = Vec::new();
        for (namespace, classes) in &by_namespace {
            let each = if *namespace == own { 1 } else { 2 };
            for choice in self.chosen(classes, Some(namespace), each).expect(ALONE) {
                apart.push(match *namespace == own {
                    true => Peer { pod_selector: Some(choice.selector), ..Peer::default() },
                    false => Peer {
                        pod_selector: Some(choice.selector).filter(|selector| !selector.is_empty()),
                        namespace_selector: Some(LabelSelector::of_labels([(NAMESPACE_NAME, *namespace)])),
                        ip_block: None,
                    },
                });
            }
        }
        let foreign = by_namespace.keys().filter(|namespace| **namespace != own).count();
        if foreign == 0 || by_namespace.len() < 2 {
            return apart;
        }
        let Some(across) = self.chosen(&classes, None, 1) else { return apart };
        let across = across.into_iter().map(|choice| Peer {
            pod_selector: Some(choice.selector).filter(|selector| !selector.is_empty()),
            namespace_selector: Some(LabelSelector::default()),
            ip_block: None,
        });
        let across: Vec<Peer> = across.collect();
        let length = |peers: &[Peer]| peers.iter().map(peer_length).sum::<usize>();
        if length(&across) < length(&apart) { across } else { apart }
    }
}

/// Pods that nothing but what a controller made up tells apart.
fn class(pod: &Known) -> Known {
    Known { namespace: pod.namespace.clone(), labels: lasting(&pod.labels) }
}

/// Without what a controller makes up for each Pod.
pub fn lasting(labels: &Labels) -> Labels {
    let lasting = labels.iter().filter(|(key, _)| !OF_EACH_POD.contains(&key.as_str()));
    lasting.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn has(known: &Known, end: &Known) -> bool {
    let of_workload = class(end);
    known.namespace == end.namespace
        && of_workload.labels.iter().all(|(key, value)| known.labels.get(key) == Some(value))
}

fn name_of(end: &SeenEnd) -> String {
    match end {
        SeenEnd::Address(address) => address.to_string(),
        SeenEnd::Labelled(known) => name(known),
    }
}

fn name(known: &Known) -> String {
    let labels = class(known).labels;
    let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!(
        "{}/{}",
        known.namespace,
        if labels.is_empty() { "(no labels)".to_owned() } else { labels.join(",") }
    )
}

fn policy(
    namespace: &str,
    name: String,
    pod_selector: LabelSelector,
    rules: Vec<Rule>,
    way: Direction,
) -> NetworkPolicy {
    let metadata = ObjectMeta { name, namespace: namespace.to_owned(), ..ObjectMeta::default() };
    let mut spec = NetworkPolicySpec { pod_selector, ..Default::default() };
    match way {
        Direction::In => {
            spec.policy_types = vec!["Ingress".to_owned()];
            spec.ingress =
                rules.into_iter().map(|Rule { ports, peers }| IngressRule { ports, from: peers }).collect();
        }
        Direction::Out => {
            spec.policy_types = vec!["Egress".to_owned()];
            spec.egress =
                rules.into_iter().map(|Rule { ports, peers }| EgressRule { ports, to: peers }).collect();
        }
    }
    NetworkPolicy { metadata, spec }
}

/// What a selector says, as a part of a name.
fn words(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().map(|(_, value)| value.as_str());
    let listed = selector.match_expressions.iter().flat_map(|one| one.values.iter().map(String::as_str));
    let text = labels.chain(listed).collect::<Vec<_>>().join("-").to_lowercase();
    let legal = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let text: String = text.chars().map(legal).take(40).collect();
    let text = text.trim_matches('-');
    if text.is_empty() { "all".to_owned() } else { text.to_owned() }
}

fn unique(names: &mut BTreeSet<(String, String)>, namespace: &str, wanted: &str) -> String {
    let mut name = wanted.to_owned();
    let mut next = 2;
    while !names.insert((namespace.to_owned(), name.clone())) {
        name = format!("{wanted}-{next}");
        next += 1;
    }
    name
}

/// How much there is to read in policies: one for each policy, rule, peer, port and value of a label.
pub fn length<'p>(policies: impl IntoIterator<Item = &'p NetworkPolicy>) -> usize {
    let of = |policy: &NetworkPolicy| {
        let ingress = policy.spec.ingress.iter().map(|rule| rule_length(&rule.ports, &rule.from));
        let egress = policy.spec.egress.iter().map(|rule| rule_length(&rule.ports, &rule.to));
        1 + selector_length(&policy.spec.pod_selector) + ingress.chain(egress).sum::<usize>()
    };
    policies.into_iter().map(of).sum()
}

fn length_of(rules: &[Rule]) -> usize {
    rules.iter().map(|rule| rule_length(&rule.ports, &rule.peers)).sum()
}

fn rule_length(ports: &[Port], peers: &[Peer]) -> usize {
    1 + ports.len() + peers.iter().map(peer_length).sum::<usize>()
}

fn peer_length(peer: &Peer) -> usize {
    1 + [&peer.pod_selector, &peer.namespace_selector]
        .into_iter()
        .flatten()
        .map(selector_length)
        .sum::<usize>()
}

fn selector_length(selector: &LabelSelector) -> usize {
    let listed = selector.match_expressions.iter().map(|one| one.values.len().max(1));
    selector.match_labels.len() + listed.sum::<usize>()
}
