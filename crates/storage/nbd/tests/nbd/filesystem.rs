//! A real file system on a volume, made and checked by its own tools.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::world::{MIB, must, noise, world};

/// The volume as a file, through FUSE.
struct Fuse(std::path::PathBuf);

impl Fuse {
    /// nbdfuse takes no certificates from root, so nbdkit speaks TLS for it.
    async fn mount(dir: &Path, address: std::net::SocketAddr, certificates: &Path) -> Self {
        std::fs::create_dir_all(dir).unwrap();
        let mut command = Command::new("nbdfuse");
        command.arg(dir).args([
            "--command",
            "nbdkit",
            "-s",
            "--exit-with-parent",
            "nbd",
            "export=data",
            "tls=require",
        ]);
        command.arg(format!("hostname={}", address.ip())).arg(format!("port={}", address.port()));
        command.arg(format!("tls-certificates={}", certificates.display()));
        // A client left over must not keep the test's own output open.
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // It ends by itself once it is unmounted.
        std::thread::spawn(move || child.wait());
        for _ in 0..200 {
            if dir.join("nbd").exists() {
                return Self(dir.to_owned());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("nbdfuse did not mount");
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        for _ in 0..50 {
            let unmounts = [("umount", None), ("fusermount3", Some("-u")), ("fusermount", Some("-u"))];
            let unmounted = unmounts.iter().any(|(program, flag)| {
                let status = Command::new(program).args(*flag).arg(&self.0).stderr(Stdio::null()).status();
                status.is_ok_and(|status| status.success())
            });
            if unmounted {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ext4_lives_on_a_volume() {
    ext4_lives(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ext4_lives_on_an_encrypted_volume() {
    ext4_lives(true).await;
}

async fn ext4_lives(encrypted: bool) {
    let world = world().await;
    let consumer = world.consumer_whose_data_is(1, 64 * MIB, encrypted).await;
    let certificates = world.certificates(consumer).await;
    let tree = world.dir.path().join("tree");
    std::fs::create_dir_all(tree.join("deep/er")).unwrap();
    let content = noise(4, 5 << 20);
    std::fs::write(tree.join("deep/er/file"), &content).unwrap();
    let uri = world.uri(&certificates, "data");
    let back = world.dir.path().join("back");
    {
        let fuse = Fuse::mount(&world.dir.path().join("fuse"), world.address, &certificates).await;
        let device = fuse.0.join("nbd");
        let device = device.to_str().unwrap();
        must("mke2fs", &["-q", "-t", "ext4", "-F", "-d", tree.to_str().unwrap(), device]).await;
        must(
            "debugfs",
            &["-w", "-R", &format!("write {} again", tree.join("deep/er/file").display()), device],
        )
        .await;
        must("e2fsck", &["-f", "-n", device]).await;
    }
    // What is on the volume, brought back whole, is the file system that was made.
    must("nbdcopy", &[&uri, back.to_str().unwrap()]).await;
    must("e2fsck", &["-f", "-n", back.to_str().unwrap()]).await;
    for name in ["/deep/er/file", "/again"] {
        let out = world.dir.path().join("out");
        must("debugfs", &["-R", &format!("dump {name} {}", out.display()), back.to_str().unwrap()]).await;
        assert!(std::fs::read(&out).unwrap() == content, "{name}");
    }
    assert!(world.used(consumer).await < 32 * MIB, "an ext4 with 10 MiB of files is sparse");
}
