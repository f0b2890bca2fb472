//! `trestle replay` and `trestle suggest`: connections that were seen, held against policies and made into policies.

use std::{fmt::Write as _, path::PathBuf};

use anyhow::{Context as _, bail};
use serde_json::Value;
use wire::trestle::v1::{
    ReplayRequest, ReplayResponse, ReplayedFlow, SeenFlow, SuggestRequest, SuggestResponse,
    policies_client::PoliciesClient,
};

use crate::{
    client::{Connection, MAX_MESSAGE},
    exit::{Answer, answering},
    manifest,
    output::{Format, Rows, print, warn},
};

const NOTHING_SEEN: &str = "nodes have told of no connection in that time; see `trestle flows`";

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
    /// Also policies of egress, which close what was not seen to leave
    #[arg(long)]
    egress: bool,
}

/// Connections of a file; none if nodes are asked, which the controller does.
fn seen(file: Option<&PathBuf>) -> anyhow::Result<Vec<SeenFlow>> {
    file.map_or_else(|| Ok(Vec::new()), read)
}

/// Since when, if there is no file.
fn since(file: Option<&PathBuf>, since: String) -> String {
    if file.is_none() { since } else { String::new() }
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
    let (flows, since) = (seen(args.flows.as_ref())?, since(args.flows.as_ref(), args.since));
    let manifests = if args.files.is_empty() { Vec::new() } else { manifest::read(args.files).await? };
    let documents = manifests.into_iter().map(|one| one.document.into_vec()).collect();
    let is_of_nodes = !since.is_empty();
    let request = ReplayRequest { flows, documents, staged: args.staged, since };
    let mut policies = PoliciesClient::new(connection).max_decoding_message_size(MAX_MESSAGE);
    let told = policies.replay(request).await?.into_inner();
    told.notes.iter().for_each(|note| warn(note));
    if is_of_nodes && told.changed.is_empty() && told.same + told.unknown == 0 {
        bail!("{NOTHING_SEEN}");
    }
    match output {
        Format::Table => output.done(&summary(&told), &told)?,
        Format::Json | Format::Yaml => output.data(&told)?,
        Format::Wide | Format::Name => output.list(&told.changed)?,
    }
    if told.changed.is_empty() { Ok(()) } else { Err(Answer(1).into()) }
}

fn summary(told: &ReplayResponse) -> String {
    let mut text = String::new();
    lines(&mut text, "", told);
    let unknown = match told.unknown {
        0 => String::new(),
        many => format!(", {many} of workloads that are not there"),
    };
    let changed: u64 = told.changed.iter().map(|one| one.count).sum();
    let _ =
        write!(text, "{changed} connections would be decided otherwise, {} as they are{unknown}", told.same);
    text
}

/// Those that would be decided otherwise, each with the rules.
pub fn lines(text: &mut String, indent: &str, told: &ReplayResponse) {
    for one in &told.changed {
        let ReplayedFlow { from, to, traffic, count, before, after, decided_before, decided_after, last } =
            one;
        let last = if last.is_empty() { String::new() } else { format!(", last {last}") };
        let _ = writeln!(
            text,
            "{indent}{from} to {to} {traffic}, {count} times{last}: {before}, would be {after}"
        );
        let _ = writeln!(text, "{indent}    now:  {}", decided_before.join("; "));
        let _ = writeln!(text, "{indent}    then: {}", decided_after.join("; "));
    }
    if told.left_out > 0 {
        let _ = writeln!(text, "{indent}… and {} more", told.left_out);
    }
}

impl Rows for ReplayedFlow {
    const HEADER: &'static [&'static str] = &["from", "to", "traffic", "count", "now", "then"];
    const WIDE: &'static [&'static str] = &["last", "decided now", "decided then"];

    fn row(&self) -> Vec<String> {
        let count = self.count.to_string();
        let Self { from, to, traffic, before, after, .. } = self;
        [from, to, traffic, &count, before, after].map(String::clone).to_vec()
    }

    fn wide(&self) -> Vec<String> {
        vec![self.last.clone(), self.decided_before.join("; "), self.decided_after.join("; ")]
    }
}

pub async fn suggest(args: SuggestArgs, output: Format, connection: Connection) -> anyhow::Result<()> {
    let (flows, since) = (seen(args.flows.as_ref())?, since(args.flows.as_ref(), args.since));
    let request = SuggestRequest { flows, namespace: args.namespace, since, egress: args.egress };
    let mut policies = PoliciesClient::new(connection).max_decoding_message_size(MAX_MESSAGE);
    let told = policies.suggest(request).await?.into_inner();
    if output == Format::Json {
        return output.data(&told);
    }
    told.notes.iter().for_each(|note| warn(note));
    if told.policies.is_empty() {
        bail!("there is nothing to suggest");
    }
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
