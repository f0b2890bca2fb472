//! The provider through a whole controller: from a ticket to the first byte, and ten thousand consumers.
//!
//! The controller runs in this process, with TLS, its store and its volumes on disk; calls come over loopback.

use std::{
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use benches::report;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use server::{Config, Controller, StorageConfig};
use tonic::{
    Code, Request, Status,
    metadata::MetadataValue,
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};
use wire::{
    k8s::io::apimachinery::pkg::api::resource::Quantity,
    provider::{OnBoardConsumerRequest, StorageConfigRequest, ocs_provider_client::OcsProviderClient},
    trestle::v1::{CreateTicketRequest, ListConsumersRequest, storage_client::StorageClient},
};

use crate::{
    client::{Client, Kind},
    servers::write_client,
};

const CONSUMERS: usize = 10_000;
/// Onboardings one after the other, for the time to the first byte.
const FIRST_BYTES: usize = 20;
const IN_FLIGHT: usize = 32;
const LISTS: usize = 5;
/// How long all consumers may take to become ready.
const PATIENCE: Duration = Duration::from_secs(1800);

#[derive(Clone)]
struct Bearer(MetadataValue<tonic::metadata::Ascii>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.0.clone());
        Ok(request)
    }
}

type Admin = StorageClient<InterceptedService<Channel, Bearer>>;

pub(crate) fn measure() -> Result<()> {
    // Its own figures would show through if the controller had all cores to itself and its callers none.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let dir = tempfile::tempdir()?;
        let mut config = Config::in_dir(dir.path().join("data"));
        for listener in [&mut config.listen.http, &mut config.listen.grpc, &mut config.listen.watch] {
            listener.set_port(0);
        }
        // All consumers of this bench have one address, of which a controller takes a quarter of them at once.
        config.limits.max_strangers_in_flight = 4 * IN_FLIGHT;
        config.storage = Some(StorageConfig::nbd(SocketAddr::from(([127, 0, 0, 1], 0))));
        let controller = Controller::start(config).await?;
        let ca = std::fs::read_to_string(controller.ca_path())?;
        let token = std::fs::read_to_string(controller.token_path())?;
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&ca)).domain_name("localhost");
        let url = format!("https://{}", controller.grpc_addr());
        let channel = Endpoint::from_shared(url)?.tls_config(tls)?.connect().await?;
        let bearer = Bearer(format!("Bearer {token}").parse()?);
        let admin =
            StorageClient::with_interceptor(channel.clone(), bearer).max_decoding_message_size(1 << 30);
        let nbd = controller.nbd_addr().context("volumes are served here")?;
        first_byte(&admin, &channel, nbd, dir.path()).await?;
        many(&admin, &channel).await?;
        controller.stop().await?;
        Ok(())
    })
}

async fn ticket(admin: &Admin) -> Result<String> {
    Ok(admin.clone().create_ticket(CreateTicketRequest::default()).await?.into_inner().text)
}

async fn onboard(channel: &Channel, token: String) -> Result<String> {
    let capacity = Some(Quantity { string: Some("64Ki".to_owned()) });
    let request = OnBoardConsumerRequest { token, capacity, sources: Vec::new() };
    let reply = OcsProviderClient::new(channel.clone()).on_board_consumer(request).await?;
    Ok(reply.into_inner().storage_consumer_uuid)
}

/// From showing the ticket to one block written and synced over TLS.
async fn first_byte(admin: &Admin, channel: &Channel, nbd: SocketAddr, dir: &Path) -> Result<()> {
    let mut times = Vec::new();
    for n in 0..FIRST_BYTES {
        let token = ticket(admin).await?;
        let credentials = dir.join(format!("client-{n}"));
        let began = Instant::now();
        let id = onboard(channel, token).await?;
        let items = connection_details(channel, &id).await?;
        let text = |key: &str| {
            let found = items.iter().find_map(|item| item["data"][key].as_str());
            found.with_context(|| format!("the details have no {key}"))
        };
        write_client(&credentials, text("ca")?, text("cert")?, text("key")?)?;
        tokio::task::spawn_blocking(move || {
            let mut client = Client::connect("trestle", nbd, Some(&credentials))?;
            client.run(Kind::Write, 4096, 1, 1, 64 << 10, None)?;
            client.flush()
        })
        .await??;
        times.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    report("storage.onboard", "first_byte_ms", crate::median(times), "ms");
    Ok(())
}

async fn connection_details(channel: &Channel, id: &str) -> Result<Vec<serde_json::Value>> {
    let mut provider = OcsProviderClient::new(channel.clone());
    loop {
        let request = StorageConfigRequest { storage_consumer_uuid: id.to_owned() };
        match provider.get_storage_config(request).await {
            Ok(reply) => return Ok(serde_json::from_slice(&reply.into_inner().data)?),
            Err(status) if status.code() == Code::Unavailable => {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            Err(status) => bail!(status),
        }
    }
}

async fn many(admin: &Admin, channel: &Channel) -> Result<()> {
    let tickets = stream::iter(0..CONSUMERS).map(|_| ticket(admin)).buffer_unordered(IN_FLIGHT);
    let tickets: Vec<String> = tickets.try_collect().await?;
    let began = Instant::now();
    let calls = stream::iter(tickets).map(|token| onboard(channel, token)).buffer_unordered(IN_FLIGHT);
    let ids: Vec<String> = calls.try_collect().await?;
    report("storage.onboard", "calls_per_s", ids.len() as f64 / began.elapsed().as_secs_f64(), "1/s");
    loop {
        let listed = admin.clone().list_consumers(ListConsumersRequest {}).await?.into_inner().consumers;
        let ready = listed.iter().filter(|consumer| consumer.phase == "Ready").count();
        if ready == CONSUMERS + FIRST_BYTES {
            break;
        }
        ensure!(began.elapsed() < PATIENCE, "only {ready} consumers are ready");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    report("storage.onboard", "ready_per_s", CONSUMERS as f64 / began.elapsed().as_secs_f64(), "1/s");
    let mut times = Vec::new();
    for _ in 0..LISTS {
        let began = Instant::now();
        let listed = admin.clone().list_consumers(ListConsumersRequest {}).await?.into_inner().consumers;
        ensure!(listed.len() == CONSUMERS + FIRST_BYTES, "the list is short");
        times.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    report("storage.list10k", "ms", crate::median(times), "ms");
    Ok(())
}
