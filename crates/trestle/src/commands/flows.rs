//! `trestle flows` and `trestle top flows`: connections that nodes have seen, allowed and denied.

use clap::ValueEnum;
use wire::trestle::v1::{Flow, FlowEnd, FlowList, FlowsRequest, flows_client::FlowsClient};

use crate::{
    client::{Connection, MAX_MESSAGE},
    output::{Format, Rows, warn},
    visible::visible_line,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Verdict {
    Allowed,
    Denied,
    /// It would be denied, and passes: the agent only observes
    Observed,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Observed => "observed",
        }
    }
}

/// Which flows.
#[derive(Debug, clap::Args)]
pub struct Which {
    /// An end: an address, a block, NAMESPACE/NAME or NAMESPACE/ of a workload, a label KEY=VALUE, or a tag
    #[arg(long, value_name = "END", default_value = "", hide_default_value = true)]
    from: String,
    /// The other one
    #[arg(long, value_name = "END", default_value = "", hide_default_value = true)]
    to: String,
    /// Either end
    #[arg(long, value_name = "END", default_value = "", hide_default_value = true)]
    end: String,
    /// What became of it
    #[arg(long)]
    verdict: Option<Verdict>,
    /// A part of what decided, as `explain` names it: shop/web, `ingress rule 0`
    #[arg(long, default_value = "", hide_default_value = true)]
    rule: String,
    /// Who has seen it
    #[arg(long, default_value = "", hide_default_value = true)]
    node: String,
    /// tcp, udp, sctp, icmp or a number
    #[arg(long, default_value = "", hide_default_value = true)]
    protocol: String,
    /// The destination port, before or after translation
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// From then on: a time, or how long ago, as in 30s, 5m, 2h, 7d
    #[arg(long, value_name = "TIME", default_value = "", hide_default_value = true)]
    since: String,
    #[arg(long, value_name = "TIME", default_value = "", hide_default_value = true)]
    until: String,
}

/// Flags of `trestle flows`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A row is what a node has seen within a second or so, of a file that is full within a minute. COUNT is connections
that were opened, and of what is denied, packets. A connection between two workloads is seen twice, where it leaves and where it comes.

Examples:
  trestle flows --verdict denied --since 5m
  trestle flows --from shop/web-1 --to 10.0.0.0/8 --port 5432
  trestle flows --to app=db --rule shop/db -o json | jq '.flows[].from.workload'
  trestle flows --verdict denied --follow"
)]
pub struct FlowsArgs {
    #[command(flatten)]
    which: Which,
    /// At most this many
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// What comes from now on, until interrupted
    #[arg(short, long, conflicts_with_all = ["since", "until", "limit"])]
    follow: bool,
}

impl FlowsArgs {
    pub fn is_follow(&self) -> bool {
        self.follow
    }
}

/// Flags of `trestle top flows`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  trestle top flows --since 1h
  trestle top flows --verdict denied --since 1d --limit 5")]
pub struct TopArgs {
    #[command(flatten)]
    which: Which,
    /// At most this many
    #[arg(long, default_value_t = 20)]
    limit: u32,
}

impl Which {
    fn request(self, limit: u32) -> FlowsRequest {
        FlowsRequest {
            from: self.from,
            to: self.to,
            end: self.end,
            verdict: self.verdict.map(Verdict::word).unwrap_or_default().to_owned(),
            rule: self.rule,
            node: self.node,
            protocol: self.protocol,
            port: self.port.into(),
            since: self.since,
            until: self.until,
            limit,
        }
    }
}

pub async fn run(args: FlowsArgs, output: Format, connection: Connection) -> anyhow::Result<()> {
    let mut client = FlowsClient::new(connection).max_decoding_message_size(MAX_MESSAGE);
    let request = args.which.request(args.limit);
    if !args.follow {
        let list = client.list_flows(request).await?.into_inner();
        return show(&list, output);
    }
    let mut lists = client.follow_flows(request).await?.into_inner();
    while let Some(FlowList { flows, more }) = lists.message().await? {
        if more {
            warn("some flows were left out: more came than could be shown");
        }
        for flow in &flows {
            output.event(&line(flow), flow)?;
        }
    }
    Ok(())
}

pub async fn top(args: TopArgs, output: Format, connection: Connection) -> anyhow::Result<()> {
    let mut client = FlowsClient::new(connection).max_decoding_message_size(MAX_MESSAGE);
    let list = client.top_flows(args.which.request(args.limit)).await?.into_inner();
    show(&list, output)
}

fn show(list: &FlowList, output: Format) -> anyhow::Result<()> {
    if !output.is_for_people() {
        return output.data(list);
    }
    output.list(&list.flows)?;
    if list.more {
        warn("there are more: narrow the question, or raise --limit");
    }
    Ok(())
}

/// A row as it is followed.
fn line(flow: &Flow) -> String {
    let rule = if flow.rule.is_empty() { String::new() } else { format!("  {}", flow.rule) };
    let text = format!(
        "{}  {:<8}  {} -> {}  {}  {}{rule}",
        flow.last,
        flow.verdict,
        end(flow.from.as_ref()),
        end(flow.to.as_ref()),
        port(flow),
        flow.count
    );
    visible_line(&text)
}

/// Its workload, else its address.
fn end(end: Option<&FlowEnd>) -> String {
    let Some(end) = end else { return "many".to_owned() };
    match (end.workload.split_once(' '), end.address.as_str()) {
        (Some((_, name)), _) => name.to_owned(),
        (None, "") => "many".to_owned(),
        (None, address) => address.to_owned(),
    }
}

/// `tcp/80`, `icmp/8`, `tcp/many`.
fn port(flow: &Flow) -> String {
    match (flow.protocol.as_str(), flow.port) {
        (protocol @ ("icmp" | "icmpv6"), Some(kind)) => format!("{protocol}/{}", kind >> 8),
        (protocol @ ("tcp" | "udp" | "sctp"), None) => format!("{protocol}/many"),
        (protocol, Some(port)) => format!("{protocol}/{port}"),
        (protocol, None) => protocol.to_owned(),
    }
}

impl Rows for Flow {
    const HEADER: &'static [&'static str] = &["last", "verdict", "from", "to", "port", "count", "rule"];
    const WIDE: &'static [&'static str] = &["first", "node", "direction", "addresses", "service", "bytes"];

    fn row(&self) -> Vec<String> {
        vec![
            self.last.clone(),
            self.verdict.clone(),
            end(self.from.as_ref()),
            end(self.to.as_ref()),
            port(self),
            self.count.to_string(),
            self.rule.clone(),
        ]
    }

    fn wide(&self) -> Vec<String> {
        let address = |end: &Option<FlowEnd>| end.as_ref().map(|end| end.address.clone()).unwrap_or_default();
        vec![
            self.first.clone(),
            self.node.clone(),
            self.direction.clone(),
            format!("{} {}", address(&self.from), address(&self.to)),
            self.service.clone(),
            self.bytes.map(|bytes| bytes.to_string()).unwrap_or_default(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_who_and_where_to() {
        let flow = Flow {
            from: Some(FlowEnd { workload: "Pod shop/web-1".to_owned(), ..FlowEnd::default() }),
            to: Some(FlowEnd { address: "10.0.0.1".to_owned(), ..FlowEnd::default() }),
            protocol: "tcp".to_owned(),
            port: Some(80),
            verdict: "denied".to_owned(),
            count: 3,
            rule: "isolated by NetworkPolicy shop/db".to_owned(),
            ..Flow::default()
        };
        assert!(
            line(&flow)
                .ends_with("denied    shop/web-1 -> 10.0.0.1  tcp/80  3  isolated by NetworkPolicy shop/db")
        );
        assert_eq!(port(&Flow { port: None, ..flow.clone() }), "tcp/many");
        assert_eq!(port(&Flow { protocol: "icmp".to_owned(), port: Some(8 << 8), ..flow }), "icmp/8");
        assert_eq!(end(Some(&FlowEnd::default())), "many");
    }
}
