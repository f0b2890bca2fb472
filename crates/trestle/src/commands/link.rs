//! `trestle link`.

use clap::Subcommand;
use serde::Serialize;
use wire::trestle::v1::{
    LinkEnd, LinkInfo, LinkRequest, ListLinksRequest, orchestrator_client::OrchestratorClient,
};

use super::job::{ChangeArgs, finish, said};
use crate::{
    client::Connection,
    output::{Format, Rows},
};

#[derive(Debug, Subcommand)]
#[command(after_help = "Rules make the links they need by themselves; a link made here stays without rules.
A site is written NAMESPACE.CLOUD.

Examples:
  trestle link list
  trestle link create default.a default.b")]
pub enum LinkCommand {
    /// All links, with their tunnels and BGP sessions
    #[command(visible_alias = "get")]
    List,
    /// Link two sites and keep them linked
    Create {
        a: String,
        b: String,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Let a link go when no rule needs it
    Delete {
        a: String,
        b: String,
        #[command(flatten)]
        change: ChangeArgs,
    },
}

pub async fn run(command: LinkCommand, output: Format, connection: Connection) -> anyhow::Result<()> {
    let mut client = OrchestratorClient::new(connection.clone());
    match command {
        LinkCommand::List => {
            let links = client.list_links(ListLinksRequest {}).await?.into_inner().links;
            output.list(&links.into_iter().map(View::from).collect::<Vec<_>>())
        }
        LinkCommand::Create { a, b, change } => {
            let request = LinkRequest { a: a.clone(), b: b.clone(), dry_run: change.dry_run };
            let outcome = client.create_link(request).await?.into_inner();
            if finish(outcome, &change, output, &connection).await? {
                said(output, &format!("Linked: {a} and {b}"), &format!("{a}+{b}"))?;
            }
            Ok(())
        }
        LinkCommand::Delete { a, b, change } => {
            let request = LinkRequest { a: a.clone(), b: b.clone(), dry_run: change.dry_run };
            let outcome = client.delete_link(request).await?.into_inner();
            if finish(outcome, &change, output, &connection).await? {
                said(output, &format!("Let go: {a} and {b}"), &format!("{a}+{b}"))?;
            }
            Ok(())
        }
    }
}

#[derive(Debug, Serialize)]
struct View {
    a: String,
    b: String,
    state: String,
    pinned: bool,
    asns: [u32; 2],
    /// Tunnels that are up at each end, of how many.
    tunnels: [String; 2],
    bgp: [String; 2],
    bytes_in: [u64; 2],
    bytes_out: [u64; 2],
    message: String,
}

impl From<LinkInfo> for View {
    fn from(link: LinkInfo) -> Self {
        let [a, b] = [link.a.unwrap_or_default(), link.b.unwrap_or_default()];
        let of = |count: fn(&wire::trestle::v1::CloudEndStatus) -> u32, end: &LinkEnd| match &end.status {
            Some(status) => format!("{}/{}", count(status), status.tunnels),
            None => "?".to_owned(),
        };
        let bytes = |count: fn(&wire::trestle::v1::CloudEndStatus) -> u64, end: &LinkEnd| {
            end.status.as_ref().map_or(0, count)
        };
        Self {
            asns: [a.asn, b.asn],
            tunnels: [&a, &b].map(|end| of(|status| status.tunnels_up, end)),
            bgp: [&a, &b].map(|end| of(|status| status.bgp_established, end)),
            bytes_in: [&a, &b].map(|end| bytes(|status| status.bytes_in, end)),
            bytes_out: [&a, &b].map(|end| bytes(|status| status.bytes_out, end)),
            a: a.site,
            b: b.site,
            state: link.state,
            pinned: link.pinned,
            message: link.message,
        }
    }
}

impl Rows for View {
    const HEADER: &'static [&'static str] = &["a", "b", "state", "pinned", "as", "tunnels", "bgp", "message"];

    fn row(&self) -> Vec<String> {
        vec![
            self.a.clone(),
            self.b.clone(),
            self.state.clone(),
            self.pinned.to_string(),
            format!("{} {}", self.asns[0], self.asns[1]),
            self.tunnels.join(" "),
            self.bgp.join(" "),
            self.message.clone(),
        ]
    }
}
