//! Who can reach whom: groups of ends against groups of ends.
//!
//! In: workloads with the policies about them (`policy`), resources with their permit lists (`orchestrator`), a
//! question. Out: for each pair of groups, how many pairs of ends are open, partly open and closed. Exact: ends that
//! nothing tells apart are asked about once, all others each.
//!
//! ```text
//!   place (namespace, site) ─► group (app, network) ─► end (Pod, entity, resource)
//!
//!   a → b  =  policies at a and b  ∩  permit list of a, if a is a resource  ∩  permit list of b, if b is one
//! ```

mod permit;

use std::{collections::HashMap, sync::Arc};

use model::{
    Address,
    policy::output::{MemberKind, Protocol},
};
use orchestrator::execute::ResourceView;
use policy::{
    Engine,
    explain::{Class, Endpoint, PortSet, Workload},
};

pub use permit::permitted;

/// Groups on one side of a matrix; with more, ask for places, or for a part.
pub const MOST_GROUPS: usize = 100;
/// Ends of one group on one side that are looked at when a group is taken apart.
pub const MOST_ENDS: usize = 100;
/// With at most this many groups, places are not needed to keep an overview.
const FEW: usize = 30;

/// With at most this many resources in a site, each is a group of its own.
const FEW_IN_SITE: usize = 12;

/// How finely ends are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Place,
    Group,
    End,
}

/// One end: a workload or a resource.
#[derive(Debug)]
pub struct End {
    /// As `explain` takes it.
    pub name: String,
    /// `namespace` or `site`, and its name.
    pub place: (PlaceKind, String),
    pub group: String,
    endpoint: Endpoint,
    /// The addresses of a resource: one, or a cluster's.
    block: Option<Address>,
    resource: Option<Arc<ResourceView>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PlaceKind {
    /// A Kubernetes namespace.
    Namespace,
    /// A namespace in a cloud.
    Site,
}

/// A row or column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Names it in a further question.
    pub id: String,
    pub name: String,
    pub place: (PlaceKind, String),
    /// Indexes of its ends.
    ends: Vec<usize>,
}

impl Group {
    pub fn len(&self) -> usize {
        self.ends.len()
    }
}

/// What is so between two groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Pairs of ends, an end with itself aside.
    pub pairs: u64,
    /// On all ports asked about.
    pub open: u64,
    /// On some of them.
    pub partly: u64,
    /// The ports, if all pairs that are not closed agree on them.
    pub ports: Option<PortSet>,
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    pub protocol: Protocol,
    /// Absent: all.
    pub port: Option<u16>,
}

/// All ends there are, sorted by place, group and name.
pub fn ends(workloads: Vec<Workload>, resources: Vec<ResourceView>) -> Vec<End> {
    let mut of_resources: Vec<End> = resources.into_iter().filter_map(of_resource).collect();
    let mut in_site: HashMap<String, usize> = HashMap::new();
    of_resources.iter().for_each(|end| *in_site.entry(end.place.1.clone()).or_default() += 1);
    for end in of_resources.iter_mut().filter(|end| in_site[&end.place.1] <= FEW_IN_SITE) {
        end.group = short(&end.name).to_owned();
    }
    let of_workloads = workloads.into_iter().filter_map(of_workload);
    let mut ends: Vec<End> = of_workloads.chain(of_resources).collect();
    ends.sort_by(|a, b| (&a.place, &a.group, &a.name).cmp(&(&b.place, &b.group, &b.name)));
    ends
}

fn of_workload(workload: Workload) -> Option<End> {
    let member = &workload.member;
    let prefix = match member.kind {
        MemberKind::Pod => "pod",
        MemberKind::ExternalEntity => "entity",
        MemberKind::Node | MemberKind::Service => return None,
    };
    let (namespace, name) = (member.namespace.to_string(), member.name.to_string());
    Some(End {
        name: format!("{prefix}/{namespace}/{name}"),
        place: (PlaceKind::Namespace, namespace.clone()),
        group: app(&workload),
        endpoint: Endpoint::Workload { kind: member.kind, namespace, name },
        block: None,
        resource: None,
    })
}

/// Labels by which people call what a workload belongs to, best first.
const APP: [&str; 5] = ["app.kubernetes.io/name", "app", "k8s-app", "name", "role"];

fn app(workload: &Workload) -> String {
    let of = |wanted: &str| workload.labels.iter().find(|(key, _)| **key == *wanted).map(|(_, value)| value);
    match APP.iter().find_map(|key| of(key)) {
        Some(value) => value.to_string(),
        None if workload.labels.is_empty() => "(no labels)".to_owned(),
        None => {
            let pairs = workload.labels.iter().map(|(key, value)| format!("{key}={value}"));
            pairs.collect::<Vec<_>>().join(",")
        }
    }
}

/// Resources without an address reach nobody yet. Policies are asked about the first address of a cluster, lists about
/// all of its block.
fn of_resource(view: ResourceView) -> Option<End> {
    let address: Address = view.ip.as_deref()?.parse().ok()?;
    let first = address.single().or_else(|| address.net().hosts().next())?;
    Some(End {
        name: view.name.to_string(),
        place: (PlaceKind::Site, format!("{}.{}", view.name.namespace, view.name.cloud)),
        group: view.region.to_string(),
        endpoint: Endpoint::Address(first),
        block: Some(address),
        resource: Some(Arc::new(view)),
    })
}

/// The level that shows most and can still be looked at.
pub fn overview(ends: &[End]) -> Level {
    match groups(ends, Level::Group, None).len() {
        0..=FEW => Level::Group,
        _ => Level::Place,
    }
}

/// The groups of a level, of all ends or of those inside one group of a higher level.
pub fn groups(ends: &[End], level: Level, inside: Option<&str>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (at, end) in ends.iter().enumerate() {
        let ids = ids(end);
        if inside.is_some_and(|inside| !ids.iter().any(|id| id == inside)) {
            continue;
        }
        let id = &ids[level as usize];
        match groups.last_mut() {
            // Sorted: the ends of a group stand together.
            Some(last) if last.id == *id => last.ends.push(at),
            _ => groups.push(Group {
                id: id.clone(),
                name: match level {
                    Level::Place => end.place.1.clone(),
                    Level::Group => end.group.clone(),
                    Level::End => short(&end.name).to_owned(),
                },
                place: end.place.clone(),
                ends: vec![at],
            }),
        }
    }
    groups
}

fn short(name: &str) -> &str {
    name.rsplit(['/', '.']).next().unwrap_or(name)
}

/// The ids of an end's place, group and self.
fn ids(end: &End) -> [String; 3] {
    let kind = match end.place.0 {
        PlaceKind::Namespace => "namespace",
        PlaceKind::Site => "site",
    };
    let place = format!("{kind}:{}", end.place.1);
    let group = format!("{place}/{}", end.group);
    [place, group, end.name.clone()]
}

/// Ends that nothing tells apart, with two of them to ask about.
struct Alike {
    first: usize,
    second: Option<usize>,
}

/// Works out cells. Holds what was asked already.
pub struct Matrix<'a> {
    ends: &'a [End],
    traffic: Traffic,
    /// By end; none if it is gone.
    class_of: Vec<Option<usize>>,
    classes: Vec<Alike>,
    known: HashMap<(usize, usize), PortSet>,
}

impl<'a> Matrix<'a> {
    /// Puts the ends of these groups into classes.
    pub fn new(engine: &Engine, ends: &'a [End], traffic: Traffic, groups: &[&[Group]]) -> Self {
        let blocks = engine.ip_blocks();
        let mut class_of = vec![None; ends.len()];
        let (mut classes, mut numbers) = (Vec::<Alike>::new(), HashMap::<Class, usize>::new());
        for at in groups.iter().copied().flatten().flat_map(|group| group.ends.iter().copied()) {
            if class_of[at].is_some() {
                continue;
            }
            let Ok(class) = engine.class(&ends[at].endpoint, &blocks) else { continue };
            let new = classes.len();
            // A resource's permit list is its own.
            let number = if ends[at].resource.is_some() { new } else { *numbers.entry(class).or_insert(new) };
            match classes.get_mut(number) {
                Some(alike) => drop(alike.second.get_or_insert(at)),
                None => classes.push(Alike { first: at, second: None }),
            }
            class_of[at] = Some(number);
        }
        Self { ends, traffic, class_of, classes, known: HashMap::new() }
    }

    pub fn cell(&mut self, engine: &Engine, from: &Group, to: &Group) -> Cell {
        let (sources, destinations) = (self.count(from), self.count(to));
        let is_same = from.ends == to.ends;
        let mut cell = Cell::default();
        let mut agreed: Option<Option<PortSet>> = None;
        for (a, many) in &sources {
            for (b, others) in &destinations {
                let pairs = many * others - if is_same && a == b { *many } else { 0 };
                if pairs == 0 {
                    continue;
                }
                let ports = self.ports(engine, *a, *b);
                cell.pairs += pairs;
                let asked = self.traffic.port;
                if asked.map_or_else(|| ports.is_all(), |port| ports.contains(port)) {
                    cell.open += pairs;
                } else if asked.is_none() && !ports.is_empty() {
                    cell.partly += pairs;
                }
                if !ports.is_empty() {
                    agreed = Some(match agreed {
                        None => Some(ports),
                        Some(before) => before.filter(|before| *before == ports),
                    });
                }
            }
        }
        cell.ports = agreed.flatten();
        cell
    }

    fn count(&self, group: &Group) -> Vec<(usize, u64)> {
        let mut counts: Vec<(usize, u64)> = Vec::new();
        for class in group.ends.iter().filter_map(|end| self.class_of[*end]) {
            match counts.iter_mut().find(|(known, _)| *known == class) {
                Some((_, count)) => *count += 1,
                None => counts.push((class, 1)),
            }
        }
        counts
    }

    fn ports(&mut self, engine: &Engine, a: usize, b: usize) -> PortSet {
        if let Some(known) = self.known.get(&(a, b)) {
            return known.clone();
        }
        let source = &self.ends[self.classes[a].first];
        let alike = &self.classes[b];
        let destination = if a == b { alike.second.unwrap_or(alike.first) } else { alike.first };
        let ports = open_ports(engine, source, &self.ends[destination], self.traffic.protocol);
        self.known.insert((a, b), ports.clone());
        ports
    }
}

/// None if an end is gone.
fn open_ports(engine: &Engine, source: &End, destination: &End, protocol: Protocol) -> PortSet {
    let Ok(ports) = engine.open_ports(&source.endpoint, &destination.endpoint, protocol) else {
        return PortSet::none();
    };
    [(source, destination, model::Direction::Outbound), (destination, source, model::Direction::Inbound)]
        .into_iter()
        .fold(ports, |ports, (local, remote, direction)| match &local.resource {
            None => ports,
            Some(resource) => {
                // Of several addresses of a workload the first is taken, as `explain` does.
                let first = || engine.addresses(&remote.endpoint).first().map(|address| (*address).into());
                let peer = remote.block.or_else(first);
                let open = peer.map(|peer| permitted(&resource.permit_list, direction, peer, protocol));
                ports.intersect(&open.unwrap_or_default())
            }
        })
}

#[cfg(test)]
mod tests;
