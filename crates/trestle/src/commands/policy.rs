//! `trestle policy` and `trestle explain`.

use std::net::IpAddr;

use clap::Subcommand;
use serde::Serialize;
use wire::trestle::v1::{
    ExplainRequest, ExplainedEnd, ExplainedSide, ListPoliciesRequest, PolicyState,
    policies_client::PoliciesClient,
};

use crate::{
    client::Connection,
    commands::resource,
    exit::{Answer, answering},
    output::{Format, Rows},
};

#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  trestle policy list")]
pub enum PolicyCommand {
    /// All network policies, with where they are enforced and what is wrong with them
    List,
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
    /// Exit with 1 if denied, 6 if only some of what was asked about is allowed
    #[arg(long)]
    exit_code: bool,
}

pub async fn run(command: PolicyCommand, output: Format, connection: Connection) -> anyhow::Result<()> {
    let PolicyCommand::List = command;
    let reply = PoliciesClient::new(connection).list_policies(ListPoliciesRequest {}).await?.into_inner();
    output.list(&reply.policies.into_iter().map(Policy::from).collect::<Vec<_>>())
}

#[derive(Debug, Serialize)]
struct Policy {
    kind: String,
    namespace: String,
    name: String,
    generation: i64,
    span: u32,
    phase: String,
    realized: u32,
    failures: Vec<String>,
    problems: Vec<String>,
}

impl From<PolicyState> for Policy {
    fn from(state: PolicyState) -> Self {
        let problems =
            state.problems.into_iter().map(|problem| format!("{}: {}", problem.path, problem.message));
        let failures =
            state.failures.into_iter().map(|failure| format!("{}: {}", failure.node, failure.message));
        Self {
            phase: state.phase,
            realized: state.realized,
            failures: failures.collect(),
            kind: state.kind,
            namespace: state.namespace,
            name: state.name,
            generation: state.generation,
            span: state.span,
            problems: problems.collect(),
        }
    }
}

impl Policy {
    /// As in `Realizing 3/5` and `Failed 4/5: node-2: no such table`.
    fn status(&self) -> String {
        let count = match self.phase.as_str() {
            "Realizing" | "Failed" => format!(" {}/{}", self.realized, self.span),
            _ => String::new(),
        };
        let failure = self.failures.first().map(|failure| format!(": {failure}")).unwrap_or_default();
        format!("{}{count}{failure}", self.phase)
    }
}

impl Rows for Policy {
    const HEADER: &'static [&'static str] =
        &["kind", "namespace", "name", "generation", "span", "status", "problems"];

    fn row(&self) -> Vec<String> {
        let (generation, span) = (self.generation.to_string(), self.span.to_string());
        vec![
            self.kind.clone(),
            self.namespace.clone(),
            self.name.clone(),
            generation,
            span,
            self.status(),
            self.problems.join("; "),
        ]
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
    let ExplainArgs { source, destination, port, source_port, proto, exit_code } = args;
    let (source, destination) = (end(source)?, end(destination)?);
    let request = ExplainRequest {
        source,
        destination,
        protocol: proto,
        port: port.map(u32::from),
        source_port: source_port.map(u32::from),
    };
    let reply = PoliciesClient::new(connection).explain(request).await?.into_inner();
    let openings = reply.openings.into_iter().map(|opening| {
        let wire::trestle::v1::Opening { protocol, verdict, ports, because } = opening;
        Opening { protocol, verdict, ports, because }
    });
    let view = Explanation {
        allowed: reply.allowed,
        verdict: if reply.verdict.is_empty() { verdict(reply.allowed).to_owned() } else { reply.verdict },
        openings: openings.collect(),
        source: End::from(reply.source.unwrap_or_default()),
        destination: End::from(reply.destination.unwrap_or_default()),
        egress: Side::from(reply.egress.unwrap_or_default()),
        ingress: Side::from(reply.ingress.unwrap_or_default()),
        notes: reply.notes,
        remedies: reply.remedies,
    };
    output.done(&view.text(), &view)?;
    match view.verdict.as_str() {
        "denied" if exit_code => Err(Answer(1).into()),
        "some" if exit_code => Err(Answer(6).into()),
        _ => Ok(()),
    }
}

/// Of a controller that answers yes or no only.
fn verdict(allowed: bool) -> &'static str {
    if allowed { "allowed" } else { "denied" }
}

#[derive(Debug, Serialize)]
struct Opening {
    protocol: String,
    verdict: String,
    ports: String,
    because: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Explanation {
    allowed: bool,
    verdict: String,
    openings: Vec<Opening>,
    source: End,
    destination: End,
    egress: Side,
    ingress: Side,
    notes: Vec<String>,
    remedies: Vec<String>,
}

#[derive(Debug, Serialize)]
struct End {
    workloads: Vec<String>,
    address: String,
    enforced_on: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Side {
    allowed: bool,
    steps: Vec<Step>,
}

#[derive(Debug, Serialize)]
struct Step {
    stage: String,
    outcome: String,
    details: Vec<String>,
}

impl From<ExplainedEnd> for End {
    fn from(end: ExplainedEnd) -> Self {
        Self { workloads: end.workloads, address: end.address, enforced_on: end.enforced_on }
    }
}

impl From<ExplainedSide> for Side {
    fn from(side: ExplainedSide) -> Self {
        let steps = side.steps.into_iter();
        let steps =
            steps.map(|step| Step { stage: step.stage, outcome: step.outcome, details: step.details });
        Self { allowed: side.allowed, steps: steps.collect() }
    }
}

impl Explanation {
    /// From top to bottom as the packet meets it.
    fn text(&self) -> String {
        let mut lines = vec![match self.verdict.as_str() {
            "some" => "allowed in part".to_owned(),
            verdict => verdict.to_owned(),
        }];
        // Of a plain yes or no there is no more to say.
        if self.openings.len() > 1 || self.verdict == "some" {
            for opening in &self.openings {
                lines.push(format!("  {:<6} {}", opening.protocol, opening.ports));
                lines.extend(opening.because.iter().map(|why| format!("           {why}")));
            }
        }
        for (title, end, side) in
            [("source", &self.source, &self.egress), ("destination", &self.destination, &self.ingress)]
        {
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
        lines.extend(list("to permit it", &self.remedies));
        lines.extend(list("note", &self.notes));
        lines.join("\n")
    }
}
