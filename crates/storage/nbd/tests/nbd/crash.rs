//! The process killed at moments nobody chose.

use std::{
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use storage_backend::Backend as _;
use storage_nbd::{NbdBackend, Vault, VaultConfig, testing::TestAuthority};
use storage_provider::Observed;

use crate::{
    raw::{Raw, WRITE},
    world::{MIB, create, id, noise, start},
};

const ROOT: &str = "TRESTLE_TEST_VAULT";

fn backend(root: &Path) -> NbdBackend {
    let vault = Vault::open(VaultConfig { root: root.to_owned(), reserve: 0 }).unwrap();
    NbdBackend::new(Arc::new(vault), Arc::new(TestAuthority::new().unwrap()), "localhost", 1)
}

/// Makes and removes consumers for ever. Not a test: the test below runs it as a process of its own and kills it.
#[tokio::test]
#[ignore = "runs for ever; the test below starts it and kills it"]
async fn make_and_remove_consumers_for_ever() {
    let Some(root) = std::env::var_os(ROOT) else { return };
    let backend = backend(Path::new(&root));
    for n in (0..4).cycle() {
        let id = id(n);
        backend.ensure_storage(id, MIB, false).await.unwrap();
        backend.set_quota(id, MIB).await.unwrap();
        backend.ensure_credentials(id).await.unwrap();
        backend.change_volume(id, create("more", 2 * MIB)).await.unwrap();
        backend.set_quota(id, 2 * MIB).await.unwrap();
        backend.revoke(id).await.unwrap();
        backend.trash(id).await.unwrap();
        backend.purge(id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_moment_the_vault_opens_and_the_work_can_be_finished() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..12u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::make_and_remove_consumers_for_ever", "--ignored"])
            .env(ROOT, dir.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        tokio::time::sleep(Duration::from_millis(60 + round * 17)).await;
        child.kill().unwrap();
        child.wait().unwrap();
        let backend = backend(dir.path());
        let seen = backend.observe_all().await.unwrap();
        for (id, seen) in seen {
            // What was on its way out is finished as that: its data is not made anew.
            if round % 2 == 0 && !seen.trash {
                backend.ensure_storage(id, MIB, false).await.unwrap();
                backend.set_quota(id, MIB).await.unwrap();
                backend.ensure_credentials(id).await.unwrap();
                assert!(backend.observe(id).await.unwrap().storage.unwrap().in_shape);
            }
            backend.revoke(id).await.unwrap();
            backend.trash(id).await.unwrap();
            backend.purge(id).await.unwrap();
            assert_eq!(backend.observe(id).await.unwrap(), Observed::default());
        }
        assert!(backend.observe_all().await.unwrap().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn data_and_books_are_the_same_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("vault");
    let world = start(dir, &root, Some(id(1))).await;
    world.consumer(1, 8 * MIB).await;
    let address = world.address;
    let data = noise(6, 3 << 20);
    let written = data.clone();
    tokio::task::spawn_blocking(move || {
        let mut raw = Raw::open(address, "data").unwrap();
        raw.request(1, WRITE, 1, 5000, written.len() as u32, &written).unwrap();
        assert_eq!(raw.reply().unwrap(), (0, 1));
    })
    .await
    .unwrap();
    let used = world.used(id(1)).await;
    // A second directory with the same files stands for the machine after the process is gone.
    let copy = tempfile::tempdir().unwrap();
    let target = copy.path().join("vault");
    assert!(
        Command::new("cp")
            .args(["-a", "--sparse=always"])
            .arg(&root)
            .arg(&target)
            .status()
            .unwrap()
            .success()
    );
    let again = start(copy, &target, Some(id(1))).await;
    assert_eq!(again.used(id(1)).await, used);
    let address = again.address;
    let back =
        tokio::task::spawn_blocking(move || Raw::open(address, "data").unwrap().read(5000, 3 << 20).unwrap());
    assert!(back.await.unwrap() == data);
}
