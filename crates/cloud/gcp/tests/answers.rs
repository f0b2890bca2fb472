//! Answers that are not what Google's API says they are: refused with the path of what is wrong, and nothing is changed.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use cloud_api::{At, prelude::*};
use cloud_gcp::{GcpCloud, GcpOptions};
use cloud_http::{Clock, auth::Environment};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// Pauses take no time.
struct Fast;

#[async_trait]
impl Clock for Fast {
    fn now(&self) -> Duration {
        Duration::from_secs(1_700_000_000)
    }

    async fn sleep(&self, _: Duration) {
        tokio::task::yield_now().await;
    }
}

type Asked = Arc<Mutex<Vec<String>>>;

/// A cloud that answers one request, by a part of its path, with one text, and that everything else is not there.
async fn cloud(part: &'static str, answer: &'static str) -> (GcpCloud, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Some(format!("http://{}/compute/v1", listener.local_addr().unwrap()));
    let asked = Asked::default();
    let seen = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            reply(client, part, answer, &seen).await;
        }
    });
    let options = GcpOptions { endpoint, token: Some("t".to_owned()), ..GcpOptions::default() };
    let none: [(&str, &str); 0] = [];
    (GcpCloud::with(&options, Environment::of(none), Some(Arc::new(Fast)), None).unwrap(), asked)
}

async fn reply(mut client: TcpStream, part: &str, answer: &str, asked: &Asked) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    let first = String::from_utf8(head).unwrap().lines().next().unwrap().to_owned();
    let (status, body) = if first.contains(part) { (200, answer) } else { (404, "{}") };
    asked.lock().unwrap().push(first);
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    client.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
}

fn at() -> At {
    At { site: "ns.gcp".parse().unwrap(), deployment: "p1".to_owned() }
}

/// Only reads were asked for.
fn nothing_changed(asked: &Asked) -> bool {
    let asked = asked.lock().unwrap();
    !asked.is_empty() && asked.iter().all(|line| line.starts_with("GET "))
}

#[tokio::test]
async fn what_is_missing_or_mistyped_is_told_by_its_path() {
    for (part, answer, path) in [
        (
            "/firewalls?",
            r#"{"items":[{"name":"t-x","network":"n"},{"network":"n"}]}"#,
            "items[1]: missing field `name`",
        ),
        ("/firewalls?", r#"{"items":[{"name":"t-x","network":"n","priority":"7"}]}"#, "items[0].priority: "),
        ("/firewalls?", r#"{"items":{}}"#, "items: "),
        ("/networks/", r#"{"name":"n","peerings":[{"name":"p"}]}"#, "peerings[0]: missing field `network`"),
    ] {
        let (cloud, asked) = cloud(part, answer).await;
        let err = cloud.list(&at()).await.unwrap_err();
        assert!(err.message.contains(path), "{err}");
        assert!(nothing_changed(&asked), "{asked:?}");
    }
}

#[tokio::test]
async fn a_subnet_that_cannot_be_read_is_neither_taken_nor_made() {
    for (answer, path) in [
        (r#"{"name":"s","network":"n","region":"r"}"#, "missing field `selfLink`"),
        (
            r#"{"name":"s","network":"n","region":"r","selfLink":"s","ipCidrRange":"10.0.0.0/99"}"#,
            "ipCidrRange: ",
        ),
        (r#"{"name":"s","netw"#, "no Google answer"),
    ] {
        let (cloud, asked) = cloud("/subnetworks/", answer).await;
        let (region, space) = ("us-west1".parse().unwrap(), "10.0.0.0/16".parse().unwrap());
        let err = cloud.ensure_network(&at(), &region, space).await.unwrap_err();
        assert!(err.message.contains(path), "{err}");
        assert!(nothing_changed(&asked), "{asked:?}");
    }
}

/// What the plugin does not use may be anything, and an object of somebody else need not have what ours has.
#[tokio::test]
async fn odd_objects_of_others_are_in_nobodys_way() {
    let others = r#"{"items":[{"name":"t-x","network":"n","kind":7,"sourceTags":{},"description":"a { of somebody's"}]}"#;
    let (cloud, _) = cloud("/firewalls?", others).await;
    assert_eq!(cloud.list(&at()).await.unwrap(), cloud_api::Listing::default());
}
