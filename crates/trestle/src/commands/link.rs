//! `trestle link`.

use clap::Subcommand;
use wire::{
    json::Link,
    trestle::v1::{
        CloudEndStatus, LinkEnd, LinkRequest, ListLinksRequest, orchestrator_client::OrchestratorClient,
    },
};

use super::job::{ChangeArgs, finish, said};
use crate::{
    client::Connection,
    output::{Format, Rows, rows},
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
        LinkCommand::List => output.list(&links(&mut client).await?),
        LinkCommand::Get { a, b } => {
            let is_wanted = |link: &Link| {
                let ends: Vec<&str> = link.ends.iter().map(|end| end.site.as_str()).collect();
                ends == [&a, &b] || ends == [&b, &a]
            };
            let Some(link) = links(&mut client).await?.into_iter().find(is_wanted) else {
                return Err(tonic::Status::not_found(format!("there is no link between {a} and {b}")).into());
            };
            match output {
                Format::Table | Format::Wide | Format::Name => {
                    rows(&link.ends.iter().map(|end| End(end, &link.state)).collect::<Vec<_>>())
                }
                _ => output.data(&link),
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

async fn links(client: &mut OrchestratorClient<Connection>) -> anyhow::Result<Vec<Link>> {
    let links = client.list_links(ListLinksRequest {}).await?.into_inner().links;
    Ok(links.into_iter().map(Link::from).collect())
}

/// One end of a link that is in this state.
struct End<'a>(&'a LinkEnd, &'a str);

/// As in `1/2`: so many of the tunnels.
fn of_tunnels(end: &LinkEnd, count: fn(&CloudEndStatus) -> u32) -> String {
    end.status
        .as_ref()
        .map_or_else(|| "?".to_owned(), |status| format!("{}/{}", count(status), status.tunnels))
}

impl Rows for End<'_> {
    const HEADER: &'static [&'static str] =
        &["site", "state", "as", "networks", "inside", "tunnels", "bgp", "routes", "in", "out"];

    fn row(&self) -> Vec<String> {
        let Self(end, state) = *self;
        let status = end.status.as_ref();
        let bytes = |count: fn(&CloudEndStatus) -> u64| {
            status.map_or_else(|| "?".to_owned(), |status| count(status).to_string())
        };
        vec![
            end.site.clone(),
            state.to_owned(),
            end.asn.to_string(),
            end.address_spaces.join(" "),
            end.bgp_addresses.join(" "),
            of_tunnels(end, |status| status.tunnels_up),
            of_tunnels(end, |status| status.bgp_established),
            status.map(|status| status.routes.join(" ")).unwrap_or_default(),
            bytes(|status| status.bytes_in),
            bytes(|status| status.bytes_out),
        ]
    }
}

impl Rows for Link {
    const HEADER: &'static [&'static str] = &["a", "b", "state", "pinned", "as", "tunnels", "bgp", "message"];

    fn row(&self) -> Vec<String> {
        let both = |of: fn(&LinkEnd) -> String| self.ends.iter().map(of).collect::<Vec<_>>();
        let mut sites = both(|end| end.site.clone()).into_iter();
        vec![
            sites.next().unwrap_or_default(),
            sites.next().unwrap_or_default(),
            self.state.clone(),
            self.pinned.to_string(),
            both(|end| end.asn.to_string()).join(" "),
            both(|end| of_tunnels(end, |status| status.tunnels_up)).join(" "),
            both(|end| of_tunnels(end, |status| status.bgp_established)).join(" "),
            self.message.clone(),
        ]
    }
}
