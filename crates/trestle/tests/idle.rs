//! Ten thousand idle connections to one controller. Long: `make lab` runs it.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may fail where it stands, and tell")]

mod harness;

use std::{net::TcpStream, sync::Arc};

use harness::Up;
use rustix::process::{Resource, getrlimit, setrlimit};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};

#[test]
#[ignore = "opens 10,000 connections; make lab runs it"]
fn ten_thousand_idle_connections_do_not_keep_others_out() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    assert!(limit.maximum.is_none_or(|files| files > 10_500), "the limit of open files is below 10,500");
    let up = Up::start(&[]);
    let before = resident(up.pid());
    let config = Arc::new(client(&std::fs::read(up.path("data/pki/ca.pem")).unwrap()));
    let idle: Vec<_> = (0..10_000).map(|_| open(&config, &up.http)).collect();
    up.ok(&["tag", "set", "a", "--ip", "10.0.0.1"]);
    assert!(up.ok(&["tag", "list"]).contains("10.0.0.1"));
    let after = resident(up.pid());
    println!(
        "{} idle TLS connections cost the controller {} KiB each",
        idle.len(),
        (after - before) / idle.len()
    );
}

fn client(ca: &[u8]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    // HTTP/2, whose connections may be idle; a silent HTTP/1.1 peer is cut after ten seconds.
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

/// A connection with its handshake done and the HTTP/2 preface sent.
fn open(config: &Arc<ClientConfig>, addr: &str) -> (ClientConnection, TcpStream) {
    use std::io::Write as _;
    let mut stream = TcpStream::connect(addr).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut session = ClientConnection::new(Arc::clone(config), name).unwrap();
    while session.is_handshaking() {
        session.complete_io(&mut stream).unwrap();
    }
    session.writer().write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    session.write_tls(&mut stream).unwrap();
    (session, stream)
}

/// Resident memory of a process in KiB.
fn resident(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
