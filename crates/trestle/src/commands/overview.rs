//! What runs, what is unhealthy, and what to do about it. `status` prints it once, `top` again and again.
//!
//! In: what the controller says. Out: lines of counts, and troubles with the command to look at each. Judging is pure.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use tonic::Code;
use wire::trestle::v1::{
    CloudInfo, Consumer, GetStatusRequest, JobInfo, LinkInfo, ListCloudsRequest, ListConsumersRequest,
    ListJobsRequest, ListLinksRequest, ListNodesRequest, ListPoliciesRequest, ListResourcesRequest,
    NodeStatus, PolicyState, ResourceInfo, SlowNode, Status, admin_client::AdminClient,
    nodes_client::NodesClient, orchestrator_client::OrchestratorClient, policies_client::PoliciesClient,
    storage_client::StorageClient,
};

use super::enforcement::took;
use crate::client::{Connection, MAX_MESSAGE};

/// Jobs that failed longer ago are history.
const LATELY: SignedDuration = SignedDuration::from_hours(1);
/// A node that is further behind is worth a look.
const BEHIND_SECONDS: f64 = 10.0;
/// A grant that is used beyond this share is nearly full.
const NEARLY: f64 = 0.9;

/// So many of many that are alike are named.
const NAMED: usize = 4;

/// The phase of a policy that some place has not reported.
const REALIZING: &str = "Realizing";

/// Everything that is looked at.
#[derive(Debug, Default)]
pub struct Overview {
    pub status: Status,
    pub clouds: Vec<CloudInfo>,
    pub resources: Vec<ResourceInfo>,
    pub links: Vec<LinkInfo>,
    pub jobs: Vec<JobInfo>,
    pub policies: Vec<PolicyState>,
    pub nodes: Vec<NodeStatus>,
    /// None: the controller provides no storage.
    pub consumers: Option<Vec<Consumer>>,
}

/// One line of counts.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    pub noun: &'static str,
    pub count: usize,
    pub detail: String,
}

/// Something that is not as it should be.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Trouble {
    pub what: String,
    /// The command that says more, or mends it.
    pub look: String,
}

/// Names, with how those are that are not ready.
fn clouds_told(clouds: &[CloudInfo]) -> String {
    let told = clouds.iter().map(|cloud| match cloud.state.as_str() {
        "ready" => cloud.name.clone(),
        state => format!("{} ({state})", cloud.name),
    });
    told.collect::<Vec<_>>().join(", ")
}

impl Overview {
    /// Asks the controller, all at once.
    pub async fn gather(connection: Connection) -> anyhow::Result<Self> {
        let mut admin = AdminClient::new(connection.clone());
        let orchestrator = OrchestratorClient::new(connection.clone()).max_decoding_message_size(MAX_MESSAGE);
        let mut policies = PoliciesClient::new(connection.clone()).max_decoding_message_size(MAX_MESSAGE);
        let mut nodes = NodesClient::new(connection.clone()).max_decoding_message_size(MAX_MESSAGE);
        let mut storage = StorageClient::new(connection);
        let status = admin.get_status(GetStatusRequest {}).await?.into_inner();
        if !status.ready {
            // Nothing else would be answered for sure, and what is wrong is said.
            return Ok(Self { status, ..Self::default() });
        }
        let [mut clouds, mut resources, mut links, mut jobs] = std::array::from_fn(|_| orchestrator.clone());
        let (clouds, resources, links, jobs, stated, nodes) = tokio::try_join!(
            clouds.list_clouds(ListCloudsRequest {}),
            resources.list_resources(ListResourcesRequest { namespace: String::new() }),
            links.list_links(ListLinksRequest {}),
            jobs.list_jobs(ListJobsRequest {}),
            policies.list_policies(ListPoliciesRequest { places: false }),
            nodes.list_nodes(ListNodesRequest {}),
        )?;
        let mut stated = stated.into_inner().policies;
        if stated.iter().any(|policy| policy.phase == REALIZING) {
            stated =
                policies.list_policies(ListPoliciesRequest { places: true }).await?.into_inner().policies;
        }
        let consumers = match storage.list_consumers(ListConsumersRequest {}).await {
            Ok(reply) => Some(reply.into_inner().consumers),
            Err(status) if matches!(status.code(), Code::FailedPrecondition | Code::Unimplemented) => None,
            Err(status) => return Err(status).context("cannot ask for consumers"),
        };
        Ok(Self {
            status,
            clouds: clouds.into_inner().clouds,
            resources: resources.into_inner().resources,
            links: links.into_inner().links,
            jobs: jobs.into_inner().jobs,
            policies: stated,
            nodes: nodes.into_inner().nodes,
            consumers,
        })
    }

    pub fn started(&self) -> Option<Timestamp> {
        Timestamp::from_second(self.status.started_at).ok()
    }

    /// `Trestle 0.1.0   ready   up 3 h   embedded store at revision 812`.
    pub fn headline(&self, now: Timestamp) -> String {
        let up = self.started().map(|start| duration(now.duration_since(start))).unwrap_or_default();
        let ready = if self.status.ready { "ready" } else { "NOT READY" };
        let Status { version, store, revision, .. } = &self.status;
        format!("Trestle {version}   {ready}   up {up}   {store} store at revision {revision}")
    }

    pub fn lines(&self) -> Vec<Line> {
        let line = |noun, count, detail| Line { noun, count, detail };
        let connected = self.nodes.iter().filter(|node| node.connected).count();
        let nodes = match self.nodes.len() {
            0 => String::new(),
            all => format!("{connected} connected, {} away", all - connected),
        };
        let running = self.jobs.iter().filter(|job| job.state == "running").count();
        let mut lines = vec![
            line("clouds", self.clouds.len(), clouds_told(&self.clouds)),
            line(
                "resources",
                self.resources.len(),
                tally(self.resources.iter().map(|one| one.state.as_str())),
            ),
            line("links", self.links.len(), tally(self.links.iter().map(|one| one.state.as_str()))),
            line("policies", self.policies.len(), tally(self.policies.iter().map(|one| one.phase.as_str()))),
            line("nodes", self.nodes.len(), nodes),
            line("jobs", running, "running".to_owned()),
        ];
        if self.status.staged > 0 {
            let staged = usize::try_from(self.status.staged).unwrap_or(usize::MAX);
            lines.push(line("staged", staged, "not in force: trestle staged".to_owned()));
        }
        let slow = &self.status.slowest_nodes;
        if !slow.is_empty() {
            let told = |node: &SlowNode| format!("{} {} ({})", node.name, took(node.seconds), node.kind);
            let told = slow.iter().map(told).collect::<Vec<_>>().join(", ");
            lines.push(line(
                "slowest",
                slow.len(),
                format!("from a change to the kernel, last 5 min: {told}"),
            ));
        }
        if let Some(consumers) = &self.consumers {
            let used: u64 = consumers.iter().filter_map(|one| one.used_bytes).sum();
            let granted: u64 = consumers.iter().map(|one| one.granted_bytes).sum();
            let detail = if consumers.is_empty() {
                String::new()
            } else {
                format!("{} of {} used", bytes(used), bytes(granted))
            };
            lines.push(line("consumers", consumers.len(), detail));
        }
        lines
    }

    /// Places of which nobody has ever heard, and how many policies are to be enforced there.
    fn deserted(&self) -> impl Iterator<Item = (&str, String)> {
        let known: BTreeSet<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        let mut places = BTreeMap::<&str, usize>::new();
        for policy in self.policies.iter().filter(|policy| policy.phase == REALIZING) {
            let places_of_agents = policy.places.iter().filter(|place| !is_cloud(place));
            for place in places_of_agents.filter(|place| !known.contains(place.as_str())) {
                *places.entry(place).or_default() += 1;
            }
        }
        places.into_iter().map(|(place, count)| match count {
            1 => (place, "a policy is".to_owned()),
            _ => (place, format!("{count} policies are")),
        })
    }

    /// What is not as it should be, worst first.
    pub fn troubles(&self, now: Timestamp) -> Vec<Trouble> {
        let trouble = |what: String, look: String| Trouble { what, look };
        let mut found: Vec<Trouble> = Vec::new();
        found.extend(self.status.problems.iter().map(|problem| {
            trouble(format!("the controller is not ready: {problem}"), "trestle store --help".to_owned())
        }));
        found
            .extend(self.status.attention.iter().map(|what| trouble(what.clone(), look_at(what).to_owned())));
        found.extend(
            self.status
                .storage_trouble
                .iter()
                .map(|what| trouble(what.clone(), "trestle consumer list".to_owned())),
        );
        for node in self.nodes.iter().filter(|node| !was_never_here(node)) {
            let look = format!("trestle node get {}", node.name);
            if !node.connected {
                let since = node.disconnected_at.and_then(|at| Timestamp::from_second(at).ok());
                let since = since.map(|at| format!(" for {}", duration(now.duration_since(at))));
                let what = format!("node {} is away{}", node.name, since.unwrap_or_default());
                found.push(trouble(format!("{what}: it keeps what it has and hears of no change"), look));
            } else if let Some(error) = node.errors.first() {
                let what = format!("node {} could not apply {}: {}", node.name, error.name, error.message);
                found.push(trouble(what, look));
            } else if node.lag_seconds > BEHIND_SECONDS {
                let what = format!("node {} is {:.0} s behind", node.name, node.lag_seconds);
                found.push(trouble(what, look));
            }
        }
        let never: Vec<&str> =
            self.nodes.iter().filter(|node| was_never_here(node)).map(|node| node.name.as_str()).collect();
        if !never.is_empty() {
            let more = never.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let named = never.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
            let what = format!("no agent has ever connected as {named}{more}: nothing is enforced there");
            found.push(trouble(what, "trestle node list".to_owned()));
        }
        for (place, policies) in self.deserted() {
            let what = format!("no agent has ever connected as {place}: {policies} not enforced there");
            found.push(trouble(what, "trestle node list".to_owned()));
        }
        for policy in &self.policies {
            let name = [policy.namespace.as_str(), policy.name.as_str()].join("/");
            let name = name.trim_start_matches('/');
            let why = policy.problems.first().map(|problem| format!("{}: {}", problem.path, problem.message));
            let why =
                why.or_else(|| policy.failures.first().map(|one| format!("{}: {}", one.node, one.message)));
            if let Some(why) = why {
                let what = format!("policy {name} is not enforced as written: {why}");
                found.push(trouble(what, "trestle policy list".to_owned()));
            }
        }
        for resource in self.resources.iter().filter(|resource| !resource.message.is_empty()) {
            let look = format!("trestle resource get {}", resource.name);
            found.push(trouble(
                format!("resource {} is {}: {}", resource.name, resource.state, resource.message),
                look,
            ));
        }
        for link in self.links.iter().filter(|link| !link.message.is_empty() || is_down(link)) {
            let ends: Vec<&str> =
                [&link.a, &link.b].into_iter().flatten().map(|end| end.site.as_str()).collect();
            let why = if link.message.is_empty() { "no tunnel is up" } else { &link.message };
            found.push(trouble(
                format!("link {} is in trouble: {why}", ends.join(" - ")),
                "trestle link list".to_owned(),
            ));
        }
        for job in self.jobs.iter().filter(|job| job.state == "failed" && is_late(&job.ended_at, now)) {
            found.push(trouble(
                format!("a job failed: {}: {}", job.what, job.message),
                format!("trestle job get {}", job.id),
            ));
        }
        for consumer in self.consumers.iter().flatten() {
            let share =
                consumer.used_bytes.unwrap_or_default() as f64 / (consumer.granted_bytes.max(1)) as f64;
            if consumer.phase == "Failed" {
                let what = format!("consumer {} failed: {}", consumer.id, consumer.reason);
                found.push(trouble(what, format!("trestle consumer get {}", consumer.id)));
            } else if share > NEARLY {
                let what = format!("consumer {} has used {:.0} % of its grant", consumer.id, share * 100.0);
                found.push(trouble(what, format!("trestle consumer resize {} CAPACITY", consumer.id)));
            }
        }
        found
    }
}

/// A node that is stored, and nobody ever came for it.
fn was_never_here(node: &NodeStatus) -> bool {
    !node.connected && node.connected_at.is_none() && node.disconnected_at.is_none()
}

/// The command that shows more of what the controller wants looked at.
fn look_at(what: &str) -> &'static str {
    match what.split([' ', '/']).next() {
        Some("cloud") => "trestle cloud list",
        Some("resource") => "trestle rule list; trestle check",
        _ => "trestle check; trestle apply or delete",
    }
}

/// Clouds enforce what is theirs in permit lists.
fn is_cloud(place: &str) -> bool {
    place == "cloud" || place.starts_with("cloud/")
}

fn is_down(link: &LinkInfo) -> bool {
    let status = |end: &Option<wire::trestle::v1::LinkEnd>| end.as_ref().and_then(|end| end.status.clone());
    link.state == "ready"
        && [status(&link.a), status(&link.b)]
            .into_iter()
            .flatten()
            .any(|status| status.tunnels > 0 && status.tunnels_up == 0)
}

fn is_late(ended_at: &str, now: Timestamp) -> bool {
    ended_at.parse::<Timestamp>().is_ok_and(|ended| now.duration_since(ended) < LATELY)
}

/// `3 ready, 1 making`, most first.
fn tally<'a>(states: impl Iterator<Item = &'a str>) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for state in states {
        match counts.iter_mut().find(|(known, _)| *known == state) {
            Some((_, count)) => *count += 1,
            None => counts.push((state, 1)),
        }
    }
    counts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    counts
        .iter()
        .map(|(state, count)| format!("{count} {}", state.to_lowercase()))
        .collect::<Vec<_>>()
        .join(", ")
}

/// `3 d 4 h`, `12 min`, `5 s`.
pub fn duration(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, _) => format!("{m} min"),
        (0, h, m, _) => format!("{h} h {m} min"),
        (d, h, _, _) => format!("{d} d {h} h"),
    }
}

/// `1.5 GiB`.
pub fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}

#[cfg(test)]
mod tests {
    use wire::trestle::v1::{NodeObjectError, PolicyProblem};

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_000_000).unwrap()
    }

    fn node(name: &str) -> NodeStatus {
        NodeStatus { name: name.to_owned(), connected: true, ..NodeStatus::default() }
    }

    #[test]
    fn what_is_well_is_no_trouble() {
        let consumer = Consumer {
            granted_bytes: 100,
            used_bytes: Some(50),
            phase: "Ready".into(),
            ..Consumer::default()
        };
        let policy = PolicyState { phase: "Realized".into(), ..PolicyState::default() };
        let old =
            JobInfo { state: "failed".into(), ended_at: "1970-01-01T00:00:00Z".into(), ..JobInfo::default() };
        let overview = Overview {
            nodes: vec![node("a")],
            policies: vec![policy],
            jobs: vec![old],
            consumers: Some(vec![consumer]),
            ..Overview::default()
        };
        assert_eq!(overview.troubles(now()), []);
    }

    #[test]
    fn every_kind_of_trouble_is_told_with_what_to_look_at() {
        let away =
            NodeStatus { connected: false, disconnected_at: Some(now().as_second() - 300), ..node("b") };
        let error =
            NodeObjectError { name: "p".into(), message: "no table".into(), ..NodeObjectError::default() };
        let failing = NodeStatus { errors: vec![error], ..node("c") };
        let slow = NodeStatus { lag_seconds: 60.0, ..node("d") };
        let problem = PolicyProblem { path: "spec.x".into(), message: "unknown".into() };
        let policy = PolicyState {
            namespace: "shop".into(),
            name: "db".into(),
            problems: vec![problem],
            ..PolicyState::default()
        };
        let job = JobInfo {
            state: "failed".into(),
            ended_at: now().to_string(),
            what: "make".into(),
            ..JobInfo::default()
        };
        let full =
            Consumer { id: "c1".into(), granted_bytes: 100, used_bytes: Some(95), ..Consumer::default() };
        let overview = Overview {
            nodes: vec![node("a"), away, failing, slow],
            policies: vec![policy],
            jobs: vec![job],
            consumers: Some(vec![full]),
            resources: vec![ResourceInfo {
                name: "n.c.r".into(),
                message: "quota".into(),
                ..ResourceInfo::default()
            }],
            links: vec![LinkInfo { message: "no route".into(), ..LinkInfo::default() }],
            ..Overview::default()
        };
        let troubles = overview.troubles(now());
        assert_eq!(troubles.len(), 8, "{troubles:#?}");
        assert!(troubles[0].what.contains("node b is away for 5 min"), "{troubles:#?}");
        assert!(troubles.iter().all(|trouble| trouble.look.starts_with("trestle ")));
    }

    #[test]
    fn nodes_without_an_agent_are_told_once() {
        let node = |n| NodeStatus { name: format!("n{n}"), ..NodeStatus::default() };
        let overview = Overview { nodes: (0..40).map(node).collect(), ..Overview::default() };
        let told: Vec<String> = overview.troubles(now()).into_iter().map(|trouble| trouble.what).collect();
        assert_eq!(
            told,
            ["no agent has ever connected as n0, n1, n2, n3 and 36 more: nothing is enforced there"]
        );
    }

    /// Nothing needs attention where a policy is enforced, or a node that is known is on its way.
    #[test]
    fn a_policy_for_a_node_that_never_came_is_told() {
        let policy = |phase: &str, places: &[&str]| PolicyState {
            phase: phase.into(),
            places: places.iter().map(|place| (*place).to_owned()).collect(),
            ..PolicyState::default()
        };
        let overview = Overview {
            nodes: vec![node("a")],
            policies: vec![
                policy(REALIZING, &["a", "cloud", "n1"]),
                policy(REALIZING, &["n1", "shop/vm"]),
                policy("Realized", &["a"]),
            ],
            ..Overview::default()
        };
        let told: Vec<String> = overview.troubles(now()).into_iter().map(|trouble| trouble.what).collect();
        assert_eq!(
            told,
            [
                "no agent has ever connected as n1: 2 policies are not enforced there",
                "no agent has ever connected as shop/vm: a policy is not enforced there",
            ]
        );
    }

    #[test]
    fn counts_are_told_by_state() {
        let resource = |state: &str| ResourceInfo { state: state.into(), ..ResourceInfo::default() };
        let overview = Overview {
            resources: vec![resource("ready"), resource("making"), resource("ready")],
            ..Overview::default()
        };
        let line = overview.lines().into_iter().find(|line| line.noun == "resources").unwrap();
        assert_eq!((line.count, line.detail.as_str()), (3, "2 ready, 1 making"));
    }
}
