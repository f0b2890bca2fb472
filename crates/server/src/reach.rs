//! Who can reach whom: groups of ends against groups of ends.
//!
//! In: workloads (`policy`), resources with their permit lists (`orchestrator`), a question. Out: for each pair of groups,
//! how many pairs of ends are open, partly open and closed, and what is open. Exact, over every protocol, port and source
//! port. Not here: what is open between two ends (`policy::survey`, which `explain` asks too).
//!
//! ```text
//!   place (namespace, site) ─► group (app, network) ─► end (Pod, entity, resource)
//! ```

mod difference;
mod sparse;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use model::{Address, Open, ProtocolClass, Share, policy::output::MemberKind};
use orchestrator::execute::ResourceView;
use policy::{
    explain::Endpoint,
    survey::{Listed, Party, Survey, Tally, TooManyPairs, Workload},
};
use serde::Serialize;
use utoipa::ToSchema;

pub use difference::{Difference, difference};
pub use sparse::{Sparse, Word, Words, of_places, sparse};

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
    pub party: Party,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PlaceKind {
    /// A Kubernetes namespace.
    Namespace,
    /// A namespace in a cloud.
    Site,
}

impl PlaceKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::Site => "site",
        }
    }
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

    /// The names of its ends, as `explain` takes them. Not of groups whose ends were [taken out](parties).
    pub fn names<'a>(&'a self, ends: &'a [End]) -> impl Iterator<Item = &'a str> {
        self.ends.iter().map(|end| ends[*end].name.as_str())
    }

    /// The id of the place it is in.
    pub fn place_id(&self) -> String {
        place_id(&self.place)
    }

    /// Without the ends of another.
    pub fn without(mut self, other: &Self) -> Self {
        let others: HashSet<usize> = other.ends.iter().copied().collect();
        self.ends.retain(|end| !others.contains(end));
        self
    }
}

/// What is so between two groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ReachCell)]
pub struct Cell {
    /// Pairs of different ends.
    pub pairs: u64,
    /// Pairs that are open for every protocol and port asked about, from any source port.
    pub open: u64,
    /// Pairs that are open for some of them.
    pub partly: u64,
    /// What is open; absent if nothing is, or if pairs differ. Of one protocol: ports, as in `80, 8000-8010`, `all but 22`, or
    /// `80 from 40000-60000` where only some source ports may connect. Of every protocol: `all`, or as in
    /// `tcp 80, 443; udp 53; icmp; other 47`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<String>,
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// Absent: every protocol.
    pub protocol: Option<ProtocolClass>,
    /// Of a protocol. Absent: all.
    pub port: Option<u16>,
}

impl Traffic {
    /// The protocol, or `all`.
    pub fn name(self) -> String {
        self.protocol.map_or_else(|| "all".to_owned(), |class| class.to_string())
    }

    /// How much of what is asked about is open, and what.
    pub fn of(self, open: &Open) -> (Share, String) {
        let Some(class) = self.protocol else { return (open.share(&ProtocolClass::ALL), open.to_string()) };
        let openings = open.of(class);
        match self.port {
            None => (openings.share(), openings.to_string()),
            Some(port) => (openings.share_of(port), openings.at(port).to_string()),
        }
    }
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
        party: Party { endpoint: Endpoint::Workload { kind: member.kind, namespace, name }, resource: None },
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
        party: Party {
            endpoint: Endpoint::Address(first),
            resource: Some(Listed { block: address, list: Arc::new(view.permit_list) }),
        },
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
    let place = place_id(&end.place);
    let group = format!("{place}/{}", end.group);
    [place, group, end.name.clone()]
}

fn place_id((kind, name): &(PlaceKind, String)) -> String {
    format!("{}:{name}", kind.as_str())
}

/// The ends that groups hold, and no others; groups then know their ends by their places here.
pub fn parties(ends: &[End], sides: [&mut Vec<Group>; 2]) -> Vec<Party> {
    let mut places: HashMap<usize, usize> = HashMap::new();
    let mut parties = Vec::new();
    for end in sides.into_iter().flatten().flat_map(|group| &mut group.ends) {
        *end = *places.entry(*end).or_insert_with(|| {
            parties.push(ends[*end].party.clone());
            parties.len() - 1
        });
    }
    parties
}

/// A row of cells for each group of sources.
pub fn matrix(
    survey: &Survey,
    sources: &[Group],
    destinations: &[Group],
    traffic: Traffic,
) -> Result<Vec<Vec<Cell>>, TooManyPairs> {
    let from: Vec<&[usize]> = sources.iter().map(|group| group.ends.as_slice()).collect();
    let to: Vec<&[usize]> = destinations.iter().map(|group| group.ends.as_slice()).collect();
    let tallies = survey.count(&from, &to)?;
    Ok(tallies.into_iter().map(|row| row.iter().map(|tally| cell(tally, traffic)).collect()).collect())
}

fn cell(tally: &Tally, traffic: Traffic) -> Cell {
    let mut cell = Cell::default();
    let mut agreed: Option<Option<String>> = None;
    for (open, pairs) in tally {
        let (share, ports) = traffic.of(open);
        cell.pairs += pairs;
        match share {
            Share::None => continue,
            Share::All => cell.open += pairs,
            Share::Some => cell.partly += pairs,
        }
        agreed = Some(match agreed {
            None => Some(ports),
            Some(before) => before.filter(|before| *before == ports),
        });
    }
    cell.ports = agreed.flatten();
    cell
}

#[cfg(test)]
mod tests;
