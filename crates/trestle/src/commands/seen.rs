//! `trestle replay` and `trestle suggest`: connections that were seen, held against policies and made into policies.

use std::{fmt::Write as _, path::PathBuf};

use anyhow::Context as _;
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

/// Flags of `trestle replay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "A file of flows is a JSON list:

  [{\"from\": {\"namespace\": \"shop\", \"labels\": {\"app\": \"web\"}}, \"to\": {\"namespace\": \"shop\", \"labels\": {\"app\": \"db\"}},
    \"port\": 5432, \"protocol\": \"tcp\", \"count\": 12}]

An end is a namespace with labels, or {\"address\": \"198.51.100.7\"}.

Exit codes: 0 all would be decided as they are, 1 some would not; 2 for what could not be replayed.

Examples:
  trestle replay -f changed.yaml --flows flows.json
  trestle replay --staged --flows flows.json")]
pub struct ReplayArgs {
    /// What is tried: YAML or JSON file, directory, or - for standard input
    #[arg(short, long = "file", value_name = "FILE", required_unless_present = "staged")]
    files: Vec<PathBuf>,
    /// As if all that is staged were in force
    #[arg(long)]
    staged: bool,
    /// JSON file with the connections that were seen
    #[arg(long, value_name = "FILE")]
    flows: PathBuf,
}

/// Flags of `trestle suggest`.
#[derive(Debug, clap::Args)]
#[command(after_help = "`trestle replay --help` shows a file of flows.

Examples:
  trestle suggest -f flows.json > suggested.yaml
  trestle suggest -f flows.json --namespace shop | trestle apply --stage -f -")]
pub struct SuggestArgs {
    /// JSON file with the connections that were seen
    #[arg(short, long = "file", value_name = "FILE")]
    flows: PathBuf,
    /// Only for what is in this namespace
    #[arg(short, long, default_value = "", hide_default_value = true)]
    namespace: String,
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
    let flows = read(&args.flows)?;
    let manifests = if args.files.is_empty() { Vec::new() } else { manifest::read(args.files).await? };
    let documents = manifests.into_iter().map(|one| one.document.into_vec()).collect();
    let request = ReplayRequest { flows, documents, staged: args.staged };
    let mut policies = PoliciesClient::new(connection).max_decoding_message_size(MAX_MESSAGE);
    let told = policies.replay(request).await?.into_inner();
    match output {
        Format::Table => output.done(&text(&told), &told)?,
        Format::Json | Format::Yaml => output.data(&told)?,
        Format::Wide | Format::Name => output.list(&told.changed)?,
    }
    if told.changed.is_empty() { Ok(()) } else { Err(Answer(1).into()) }
}

fn text(told: &ReplayResponse) -> String {
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
    let flows = read(&args.flows)?;
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
