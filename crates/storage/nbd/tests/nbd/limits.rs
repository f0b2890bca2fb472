//! The limit, as a client meets it.

use std::time::{Duration, Instant};

use storage_backend::{Backend as _, BackendError};
use storage_provider::Rates;

use crate::world::{MIB, OpenClient, create, must, must_not, world};

#[tokio::test(flavor = "multi_thread")]
async fn a_pace_bounds_what_is_served_in_a_second_and_can_be_changed_under_a_client() {
    let world = world().await;
    let consumer = world.consumer(1, 64 * MIB).await;
    let certificates = world.certificates(consumer).await;
    let slow = Rates { operations: None, bytes: Some(2 * MIB) };
    world.backend.set_rates(consumer, slow).await.unwrap();
    assert_eq!(world.backend.observe(consumer).await.unwrap().rates, Some(slow));
    let mut client = OpenClient::start(&world.qemu(&certificates, "data"));
    let began = Instant::now();
    for n in 0..6 {
        assert!(client.ask(&format!("write -P 1 {n}M 1M")).await.contains("wrote"));
    }
    // Six mebibytes at two in a second, of which a burst and the last are not waited for.
    assert!(began.elapsed() >= Duration::from_millis(2000), "{:?}", began.elapsed());
    let crawl = Rates { operations: Some(1), bytes: None };
    world.backend.set_rates(consumer, crawl).await.unwrap();
    assert!(client.ask("write -P 1 0 4k").await.contains("wrote"));
    // A client that waits is revoked at once all the same.
    let began = Instant::now();
    world.backend.revoke(consumer).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_write_over_the_limit_fails_and_raising_it_helps_the_open_connection() {
    let world = world().await;
    let consumer = world.consumer(1, 8 * MIB).await;
    world.backend.change_volume(consumer, create("second", 8 * MIB)).await.unwrap();
    let certificates = world.certificates(consumer).await;
    let mut first = OpenClient::start(&world.qemu(&certificates, "data"));
    let mut second = OpenClient::start(&world.qemu(&certificates, "second"));
    assert!(first.ask("write -P 1 0 5M").await.contains("wrote"));
    assert!(second.ask("write -P 2 0 3M").await.contains("wrote"), "the last byte of the grant can be used");
    let refused = second.ask("write -P 2 3M 4k").await;
    assert!(refused.contains("No space left on device"), "{refused}");
    assert!(first.ask("write -P 3 0 5M").await.contains("wrote"), "what is there can be written again");
    assert_eq!(world.used(consumer).await, 8 * MIB);
    world.backend.set_quota(consumer, 9 * MIB).await.unwrap();
    assert!(second.ask("write -P 2 3M 1M").await.contains("wrote"));
    assert!(first.ask("write -P 1 6M 4k").await.contains("No space left"));
    let below = world.backend.set_quota(consumer, 9 * MIB - 4096).await;
    assert_eq!(below, Err(BackendError::BelowUse { bytes: 9 * MIB - 4096, used: 9 * MIB }));
    assert!(second.ask("discard 0 2M").await.contains("discard 2097152"));
    assert!(second.ask("read -P 0 0 2M").await.contains("read 2097152"));
    assert!(first.ask("write -P 1 6M 1M").await.contains("wrote"), "what one volume frees another can use");
    assert!(world.backend.usage(consumer).await.unwrap().notice.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grown_volume_is_seen_by_the_next_connection() {
    let world = world().await;
    let consumer = world.consumer(1, 8 * MIB).await;
    let certificates = world.certificates(consumer).await;
    world.backend.set_quota(consumer, 20 * MIB).await.unwrap();
    assert!(!world.backend.observe(consumer).await.unwrap().storage.unwrap().in_shape);
    world.backend.ensure_storage(consumer, 20 * MIB, false).await.unwrap();
    assert!(world.backend.observe(consumer).await.unwrap().storage.unwrap().in_shape);
    let size = must("nbdinfo", &["--size".to_owned(), world.uri(&certificates, "data")]).await;
    assert_eq!(size.trim(), (20 * MIB).to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_exactly_the_grant_fits_and_a_larger_one_does_not() {
    let world = world().await;
    let consumer = world.consumer(1, 8 * MIB).await;
    let certificates = world.certificates(consumer).await;
    let uri = world.uri(&certificates, "data");
    let image = world.dir.path().join("image");
    std::fs::write(&image, crate::world::noise(3, 8 << 20)).unwrap();
    must("nbdcopy", &["--flush", image.to_str().unwrap(), &uri]).await;
    assert_eq!(world.used(consumer).await, 8 * MIB);
    std::fs::write(&image, crate::world::noise(3, 9 << 20)).unwrap();
    must_not("nbdcopy", &[image.to_str().unwrap(), &uri]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn offboarding_kills_the_open_session_and_deletes_the_data() {
    let world = world().await;
    let consumer = world.consumer(1, 8 * MIB).await;
    let other = world.consumer(2, 8 * MIB).await;
    let certificates = world.certificates(consumer).await;
    let device = world.qemu(&certificates, "data");
    let mut open = OpenClient::start(&device);
    let mut bystander = OpenClient::start(&world.qemu(&world.certificates(other).await, "data"));
    assert!(open.ask("write -P 1 0 1M").await.contains("wrote"));
    assert!(bystander.ask("write -P 1 0 1M").await.contains("wrote"));
    assert_eq!(world.backend.sessions(consumer), 1);
    world.backend.revoke(consumer).await.unwrap();
    assert_eq!(world.backend.sessions(consumer), 0);
    assert!(open.ask("write -P 1 1M 1M").await.contains("failed"), "an open session must be dead");
    let refused = must_not("nbdinfo", &[world.uri(&certificates, "data")]).await;
    assert!(refused.contains("TLS"), "{refused}");
    world.backend.trash(consumer).await.unwrap();
    world.backend.purge(consumer).await.unwrap();
    let left =
        must("find", &[world.dir.path().join("vault").to_str().unwrap(), "-name", &format!("*{consumer}*")])
            .await;
    assert_eq!(left, "", "nothing of it is left on disk");
    assert!(bystander.ask("read -P 1 0 1M").await.contains("read 1048576"), "others go on");
}
