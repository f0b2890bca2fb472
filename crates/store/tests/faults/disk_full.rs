//! A full disk: clear errors, working reads, and recovery by freeing space alone.

use std::{fs, path::Path, process::Command, time::Duration};

use futures::StreamExt as _;
use store::{Event, Prefix, Store, TransactError, Transaction, WatchFrom, embedded};
use tempfile::TempDir;

use super::super::{chain, entries, key};

struct TinyDisk(TempDir);

impl TinyDisk {
    fn mount(size: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "trestle-store-test"])
            .arg(dir.path())
            .output()
            .unwrap();
        assert!(
            mounted.status.success(),
            "this test mounts a small tmpfs, which needs root (or CAP_SYS_ADMIN): {}",
            String::from_utf8_lossy(&mounted.stderr)
        );
        Self(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// Writes entries until the store refuses; how many were acknowledged, and the refusal.
async fn fill(store: &Store, name: &str) -> (usize, TransactError) {
    for n in 0..10_000 {
        let write = Transaction::new().put(key(&format!("{name}/{n:05}")), vec![b'x'; 16 * 1024]);
        if let Err(error) = store.transact(write).await {
            return (n, error);
        }
    }
    panic!("the disk never filled up");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_writes_serves_reads_and_heals() {
    let disk = TinyDisk::mount("12m");
    let ballast = disk.path().join("ballast");
    fs::write(&ballast, vec![1_u8; 4 << 20]).unwrap();
    let store = embedded::open(disk.path().join("store")).unwrap();
    let mut watch = store.watch(&Prefix::all(), WatchFrom::Start);
    let (acknowledged, error) = fill(&store, "first").await;
    assert!(acknowledged > 10, "{acknowledged}");
    assert!(matches!(error, TransactError::Full { .. }), "{}", chain(&error));

    // Still full: refused again, every waiter of a batch, quickly; the state is what was acknowledged.
    let refused = futures::future::join_all((0..20).map(|n| {
        let write = Transaction::new().put(key(&format!("refused/{n}")), vec![b'x'; 64 * 1024]);
        store.transact(write)
    }));
    for refused in refused.await {
        assert!(matches!(refused, Err(TransactError::Full { .. })), "{refused:?}");
    }
    assert_eq!(entries(&store).await.len(), acknowledged);
    assert!(store.get(&key("first/00000")).await.unwrap().is_some());
    assert!(store.health().await.unwrap().refusing_writes.is_some());

    fs::remove_file(&ballast).unwrap();
    let (more, _) = fill(&store, "second").await;
    assert!(more > 10, "writes work again without a restart: {more}");

    // The watch saw each acknowledged write once.
    let mut seen = 0;
    while seen < acknowledged + more {
        let event = tokio::time::timeout(Duration::from_secs(20), watch.next()).await.unwrap();
        seen += usize::from(matches!(event.unwrap().unwrap(), Event::Apply(_)));
    }
    let before = entries(&store).await;
    assert_eq!(before.len(), acknowledged + more);

    // Deleting is how an operator gets out of it: history is what fills the disk then.
    drop((watch, store));
    let store = embedded::open(disk.path().join("store")).unwrap();
    assert_eq!(entries(&store).await, before);
}
