//! Who may not come in, and what one consumer cannot see of another.

use storage_backend::Backend as _;
use storage_nbd::{identity_uri, testing::TestAuthority};

use crate::world::{MIB, create, id, must, must_not, world};

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_neither_lists_nor_opens_what_is_anothers() {
    let world = world().await;
    let (a, b) = (world.consumer(1, 8 * MIB).await, world.consumer(2, 8 * MIB).await);
    world.backend.change_volume(b, create("secret", MIB)).await.unwrap();
    let certificates = world.certificates(a).await;
    let list = must("nbdinfo", &["--list".to_owned(), world.uri(&certificates, "")]).await;
    assert!(list.contains("\"data\"") && !list.contains("secret"), "{list}");
    for export in
        ["secret", &format!("{b}/data"), &format!("{b}/secret"), "../data", ".", "..", "%2e%2e%2fdata"]
    {
        let said = must_not("nbdinfo", &[world.uri(&certificates, export)]).await;
        assert!(said.contains("No such file or directory"), "{export}: {said}");
    }
    must("nbdinfo", &[world.uri(&certificates, &format!("{a}/data"))]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_tls_nothing_is_said_but_that_tls_is_required() {
    let world = world().await;
    world.consumer(1, MIB).await;
    let said = must_not("nbdinfo", &[format!("nbd://{}/data", world.address)]).await;
    assert!(said.contains("requires TLS") || said.contains("TLS"), "{said}");
    let said = must_not("nbdinfo", &["--list".to_owned(), format!("nbd://{}", world.address)]).await;
    assert!(!said.contains("data"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_certificate_that_was_given_opens() {
    let world = world().await;
    let consumer = world.consumer(1, MIB).await;
    let uri = identity_uri(consumer);
    let mut refused = vec![
        ("same-name", world.authority.client(&[&uri]).unwrap()),
        ("nobody", world.authority.client(&[]).unwrap()),
        ("stranger", world.authority.client(&[&identity_uri(id(9))]).unwrap()),
        ("two", world.authority.client(&[&uri, &identity_uri(id(2))]).unwrap()),
        ("other-prefix", world.authority.client(&[&uri.replace("consumer", "node")]).unwrap()),
        ("trailing", world.authority.client(&[&format!("{uri}/x")]).unwrap()),
    ];
    refused.push(("foreign", TestAuthority::new().unwrap().client(&[&uri]).unwrap()));
    for (name, identity) in refused {
        let dir = world.identity_dir(name, &identity);
        must_not("nbdinfo", &[world.uri(&dir, "data")]).await;
    }
    let good = world.certificates(consumer).await;
    must("nbdinfo", &[world.uri(&good, "data")]).await;
    let without = world.dir.path().join("without");
    std::fs::create_dir(&without).unwrap();
    std::fs::copy(good.join("ca-cert.pem"), without.join("ca-cert.pem")).unwrap();
    must_not("nbdinfo", &[world.uri(&without, "data")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_certificate_stays_refused_after_a_new_one_was_made() {
    let world = world().await;
    let consumer = world.consumer(1, MIB).await;
    let old = world.certificates(consumer).await;
    let kept = world.dir.path().join("old");
    std::fs::rename(&old, &kept).unwrap();
    must("nbdinfo", &[world.uri(&kept, "data")]).await;
    world.backend.revoke(consumer).await.unwrap();
    world.backend.ensure_credentials(consumer).await.unwrap();
    must_not("nbdinfo", &[world.uri(&kept, "data")]).await;
    let new = world.certificates(consumer).await;
    must("nbdinfo", &[world.uri(&new, "data")]).await;
}
