//! Bad input and bad luck: each gets a clear answer, and the controller stays up.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use server::{Controller, StartError};
use testkit_controllers::controller::{Fixture, config, group, leaf, tls, tls_for};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tonic::Code;
use wire::tagservicepb::{ListTagsRequest, Tag};

/// One gRPC call with a body of our own making; the status is what `grpc-status` says.
async fn raw_grpc(fixture: &Fixture, body: Vec<u8>) -> Code {
    let stream = tls_for(&fixture.ca, fixture.controller.grpc_addr(), "h2").await.unwrap();
    let io = TokioIo::new(stream);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::post("https://localhost/tagservicepb.TagService/SetTag")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("authorization", format!("Bearer {}", fixture.token))
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
    let trailers = body.collect().await.unwrap().trailers().cloned().unwrap_or_default();
    let status = parts.headers.get("grpc-status").or_else(|| trailers.get("grpc-status")).unwrap();
    Code::from_bytes(status.as_bytes())
}

fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], length.as_slice(), message].concat()
}

#[tokio::test]
async fn malformed_and_oversized_messages_are_answered() {
    let fixture = Fixture::start().await;
    let cut_short = [&[0, 0, 0, 1, 0][..], b"abc"].concat();
    for (body, what) in [
        (framed(b"\xff\xff\xff\xff"), "not protobuf"),
        (framed(b"\x0a\x7fshort"), "a field longer than the message"),
        (framed(b"\x0a\x02\xff\xfe"), "a name that is not UTF-8"),
        (vec![9; 64], "not a frame"),
        (cut_short, "half a frame"),
        (Vec::new(), "nothing"),
        (framed(&vec![0; 64 << 20]), "64 MiB"),
        ([&[0, 0xff, 0xff, 0xff, 0xff][..], b"x"].concat(), "a promise of 4 GiB"),
    ] {
        let code = raw_grpc(&fixture, body).await;
        assert!(code != Code::Ok && code != Code::Unknown, "{what}: {code:?}");
    }
    for (body, status) in [
        ("{", StatusCode::BAD_REQUEST),
        ("[]", StatusCode::BAD_REQUEST),
        (r#"{"ip": 5}"#, StatusCode::BAD_REQUEST),
        (r#"{"ip": "10.0.0.1", "colour": "blue"}"#, StatusCode::BAD_REQUEST),
        ("\u{0}", StatusCode::BAD_REQUEST),
    ] {
        let (got, problem) = fixture.rest("POST", "/tags/a/applyMembers", body).await;
        assert_eq!((got, problem["code"].as_str()), (status, Some("INVALID_ARGUMENT")), "{body}");
    }
    fixture.tags().await.list_tags(ListTagsRequest::default()).await.unwrap();
}

#[tokio::test]
async fn a_large_body_is_refused_before_it_is_read() {
    let fixture = Fixture::start().await;
    let body = vec![b' '; 64 << 20];
    let (status, _, _) = fixture.rest_as(Some(&fixture.token), "POST", "/tags/a/applyMembers", body).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_slow_loris_is_cut_while_others_are_served() {
    let fixture = Fixture::start().await;
    let mut silent = TcpStream::connect(fixture.controller.http_addr()).await.unwrap();
    let mut dribbling = tls(&fixture.ca, fixture.controller.http_addr()).await.unwrap();
    dribbling.write_all(b"GET /tags HTTP/1.1\r\nHost: x\r\nX-A: ").await.unwrap();
    assert_eq!(fixture.rest("GET", "/tags", "").await.0, StatusCode::OK);
    let closed = async {
        let mut byte = [0; 512];
        while dribbling.read(&mut byte).await.is_ok_and(|read| read > 0) {}
        while silent.read(&mut byte).await.is_ok_and(|read| read > 0) {}
    };
    tokio::time::timeout(Duration::from_secs(15), closed).await.expect("both are cut after ten seconds");
}

#[tokio::test]
async fn idle_connections_do_not_keep_others_out_and_their_number_is_bounded() {
    let fixture = Fixture::start_with(|config| {
        config.limits.max_connections = 300;
    })
    .await;
    let addr = fixture.controller.http_addr();
    let mut idle = Vec::new();
    for _ in 0..290 {
        idle.push(TcpStream::connect(addr).await.unwrap());
    }
    assert_eq!(fixture.rest("GET", "/tags", "").await.0, StatusCode::OK);
    for _ in 0..60 {
        idle.push(TcpStream::connect(addr).await.unwrap());
    }
    // Those beyond the bound are closed at once; when some leave, there is room again.
    let mut byte = [0];
    let last = idle.last_mut().unwrap();
    let read = tokio::time::timeout(Duration::from_secs(5), last.read(&mut byte)).await;
    assert!(matches!(read, Ok(Ok(0) | Err(_))));
    drop(idle);
    let served = async {
        while tls(&fixture.ca, addr).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), served).await.expect("there is room again");
    assert_eq!(fixture.rest("GET", "/tags", "").await.0, StatusCode::OK);
}

#[tokio::test]
async fn many_concurrent_writers_all_succeed_and_all_is_there() {
    let fixture = Fixture::start().await;
    let mut writers = Vec::new();
    for writer in 0..32 {
        let mut tags = fixture.tags().await;
        writers.push(tokio::spawn(async move {
            for n in 0..10 {
                tags.set_tag(leaf(&format!("w{writer}-{n}"), "10.0.0.1")).await.unwrap();
            }
            tags.set_tag(group("shared", &[&format!("w{writer}-0"), &format!("w{writer}-9")])).await.unwrap();
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let mut tags = fixture.tags().await;
    assert_eq!(tags.list_tags(ListTagsRequest::default()).await.unwrap().into_inner().tags.len(), 321);
    let shared = tags.resolve_tag(Tag { tag_name: "shared".into() }).await.unwrap().into_inner();
    assert_eq!(shared.mappings.len(), 64);
}

#[tokio::test]
async fn a_directory_in_use_and_a_port_in_use_are_named() {
    let fixture = Fixture::start().await;
    let error = start_error(config(fixture.dir.path(), |_| {})).await;
    assert!(matches!(error, StartError::Store(_)), "{error}");
    let text = common::chain(&error);
    assert!(text.contains(&fixture.dir.path().display().to_string()), "{text}");

    let elsewhere = tempfile::tempdir().unwrap();
    let taken = fixture.controller.http_addr();
    let error = start_error(config(elsewhere.path(), |config| config.listen.http = taken)).await;
    assert!(common::chain(&error).contains(&taken.to_string()));
}

#[tokio::test]
async fn a_damaged_store_is_reported_and_left_alone() {
    let fixture = Fixture::start().await;
    fixture.tags().await.set_tag(leaf("a", "10.0.0.1")).await.unwrap();
    let dir = fixture.stop().await;
    let files = std::fs::read_dir(dir.path().join("store")).unwrap().map(|file| file.unwrap().path());
    let file = files.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let damaged = vec![0x5a; 64 << 10];
    std::fs::write(&file, &damaged).unwrap();
    let error = start_error(config(dir.path(), |_| {})).await;
    let text = common::chain(&error);
    assert!(text.contains(&file.display().to_string()) && text.contains("restore"), "{text}");
    assert_eq!(std::fs::read(&file).unwrap(), damaged);
}

async fn start_error(config: server::Config) -> StartError {
    match Controller::start(config).await {
        Ok(_) => panic!("the controller started"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_full_disk_refuses_writes_and_heals() {
    if !rustix::process::geteuid().is_root() {
        panic!("this test mounts a small tmpfs and must run as root");
    }
    let mount = tempfile::tempdir().unwrap();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("tmpfs", mount.path(), "tmpfs", flags, c"size=12m,mode=0700").unwrap();
    let guard = Unmount(mount.path().to_owned());
    let dir = tempfile::tempdir_in(mount.path()).unwrap();
    let fixture = Fixture::start_in(dir, |_| {}).await;
    let mut tags = fixture.tags().await;
    tags.set_tag(leaf("before", "10.0.0.1")).await.unwrap();

    let ballast = mount.path().join("ballast");
    let mut free = 16 << 20;
    while free > 0 {
        let grown = std::fs::OpenOptions::new().create(true).append(true).open(&ballast);
        let written = std::io::Write::write(&mut grown.unwrap(), &vec![0; free]).unwrap_or(0);
        free = if written == 0 { free / 2 } else { free };
    }
    let mut acknowledged = Vec::new();
    let mut refused = None;
    for n in 0..2000 {
        let name = format!("t{n}");
        match tags.set_tag(group(&name, &["before", "10.0.0.0/8", "10.1.0.0/16", "10.2.0.0/16"])).await {
            Ok(_) => acknowledged.push(name),
            Err(status) => {
                refused = Some(status);
                break;
            }
        }
    }
    let refused = refused.expect("a disk of 12 MiB fills up");
    // Whichever notices first: the store, or the record of what is about to be stored.
    assert!([Code::ResourceExhausted, Code::Unavailable].contains(&refused.code()), "{refused:?}");
    assert_eq!(fixture.rest("GET", "/tags/before", "").await.0, StatusCode::OK, "reads go on");

    std::fs::remove_file(&ballast).unwrap();
    let healed = async {
        while tags.set_tag(leaf("after", "10.0.0.2")).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), healed).await.expect("writes work again");
    let dir = fixture.stop().await;
    let fixture = Fixture::start_in(dir, |_| {}).await;
    let mut tags = fixture.tags().await;
    for name in acknowledged.iter().map(String::as_str).chain(["before", "after"]) {
        tags.get_tag(Tag { tag_name: name.to_owned() })
            .await
            .unwrap_or_else(|_| panic!("{name} was acknowledged"));
    }
    drop(fixture.stop().await);
    drop(guard);
}

/// Takes the mount away also when the test fails.
struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}
