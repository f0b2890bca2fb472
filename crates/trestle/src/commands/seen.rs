//! `trestle replay` and `trestle suggest`: connections that were seen, held against policies and made into policies.

use std::{collections::BTreeSet, fmt::Write as _, path::PathBuf};

use anyhow::{Context as _, bail};
use serde_json::Value;
use wire::trestle::v1::{
    Flow, FlowEnd, FlowsRequest, ReplayRequest, ReplayResponse, ReplayedFlow, SeenEnd, SeenFlow,
    SuggestRequest, SuggestResponse, flows_client::FlowsClient, policies_client::PoliciesClient,
};

use crate::{
    client::{Connection, MAX_MESSAGE},
    exit::{Answer, answering},
    manifest,
    output::{Format, Rows, print, warn},
};

/// Rows of what nodes have seen.
const MOST_FLOWS: u32 = 10_000;

/// Flags of `trestle replay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "A file of flows is a JSON list:

  [{\"from\": {\"namespace\": \"shop\", \"labels\": {\"app\": \"web\"}}, \"to\": {\"namespace\": \"shop\", \"labels\": {\"app\": \"db\"}},
    \"port\": 5432, \"protocol\": \"tcp\", \"count\": 12}]

An end is a namespace with labels, or {\"address\": \"198.51.100.7\"}.

Exit codes: 0 all would be decided as they are, 1 some would not; 2 for what could not be replayed.

Examples:
  trestle replay -f changed.yaml --since 7d            what nodes have seen (`trestle flows`)
  trestle replay -f changed.yaml --flows flows.json
  trestle replay --staged --since 1h")]
pub struct ReplayArgs {
    /// What is tried: YAML or JSON file, directory, or - for standard input
    #[arg(short, long = "file", value_name = "FILE", required_unless_present = "staged")]
    files: Vec<PathBuf>,
    /// As if all that is staged were in force
    #[arg(long)]
    staged: bool,
    /// JSON file with connections that were seen, instead of what nodes have seen
    #[arg(long, value_name = "FILE", conflicts_with = "since")]
    flows: Option<PathBuf>,
    /// What nodes have seen from then on: a time, or how long ago
    #[arg(long, value_name = "TIME", default_value = "7d")]
    since: String,
}

/// Flags of `trestle suggest`.
#[derive(Debug, clap::Args)]
#[command(after_help = "`trestle replay --help` shows a file of flows.

Examples:
  trestle suggest --since 7d > suggested.yaml          from what nodes have seen (`trestle flows`)
  trestle suggest -f flows.json
  trestle suggest --namespace shop | trestle apply --stage -f -")]
pub struct SuggestArgs {
    /// JSON file with connections that were seen, instead of what nodes have seen
    #[arg(short, long = "file", value_name = "FILE", conflicts_with = "since")]
    flows: Option<PathBuf>,
    /// What nodes have seen from then on: a time, or how long ago
    #[arg(long, value_name = "TIME", default_value = "7d")]
    since: String,
    /// Only for what is in this namespace
    #[arg(short, long, default_value = "", hide_default_value = true)]
    namespace: String,
}

/// From a file, or as nodes have seen them.
async fn seen(
    file: Option<&PathBuf>,
    since: String,
    with_denied: bool,
    connection: Connection,
) -> anyhow::Result<Vec<SeenFlow>> {
    if let Some(path) = file {
        return read(path);
    }
    let request = FlowsRequest { since, limit: MOST_FLOWS, ..FlowsRequest::default() };
    let mut client = FlowsClient::new(connection).max_decoding_message_size(MAX_MESSAGE);
    let list = client.top_flows(request).await?.into_inner();
    if list.more {
        warn(&format!("more was seen than the {MOST_FLOWS} most frequent connections, which are looked at"));
    }
    let (seen, left_out) = recorded(list.flows, with_denied);
    if left_out > 0 {
        warn(&format!(
            "{left_out} rows name no port or no end that labels or an address tell; they are left out"
        ));
    }
    if seen.is_empty() {
        bail!("nodes have told of no connection in that time; see `trestle flows`");
    }
    Ok(seen)
}

/// What nodes tell, once for each connection: the node that it comes to tells it, and where that one does not, the node that it leaves.
/// And how many rows cannot be said so.
fn recorded(flows: Vec<Flow>, with_denied: bool) -> (Vec<SeenFlow>, usize) {
    let wanted = flows.into_iter().filter(|flow| with_denied || flow.verdict != "denied");
    let (arriving, others): (Vec<Flow>, Vec<Flow>) = wanted.partition(|flow| flow.direction == "in");
    let mut known = BTreeSet::new();
    let (mut seen, mut left_out) = (Vec::new(), 0);
    for (flows, is_arriving) in [(arriving, true), (others, false)] {
        let mut keys = Vec::new();
        for flow in flows {
            let ends = [&flow.from, &flow.to].map(|end| end.as_ref().and_then(seen_end));
            let (Some(port), [Some(from), Some(to)]) = (port_of(&flow), ends) else {
                left_out += 1;
                continue;
            };
            let key = (text(&from), text(&to), flow.protocol.clone(), port);
            if !is_arriving && known.contains(&key) {
                continue;
            }
            keys.push(key);
            let protocol = if flow.protocol == "icmpv6" { "icmp".to_owned() } else { flow.protocol };
            seen.push(SeenFlow { from: Some(from), to: Some(to), protocol, port, count: flow.count });
        }
        known.extend(keys);
    }
    (seen, left_out)
}

/// None: it has one, and it is not known which.
fn port_of(flow: &Flow) -> Option<u32> {
    match flow.protocol.as_str() {
        "tcp" | "udp" | "sctp" => flow.port.filter(|port| *port > 0),
        "icmp" | "icmpv6" => Some(0),
        _ => None,
    }
}

fn seen_end(end: &FlowEnd) -> Option<SeenEnd> {
    if let Some((namespace, _)) = end.workload.strip_prefix("Pod ").and_then(|name| name.split_once('/')) {
        let (namespace, labels) = (namespace.to_owned(), end.labels.clone());
        return Some(SeenEnd { namespace, labels, address: String::new() });
    }
    let address = end.address.clone();
    (!address.is_empty()).then(|| SeenEnd { address, ..SeenEnd::default() })
}

fn text(end: &SeenEnd) -> String {
    format!("{} {:?} {}", end.namespace, end.labels, end.address)
}

fn read(path: &PathBuf) -> anyhow::Result<Vec<SeenFlow>> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text)
        .with_context(|| format!("{} is no list of flows; see `trestle replay --help`", path.display()))
}

pub async fn replay(args: ReplayArgs, output: Format, connection: Connection) -> anyhow::Result<()> {
    answering(true, play(args, output, connection).await)
}

async fn play(args: ReplayArgs, output: Format, connection: Connection) -> anyhow::Result<()> {
    let flows = seen(args.flows.as_ref(), args.since, true, connection.clone()).await?;
    let manifests = if args.files.is_empty() { Vec::new() } else { manifest::read(args.files).await? };
    let documents = manifests.into_iter().map(|one| one.document.into_vec()).collect();
    let request = ReplayRequest { flows, documents, staged: args.staged };
    let mut policies = PoliciesClient::new(connection).max_decoding_message_size(MAX_MESSAGE);
    let told = policies.replay(request).await?.into_inner();
    match output {
        Format::Table => output.done(&summary(&told), &told)?,
        Format::Json | Format::Yaml => output.data(&told)?,
        Format::Wide | Format::Name => output.list(&told.changed)?,
    }
    if told.changed.is_empty() { Ok(()) } else { Err(Answer(1).into()) }
}

fn summary(told: &ReplayResponse) -> String {
    let mut text = String::new();
    for ReplayedFlow { from, to, traffic, count, before, after, decided_before, decided_after } in
        &told.changed
    {
        let _ = writeln!(text, "{from} to {to} {traffic}, {count} times: {before}, would be {after}");
        let _ = writeln!(text, "    now:  {}", decided_before.join("; "));
        let _ = writeln!(text, "    then: {}", decided_after.join("; "));
    }
    let unknown = match told.unknown {
        0 => String::new(),
        many => format!(", {many} of workloads that are not there"),
    };
    let changed: u64 = told.changed.iter().map(|one| one.count).sum();
    let _ =
        write!(text, "{changed} connections would be decided otherwise, {} as they are{unknown}", told.same);
    text
}

impl Rows for ReplayedFlow {
    const HEADER: &'static [&'static str] = &["from", "to", "traffic", "count", "now", "then"];
    const WIDE: &'static [&'static str] = &["decided now", "decided then"];

    fn row(&self) -> Vec<String> {
        let count = self.count.to_string();
        let Self { from, to, traffic, before, after, .. } = self;
        [from, to, traffic, &count, before, after].map(String::clone).to_vec()
    }

    fn wide(&self) -> Vec<String> {
        vec![self.decided_before.join("; "), self.decided_after.join("; ")]
    }
}

pub async fn suggest(args: SuggestArgs, output: Format, connection: Connection) -> anyhow::Result<()> {
    let flows = seen(args.flows.as_ref(), args.since, false, connection.clone()).await?;
    let request = SuggestRequest { flows, namespace: args.namespace };
    let mut policies = PoliciesClient::new(connection).max_decoding_message_size(MAX_MESSAGE);
    let told = policies.suggest(request).await?.into_inner();
    if output == Format::Json {
        return output.data(&told);
    }
    told.notes.iter().for_each(|note| warn(note));
    print(&yaml(&told)?)
}

/// Documents that can be staged or applied, each with what it is for.
fn yaml(told: &SuggestResponse) -> anyhow::Result<String> {
    let mut text = String::new();
    for policy in &told.policies {
        let document: Value = serde_json::from_str(&policy.document).context("a policy is no JSON")?;
        text.push_str("---\n");
        policy.because.iter().for_each(|why| {
            let _ = writeln!(text, "# {why}");
        });
        text.push_str(serde_saphyr::to_string(&document)?.trim_end());
        text.push('\n');
    }
    Ok(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(direction: &str, from: &str, to: &str, port: Option<u32>) -> Flow {
        let end = |text: &str| match text.split_once('/') {
            Some(_) => FlowEnd {
                address: "10.0.0.1".into(),
                workload: format!("Pod {text}"),
                labels: [("app".to_owned(), text.to_owned())].into(),
                tags: Vec::new(),
            },
            None => FlowEnd { address: text.into(), ..FlowEnd::default() },
        };
        Flow {
            direction: direction.into(),
            verdict: "allowed".into(),
            from: Some(end(from)),
            to: Some(end(to)),
            protocol: "tcp".into(),
            port,
            count: 2,
            ..Flow::default()
        }
    }

    #[test]
    fn a_connection_that_two_nodes_tell_counts_once() {
        let both = [
            ("in", "s/a", "s/b", Some(80)),
            ("out", "s/a", "s/b", Some(80)),
            ("out", "s/a", "192.0.2.1", Some(443)),
        ];
        let both = both.map(|(direction, from, to, port)| flow(direction, from, to, port));
        let many = flow("in", "s/a", "s/b", None);
        let nobody = flow("in", "", "s/b", Some(80));
        let denied = Flow { verdict: "denied".into(), ..flow("in", "s/c", "s/b", Some(80)) };
        let all: Vec<Flow> = both.into_iter().chain([many, nobody, denied]).collect();
        let (seen, left_out) = recorded(all.clone(), false);
        assert_eq!((seen.len(), left_out), (2, 2), "{seen:?}");
        assert_eq!(seen[0].from.as_ref().unwrap().namespace, "s");
        assert_eq!(seen[1].to.as_ref().unwrap().address, "192.0.2.1");
        assert_eq!(recorded(all, true).0.len(), 3);
    }
}
