//! A start that takes long: the controller listens, says how far it is, serves nobody, and goes on until it is done.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use bytes::Bytes;
use serde_json::json;
use server::{Controller, StoreKind};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
};
use wire::trestle::v1::{ApplyObjectsRequest, objects_client::ObjectsClient};

use super::Etcd;
use testkit_controllers::controller::{Fixture, call, config};

/// Enough that a narrow way to etcd is felt.
const OBJECTS: usize = 2000;

/// A way to etcd that lets through as many bytes of its answers as the test has granted.
struct Narrow {
    url: String,
    granted: watch::Sender<usize>,
}

impl Narrow {
    async fn to(etcd: &Etcd) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let to = etcd.0.url().trim_start_matches("http://").to_owned();
        let (granted, grants) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(etcd) = TcpStream::connect(to.clone()).await else { return };
                tokio::spawn(carry(client, etcd, grants.clone()));
            }
        });
        Self { url, granted }
    }

    fn grant(&self, bytes: usize) {
        self.granted.send_modify(|granted| *granted = granted.saturating_add(bytes));
    }
}

async fn carry(client: TcpStream, etcd: TcpStream, mut granted: watch::Receiver<usize>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_etcd, mut to_etcd) = etcd.into_split();
    tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_etcd).await });
    let (mut bytes, mut carried) = ([0; 4096], 0);
    while let Ok(count @ 1..) = from_etcd.read(&mut bytes).await {
        carried += count;
        if granted.wait_for(|granted| *granted >= carried).await.is_err() {
            return;
        }
        if to_client.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

fn documents() -> Vec<Vec<u8>> {
    let one = |number| {
        let metadata = json!({ "name": format!("n{number}"), "annotations": { "note": "x".repeat(400) } });
        serde_json::to_vec(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata })).unwrap()
    };
    (0..OBJECTS).map(one).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_takes_long_goes_on_and_says_how_far_it_is() {
    let etcd = Etcd::start();
    let first = etcd.controller(tempfile::tempdir().unwrap(), |_| {}).await;
    let mut objects = ObjectsClient::new(first.admin().await);
    for part in documents().chunks(100) {
        let request = ApplyObjectsRequest { documents: part.to_vec(), ..ApplyObjectsRequest::default() };
        objects.apply_objects(request).await.unwrap();
    }
    let (ca, token) = (first.ca.clone(), first.token.clone());
    let dir = first.stop().await;

    let narrow = Narrow::to(&etcd).await;
    let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let http: SocketAddr = free();
    let slow = config(dir.path(), |config| {
        let mut kind = Etcd::kind_at(&narrow.url);
        if let StoreKind::Etcd(etcd) = &mut kind {
            // A way that is narrow on purpose is no reason to call it stale.
            etcd.max_staleness_seconds = 600;
        }
        config.store = kind;
        config.listen.http = http;
    });
    let starting = tokio::spawn(Controller::start(slow));
    let ask = |path: &'static str, token: Option<String>| {
        let ca = ca.clone();
        async move {
            let (status, _, body) = call(&ca, http, token.as_deref(), "GET", path, Bytes::new()).await;
            (status.as_u16(), String::from_utf8_lossy(&body).into_owned())
        }
    };
    // A little at a time, until it has told of two pages.
    let mut told = BTreeSet::new();
    let reads_on = async {
        while told.len() < 3 {
            narrow.grant(32 << 10);
            tokio::time::sleep(Duration::from_millis(20)).await;
            if TcpStream::connect(http).await.is_err() {
                continue;
            }
            let (status, body) = ask("/readyz", None).await;
            assert_eq!(status, 503, "{body}");
            assert!(body.contains("still being read"), "{body}");
            told.insert(body);
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reads_on).await.expect("it tells how far it is");
    assert_eq!(ask("/healthz", None).await.0, 200, "it lives");
    let (status, body) = ask("/tags", Some(token.clone())).await;
    assert_eq!(status, 503, "nobody is answered from half of it");
    assert!(body.contains("still being read"), "{body}");
    assert_eq!(ask("/status", Some(token.clone())).await.0, 200, "an administrator may look");
    assert!(!starting.is_finished());

    narrow.grant(usize::MAX);
    let started =
        tokio::time::timeout(Duration::from_secs(120), starting).await.expect("it comes to its end");
    let controller = started.unwrap().unwrap();
    let (status, body) = ask("/readyz", None).await;
    assert_eq!(status, 200, "{body}");
    let second = Fixture { controller, dir, ca: ca.clone(), token };
    assert_eq!(second.rest("GET", "/tags", "").await.0, 200);
    second.stop().await;
}
