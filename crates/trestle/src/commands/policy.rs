//! `trestle policy` and `trestle explain`.

use std::net::IpAddr;

use anyhow::bail;
use clap::Subcommand;
use jiff::Timestamp;
use tonic::Status;
use wire::trestle::v1::{
    ExplainRequest, ExplainResponse, ListPoliciesRequest, PolicyPlace, PolicyRequest, PolicyState, RuleUse,
    policies_client::PoliciesClient,
};

use crate::{
    client::{Connection, MAX_MESSAGE},
    commands::resource,
    exit::{Answer, answering},
    output::{Format, Rows},
};

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  trestle policy list
  trestle policy list -o wide                how often each has decided, and from when on that is counted
  trestle policy get shop/db")]
pub enum PolicyCommand {
    /// All network policies, with where they are enforced and what is wrong with them
    List,
    /// One policy: where it is in force, since when, and where it is not and why; how often its rules have decided
    Get {
        /// NAMESPACE/NAME, or NAME
        name: String,
        /// Where it is, if its name does not say: `default` unless given
        #[arg(short, long)]
        namespace: Option<String>,
        /// Of policies of several kinds with this name, the one of this kind
        #[arg(long)]
        kind: Option<String>,
    },
}

/// Flags of `trestle explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "A workload is an address, NAMESPACE/NAME of a Pod, or pod/…, entity/…, node/NAME.

Without a port every port is answered for, without a protocol every protocol.

Exit codes with --exit-code: 0 allowed, 1 denied, 6 allowed in part; and 2 instead of 1 for what failed.

Examples:
  trestle explain shop/web-1 shop/db-0
  trestle explain shop/web-1 shop/db-0 --port 5432 --exit-code
  trestle explain 198.51.100.7 shop/web-1 --port 443
  trestle explain shop/web-1 shop/db-0 --staged
  trestle explain shop/web-1 entity/vms/vm1 --port 53 --proto udp
  trestle explain a.web default.b.db --proto icmp")]
pub struct ExplainArgs {
    source: String,
    destination: String,
    /// Destination port (default: every port, each answered for)
    #[arg(short, long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Source port (default: whichever the client has)
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    source_port: Option<u16>,
    /// tcp, udp, sctp, icmp or other (default: all of them; tcp if a port is given)
    #[arg(long, visible_alias = "protocol", default_value = "", hide_default_value = true)]
    proto: String,
    /// As if all that is staged were in force
    #[arg(long)]
    staged: bool,
    /// Exit with 1 if denied, 6 if only some of what was asked about is allowed
    #[arg(long)]
    exit_code: bool,
}

pub async fn run(command: PolicyCommand, output: Format, connection: Connection) -> anyhow::Result<()> {
    let mut policies = PoliciesClient::new(connection).max_decoding_message_size(MAX_MESSAGE);
    match command {
        PolicyCommand::List => {
            let request = ListPoliciesRequest { places: !output.is_for_people() };
            output.list(&policies.list_policies(request).await?.into_inner().policies)
        }
        PolicyCommand::Get { name, namespace, kind } => {
            let listed = policies.list_policies(ListPoliciesRequest { places: false }).await?.into_inner();
            let found = named(&listed.policies, &name, namespace.as_deref(), kind.as_deref())?;
            let request = PolicyRequest {
                kind: found.kind.clone(),
                namespace: found.namespace.clone(),
                name: found.name.clone(),
            };
            let detail = policies.get_policy(request).await?.into_inner();
            if !output.is_for_people() {
                return output.data(&detail);
            }
            output.list(&detail.policy.into_iter().collect::<Vec<_>>())?;
            output.list(&detail.realization)?;
            if detail.rules.is_empty() { Ok(()) } else { output.list(&detail.rules) }
        }
    }
}

/// The one policy that is meant.
fn named<'p>(
    policies: &'p [PolicyState],
    name: &str,
    namespace: Option<&str>,
    kind: Option<&str>,
) -> anyhow::Result<&'p PolicyState> {
    let (written, name) =
        name.split_once('/').map_or((None, name), |(namespace, name)| (Some(namespace), name));
    let namespace = written.or(namespace).unwrap_or("default");
    let is_meant = |policy: &&PolicyState| {
        policy.name == name
            && (policy.namespace == namespace || policy.namespace.is_empty() && written.is_none())
            && kind.is_none_or(|kind| kind.eq_ignore_ascii_case(&policy.kind))
    };
    let found: Vec<&PolicyState> = policies.iter().filter(is_meant).collect();
    match found.as_slice() {
        [one] => Ok(one),
        [] => Err(Status::not_found(format!(
            "there is no policy {name}, neither in namespace {namespace} nor without one; see `trestle policy list`"
        ))
        .into()),
        several => {
            let kinds: Vec<&str> = several.iter().map(|policy| policy.kind.as_str()).collect();
            bail!("several policies are called {name}: choose with --kind {}", kinds.join(" or --kind "))
        }
    }
}

/// When something was, as far as that is known.
fn when(at: i64) -> String {
    Timestamp::from_millisecond(at)
        .map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
        .unwrap_or_default()
}

/// When a policy has decided last. What is not counted, or not everywhere, is no reason to take it away.
fn used(policy: &PolicyState) -> String {
    match (policy.last_used, policy.counted_since) {
        (Some(last), _) => when(last),
        (None, None) => "not counted".to_owned(),
        (None, Some(_)) if policy.silent > 0 || policy.span == 0 => "not known".to_owned(),
        (None, Some(since)) => format!("not since {}", when(since)),
    }
}

impl Rows for RuleUse {
    const HEADER: &'static [&'static str] = &["rule", "uses", "last used"];

    fn row(&self) -> Vec<String> {
        let last = self.last_used.map_or_else(|| "-".to_owned(), when);
        vec![self.rule.clone(), self.uses.to_string(), last]
    }
}

impl Rows for PolicyPlace {
    const HEADER: &'static [&'static str] = &["place", "state", "since", "why not"];

    fn row(&self) -> Vec<String> {
        let since = self.since.and_then(|at| Timestamp::from_millisecond(at).ok());
        let since = since.map(|at| at.to_string());
        // What was there before the controller could see it.
        let since = since.map(|at| if self.at_latest { format!("at the latest {at}") } else { at });
        vec![
            self.place.clone(),
            self.state.clone(),
            since.unwrap_or_else(|| "-".to_owned()),
            self.message.clone(),
        ]
    }
}

/// As in `Realizing 3/5` and `Failed 4/5: node-2: no such table`.
fn status(policy: &PolicyState) -> String {
    let count = match policy.phase.as_str() {
        "Realizing" | "Failed" => format!(" {}/{}", policy.realized, policy.span),
        _ => String::new(),
    };
    let failure = policy.failures.first().map(|failure| format!(": {}: {}", failure.node, failure.message));
    format!("{}{count}{}", policy.phase, failure.unwrap_or_default())
}

impl Rows for PolicyState {
    const HEADER: &'static [&'static str] =
        &["kind", "namespace", "name", "generation", "span", "status", "last used", "problems"];
    const WIDE: &'static [&'static str] = &["uses", "counted since", "silent places"];

    fn row(&self) -> Vec<String> {
        let problems = self.problems.iter().map(|problem| format!("{}: {}", problem.path, problem.message));
        vec![
            self.kind.clone(),
            self.namespace.clone(),
            self.name.clone(),
            self.generation.to_string(),
            self.span.to_string(),
            status(self),
            used(self),
            problems.collect::<Vec<_>>().join("; "),
        ]
    }

    fn wide(&self) -> Vec<String> {
        let since = self.counted_since.map_or_else(|| "-".to_owned(), when);
        vec![self.uses.to_string(), since, self.silent.to_string()]
    }
}

/// CLOUD.NAME is short for a resource of the namespace in use.
fn end(text: String) -> anyhow::Result<String> {
    let is_resource = text.contains('.') && !text.contains('/') && text.parse::<IpAddr>().is_err();
    if is_resource { resource::full(&text) } else { Ok(text) }
}

pub async fn explain(args: ExplainArgs, output: Format, connection: Connection) -> anyhow::Result<()> {
    answering(args.exit_code, ask(args, output, connection).await)
}

async fn ask(args: ExplainArgs, output: Format, connection: Connection) -> anyhow::Result<()> {
    let ExplainArgs { source, destination, port, source_port, proto, staged, exit_code } = args;
    let (source, destination) = (end(source)?, end(destination)?);
    let request = ExplainRequest {
        source,
        destination,
        protocol: proto,
        port: port.map(u32::from),
        source_port: source_port.map(u32::from),
        staged: staged.then_some(true),
    };
    let mut reply = PoliciesClient::new(connection).explain(request).await?.into_inner();
    if reply.verdict.is_empty() {
        reply.verdict = verdict(reply.allowed).to_owned();
    }
    output.done(&text(&reply), &reply)?;
    match reply.verdict.as_str() {
        "denied" if exit_code => Err(Answer(1).into()),
        "some" if exit_code => Err(Answer(6).into()),
        _ => Ok(()),
    }
}

/// Of a controller that answers yes or no only.
fn verdict(allowed: bool) -> &'static str {
    if allowed { "allowed" } else { "denied" }
}

/// From top to bottom as the packet meets it.
pub fn text(reply: &ExplainResponse) -> String {
    let mut lines = vec![match reply.verdict.as_str() {
        "some" => "allowed in part".to_owned(),
        verdict => verdict.to_owned(),
    }];
    // Of a plain yes or no there is no more to say.
    if reply.openings.len() > 1 || reply.verdict == "some" {
        for opening in &reply.openings {
            lines.push(format!("  {:<6} {}", opening.protocol, opening.ports));
            lines.extend(opening.because.iter().map(|why| format!("           {why}")));
        }
    }
    for (title, end, side) in
        [("source", &reply.source, &reply.egress), ("destination", &reply.destination, &reply.ingress)]
    {
        let (end, side) = (end.clone().unwrap_or_default(), side.clone().unwrap_or_default());
        let workloads =
            if end.workloads.is_empty() { "unknown".to_owned() } else { end.workloads.join(", ") };
        let place =
            if end.enforced_on.is_empty() { "nowhere".to_owned() } else { end.enforced_on.join(", ") };
        lines.push(format!("\n{title}: {workloads} {}, enforced on {place}", end.address));
        let verdict = if side.allowed { "permits" } else { "denies" };
        let direction = if title == "source" { "egress" } else { "ingress" };
        lines.push(format!("  {direction} {verdict}"));
        for step in &side.steps {
            lines.push(format!("    {:<11} {}", step.stage, step.outcome));
            lines.extend(step.details.iter().map(|detail| format!("                {detail}")));
        }
    }
    let list = |title: &str, items: &[String]| match items {
        [] => Vec::new(),
        items => std::iter::once(format!("\n{title}:"))
            .chain(items.iter().map(|item| format!("  {item}")))
            .collect(),
    };
    lines.extend(list("to permit it", &reply.remedies));
    lines.extend(list("note", &reply.notes));
    lines.join("\n")
}
