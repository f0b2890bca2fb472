//! What costs by how much there is: a restart with many consumers, a snapshot of a large volume.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Instant,
};

use anyhow::{Result, ensure};
use benches::report;
use storage_backend::{Backend as _, Fill, Piece};
use storage_nbd::{NbdBackend, testing::TestAuthority};
use storage_provider::{ConsumerId, VolumeStep};
use uuid::Uuid;

use crate::{
    client::Kind,
    servers::{Server, open},
};

const CONSUMERS: u128 = 1000;
const MIB: u64 = 1 << 20;
const LARGE: u64 = 100 << 30;
/// Blocks of the large volume that hold data, far from each other.
const EXTENTS: u64 = 1000;
const SNAPSHOTS: usize = 9;

fn id(n: u128) -> ConsumerId {
    ConsumerId::new(Uuid::from_u128(n))
}

fn backend(dir: &Path) -> Result<NbdBackend> {
    let authority = Arc::new(TestAuthority::new()?);
    Ok(NbdBackend::new(Arc::new(open(dir)?), authority, "localhost", 1))
}

/// From the start of the process to the first block read, with a thousand consumers that have stored something.
pub(crate) fn restart() -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let mut times = Vec::new();
    for encrypted in [false, true] {
        let mut dir = tempfile::tempdir()?;
        let made = runtime.block_on(async {
            let backend = backend(dir.path())?;
            for n in 1..=CONSUMERS {
                backend.ensure_storage(id(n), MIB, encrypted).await?;
                backend.set_quota(id(n), 2 * MIB).await?;
                backend.ensure_credentials(id(n)).await?;
                let name = "more".to_owned();
                let more = VolumeStep::Import { name: name.clone(), size: MIB, encrypted };
                backend.change_volume(id(n), more).await?;
                let piece = Piece { offset: 4096, data: vec![7; 4096] };
                backend.fill_volume(id(n), name.clone(), Fill::Piece(piece)).await?;
                backend.fill_volume(id(n), name, Fill::Done).await?;
            }
            anyhow::Ok(())
        });
        made?;
        times.clear();
        for _ in 0..3 {
            let began = Instant::now();
            let server = Server::ours_in(dir, false, encrypted)?;
            server.connect()?.run(Kind::Read, 4096, 1, 1, MIB, None)?;
            times.push(began.elapsed().as_secs_f64() * 1000.0);
            dir = server.stop();
        }
        let bench = if encrypted { "storage.restart1k.encrypted" } else { "storage.restart1k" };
        report(bench, "ms", crate::median(times.clone()), "ms");
    }
    Ok(())
}

/// A file system that shares blocks, in a file.
struct Shared(PathBuf, #[allow(dead_code, reason = "it is there as long as this is")] tempfile::TempDir);

impl Shared {
    fn mount() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let (image, at) = (dir.path().join("image"), dir.path().join("at"));
        std::fs::File::create(&image)?.set_len(4 << 30)?;
        std::fs::create_dir(&at)?;
        ensure!(
            Command::new("mkfs.xfs").args(["-q", "-m", "reflink=1"]).arg(&image).status()?.success(),
            "mkfs.xfs failed"
        );
        ensure!(
            Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&at).status()?.success(),
            "mounting failed; this figure takes root and loop devices"
        );
        Ok(Self(at, dir))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// How long a snapshot of a sparse volume of 100 GiB takes, where blocks are shared and where they are not.
pub(crate) fn snapshots() -> Result<()> {
    let shared = Shared::mount()?;
    let elsewhere = tempfile::tempdir()?;
    for (dir, bench) in
        [(&*shared.0, "storage.snapshot100g"), (elsewhere.path(), "storage.snapshot100g.layered")]
    {
        report(bench, "ms", crate::median(take(dir)?), "ms");
    }
    Ok(())
}

fn take(dir: &Path) -> Result<Vec<f64>> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let backend = backend(dir)?;
        let (consumer, name) = (id(1), "large".to_owned());
        backend.ensure_storage(consumer, MIB, false).await?;
        backend.set_quota(consumer, LARGE).await?;
        let made = VolumeStep::Import { name: name.clone(), size: LARGE, encrypted: false };
        backend.change_volume(consumer, made).await?;
        let gap = LARGE / EXTENTS / 4096 * 4096;
        for n in 0..EXTENTS {
            let piece = Piece { offset: n * gap, data: vec![7; 4096] };
            backend.fill_volume(consumer, name.clone(), Fill::Piece(piece)).await?;
        }
        backend.fill_volume(consumer, name.clone(), Fill::Done).await?;
        let mut times = Vec::new();
        for n in 0..SNAPSHOTS {
            let taken = VolumeStep::Snapshot { volume: name.clone(), name: format!("{name}@{n}") };
            let began = Instant::now();
            backend.change_volume(consumer, taken).await?;
            times.push(began.elapsed().as_secs_f64() * 1000.0);
        }
        Ok(times)
    })
}
