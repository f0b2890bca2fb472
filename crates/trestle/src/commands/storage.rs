//! `trestle ticket` and `trestle consumer`: storage for other clusters.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tonic::Code;
use wire::{
    k8s::io::apimachinery::pkg::api::resource::Quantity,
    provider::{
        OffBoardConsumerRequest, OnBoardConsumerRequest, StorageConfigRequest,
        ocs_provider_client::OcsProviderClient,
    },
    trestle::v1::{
        self, CreateTicketRequest, GetConsumerRequest, ListConsumersRequest, ListTicketsRequest,
        OffboardConsumerRequest, ResizeConsumerRequest, RevokeTicketRequest, RotateTicketKeyRequest,
        storage_client::StorageClient,
    },
};

use crate::{
    client::Connection,
    output::{Format, Rows},
};

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
    },
    /// Make a ticket worthless; a consumer that came with it stays
    Revoke { id: String },
    /// Sign tickets with a new key from now on
    RotateKey,
}

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  trestle consumer onboard --ticket-file t --capacity 10Gi --out ./storage   # the consumer's side
  trestle consumer list
  trestle consumer resize ID 20Gi
  trestle consumer offboard ID")]
pub enum ConsumerCommand {
    /// All consumers, with usage against grant
    List,
    /// One consumer
    Get { id: String },
    /// Change a consumer's grant
    Resize { id: String, capacity: String },
    /// Put a consumer off: its sessions end and its data is deleted
    Offboard { id: String },
    /// The consumer's side: use a ticket, wait for storage, write credentials and say how to mount
    Onboard {
        /// File that holds the ticket
        #[arg(long, value_name = "FILE")]
        ticket_file: PathBuf,
        /// Storage to ask for, e.g. 10Gi
        #[arg(long)]
        capacity: String,
        /// Directory for the credentials
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
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

pub async fn ticket(command: TicketCommand, output: Format, connection: Connection) -> anyhow::Result<()> {
    let mut storage = StorageClient::new(connection);
    match command {
        TicketCommand::List => {
            let reply = storage.list_tickets(ListTicketsRequest {}).await?.into_inner();
            output.list(&reply.tickets.into_iter().map(Ticket::from).collect::<Vec<_>>())
        }
        TicketCommand::Create { ttl, limit } => {
            let lifetime_seconds = ttl.map_or(0, |ttl| ttl.as_secs().unsigned_abs());
            let reply =
                storage.create_ticket(CreateTicketRequest { lifetime_seconds, limit }).await?.into_inner();
            let ticket = Ticket::from(reply.ticket.context("the controller sent no ticket")?);
            output.done(&reply.text, &serde_json::json!({ "ticket": ticket, "text": reply.text }))
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
            output.list(&reply.consumers.into_iter().map(Consumer::from).collect::<Vec<_>>())
        }
        ConsumerCommand::Get { id } => {
            let reply = storage.get_consumer(GetConsumerRequest { id }).await?.into_inner();
            output.one(&Consumer::from(reply))
        }
        ConsumerCommand::Resize { id, capacity } => {
            let reply = storage.resize_consumer(ResizeConsumerRequest { id, capacity }).await?.into_inner();
            output.one(&Consumer::from(reply))
        }
        ConsumerCommand::Offboard { id } => {
            storage.offboard_consumer(OffboardConsumerRequest { id: id.clone() }).await?;
            output.done(&format!("Offboarded consumer: {id}"), &serde_json::json!({ "id": id }))
        }
        ConsumerCommand::Onboard { ticket_file, capacity, out } => {
            onboard(OcsProviderClient::new(connection), &ticket_file, capacity, &out, output).await
        }
        ConsumerCommand::MountInfo { dir } => mount_info(&dir, output),
        ConsumerCommand::Leave { dir } => {
            let request = OffBoardConsumerRequest { storage_consumer_uuid: sealed_id(&dir)? };
            OcsProviderClient::new(connection).offboard_consumer(request).await?;
            output.done("Left; the storage is gone", &serde_json::json!({ "left": true }))
        }
    }
}

async fn onboard(
    mut provider: OcsProviderClient<Connection>,
    ticket_file: &Path,
    capacity: String,
    out: &Path,
    output: Format,
) -> anyhow::Result<()> {
    let token =
        fs::read_to_string(ticket_file).with_context(|| format!("cannot read {}", ticket_file.display()))?;
    let capacity = Some(Quantity { string: Some(capacity) });
    let request = OnBoardConsumerRequest { token: token.trim().to_owned(), capacity };
    let reply = provider.on_board_consumer(request).await?.into_inner();
    server::private_file::create_dir(out).with_context(|| format!("cannot make {}", out.display()))?;
    // First of all: without the id the grant could neither be used nor given back.
    write(out, "consumer-id", &reply.storage_consumer_uuid)?;
    let details = connection_details(&mut provider, reply.storage_consumer_uuid).await?;
    write(out, "connection.json", &details)?;
    let items: Vec<Item> =
        serde_json::from_str(&details).context("the provider sent no usable connection details")?;
    for (name, file) in [("ca", "ca-cert.pem"), ("cert", "client-cert.pem"), ("key", "client-key.pem")] {
        if let Some(pem) = find(&items, name) {
            write(out, file, pem)?;
        }
    }
    mount_info(out, output)
}

/// Asks until storage is ready, as consumers of the seed do.
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

/// Files are named as NBD clients look for them.
fn mount_info(dir: &Path, output: Format) -> anyhow::Result<()> {
    let path = dir.join("connection.json");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let items: Vec<Item> =
        serde_json::from_str(&text).with_context(|| format!("cannot understand {}", path.display()))?;
    let Some(uri) = find(&items, "uri") else {
        return output.done("This storage is not NBD; use connection.json with its own clients", &items);
    };
    let uri = format!("{uri}?tls-certificates={}", dir.display());
    let commands = [
        format!("nbdinfo '{uri}'"),
        format!("nbdcopy image.raw '{uri}'"),
        format!("qemu-img info --image-opts driver=nbd,{}", qemu_options(&items, dir)),
        format!(
            "nbd-client -N {} -cacertfile {d}/ca-cert.pem -certfile {d}/client-cert.pem -keyfile {d}/client-key.pem {} {} /dev/nbd0",
            find(&items, "export").unwrap_or_default(),
            find(&items, "address").unwrap_or_default(),
            find(&items, "port").unwrap_or_default(),
            d = dir.display()
        ),
    ];
    let data = serde_json::json!({ "uri": uri, "commands": commands });
    output.done(&format!("Storage is ready. For example:\n\n  {}", commands.join("\n  ")), &data)
}

fn qemu_options(items: &[Item], dir: &Path) -> String {
    let (host, port) = (find(items, "address").unwrap_or_default(), find(items, "port").unwrap_or_default());
    let export = find(items, "export").unwrap_or_default();
    format!(
        "host={host},port={port},export={export},tls-creds=tls0 --object tls-creds-x509,id=tls0,endpoint=client,dir={}",
        dir.display()
    )
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
    server::private_file::write(&path, text.as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))
}

/// One item of the connection details.
#[derive(Debug, Serialize, Deserialize)]
struct Item {
    name: String,
    kind: String,
    data: std::collections::BTreeMap<String, String>,
}

fn find<'a>(items: &'a [Item], key: &str) -> Option<&'a str> {
    items.iter().find_map(|item| item.data.get(key)).map(String::as_str)
}

fn time(seconds: u64) -> String {
    let second = i64::try_from(seconds).unwrap_or(i64::MAX);
    Timestamp::from_second(second).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

/// Bytes with the unit people use for storage.
fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let exponent = (count.max(1).ilog2() / 10) as usize;
    let scaled = count as f64 / (1_u64 << (10 * exponent)) as f64;
    match exponent {
        0 => format!("{count} B"),
        _ => format!("{scaled:.1} {}", units[exponent]),
    }
}

#[derive(Debug, Serialize)]
struct Ticket {
    id: String,
    state: String,
    key: String,
    expires: String,
    limit_bytes: Option<u64>,
    consumer: String,
}

impl From<v1::Ticket> for Ticket {
    fn from(ticket: v1::Ticket) -> Self {
        let v1::Ticket { id, key, expires_at, limit_bytes, state, consumer, .. } = ticket;
        Self { id, state, key, expires: time(expires_at), limit_bytes, consumer }
    }
}

impl Rows for Ticket {
    const HEADER: &'static [&'static str] = &["id", "state", "key", "expires", "limit", "consumer"];

    fn row(&self) -> Vec<String> {
        let limit = self.limit_bytes.map_or_else(|| "none".to_owned(), bytes);
        [&self.id, &self.state, &self.key, &self.expires, &limit, &self.consumer].map(Clone::clone).to_vec()
    }
}

#[derive(Debug, Serialize)]
struct Consumer {
    id: String,
    phase: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    requested: String,
    granted_bytes: u64,
    used_bytes: Option<u64>,
    created: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    notice: String,
}

impl From<v1::Consumer> for Consumer {
    fn from(consumer: v1::Consumer) -> Self {
        let v1::Consumer { id, phase, reason, requested, granted_bytes, created_at, used_bytes, notice } =
            consumer;
        Self { id, phase, reason, requested, granted_bytes, used_bytes, created: time(created_at), notice }
    }
}

/// Cells of the bar that shows usage against grant.
const BAR: u64 = 10;

impl Rows for Consumer {
    const HEADER: &'static [&'static str] = &["id", "phase", "usage", "used", "granted", "remark"];

    fn row(&self) -> Vec<String> {
        let (bar, used) = match self.used_bytes {
            Some(used) => {
                let cells =
                    (u128::from(used) * u128::from(BAR)).div_ceil(u128::from(self.granted_bytes.max(1)));
                let filled = usize::try_from(cells.min(u128::from(BAR))).unwrap_or(0);
                (format!("{}{}", "#".repeat(filled), ".".repeat(BAR as usize - filled)), bytes(used))
            }
            None => ("?".to_owned(), "?".to_owned()),
        };
        let remark = [&self.reason, &self.notice]
            .iter()
            .filter(|t| !t.is_empty())
            .map(|t| t.as_str())
            .collect::<Vec<_>>();
        vec![self.id.clone(), self.phase.clone(), bar, used, bytes(self.granted_bytes), remark.join("; ")]
    }
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn bytes_are_shown_in_the_unit_people_use() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(10 << 30), "10.0 GiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
    }
}
