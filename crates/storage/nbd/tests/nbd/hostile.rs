//! Clients that mean harm, or are broken, or vanish.

use std::{io::Write as _, net::SocketAddr, time::Duration};

use storage_backend::Backend as _;

use crate::{
    raw::{DISCONNECT, FLUSH, GO, READ, Raw, TRIM, WRITE, info, request},
    world::{MIB, World, id, noise, plain_world, start, world},
};

async fn ready(bytes: u64) -> (World, SocketAddr) {
    let world = plain_world(id(1)).await;
    world.consumer(1, bytes).await;
    let address = world.address;
    (world, address)
}

/// Runs a client that blocks, beside the server.
async fn client<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

fn works(address: SocketAddr) {
    let mut good = Raw::open(address, "data").unwrap();
    assert_eq!(good.ask(WRITE, 0, 4, b"good").unwrap(), 0);
    assert_eq!(good.read(0, 4).unwrap(), b"good");
}

/// Waits for a condition that must come true.
async fn eventually<F: Future<Output = bool>>(mut condition: impl FnMut() -> F) {
    for _ in 0..200 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("it did not come true");
}

#[tokio::test(flavor = "multi_thread")]
async fn random_bytes_at_any_point_harm_nobody() {
    let (world, address) = ready(4 * MIB).await;
    client(move || {
        for seed in 0..120 {
            let bytes = noise(seed, 1 + (seed as usize * 37) % 5000);
            let mut raw = match seed % 3 {
                0 => Raw::connect(address).unwrap(),
                1 => Raw::greeted(address).unwrap(),
                _ => Raw::open(address, "data").unwrap(),
            };
            let _ = raw.0.write_all(&bytes);
            if seed % 2 == 0 {
                assert!(seed % 3 == 0 || raw.is_closed(), "seed {seed}");
            }
        }
        works(address);
    })
    .await;
    eventually(|| async { world.backend.sessions(id(1)) == 0 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn valid_headers_with_random_fields_keep_the_session_in_step_or_end_it() {
    let (world, address) = ready(4 * MIB).await;
    client(move || {
        for seed in 0..300u64 {
            let bytes = noise(seed, 32);
            let number = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
            let mut raw = Raw::open(address, "data").unwrap();
            let (flags, command) = ((number(0) % 40) as u16, (number(8) % 12) as u16);
            let length = (number(16) % (1 << (number(0) % 33))) as u32;
            let offset = number(24) >> (number(8) % 60);
            if command == READ && length < MIB as u32 || command == WRITE || command == DISCONNECT {
                continue;
            }
            raw.request(flags, command, 1, offset, length, &[]).unwrap();
            match raw.reply() {
                // Still in step: an answer, and the next one is served too. Reads are too long to succeed.
                Ok((error, 1)) => assert!(error != 0 || command != READ || u64::from(length) <= 4 * MIB),
                other => panic!("command {command} flags {flags} length {length}: {other:?}"),
            }
        }
        works(address);
    })
    .await;
    assert!(world.used(id(1)).await <= 4 * MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_past_the_end_are_refused_and_the_session_goes_on() {
    let (_world, address) = ready(MIB).await;
    client(move || {
        let mut raw = Raw::open(address, "data").unwrap();
        assert_eq!(raw.ask(READ, MIB, 1, &[]).unwrap(), 22);
        assert_eq!(raw.ask(READ, u64::MAX, 512, &[]).unwrap(), 22);
        assert_eq!(raw.ask(READ, u64::MAX - 10, u32::MAX, &[]).unwrap(), 22);
        assert_eq!(raw.ask(WRITE, MIB - 1, 2, b"xy").unwrap(), 28);
        let large = vec![1; 3 << 20];
        assert_eq!(raw.ask(WRITE, 0, large.len() as u32, &large).unwrap(), 28);
        assert_eq!(raw.ask(WRITE, u64::MAX - 1, 300_000, &large[..300_000]).unwrap(), 28);
        assert_eq!(raw.ask(TRIM, MIB, 4096, &[]).unwrap(), 22);
        assert_eq!(raw.ask(99, 0, 0, &[]).unwrap(), 22);
        assert_eq!(raw.ask(FLUSH, 0, 0, &[]).unwrap(), 0);
        raw.request(1 << 12, WRITE, 7, 0, 5, b"hello").unwrap();
        assert_eq!(raw.reply().unwrap(), (22, 7));
        assert_eq!(raw.ask(WRITE, MIB - 1, 1, b"z").unwrap(), 0);
        assert_eq!(raw.read(MIB - 1, 1).unwrap(), b"z");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_lengths_are_refused() {
    let (world, address) = ready(64 * MIB).await;
    client(move || {
        let mut raw = Raw::open(address, "data").unwrap();
        assert_eq!(raw.ask(READ, 0, (32 << 20) + 1, &[]).unwrap(), 75);
        assert_eq!(raw.read(0, 32 << 20).unwrap().len(), 32 << 20);
        raw.request(0, WRITE, 1, 0, (32 << 20) + 1, &[]).unwrap();
        assert!(raw.is_closed(), "data that nobody wants is not read");
        let mut raw = Raw::open(address, "data").unwrap();
        let largest = noise(1, 32 << 20);
        assert_eq!(raw.ask(WRITE, 1234, largest.len() as u32, &largest).unwrap(), 0);
        assert!(raw.read(1234, largest.len() as u32).unwrap() == largest);
    })
    .await;
    assert_eq!(world.used(id(1)).await, 32 * MIB + 4096);
}

#[tokio::test(flavor = "multi_thread")]
async fn option_floods_and_giant_options_end_the_connection() {
    let (_world, address) = ready(MIB).await;
    client(move || {
        let mut raw = Raw::greeted(address).unwrap();
        let mut answered = 0;
        for _ in 0..5000 {
            if raw.option(99, b"x").is_err() || raw.option_reply().is_err() {
                break;
            }
            answered += 1;
        }
        assert_eq!(answered, 2048);
        for length in [u32::MAX, 65 << 10] {
            let mut raw = Raw::greeted(address).unwrap();
            raw.0.write_all(&[b"IHAVEOPT\0\0\0\x07", &length.to_be_bytes()[..]].concat()).unwrap();
            assert!(raw.is_closed());
        }
        works(address);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_options_are_refused_and_paths_lead_nowhere() {
    let (_world, address) = ready(MIB).await;
    client(move || {
        let mut raw = Raw::greeted(address).unwrap();
        let invalid = (1 << 31) | 3;
        for data in
            [&b""[..], &[0; 3], &[0, 0, 0, 9, b'd'], &[0, 0, 0, 4, b'd', b'a', b't', b'a', 0, 9], &[255; 12]]
        {
            raw.option(GO, data).unwrap();
            assert_eq!(raw.option_reply().unwrap().0, invalid, "{data:?}");
        }
        for option in [9, 10] {
            raw.option(option, &[0; 8]).unwrap();
            assert_eq!(raw.option_reply().unwrap().0, invalid, "contexts come after structured replies");
        }
        let unknown = (1 << 31) | 6;
        for name in [
            &b"../data"[..],
            b"..",
            b"/etc/passwd",
            b"data\0",
            b"data/../../lock",
            b"\xff\xfe",
            &[b'a'; 4096],
        ] {
            raw.option(GO, &info(name)).unwrap();
            assert_eq!(raw.option_reply().unwrap().0, unknown, "{name:?}");
        }
        raw.option(GO, &info(&[b'a'; 5000])).unwrap();
        assert_eq!(raw.option_reply().unwrap().0, (1 << 31) | 9);
        raw.option(8, b"").unwrap();
        assert_eq!(raw.option_reply().unwrap().0, 1);
        for data in
            [&b"\0\0\0\x04data\0\0\0\x01"[..], b"\0\0\0\x04data\xff\xff\xff\xff", b"\0\0\0\x04data\0\0\0\0x"]
        {
            raw.option(10, data).unwrap();
            assert_eq!(raw.option_reply().unwrap().0, invalid);
        }
        raw.option(1, b"../data").unwrap();
        assert!(raw.is_closed(), "the old way to name an export has no error");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_requests_hold_up_nobody_else() {
    let (world, address) = ready(4 * MIB).await;
    client(move || {
        let mut stuck = Vec::new();
        for cut in 0..28 {
            let mut raw = Raw::open(address, "data").unwrap();
            raw.0.write_all(&request(0, WRITE, 1, 0, 4096)[..cut]).unwrap();
            stuck.push(raw);
        }
        for sent in [0, 1, 4095, 200_000, 299_999] {
            let mut raw = Raw::open(address, "data").unwrap();
            // Away from where others write: overlapping writes have no order.
            raw.request(0, WRITE, 1, MIB, 300_000, &vec![1; sent]).unwrap();
            stuck.push(raw);
        }
        works(address);
        // Slowly is not badly: one byte at a time gets there too.
        let mut slow = Raw::open(address, "data").unwrap();
        for byte in [&request(0, WRITE, 9, 100, 5)[..], b"hello"].concat() {
            slow.0.write_all(&[byte]).unwrap();
        }
        assert_eq!(slow.reply().unwrap(), (0, 9));
    })
    .await;
    eventually(|| async { world.backend.sessions(id(1)) == 0 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_may_fall_silent_anywhere() {
    let (_world, address) = ready(16 * MIB).await;
    client(move || {
        let large = noise(3, 1 << 20);
        let whole = [&request(0, WRITE, 9, 4096, 1 << 20)[..], &large].concat();
        let clients: Vec<_> = [0, 1, 27, 28, 29, 100_000, 262_144, 900_000]
            .map(|cut| (cut, Raw::open(address, "data").unwrap()))
            .into_iter()
            .map(|(cut, mut raw)| {
                raw.0.write_all(&whole[..cut]).unwrap();
                (cut, raw)
            })
            .collect();
        // Longer than a session keeps its thread.
        std::thread::sleep(Duration::from_millis(500));
        for (cut, mut raw) in clients {
            raw.0.write_all(&whole[cut..]).unwrap();
            assert_eq!(raw.reply().unwrap(), (0, 9), "cut at {cut}");
            assert!(raw.read(4096, 1 << 20).unwrap() == large);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revoking_cuts_sessions_whatever_they_are_at() {
    let (world, address) = ready(64 * MIB).await;
    let clients = client(move || {
        let mut clients: Vec<Raw> = (0..4).map(|_| Raw::open(address, "data").unwrap()).collect();
        assert_eq!(clients[0].ask(WRITE, 0, 1 << 20, &noise(4, 1 << 20)).unwrap(), 0);
        // One waits for the rest of a write, one for its client to take a long answer; one is silent, one not yet.
        clients[1].request(0, WRITE, 1, 0, 1 << 20, &vec![1; 300_000]).unwrap();
        for cookie in 0..64 {
            clients[2].request(0, READ, cookie, 0, 1 << 20, &[]).unwrap();
        }
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(clients[3].read(0, 4).unwrap().len(), 4);
        clients
    })
    .await;
    assert_eq!(world.backend.sessions(id(1)), 4);
    let revoked = tokio::time::timeout(Duration::from_secs(10), world.backend.revoke(id(1))).await;
    revoked.expect("revoking waits for no client").unwrap();
    assert_eq!(world.backend.sessions(id(1)), 0);
    client(move || {
        for mut raw in clients {
            match std::io::copy(&mut raw.0, &mut std::io::sink()) {
                Ok(taken) => assert!(taken < 64 << 20, "the long answer was cut"),
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_vanish_during_a_write_leave_exact_books() {
    let (world, address) = ready(4 * MIB).await;
    client(move || {
        for sent in [0usize, 100, 5000, 300_000, 1 << 20] {
            let mut raw = Raw::open(address, "data").unwrap();
            raw.request(0, WRITE, 1, 0, 4 << 20, &vec![1; sent]).unwrap();
        }
    })
    .await;
    eventually(|| async { world.backend.sessions(id(1)) == 0 }).await;
    let used = world.used(id(1)).await;
    assert!(used <= MIB, "reserved and not written: {used}");
    client(move || {
        let mut raw = Raw::open(address, "data").unwrap();
        let all = noise(5, 4 << 20);
        assert_eq!(
            raw.ask(WRITE, 0, all.len() as u32, &all).unwrap(),
            0,
            "the whole grant is still there to be used"
        );
    })
    .await;
    assert_eq!(world.used(id(1)).await, 4 * MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_connections_are_served_side_by_side() {
    let (world, address) = ready(8 * MIB).await;
    client(move || {
        let mut all: Vec<Raw> = (0..1000).map(|_| Raw::open(address, "data").unwrap()).collect();
        for (n, raw) in all.iter_mut().enumerate() {
            raw.request(0, WRITE, n as u64, n as u64 * 4096, 8, &(n as u64).to_be_bytes()).unwrap();
        }
        for (n, raw) in all.iter_mut().enumerate() {
            assert_eq!(raw.reply().unwrap(), (0, n as u64));
        }
        for (n, raw) in all.iter_mut().enumerate() {
            let other = (n + 500) % 1000;
            assert_eq!(raw.read(other as u64 * 4096, 8).unwrap(), (other as u64).to_be_bytes());
        }
    })
    .await;
    assert_eq!(world.used(id(1)).await, 1000 * 4096);
    eventually(|| async { world.backend.sessions(id(1)) == 0 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_requests_in_flight_are_all_answered() {
    let (_world, address) = ready(8 * MIB).await;
    client(move || {
        let mut raw = Raw::open(address, "data").unwrap();
        let mut sender = Raw(raw.0.try_clone().unwrap());
        let writer = std::thread::spawn(move || {
            for n in 0..2000u64 {
                let block = (n % 2000) * 4096;
                match n % 10 {
                    9 => sender.request(0, FLUSH, n, 0, 0, &[]).unwrap(),
                    8 => sender.request(1, WRITE, n, block, 16, &[n as u8; 16]).unwrap(),
                    7 => sender.request(0, TRIM, n, block, 4096, &[]).unwrap(),
                    _ => sender.request(0, WRITE, n, block, 4096, &[n as u8; 4096]).unwrap(),
                }
            }
        });
        let mut seen: Vec<u64> = (0..2000)
            .map(|_| raw.reply().unwrap())
            .map(|(error, cookie)| {
                assert_eq!(error, 0);
                cookie
            })
            .collect();
        writer.join().unwrap();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..2000));
        assert_eq!(raw.read(4096, 4096).unwrap(), [1; 4096]);
        assert_eq!(raw.read(8 * 4096, 16).unwrap(), [8; 16]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_ahead_of_tls_does_not_count_as_sent_within_it() {
    let world = world().await;
    world.consumer(1, MIB).await;
    let address = world.address;
    client(move || {
        let mut raw = Raw::greeted(address).unwrap();
        let mut ahead = b"IHAVEOPT\0\0\0\x05\0\0\0\0".to_vec();
        ahead.extend(b"IHAVEOPT\0\0\0\x08\0\0\0\0");
        raw.0.write_all(&ahead).unwrap();
        assert_eq!(raw.option_reply().unwrap().0, 1);
        assert!(raw.0.write_all(&[0; 64]).is_ok());
        let mut rest = Vec::new();
        let _ = std::io::Read::read_to_end(&mut raw.0, &mut rest);
        assert!(!rest.windows(4).any(|window| window == [0, 0, 0, 8]), "the option must not be answered");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_full_underneath_is_told_and_counted_right() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("small");
    std::fs::create_dir(&root).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=4m", "tmpfs", root.to_str().unwrap()])
        .status();
    assert!(
        mounted.is_ok_and(|status| status.success()),
        "this test mounts a small tmpfs and must run as root"
    );
    let world = start(dir, &root, Some(id(1))).await;
    world.consumer(1, 64 * MIB).await;
    let address = world.address;
    client(move || {
        let mut raw = Raw::open(address, "data").unwrap();
        let block = vec![7; 1 << 20];
        let outcomes: Vec<u32> = (0..8).map(|n| raw.ask(WRITE, n * MIB, 1 << 20, &block).unwrap()).collect();
        assert_eq!(outcomes[0], 0);
        assert_eq!(outcomes[7], 28, "{outcomes:?}");
        assert_eq!(raw.read(0, 4).unwrap(), [7; 4]);
        assert_eq!(raw.ask(TRIM, 0, 2 << 20, &[]).unwrap(), 0);
        assert_eq!(raw.ask(WRITE, 0, 4096, &[8; 4096]).unwrap(), 0, "after a trim there is room again");
    })
    .await;
    let used = world.used(id(1)).await;
    let path = root.join("volumes").join(id(1).to_string()).join("data");
    let held = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(path).unwrap()) * 512;
    assert_eq!(used, held);
    world.backend.revoke(id(1)).await.unwrap();
    world.backend.trash(id(1)).await.unwrap();
    world.backend.purge(id(1)).await.unwrap();
    drop(world);
    let _ = std::process::Command::new("umount").args(["-l", root.to_str().unwrap()]).status();
}
