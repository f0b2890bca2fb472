//! A controller with storage, a consumer with its credentials, and a driver on a socket.

#![allow(dead_code, reason = "each test uses its part")]
use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use server::StorageConfig;
use storage_csi::{
    Account, Driver, Services,
    attach::Attacher,
    proto::{
        CapacityRange, CreateVolumeRequest, VolumeCapability,
        controller_client::ControllerClient,
        identity_client::IdentityClient,
        node_client::NodeClient,
        volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode},
    },
};
use tempfile::TempDir;
use testkit_controllers::controller::Fixture;
use tokio::net::UnixStream;
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};
use wire::{
    k8s::io::apimachinery::pkg::api::resource::Quantity,
    provider::{OnBoardConsumerRequest, StorageConfigRequest, ocs_provider_client::OcsProviderClient},
};

pub struct Lab {
    pub fixture: Fixture,
    pub dir: TempDir,
    channel: Channel,
}

impl Lab {
    pub async fn start(granted: &str, attacher: Option<Arc<dyn Attacher>>) -> Self {
        let fixture = controller(tempfile::tempdir().unwrap(), 0).await;
        Self::of(fixture, granted, attacher).await
    }

    pub async fn of(fixture: Fixture, granted: &str, attacher: Option<Arc<dyn Attacher>>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        onboard(&fixture, granted, dir.path()).await;
        let url = format!("https://{}", fixture.controller.grpc_addr());
        let account = Account::open(dir.path(), &url).unwrap();
        let services = Services { controller: true, node: attacher.is_some() };
        let mut driver = Driver::new(account, services, "node-1");
        if let Some(attacher) = attacher {
            driver = driver.attaching(attacher);
        }
        let socket = dir.path().join("csi.sock");
        let place = socket.clone();
        tokio::spawn(
            async move { storage_csi::serve(driver, &place, std::future::pending()).await.unwrap() },
        );
        let connect = tower::service_fn(move |_| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        let endpoint = Endpoint::from_static("http://driver");
        let channel = loop {
            match endpoint.connect_with_connector(connect.clone()).await {
                Ok(channel) => break channel,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        Self { fixture, dir, channel }
    }

    pub fn identity(&self) -> IdentityClient<Channel> {
        IdentityClient::new(self.channel.clone())
    }

    pub fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel.clone())
    }

    pub fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel.clone())
    }
}

/// A controller that serves volumes at a port.
pub async fn controller(dir: TempDir, port: u16) -> Fixture {
    let listen = format!("127.0.0.1:{port}").parse().unwrap();
    Fixture::start_in(dir, |config| config.storage = Some(StorageConfig::nbd(listen))).await
}

/// As `trestle consumer onboard` does.
async fn onboard(fixture: &Fixture, granted: &str, dir: &Path) {
    let (_, made) = fixture.rest("POST", "/tickets", &json!({}).to_string()).await;
    let request = OnBoardConsumerRequest {
        token: made["text"].as_str().unwrap().to_owned(),
        capacity: Some(Quantity { string: Some(granted.to_owned()) }),
        sources: Vec::new(),
    };
    let mut provider = OcsProviderClient::new(fixture.channel().await);
    let id = provider.on_board_consumer(request).await.unwrap().into_inner().storage_consumer_uuid;
    let details = loop {
        let request = StorageConfigRequest { storage_consumer_uuid: id.clone() };
        match provider.get_storage_config(request).await {
            Ok(reply) => break reply.into_inner().data,
            Err(status) if status.code() == Code::Unavailable => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(status) => panic!("{status}"),
        }
    };
    let items: Vec<Value> = serde_json::from_slice(&details).unwrap();
    let pems = &items.iter().find(|item| item["kind"] == "Secret").unwrap()["data"];
    for (key, name) in [("ca", "ca-cert.pem"), ("cert", "client-cert.pem"), ("key", "client-key.pem")] {
        std::fs::write(dir.join(name), pems[key].as_str().unwrap()).unwrap();
    }
    std::fs::write(dir.join("consumer-id"), id).unwrap();
    std::fs::write(dir.join("connection.json"), details).unwrap();
}

pub fn capability(mode: Mode, fs: Option<&str>) -> VolumeCapability {
    let mount = |fs: &str| MountVolume { fs_type: fs.to_owned(), ..MountVolume::default() };
    VolumeCapability {
        access_mode: Some(AccessMode { mode: mode as i32 }),
        access_type: Some(fs.map_or(AccessType::Block(BlockVolume {}), |fs| AccessType::Mount(mount(fs)))),
    }
}

pub fn wish(name: &str, bytes: i64) -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
        volume_capabilities: vec![capability(Mode::SingleNodeWriter, Some(""))],
        ..CreateVolumeRequest::default()
    }
}

pub fn code<T: std::fmt::Debug>(reply: Result<T, Status>) -> Code {
    reply.unwrap_err().code()
}

pub fn context(export: &str) -> BTreeMap<String, String> {
    [("export".to_owned(), export.to_owned())].into()
}
