//! `trestle tag`.

use clap::Subcommand;
use serde::Serialize;
use wire::{
    tagservicepb::{Subscription, Tag, TagMapping, tag_service_client::TagServiceClient},
    trestle::v1::{
        DescribeTagsRequest, ResolvedMember, TagDifference, TagEvent, TagInfo, WatchSubscriberRequest,
        orchestrator_client::OrchestratorClient, tag_events_client::TagEventsClient,
    },
};

use crate::{
    client::{Connection, MAX_MESSAGE},
    commands::enforcement::{Changes, WaitArgs},
    output::{Format, Rows},
};

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  trestle tag set db1 --ip 10.0.0.5
  trestle tag set web --children web1,web2,192.0.2.0/24
  trestle tag set web --children web3 --wait          until every permit list has it
  trestle tag resolve web
  trestle tag watch my-controller")]
pub enum TagCommand {
    /// All tags, whose they are, and what rules make of them; also those that rules name and that are not there
    List {
        /// Only names that start with this
        #[arg(default_value = "")]
        prefix: String,
    },
    /// One tag: a leaf's URI and address, or a group's members
    Get {
        tag: String,
        /// Show what the tag resolves to instead
        #[arg(long)]
        resolve: bool,
    },
    /// Create or change a tag: a leaf (--uri, --ip) or a group (--children, added to those it has)
    Set {
        tag: String,
        /// Members to add: tags, addresses or prefixes
        #[arg(long, value_delimiter = ',', visible_alias = "members", required_unless_present_any = ["uri", "ip"])]
        children: Vec<String>,
        /// The resource the leaf stands for
        #[arg(long, conflicts_with = "children")]
        uri: Option<String>,
        /// The address or prefix the leaf stands for
        #[arg(long, conflicts_with = "children")]
        ip: Option<String>,
        #[command(flatten)]
        wait: WaitArgs,
    },
    /// Each distinct leaf and literal below a tag
    Resolve { tag: String },
    /// Delete a tag, or only some of its members
    Delete {
        tag: String,
        /// Take these members out of the group and keep the tag
        #[arg(long, value_delimiter = ',', visible_alias = "members")]
        member: Vec<String>,
        #[command(flatten)]
        wait: WaitArgs,
    },
    /// Who is told when a tag changes
    Subscribers { tag: String },
    /// Tell a subscriber of changes
    Subscribe { tag: String, subscriber: String },
    /// Tell it no more
    Unsubscribe { tag: String, subscriber: String },
    /// Show a subscriber's changes as they happen
    Watch {
        subscriber: String,
        /// Go on after this revision
        #[arg(long, value_name = "REVISION")]
        after: Option<u64>,
    },
}

pub async fn run(command: TagCommand, output: Format, connection: Connection) -> anyhow::Result<()> {
    let mut tags = TagServiceClient::new(connection.clone()).max_decoding_message_size(MAX_MESSAGE);
    match command {
        TagCommand::List { prefix } => {
            let mut client = OrchestratorClient::new(connection).max_decoding_message_size(MAX_MESSAGE);
            let reply = client.describe_tags(DescribeTagsRequest { prefix }).await?.into_inner();
            output.list(&reply.tags)
        }
        TagCommand::Resolve { tag } | TagCommand::Get { tag, resolve: true } => {
            let reply = tags.resolve_tag(Tag { tag_name: tag }).await?.into_inner();
            output.list(&reply.mappings)
        }
        TagCommand::Get { tag, resolve: false } => {
            output.one(&tags.get_tag(Tag { tag_name: tag }).await?.into_inner())
        }
        TagCommand::Set { tag, children, uri, ip, wait } => {
            let mapping = TagMapping { tag_name: tag, child_tags: children, uri, ip };
            let mut changes = Changes::default();
            let reply = changes.of(tags.set_tag(mapping.clone()).await?);
            output.done(&reply.message, &mapping)?;
            wait.until_in_force(&connection, changes, output).await
        }
        TagCommand::Delete { tag, member, wait } => {
            let changes = delete(&mut tags, tag, member, output).await?;
            wait.until_in_force(&connection, changes, output).await
        }
        TagCommand::Subscribers { tag } => {
            let reply = tags.get_subscribers(Tag { tag_name: tag }).await?.into_inner();
            output.names("subscriber", &reply.subscribers)
        }
        TagCommand::Subscribe { tag, subscriber } => {
            let reply =
                tags.subscribe(Subscription { tag_name: tag, subscriber: subscriber.clone() }).await?;
            output.done(&reply.into_inner().message, &serde_json::json!({ "subscriber": subscriber }))
        }
        TagCommand::Unsubscribe { tag, subscriber } => {
            let reply =
                tags.unsubscribe(Subscription { tag_name: tag, subscriber: subscriber.clone() }).await?;
            output.done(&reply.into_inner().message, &serde_json::json!({ "subscriber": subscriber }))
        }
        TagCommand::Watch { subscriber, after } => {
            let events = TagEventsClient::new(connection).max_decoding_message_size(MAX_MESSAGE);
            watch(events, subscriber, after, output).await
        }
    }
}

async fn delete(
    tags: &mut TagServiceClient<Connection>,
    tag: String,
    members: Vec<String>,
    output: Format,
) -> anyhow::Result<Changes> {
    let mapping = TagMapping { tag_name: tag.clone(), child_tags: members.clone(), uri: None, ip: None };
    let reply = match members.is_empty() {
        true => tags.delete_tag(Tag { tag_name: tag }).await?,
        false => tags.delete_tag_member(mapping.clone()).await?,
    };
    let mut changes = Changes::default();
    output.done(&changes.of(reply).message, &mapping)?;
    Ok(changes)
}

async fn watch(
    mut events: TagEventsClient<Connection>,
    subscriber: String,
    after: Option<u64>,
    output: Format,
) -> anyhow::Result<()> {
    let mut stream =
        events.watch_subscriber(WatchSubscriberRequest { subscriber, after }).await?.into_inner();
    while let Some(event) = stream.message().await? {
        show_event(&event, output)?;
    }
    Ok(())
}

fn show_event(event: &TagEvent, output: Format) -> anyhow::Result<()> {
    if event.start {
        let data = serde_json::json!({ "revision": event.revision, "start": true });
        return output.event(&format!("watching from revision {}", event.revision), &data);
    }
    for difference in &event.differences {
        let change = Change { revision: event.revision, difference };
        output.event(&change.line(), &change)?;
    }
    Ok(())
}

/// The shortest text that says which member this is.
fn label(ResolvedMember { tag_name, uri, ip }: &ResolvedMember) -> String {
    match (ip, uri) {
        (Some(ip), _) if tag_name.is_empty() => ip.clone(),
        (Some(ip), _) => format!("{tag_name}={ip}"),
        (None, Some(uri)) => format!("{tag_name}={uri}"),
        (None, None) => tag_name.clone(),
    }
}

impl Rows for TagInfo {
    const HEADER: &'static [&'static str] =
        &["name", "of", "ip", "uri", "members", "rules", "named by", "trouble"];

    fn row(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            self.from.clone(),
            self.ip.clone().unwrap_or_default(),
            self.uri.clone().unwrap_or_default(),
            self.child_tags.join(" "),
            self.rules.to_string(),
            self.named_by.to_string(),
            self.message.clone(),
        ]
    }
}

impl Rows for TagMapping {
    const HEADER: &'static [&'static str] = &["name", "ip", "uri", "members"];

    fn row(&self) -> Vec<String> {
        vec![
            if self.tag_name.is_empty() { "-".to_owned() } else { self.tag_name.clone() },
            self.ip.clone().unwrap_or_default(),
            self.uri.clone().unwrap_or_default(),
            self.child_tags.join(" "),
        ]
    }
}

/// What a change did to one tag.
#[derive(Debug, Serialize)]
struct Change<'a> {
    revision: u64,
    #[serde(flatten)]
    difference: &'a TagDifference,
}

impl Change<'_> {
    fn line(&self) -> String {
        let labels = |sign: char, members: &[ResolvedMember]| {
            members.iter().map(|member| format!(" {sign}{}", label(member))).collect::<String>()
        };
        let TagDifference { tag_name, added, removed, deleted } = self.difference;
        let deleted = if *deleted { " deleted" } else { "" };
        format!("{} {tag_name}{deleted}{}{}", self.revision, labels('+', added), labels('-', removed))
    }
}
