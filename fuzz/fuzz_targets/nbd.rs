//! A client of the block device server: negotiation and transmission, as whatever it sends.
#![no_main]

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{Arc, LazyLock},
    time::Duration,
};

use libfuzzer_sys::fuzz_target;
use storage_nbd::{Access, NbdServer, ServerConfig, Vault, VaultConfig};
use storage_provider::ConsumerId;

/// A server with one volume named `v`, for as long as the process lives.
static SERVER: LazyLock<SocketAddr> = LazyLock::new(|| {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory").keep();
    let vault = Vault::open(VaultConfig { root: dir, reserve: 0 }).expect("an empty directory");
    let consumer: ConsumerId = "0190b5a0-0000-7000-8000-000000000001".parse().expect("an id");
    storage_nbd::fuzzing::make_volume(&vault, consumer, "v", 1 << 20);
    let runtime = Box::leak(Box::new(tokio::runtime::Runtime::new().expect("a runtime")));
    let config = ServerConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        access: Access::PlainLoopback(consumer),
        max_connections: 64,
        max_sessions: 64,
    };
    let server = runtime.block_on(NbdServer::bind(Arc::new(vault), config)).expect("a free port");
    let address = server.local_addr().expect("it listens");
    runtime.spawn(server.run(Default::default()));
    address
});

fuzz_target!(|bytes: &[u8]| {
    let mut client = TcpStream::connect(*SERVER).expect("the server lives");
    client.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    let mut reader = client.try_clone().expect("a second handle");
    let reading = std::thread::spawn(move || {
        let mut heard = Vec::new();
        let _ = reader.read_to_end(&mut heard);
        heard
    });
    let _ = client.write_all(bytes);
    let _ = client.shutdown(Shutdown::Write);
    let heard = reading.join().expect("it only reads");
    assert!(heard.starts_with(b"NBDMAGICIHAVEOPT"), "everybody is greeted");
});
