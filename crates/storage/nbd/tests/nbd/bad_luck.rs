//! What happens to disks, under clients that are at work. Needs root, for mounting.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use storage_backend::Backend as _;
use storage_provider::Found;

use crate::{
    raw::{FLUSH, READ, Raw, WRITE},
    world::{MIB, World, id, noise, start},
};

fn must(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let output = output.unwrap_or_else(|error| {
        panic!("running {program}: {error}; scripts/test-deps.d/storage lists the packages")
    });
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Something that is mounted, as long as this lives.
struct Mounted(PathBuf);

impl Mounted {
    fn new(args: &[&str], at: &Path) -> Self {
        std::fs::create_dir_all(at).unwrap();
        must("mount", &[args, &[at.to_str().unwrap()]].concat());
        Self(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

async fn client<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// A client that has written and flushed something.
async fn at_work(address: SocketAddr, data: Vec<u8>) -> Raw {
    client(move || {
        let mut raw = Raw::open(address, "data").unwrap();
        assert_eq!(raw.ask(WRITE, 4096, data.len() as u32, &data).unwrap(), 0);
        assert_eq!(raw.ask(FLUSH, 0, 0, &[]).unwrap(), 0);
        raw
    })
    .await
}

fn what_there_is_of_data(found: &std::collections::BTreeMap<String, Found>) -> &Found {
    &found["data"]
}

async fn reads(address: SocketAddr, data: Vec<u8>) {
    client(move || {
        let found = Raw::open(address, "data").unwrap().read(4096, data.len() as u32).unwrap();
        assert!(found == data);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vault_unmounted_under_its_clients_is_closed_and_nothing_is_made_in_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, root) = (dir.path().join("disk"), dir.path().join("root"));
    std::fs::create_dir(&disk).unwrap();
    let bind = ["--bind", disk.to_str().unwrap()];
    let mounted = Mounted::new(&bind, &root);
    let world = start(dir, &root, Some(id(1))).await;
    world.consumer_whose_data_is(1, 16 * MIB, true).await;
    let (address, data) = (world.address, noise(1, 1 << 20));
    let mut raw = at_work(address, data.clone()).await;
    drop(mounted);
    let seen = world.backend.observe(id(1)).await.unwrap();
    assert_eq!(what_there_is_of_data(&seen.found), &Found::Missing);
    client(move || {
        assert_eq!(raw.ask(WRITE, 0, 4096, &[1; 4096]).unwrap(), 108, "who was connected is told");
        assert_eq!(raw.ask(READ, 4096, 4096, &[]).unwrap(), 108);
        assert!(Raw::open(address, "data").is_err(), "nobody else gets in");
    })
    .await;
    assert!(world.backend.keep_storage(id(1), 16 * MIB).await.is_err());
    assert!(world.backend.set_quota(id(1), 32 * MIB).await.is_err());
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0, "nothing is made where the disk is missing");
    // It is back, and so is all that was acknowledged.
    let _mounted = Mounted::new(&bind, &root);
    let seen = world.backend.observe(id(1)).await.unwrap();
    assert!(matches!(what_there_is_of_data(&seen.found), Found::Whole(_)), "{seen:?}");
    world.backend.keep_storage(id(1), 16 * MIB).await.unwrap();
    reads(address, data).await;
}

/// A disk that turns read-only, as ext4 does when it has found an error.
struct Ext4 {
    image: PathBuf,
    mounted: Option<Mounted>,
}

impl Ext4 {
    fn make(dir: &Path) -> Self {
        let image = dir.join("image");
        std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        must("mke2fs", &["-q", "-t", "ext4", "-F", image.to_str().unwrap()]);
        let mut disk = Self { image, mounted: None };
        disk.mount(&dir.join("root"));
        disk
    }

    fn mount(&mut self, at: &Path) {
        let options = ["-o", "loop,errors=remount-ro", self.image.to_str().unwrap()];
        self.mounted = Some(Mounted::new(&options, at));
    }

    fn turn_read_only(&self) {
        let at = self.mounted.as_ref().unwrap().0.to_str().unwrap();
        let device = must("findmnt", &["-n", "-o", "SOURCE", at]);
        let name = device.rsplit('/').next().unwrap();
        std::fs::write(format!("/sys/fs/ext4/{name}/trigger_fs_error"), "1").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_turns_read_only_is_told_and_loses_nothing_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    let mut disk = Ext4::make(dir.path());
    let world: World = start(dir, &root, Some(id(1))).await;
    world.consumer(1, 16 * MIB).await;
    let (address, data) = (world.address, noise(2, 1 << 20));
    let mut raw = at_work(address, data.clone()).await;
    disk.turn_read_only();
    client(move || {
        assert_eq!(raw.ask(WRITE, 8 * MIB, 4096, &[1; 4096]).unwrap(), 5, "nothing is acknowledged any more");
        assert_ne!(raw.ask(FLUSH, 0, 0, &[]).unwrap(), 0);
        assert_ne!(raw.ask(WRITE, 0, 4096, &[1; 4096]).unwrap(), 0);
        assert_eq!(raw.read(4096, 4).unwrap().len(), 4, "what is there can be read");
    })
    .await;
    reads(address, data.clone()).await;
    let told = world.backend.attention();
    assert!(told.iter().any(|text| text.contains("takes no more writes")), "{told:?}");
    let notice = world.backend.usage(id(1)).await.unwrap().notice.unwrap_or_default();
    assert!(notice.contains("check the disk"), "{notice}");
    // What is to be changed is refused with the reason, and is as it was.
    let refused = world.backend.set_quota(id(1), 32 * MIB).await.unwrap_err().to_string();
    assert!(refused.contains("Read-only"), "{refused}");
    assert_eq!(world.backend.usage(id(1)).await.unwrap().limit, 16 * MIB);
    // Mended, and started again, it has all that was acknowledged.
    let dir = world.stop(&root).await;
    disk.mounted = None;
    Command::new("e2fsck").args(["-p", "-f"]).arg(&disk.image).output().unwrap();
    disk.mount(&root);
    let world = start(dir, &root, Some(id(1))).await;
    reads(world.address, data).await;
    drop(world);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_its_answers_holds_up_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("vault");
    let world = start(dir, &root, Some(id(1))).await;
    world.consumer(1, 64 * MIB).await;
    let (address, data) = (world.address, noise(3, 1 << 20));
    let mut raw = at_work(address, data.clone()).await;
    let deaf: Vec<Raw> = client(move || {
        let opened = (0..40).map(|_| {
            let mut deaf = Raw::open(address, "data").unwrap();
            // Far more than sockets hold of answers, and flushes, which wait for the disk.
            for cookie in 0..64 {
                deaf.request(0, READ, cookie, 0, 1 << 20, &[]).unwrap();
                deaf.request(0, FLUSH, cookie, 0, 0, &[]).unwrap();
            }
            deaf
        });
        opened.collect()
    })
    .await;
    reads(address, data).await;
    client(move || {
        for n in 0..20u64 {
            assert_eq!(raw.ask(WRITE, 2 * MIB + n * 4096, 4096, &[9; 4096]).unwrap(), 0);
            assert_eq!(raw.ask(FLUSH, 0, 0, &[]).unwrap(), 0);
        }
    })
    .await;
    let revoked = tokio::time::timeout(std::time::Duration::from_secs(20), world.backend.revoke(id(1))).await;
    revoked.expect("nor does it hold up being put off").unwrap();
    drop(deaf);
}
