//! `trestle ticket` and `trestle consumer`: storage for other clusters.

mod mount;
mod rows;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use jiff::SignedDuration;
use tonic::Code;
use wire::{
    k8s::io::apimachinery::pkg::api::resource::Quantity,
    provider::{
        OffBoardConsumerRequest, OnBoardConsumerRequest, StorageConfigRequest,
        ocs_provider_client::OcsProviderClient,
    },
    trestle::v1::{
        CreateTicketRequest, GetConsumerRequest, KeepConsumerRequest, LabelConsumerRequest,
        LimitConsumerRequest, ListConsumersRequest, ListTicketsRequest, NameConsumerRequest,
        OffboardConsumerRequest, PermitConsumerRequest, Rates, ResizeConsumerRequest, RevokeTicketRequest,
        RotateTicketKeyRequest, storage_client::StorageClient,
    },
};

use crate::{client::Connection, output::Format};

/// How long `onboard` waits for storage to be ready.
const READY: Duration = Duration::from_secs(60);

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  trestle ticket create --limit 100Gi
  trestle ticket list")]
pub enum TicketCommand {
    /// All tickets, without their texts
    List,
    /// Make a ticket to hand to another cluster; it is shown once
    Create {
        /// How long it is good (default: 48h)
        #[arg(long, value_parser = super::access::duration)]
        ttl: Option<SignedDuration>,
        /// The most a consumer may be granted with it, e.g. 100Gi
        #[arg(long, default_value = "")]
        limit: String,
        /// Address or prefix the consumer may come from; repeat it or join with commas
        #[arg(long, value_name = "CIDR", value_delimiter = ',')]
        from: Vec<String>,
        #[command(flatten)]
        rates: RateFlags,
        /// Encrypt what is stored for the consumer
        #[arg(long)]
        encrypted: bool,
    },
    /// Make a ticket worthless; a consumer that came with it stays
    Revoke { id: String },
    /// Sign tickets with a new key from now on
    RotateKey,
}

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  trestle consumer onboard --ticket-file t --capacity 10Gi --out ./storage   # the consumer's side
  pass show storage-ticket | trestle consumer onboard --ticket - --capacity 10Gi --out ./storage
  trestle consumer list
  trestle consumer resize ID 20Gi
  trestle consumer offboard ID")]
pub enum ConsumerCommand {
    /// All consumers, with usage against grant
    List,
    /// One consumer
    Get { id: String },
    /// Change a consumer's grant
    Resize {
        id: String,
        capacity: String,
        /// Also below the size of a volume that is in use or holds data beyond: writes past the grant fail then
        #[arg(long)]
        force: bool,
    },
    /// Let a consumer through to the storage from these addresses and no others
    Permit {
        id: String,
        /// Address or prefix; repeat it or join with commas
        #[arg(long, value_name = "CIDR", value_delimiter = ',', required_unless_present = "nowhere")]
        from: Vec<String>,
        /// Let nobody through on its behalf
        #[arg(long, conflicts_with = "from")]
        nowhere: bool,
    },
    /// Put a consumer off: its sessions end, and its data is deleted when its grace time is over
    Offboard {
        id: String,
        /// Delete its data at once; there is no way back
        #[arg(long)]
        now: bool,
    },
    /// Take back a consumer that was put off, while its data is kept
    Keep { id: String },
    /// Call a consumer something; an empty name takes the old one away
    Name { id: String, name: String },
    /// Bound how much a consumer is served in a second; what is not named has no limit
    Limit {
        id: String,
        #[command(flatten)]
        rates: RateFlags,
    },
    /// Label a consumer: KEY=VALUE sets a label, KEY- takes it away
    Label {
        id: String,
        #[arg(required = true, value_name = "KEY=VALUE|KEY-")]
        labels: Vec<String>,
    },
    /// The consumer's side: use a ticket, wait for storage, write credentials and say how to mount
    Onboard {
        #[command(flatten)]
        ticket: TicketText,
        /// Storage to ask for, e.g. 10Gi
        #[arg(long)]
        capacity: String,
        /// Directory for the credentials
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Address or prefix to be let through from, if the ticket allows more; repeat it or join with commas
        #[arg(long, value_name = "CIDR", value_delimiter = ',')]
        from: Vec<String>,
    },
    /// The consumer's side: how to mount, from the directory that `onboard` wrote
    MountInfo {
        /// Directory that `onboard` wrote
        dir: PathBuf,
    },
    /// The consumer's side: leave, with the directory that `onboard` wrote
    Leave {
        /// Directory that `onboard` wrote
        dir: PathBuf,
    },
}

/// How much a consumer is served in a second, over all its volumes and connections.
#[derive(Debug, Args)]
pub struct RateFlags {
    /// Reads, writes, flushes and trims in a second
    #[arg(long, value_name = "COUNT")]
    operations: Option<u64>,
    /// Bytes read and written in a second
    #[arg(long, value_name = "BYTES")]
    bytes: Option<u64>,
}

impl RateFlags {
    fn told(self) -> Option<Rates> {
        let Self { operations, bytes } = self;
        (operations.is_some() || bytes.is_some()).then_some(Rates { operations, bytes })
    }
}

/// Where a ticket comes from: one of these.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct TicketText {
    /// The ticket itself, or - to read it from standard input. What stands on a command line is seen by every user of
    /// the machine and kept in the shell's history: a file or - is safer
    #[arg(long, value_name = "TICKET|-", allow_hyphen_values = true)]
    ticket: Option<String>,
    /// File that holds the ticket
    #[arg(long, value_name = "FILE")]
    ticket_file: Option<PathBuf>,
}

impl TicketText {
    fn read(self) -> anyhow::Result<String> {
        let text = match (self.ticket, self.ticket_file) {
            (Some(text), _) if text != "-" => text,
            (_, Some(file)) => {
                fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?
            }
            (_, None) => {
                io::read_to_string(io::stdin()).context("cannot read the ticket from standard input")?
            }
        };
        let text = text.trim();
        if text.is_empty() {
            bail!("the ticket is empty; it is what `trestle ticket create` printed");
        }
        Ok(text.to_owned())
    }
}

pub async fn ticket(command: TicketCommand, output: Format, connection: Connection) -> anyhow::Result<()> {
    let mut storage = StorageClient::new(connection);
    match command {
        TicketCommand::List => {
            let reply = storage.list_tickets(ListTicketsRequest {}).await?.into_inner();
            output.list(&reply.tickets)
        }
        TicketCommand::Create { ttl, limit, from: sources, rates, encrypted } => {
            let lifetime_seconds = ttl.map_or(0, |ttl| ttl.as_secs().unsigned_abs());
            let rates = rates.told();
            let request = CreateTicketRequest { lifetime_seconds, limit, sources, rates, encrypted };
            let reply = storage.create_ticket(request).await?.into_inner();
            output.done(&reply.text, &reply)
        }
        TicketCommand::Revoke { id } => {
            storage.revoke_ticket(RevokeTicketRequest { id: id.clone() }).await?;
            output.done(&format!("Revoked ticket: {id}"), &serde_json::json!({ "id": id }))
        }
        TicketCommand::RotateKey => {
            let key = storage.rotate_ticket_key(RotateTicketKeyRequest {}).await?.into_inner().key;
            output
                .done(&format!("Tickets are now signed with key: {key}"), &serde_json::json!({ "key": key }))
        }
    }
}

pub async fn consumer(
    command: ConsumerCommand,
    output: Format,
    connection: Connection,
) -> anyhow::Result<()> {
    let mut storage = StorageClient::new(connection.clone());
    match command {
        ConsumerCommand::List => {
            let reply = storage.list_consumers(ListConsumersRequest {}).await?.into_inner();
            output.list(&reply.consumers)
        }
        ConsumerCommand::Get { id } => {
            let reply = storage.get_consumer(GetConsumerRequest { id }).await?.into_inner();
            output.one(&reply)
        }
        ConsumerCommand::Resize { id, capacity, force } => {
            let request = ResizeConsumerRequest { id, capacity, force };
            let reply = storage.resize_consumer(request).await?.into_inner();
            output.one(&reply)
        }
        ConsumerCommand::Permit { id, from: sources, .. } => {
            let reply = storage.permit_consumer(PermitConsumerRequest { id, sources }).await?.into_inner();
            output.one(&reply)
        }
        ConsumerCommand::Keep { id } => {
            output.one(&storage.keep_consumer(KeepConsumerRequest { id }).await?.into_inner())
        }
        ConsumerCommand::Name { id, name } => {
            output.one(&storage.name_consumer(NameConsumerRequest { id, name }).await?.into_inner())
        }
        ConsumerCommand::Limit { id, rates } => {
            let request = LimitConsumerRequest { id, rates: rates.told() };
            output.one(&storage.limit_consumer(request).await?.into_inner())
        }
        ConsumerCommand::Label { id, labels: changes } => {
            let before = storage.get_consumer(GetConsumerRequest { id: id.clone() }).await?.into_inner();
            let labels = labelled(before.labels, changes)?;
            output.one(&storage.label_consumer(LabelConsumerRequest { id, labels }).await?.into_inner())
        }
        ConsumerCommand::Offboard { id, now } => {
            storage.offboard_consumer(OffboardConsumerRequest { id: id.clone(), now }).await?;
            output.done(&format!("Offboarded consumer: {id}"), &serde_json::json!({ "id": id }))
        }
        ConsumerCommand::Onboard { ticket, capacity, out, from } => {
            let request = OnBoardConsumerRequest {
                token: ticket.read()?,
                capacity: Some(Quantity { string: Some(capacity) }),
                sources: from,
            };
            onboard(OcsProviderClient::new(connection), request, &out, output).await
        }
        ConsumerCommand::MountInfo { dir } => mount::info(&dir, output),
        ConsumerCommand::Leave { dir } => {
            let request = OffBoardConsumerRequest { storage_consumer_uuid: sealed_id(&dir)? };
            OcsProviderClient::new(connection).offboard_consumer(request).await?;
            output.done("Left; the storage is gone", &serde_json::json!({ "left": true }))
        }
    }
}

/// Labels after what was said on the command line.
fn labelled(
    mut labels: BTreeMap<String, String>,
    changes: Vec<String>,
) -> anyhow::Result<BTreeMap<String, String>> {
    for change in changes {
        match (change.split_once('='), change.strip_suffix('-')) {
            (Some((key, value)), _) => drop(labels.insert(key.to_owned(), value.to_owned())),
            (None, Some(key)) => drop(labels.remove(key)),
            (None, None) => bail!("{change:?} is neither KEY=VALUE nor KEY-"),
        }
    }
    Ok(labels)
}

async fn onboard(
    provider: OcsProviderClient<Connection>,
    request: OnBoardConsumerRequest,
    out: &Path,
    output: Format,
) -> anyhow::Result<()> {
    settle(provider, request, out).await?;
    mount::info(out, output)
}

/// Onboards for a program, which says nothing.
pub async fn take_in(connection: Connection, ticket: &str, capacity: &str, out: &Path) -> anyhow::Result<()> {
    let request = OnBoardConsumerRequest {
        token: ticket.to_owned(),
        capacity: Some(Quantity { string: Some(capacity.to_owned()) }),
        sources: Vec::new(),
    };
    settle(OcsProviderClient::new(connection), request, out).await
}

/// Whether asking again would be refused again.
pub fn is_refused(error: &anyhow::Error) -> bool {
    let status = error.downcast_ref::<tonic::Status>();
    status.is_some_and(|status| status.code() == Code::InvalidArgument)
}

/// Writes what the storage says is in force now; whether that is something else than before.
pub async fn renew(connection: Connection, dir: &Path) -> anyhow::Result<bool> {
    let details = connection_details(&mut OcsProviderClient::new(connection), sealed_id(dir)?).await?;
    if fs::read_to_string(dir.join("connection.json")).is_ok_and(|before| before == details) {
        return Ok(false);
    }
    write_details(dir, &details)?;
    Ok(true)
}

async fn settle(
    mut provider: OcsProviderClient<Connection>,
    request: OnBoardConsumerRequest,
    out: &Path,
) -> anyhow::Result<()> {
    let reply = provider.on_board_consumer(request).await?.into_inner();
    files::create_dir(out).with_context(|| format!("cannot make {}", out.display()))?;
    // First of all: without the id the grant could neither be used nor given back.
    write(out, "consumer-id", &reply.storage_consumer_uuid)?;
    let granted = reply.granted_capacity.and_then(|granted| granted.string).unwrap_or_default();
    write(out, mount::GRANTED, &granted)?;
    let details = connection_details(&mut provider, reply.storage_consumer_uuid).await?;
    write_details(out, &details)
}

/// The details last: with them everything is there.
fn write_details(out: &Path, details: &str) -> anyhow::Result<()> {
    for (file, text) in mount::files(details)? {
        write(out, file, &text)?;
    }
    write(out, "connection.json", details)
}

/// Asks until storage is ready, as consumers of the OCS design do.
async fn connection_details(
    provider: &mut OcsProviderClient<Connection>,
    id: String,
) -> anyhow::Result<String> {
    let asking = async {
        loop {
            let request = StorageConfigRequest { storage_consumer_uuid: id.clone() };
            match provider.get_storage_config(request).await {
                Ok(reply) => {
                    return String::from_utf8(reply.into_inner().data).context("the details are not text");
                }
                Err(status) if status.code() == Code::Unavailable => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                Err(status) => return Err(status.into()),
            }
        }
    };
    match tokio::time::timeout(READY, asking).await {
        Ok(details) => details,
        Err(_) => bail!("storage was not ready within {READY:?}; run it again later with the same ticket"),
    }
}

fn sealed_id(dir: &Path) -> anyhow::Result<String> {
    let path = dir.join("consumer-id");
    Ok(fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?
        .trim()
        .to_owned())
}

fn write(dir: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let path = dir.join(name);
    files::write(&path, text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}
