//! A controller whose disk is full: it goes on, starts again, refuses writes and says why; given room, it takes them again.

use std::{
    collections::BTreeSet,
    os::unix::fs::symlink,
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;
use tonic::Code;
use wire::tagservicepb::{ListTagsRequest, TagMapping};

use super::{client::Clients, harness::Serve, probe::block_on, world::eventually};

/// A small file system of its own.
struct Disk(TempDir);

impl Disk {
    fn mount(size: &str) -> Self {
        let disk = Self(tempfile::tempdir().unwrap());
        let options = format!("size={size},mode=0700");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(disk.0.path()).status();
        assert!(mounted.unwrap().success(), "mounting needs root: run the tests as root");
        disk
    }

    fn ballast(&self) -> PathBuf {
        self.0.path().join("ballast")
    }

    /// Leaves this many bytes.
    fn fill_but(&self, room: u64) {
        let ballast = self.ballast();
        // Ends when nothing is left, which is an error of dd's.
        let _ = Command::new("dd")
            .args(["if=/dev/zero", "bs=4k", &format!("of={}", ballast.display())])
            .stderr(std::process::Stdio::null())
            .status()
            .unwrap();
        let file = std::fs::File::options().write(true).open(&ballast).unwrap();
        file.set_len(file.metadata().unwrap().len().saturating_sub(room)).unwrap();
    }

    fn free(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// What was written, and what may have been.
#[derive(Default)]
struct Written {
    acknowledged: BTreeSet<String>,
    unknown: BTreeSet<String>,
}

/// Makes clients, on the thread that uses them.
fn clients(serve: &Serve) -> impl FnOnce() -> Clients + Send + use<> {
    let read = |name: &str| std::fs::read_to_string(serve.dir.path().join(name)).unwrap();
    let (ca, token) = (read("data/pki/ca.pem"), read("data/admin.token"));
    let url = format!("https://{}", serve.grpc);
    move || Clients::new(&[url], &ca, token.trim())
}

/// Writes tags until one is refused, or it is told to stop; how the last one went.
async fn write(
    clients: &Clients,
    name: &str,
    written: &mut Written,
    stop: &AtomicBool,
) -> Option<tonic::Status> {
    for number in 0..100_000 {
        if stop.load(Relaxed) {
            return None;
        }
        let tag_name = format!("{name}-{number}");
        let uri = Some("x".repeat(1000));
        let tag = TagMapping { tag_name: tag_name.clone(), uri, ..TagMapping::default() };
        match clients.tags(0).set_tag(tag).await {
            Ok(_) => drop(written.acknowledged.insert(tag_name)),
            Err(status) => {
                if !is_refusal(&status) {
                    written.unknown.insert(tag_name);
                }
                return Some(status);
            }
        }
    }
    panic!("the disk never filled up");
}

/// There is room neither in the store nor for the record of what is done; it says so, and that nothing happened.
fn is_refusal(status: &tonic::Status) -> bool {
    let text = status.message().to_lowercase();
    text.contains("no space left")
        && match status.code() {
            Code::ResourceExhausted => text.contains("nothing was written"),
            Code::Unavailable => text.contains("nothing was changed"),
            _ => false,
        }
}

impl Written {
    #[track_caller]
    fn assert_there(&self, serve: &Serve) {
        let listed = block_on(async {
            let asked = clients(serve)().tags(0).list_tags(ListTagsRequest::default()).await;
            asked.unwrap().into_inner().tags
        });
        let listed: BTreeSet<_> = listed.into_iter().map(|tag| tag.tag_name).collect();
        let lost: Vec<_> = self.acknowledged.difference(&listed).collect();
        assert!(lost.is_empty(), "{} acknowledged and lost: {lost:?}", lost.len());
        let strange = listed.iter().filter(|name| !self.acknowledged.contains(*name));
        let strange: Vec<_> = strange.filter(|name| !self.unknown.contains(*name)).collect();
        assert!(strange.is_empty(), "refused and stored: {strange:?}");
    }
}

fn status(serve: &Serve) -> Value {
    serde_json::from_str(&serve.ok(&["status", "-o", "json"])).unwrap()
}

/// Everything can be read, nothing written, and it says so.
#[track_caller]
fn assert_full(serve: &Serve, written: &mut Written, name: &str) {
    written.assert_there(serve);
    let refused = block_on(async {
        write(&clients(serve)(), name, written, &AtomicBool::new(false)).await.expect("it is refused")
    });
    assert!(is_refusal(&refused), "{refused}\n{}", serve.log());
    let status = status(serve);
    assert!(status["ready"] == false && status.to_string().contains("space"), "{status:#}");
    written.assert_there(serve);
}

#[test]
fn a_full_disk_at_any_moment_loses_nothing_and_ends_nothing() {
    let disk = Disk::mount("12m");
    let home = tempfile::tempdir().unwrap();
    symlink(disk.0.path(), home.path().join("data")).unwrap();
    let mut written = Written::default();
    let mut serve = Serve::start(home, "");
    // From nothing at all to enough for some hundred writes.
    for (round, room) in [0, 5_000, 20_000, 70_000, 200_000, 600_000].into_iter().enumerate() {
        disk.fill_but(room);
        assert_full(&serve, &mut written, &format!("full-{round}"));
        // Killed while full, and once again while it is refusing.
        for again in 0..2 {
            serve = Serve::start(serve.kill(), "");
            assert_full(&serve, &mut written, &format!("again-{round}-{again}"));
        }
        disk.free();
        eventually("there is room again", || {
            let status = status(&serve);
            let name = format!("room-{round}");
            let tag = ["tag", "set", &name, "--ip", "10.0.0.1"];
            let done = serve.run(&tag);
            if !done.status.success() {
                return Err(format!("{}\n{status:#}", String::from_utf8_lossy(&done.stderr)));
            }
            written.acknowledged.insert(name);
            Ok(())
        });
        eventually("it says that it is ready", || match status(&serve) {
            status if status["ready"] == true => Ok(()),
            status => Err(status.to_string()),
        });
        // Killed in the middle of writes, while the disk fills up.
        serve = killed_while_writing(serve, &disk, &mut written, round);
        written.assert_there(&serve);
        disk.free();
    }
    serve.ok(&["audit", "verify", "--data-dir", "data"]);
    eprintln!("{} acknowledged, {} of unknown outcome", written.acknowledged.len(), written.unknown.len());
}

/// Kill -9 somewhere in a run of writes that fills the disk, and a start while it is as full as it is.
fn killed_while_writing(serve: Serve, disk: &Disk, written: &mut Written, round: usize) -> Serve {
    let stop = AtomicBool::new(false);
    let name = format!("run-{round}");
    let (mine, stopped) = (std::mem::take(written), &stop);
    let clients = clients(&serve);
    let (dir, after) = std::thread::scope(|scope| {
        let writing = scope.spawn(move || {
            let mut written = mine;
            block_on(async {
                write(&clients(), &name, &mut written, stopped).await;
            });
            written
        });
        std::thread::sleep(Duration::from_millis(50 * round as u64));
        // By turns it is full when it is killed, and just about to be.
        disk.fill_but(if round.is_multiple_of(2) { 2_000 * round as u64 } else { 1 << 20 });
        std::thread::sleep(Duration::from_millis(20));
        let dir = serve.kill();
        stop.store(true, Relaxed);
        (dir, writing.join().unwrap())
    });
    *written = after;
    Serve::start(dir, "")
}
