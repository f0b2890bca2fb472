//! `trestle staged`, `promote` and `discard`: changes that are kept beside what is in force (`apply --stage`, `delete --stage`).

use std::fmt::Write as _;

use anyhow::bail;
use jiff::Timestamp;
use tonic::Status;
use wire::trestle::v1::{
    ApplyObjectsResponse, DiscardStagedRequest, ListStagedRequest, ListStagedResponse, ObjectRef,
    PromoteStagedRequest, ReplayResponse, StagedChange, StagedReach, objects_client::ObjectsClient,
};

use crate::{
    client::{Connection, MAX_MESSAGE},
    commands::{
        enforcement::{Changes, WaitArgs},
        object::{DRY_RUN, Shown, label},
        seen,
    },
    output::{Format, Rows, warn},
};

/// Flags of `trestle staged`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  trestle apply --stage -f policies/
  trestle staged                        each change: who would reach whom that does not now, or no longer, and which connections
                                        that nodes have seen in seven days would be decided otherwise, newest first
  trestle staged --since 1h
  trestle explain shop/web-1 shop/db-0 --staged
  trestle test --staged
  trestle promote shop/db")]
pub struct StagedArgs {
    /// Only list them: do not work out who would reach whom, and do not look at connections that were seen
    #[arg(long)]
    quick: bool,
    /// Hold the connections that nodes have seen from then on against each: a time, or how long ago
    #[arg(long, value_name = "TIME", default_value = "7d", conflicts_with = "quick")]
    since: String,
}

/// Which of what is staged.
#[derive(Debug, clap::Args)]
struct Which {
    /// As `trestle staged` shows them: NAMESPACE/NAME, or NAME
    #[arg(required_unless_present = "all", value_name = "NAME")]
    names: Vec<String>,
    /// Of several kinds with this name, the one of this kind
    #[arg(long)]
    kind: Option<String>,
    /// All that is staged
    #[arg(long, conflicts_with_all = ["names", "kind"])]
    all: bool,
}

/// Flags of `trestle promote`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  trestle promote shop/db --wait
  trestle promote shop/db --if-clean 7d
  trestle promote --all --dry-run")]
pub struct PromoteArgs {
    #[command(flatten)]
    which: Which,
    /// Show what would change and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do it although a policy test fails then
    #[arg(long)]
    despite_tests: bool,
    /// Only if no connection that nodes have seen from then on would be decided otherwise: a time, or how long ago, as in 7d
    #[arg(long, value_name = "TIME", default_value = "", hide_default_value = true)]
    if_clean: String,
    #[command(flatten)]
    wait: WaitArgs,
}

/// Flags of `trestle discard`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  trestle discard shop/db
  trestle discard --all")]
pub struct DiscardArgs {
    #[command(flatten)]
    which: Which,
}

fn client(connection: Connection) -> ObjectsClient<Connection> {
    ObjectsClient::new(connection).max_decoding_message_size(MAX_MESSAGE)
}

pub async fn list(args: StagedArgs, output: Format, connection: Connection) -> anyhow::Result<()> {
    let request =
        ListStagedRequest { reach: !args.quick, since: if args.quick { String::new() } else { args.since } };
    let staged = client(connection).list_staged(request).await?.into_inner();
    staged.notes.iter().for_each(|note| warn(note));
    match output {
        Format::Json | Format::Yaml => output.data(&staged),
        Format::Name | Format::Wide => output.list(&staged.changes),
        Format::Table => output.done(&text(&staged), &staged),
    }
}

fn text(staged: &ListStagedResponse) -> String {
    if staged.changes.is_empty() {
        return "Nothing is staged".to_owned();
    }
    let mut text = String::new();
    for change in &staged.changes {
        let name = change.object.as_ref().map(label).unwrap_or_default();
        let at = Timestamp::from_second(change.staged_at).unwrap_or_default();
        let _ = writeln!(text, "{name}   would be {}, staged {at}", would(change));
        change.breaks.iter().for_each(|test| {
            let _ = writeln!(text, "    breaks {test}");
        });
        what(&mut text, change.reach.as_ref(), change.seen.as_ref());
    }
    if staged.changes.len() > 1 && (staged.together.is_some() || staged.together_seen.is_some()) {
        text.push_str("all together\n");
        what(&mut text, staged.together.as_ref(), staged.together_seen.as_ref());
    }
    text.trim_end().to_owned()
}

fn would(change: &StagedChange) -> &'static str {
    change.outcome().word()
}

/// What it would come to, for all pairs and for connections that were seen.
fn what(text: &mut String, reach: Option<&StagedReach>, seen: Option<&ReplayResponse>) {
    if let Some(reach) = reach {
        lines(text, reach);
    }
    let Some(seen) = seen else { return };
    if seen.changed.is_empty() && seen.left_out == 0 {
        let _ =
            writeln!(text, "    of {} connections that were seen none would be decided otherwise", seen.same);
    } else {
        let _ = writeln!(text, "    connections that were seen and would be decided otherwise:");
        seen::lines(text, "      ", seen);
    }
    if seen.unknown > 0 {
        let _ = writeln!(text, "    {} connections were of workloads that are not there", seen.unknown);
    }
}

fn lines(text: &mut String, reach: &StagedReach) {
    if reach.pairs.is_empty() {
        text.push_str("    nobody reaches anybody otherwise\n");
    }
    for pair in &reach.pairs {
        let word = match pair.open_after.cmp(&pair.open_before) {
            std::cmp::Ordering::Less => "closes",
            std::cmp::Ordering::Equal => "changes",
            std::cmp::Ordering::Greater => "opens",
        };
        let ports = |ports: &str| if ports.is_empty() { "nothing".to_owned() } else { ports.to_owned() };
        let _ = writeln!(
            text,
            "    {word} {} to {}: {} of {} pairs had {}, {} would have {}",
            pair.from,
            pair.to,
            pair.open_before,
            pair.pairs,
            ports(&pair.before),
            pair.open_after,
            ports(&pair.after)
        );
    }
    if reach.left_out > 0 {
        let _ = writeln!(text, "    … and {} more", reach.left_out);
    }
}

impl Rows for StagedChange {
    const HEADER: &'static [&'static str] = &["kind", "namespace", "name", "would be", "staged", "breaks"];

    fn row(&self) -> Vec<String> {
        let ObjectRef { kind, namespace, name } = self.object.clone().unwrap_or_default();
        let at = Timestamp::from_second(self.staged_at).unwrap_or_default();
        let breaks = self.breaks.len().to_string();
        vec![kind, namespace, name, would(self).to_owned(), at.to_string(), breaks]
    }
}

/// The objects that are meant; none stands for all.
async fn chosen(client: &mut ObjectsClient<Connection>, which: Which) -> anyhow::Result<Vec<ObjectRef>> {
    if which.all {
        return Ok(Vec::new());
    }
    let staged = client.list_staged(ListStagedRequest::default()).await?.into_inner();
    let staged: Vec<ObjectRef> = staged.changes.into_iter().filter_map(|change| change.object).collect();
    let mut chosen = Vec::new();
    for name in which.names {
        let is_meant = |object: &&ObjectRef| {
            let is_named = match name.split_once('/') {
                Some((namespace, name)) => object.namespace == namespace && object.name == name,
                None => object.name == name,
            };
            is_named && which.kind.as_ref().is_none_or(|kind| kind.eq_ignore_ascii_case(&object.kind))
        };
        let found: Vec<&ObjectRef> = staged.iter().filter(is_meant).collect();
        match found.as_slice() {
            [one] => chosen.push((*one).clone()),
            [] => return Err(Status::not_found(format!("{name} is not staged; see `trestle staged`")).into()),
            several => {
                let all: Vec<String> = several.iter().map(|one| label(one)).collect();
                bail!("{name} may be {}: say its namespace, or choose with --kind", all.join(" or "))
            }
        }
    }
    Ok(chosen)
}

pub async fn promote(args: PromoteArgs, output: Format, connection: Connection) -> anyhow::Result<()> {
    args.wait.check(args.dry_run)?;
    let mut client = client(connection.clone());
    let objects = chosen(&mut client, args.which).await?;
    let PromoteArgs { dry_run, despite_tests, if_clean, .. } = args;
    let request = PromoteStagedRequest { objects, dry_run, despite_tests, if_clean };
    let mut changes = Changes::default();
    let ApplyObjectsResponse { applied, warnings } = changes.of(client.promote_staged(request).await?);
    warnings.iter().for_each(|warning| warn(warning));
    let mut shown = Shown::new(output, if args.dry_run { DRY_RUN } else { "" });
    shown.more(&applied)?;
    shown.end()?;
    args.wait.until_in_force(&connection, changes, output).await
}

pub async fn discard(args: DiscardArgs, output: Format, connection: Connection) -> anyhow::Result<()> {
    let mut client = client(connection);
    let objects = chosen(&mut client, args.which).await?;
    let discarded = client.discard_staged(DiscardStagedRequest { objects }).await?.into_inner().discarded;
    let names: Vec<String> = discarded.iter().map(label).collect();
    output.done(&format!("Discarded: {}", names.join(", ")), &serde_json::json!({ "discarded": discarded }))
}
