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
    List,
    /// One link: its ends with their addresses, routes and bytes
    Get { a: String, b: String },
    /// Link two sites and keep them linked
    Create {
        a: String,
        b: String,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Give a link's tunnels a new key; packets go on meanwhile
    Rotate {
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
        LinkCommand::Get { a, b } => {
            let links = client.list_links(ListLinksRequest {}).await?.into_inner().links;
            let site = |end: &Option<LinkEnd>| end.as_ref().map(|end| end.site.clone()).unwrap_or_default();
            let wanted = |link: &LinkInfo| {
                let ends = [site(&link.a), site(&link.b)];
                ends == [a.clone(), b.clone()] || ends == [b.clone(), a.clone()]
            };
            match links.into_iter().find(wanted) {
                Some(link) => output.list(&End::both(link)),
                None => Err(tonic::Status::not_found(format!("there is no link between {a} and {b}")).into()),
            }
        }
        LinkCommand::Rotate { a, b, change } => {
            let request = LinkRequest { a: a.clone(), b: b.clone(), dry_run: change.dry_run };
            let outcome = client.rotate_link(request).await?.into_inner();
            if finish(outcome, &change, output, &connection).await? {
                said(output, &format!("New key: {a} and {b}"), &format!("{a}+{b}"))?;
            }
            Ok(())
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

/// One end of a link.
#[derive(Debug, Serialize)]
struct End {
    site: String,
    state: String,
    asn: u32,
    address_spaces: Vec<String>,
    bgp_addresses: Vec<String>,
    /// Absent: the cloud does not say.
    tunnels: Option<u32>,
    tunnels_up: Option<u32>,
    bgp_established: Option<u32>,
    /// Learnt from the other end.
    routes: Vec<String>,
    bytes_in: Option<u64>,
    bytes_out: Option<u64>,
}

impl End {
    fn both(link: LinkInfo) -> Vec<Self> {
        let state = link.state;
        [link.a, link.b].into_iter().flatten().map(|end| Self::new(end, state.clone())).collect()
    }

    fn new(end: LinkEnd, state: String) -> Self {
        let status = end.status.as_ref();
        Self {
            state,
            asn: end.asn,
            tunnels: status.map(|status| status.tunnels),
            tunnels_up: status.map(|status| status.tunnels_up),
            bgp_established: status.map(|status| status.bgp_established),
            routes: status.map(|status| status.routes.clone()).unwrap_or_default(),
            bytes_in: status.map(|status| status.bytes_in),
            bytes_out: status.map(|status| status.bytes_out),
            site: end.site,
            address_spaces: end.address_spaces,
            bgp_addresses: end.bgp_addresses,
        }
    }
}

impl Rows for End {
    const HEADER: &'static [&'static str] =
        &["site", "state", "as", "networks", "inside", "tunnels", "bgp", "routes", "in", "out"];

    fn row(&self) -> Vec<String> {
        let number = |number: Option<u64>| number.map_or("?".to_owned(), |number| number.to_string());
        let of = |up: Option<u32>| {
            format!("{}/{}", number(up.map(u64::from)), number(self.tunnels.map(u64::from)))
        };
        vec![
            self.site.clone(),
            self.state.clone(),
            self.asn.to_string(),
            self.address_spaces.join(" "),
            self.bgp_addresses.join(" "),
            of(self.tunnels_up),
            of(self.bgp_established),
            self.routes.join(" "),
            number(self.bytes_in),
            number(self.bytes_out),
        ]
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
