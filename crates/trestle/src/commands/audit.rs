//! `trestle audit`: who did what, what came of it, and whether the record of it is as it was written.

use std::{fmt::Write as _, path::PathBuf};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use jiff::{SignedDuration, Timestamp};
use model::change::{Change, Field};
use server::audit::{self, Opened, Record, Report};
use wire::trestle::v1::{ListAuditRequest, VerifyAuditRequest, access_client::AccessClient};

use crate::{
    client::{Connection, ConnectionArgs, MAX_MESSAGE},
    output::{Format, Rows, print},
};

/// Characters of what a call was about, in a row.
const LONGEST: usize = 60;

#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  trestle audit --limit 50
  trestle audit --since 1h --caller alice --object default/web --diff
  trestle audit -o json | jq '.[] | select(.result != \"OK\")'
  trestle audit show 0f3c9a7be1d24856
  trestle audit verify --data-dir /var/lib/trestle"
)]
pub struct AuditArgs {
    #[command(subcommand)]
    command: Option<AuditCommand>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// All that is known of one call: intent, outcome, and what it changed
    Show { id: String },
    /// Find lines that were removed, changed, moved or inserted; asks the controller, or reads files
    Verify {
        /// One file of a log, by itself
        #[arg(conflicts_with = "data_dir")]
        file: Option<PathBuf>,
        /// Data directory of a controller, which need not run
        #[arg(long, value_name = "DIR")]
        data_dir: Option<PathBuf>,
    },
    /// Where the log ends: kept elsewhere, it proves what came before
    Head,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// At most this many
    #[arg(long, default_value_t = 20)]
    limit: u32,
    /// Who called: a name, a role and a name as in admin/alice, or unknown
    #[arg(long, default_value = "", hide_default_value = true)]
    caller: String,
    /// A part of an object's name, in the request or among what changed
    #[arg(long, default_value = "", hide_default_value = true)]
    object: String,
    /// A part of the operation's name
    #[arg(long, default_value = "", hide_default_value = true)]
    operation: String,
    /// A code such as OK or PERMISSION_DENIED
    #[arg(long, default_value = "", hide_default_value = true)]
    result: String,
    /// From then on: a time, or how long ago, as in 1h
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<Timestamp>,
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<Timestamp>,
    /// Show what became of each object
    #[arg(long)]
    diff: bool,
}

/// A time, or how long ago.
fn moment(text: &str) -> Result<Timestamp, String> {
    if let Ok(ago) = text.parse::<SignedDuration>() {
        return Timestamp::now().checked_sub(ago).map_err(|err| err.to_string());
    }
    text.parse().map_err(|_| "neither a duration like 1h nor a time like 2026-01-31T12:00:00Z".to_owned())
}

pub async fn run(args: AuditArgs, output: Format, connection: ConnectionArgs) -> anyhow::Result<()> {
    match args.command {
        None => list(args.list, output, connection.connect().await?).await,
        Some(AuditCommand::Show { id }) => show(id, output, connection.connect().await?).await,
        Some(AuditCommand::Head) => {
            let head = verify_over_api(true, connection.connect().await?).await?.head;
            output.done(&format!("record {} with hash {}", head.count, head.hash), &head)
        }
        Some(AuditCommand::Verify { file, data_dir }) => {
            let report = match (file, data_dir) {
                (Some(file), _) => {
                    let failed = || format!("cannot read {}", file.display());
                    audit::verify_file(&file).with_context(failed)?
                }
                (None, Some(dir)) => {
                    let failed = || format!("cannot read the log in {}", dir.display());
                    Opened::open(&dir).and_then(Opened::verify).with_context(failed)?
                }
                (None, None) => verify_over_api(false, connection.connect().await?).await?,
            };
            tell(&report, output)
        }
    }
}

async fn verify_over_api(head_only: bool, connection: Connection) -> anyhow::Result<Report> {
    let reply = AccessClient::new(connection).verify_audit(VerifyAuditRequest { head_only }).await?;
    Ok(reply.into_inner().into())
}

fn tell(report: &Report, output: Format) -> anyhow::Result<()> {
    let Report { records, head, findings } = report;
    let alarms = findings.iter().filter(|finding| finding.alarm).count();
    let mut text = String::new();
    for finding in findings {
        let mark = if finding.alarm { "!" } else { "-" };
        let id = if finding.id.is_empty() { String::new() } else { format!(" (record id {})", finding.id) };
        let _ = writeln!(text, "{mark} {}: {}{id}", finding.place, finding.text);
    }
    let _ = write!(text, "{records} records, the newest is {} with hash {}", head.count, head.hash);
    if alarms == 0 {
        text.push_str("\nThe log is as it was written");
    }
    let data = serde_json::json!({
        "sound": alarms == 0, "records": records, "head": head, "findings": findings,
    });
    output.done(&text, &data)?;
    if alarms > 0 {
        bail!("the log is not as it was written: {alarms} findings");
    }
    Ok(())
}

async fn find(request: ListAuditRequest, connection: Connection) -> anyhow::Result<Vec<Record>> {
    let mut access = AccessClient::new(connection).max_decoding_message_size(MAX_MESSAGE);
    let reply = access.list_audit(request).await?.into_inner();
    Ok(reply.records.into_iter().map(Record::try_from).collect::<Result<_, _>>()?)
}

async fn list(args: ListArgs, output: Format, connection: Connection) -> anyhow::Result<()> {
    let ListArgs { limit, caller, object, operation, result, since, until, diff } = args;
    let time = |time: Option<Timestamp>| time.map(|time| time.to_string()).unwrap_or_default();
    let (id, since, until) = (String::new(), time(since), time(until));
    let request = ListAuditRequest { limit, id, caller, object, operation, result, since, until };
    let records = find(request, connection).await?;
    if diff && output.is_for_people() {
        return print(records.iter().map(whole).collect::<String>().trim_end());
    }
    output.list(&records)
}

async fn show(id: String, output: Format, connection: Connection) -> anyhow::Result<()> {
    // A call has few lines, but one that changes very much has many.
    let request = ListAuditRequest { limit: u32::MAX, id: id.clone(), ..ListAuditRequest::default() };
    let mut records = find(request, connection).await?;
    records.reverse();
    if records.is_empty() {
        return Err(tonic::Status::not_found(format!("there is no record with id {id}")).into());
    }
    if output.is_for_people() {
        return print(records.iter().map(whole).collect::<String>().trim_end());
    }
    output.data(&records)
}

impl Rows for Record {
    const HEADER: &'static [&'static str] = &["time", "caller", "operation", "object", "result", "id"];

    fn row(&self) -> Vec<String> {
        let Self { time, operation, object, result, id, .. } = self;
        [&time.to_string(), &caller(self), operation, &short(object), result, id].map(Clone::clone).to_vec()
    }
}

/// A call may name thousands of objects, or one with a long name: `show` tells them all.
fn short(objects: &str) -> String {
    match objects.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &objects[..at]),
        None => objects.to_owned(),
    }
}

fn caller(record: &Record) -> String {
    record.caller.as_ref().map_or_else(|| "unknown".to_owned(), ToString::to_string)
}

/// Everything, for people.
fn whole(record: &Record) -> String {
    let Record { id, time, phase, peer, operation, object, result, changes, note, .. } = record;
    let mut text = format!("{time} {} {id}: {operation} {object}\n", phase.as_str());
    let from = if peer.is_empty() { String::new() } else { format!(" from {peer}") };
    let _ = writeln!(text, "  by {}{from}: {result}", caller(record));
    if !note.is_empty() {
        let _ = writeln!(text, "  {note}");
    }
    changes.iter().for_each(|change| tell_change(change, &mut text));
    text
}

fn tell_change(change: &Change, text: &mut String) {
    let Change { object, what, before, after, fields, fields_left_out } = change;
    let digests = match (before, after) {
        (None, None) => String::new(),
        (Some(one), None) | (None, Some(one)) => format!("  sha256 {one}"),
        (Some(before), Some(after)) => format!("  sha256 {before} → {after}"),
    };
    let _ = writeln!(text, "  {object} {what}{digests}");
    for Field { path, before, after } in fields {
        let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "(none)".to_owned());
        let _ = writeln!(text, "    {path}: {} → {}", shown(before), shown(after));
    }
    if *fields_left_out > 0 {
        let _ = writeln!(text, "    and {fields_left_out} more");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_no_longer_than_a_line_whatever_a_call_names() {
        assert_eq!(short("Pod shop/db"), "Pod shop/db");
        let long = short(&"ö".repeat(5_000));
        assert_eq!((long.chars().count(), long.ends_with('…')), (LONGEST + 1, true));
    }
}
