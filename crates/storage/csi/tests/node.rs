//! What a node answers, with file systems and mounts of this kernel, in a mount namespace of its own. Loop devices stand for those of the
//! kernel's nbd module, which most machines that run tests do not have. Needs root.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod support;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write as _,
    os::unix::fs::{FileExt as _, FileTypeExt as _},
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
};

use nix::sched::{CloneFlags, unshare};
use storage_csi::{
    attach::{AttachError, Attached, Attacher, Standing},
    proto::{
        CapacityRange, NodeExpandVolumeRequest, NodeGetVolumeHealthRequest, NodeGetVolumeStatsRequest,
        NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest,
        NodeUnstageVolumeRequest, VolumeCapability, volume_capability::access_mode::Mode,
    },
};
use support::{Lab, capability, code, context};
use tonic::{Code, Status};

const MIB: u64 = 1 << 20;

/// Files as loop devices. What a storage would say is set by the test.
struct Loops {
    dir: PathBuf,
    attached: Mutex<BTreeMap<String, Attached>>,
    no_module: bool,
}

impl Loops {
    fn file(&self, volume: &str) -> PathBuf {
        self.dir.join(volume)
    }

    fn make(&self, volume: &str, bytes: u64) {
        File::options()
            .create(true)
            .write(true)
            .truncate(false)
            .open(self.file(volume))
            .unwrap()
            .set_len(bytes)
            .unwrap();
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for attached in self.attached.lock().unwrap().values() {
            run("losetup", &["-d", attached.device.to_str().unwrap()]);
        }
    }
}

fn run(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().unwrap_or_else(|err| panic!("{program}: {err}"));
    assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[tonic::async_trait]
impl Attacher for Loops {
    async fn ready(&self) -> Result<(), AttachError> {
        if self.no_module { Err(AttachError::NoModule) } else { Ok(()) }
    }

    async fn attach(&self, volume: &str, export: &str, read_only: bool) -> Result<Attached, AttachError> {
        let mut all = self.attached.lock().unwrap();
        if let Some(held) = all.get(volume) {
            return match held.export == export {
                true => Ok(held.clone()),
                false => Err(AttachError::Other {
                    volume: volume.to_owned(),
                    held: held.export.clone(),
                    wanted: export.to_owned(),
                }),
            };
        }
        let file = self.file(volume);
        let mut words = vec!["--find", "--show", file.to_str().unwrap()];
        words.extend(read_only.then_some("--read-only"));
        let attached = Attached {
            device: run("losetup", &words).into(),
            size: fs::metadata(&file).unwrap().len(),
            export: export.to_owned(),
            read_only,
        };
        all.insert(volume.to_owned(), attached.clone());
        Ok(attached)
    }

    async fn attached(&self, volume: &str) -> Result<Option<Attached>, AttachError> {
        Ok(self.attached.lock().unwrap().get(volume).cloned())
    }

    async fn detach(&self, volume: &str) -> Result<(), AttachError> {
        if let Some(attached) = self.attached.lock().unwrap().remove(volume) {
            run("losetup", &["-d", attached.device.to_str().unwrap()]);
        }
        Ok(())
    }

    async fn renew(&self, volume: &str, least: u64) -> Result<Attached, AttachError> {
        let mut all = self.attached.lock().unwrap();
        let attached = all.get_mut(volume).unwrap();
        if attached.size < least {
            File::options().write(true).open(self.file(volume)).unwrap().set_len(least).unwrap();
            run("losetup", &["-c", attached.device.to_str().unwrap()]);
            attached.size = least;
        }
        Ok(attached.clone())
    }

    async fn standing(&self, _: &str) -> Result<Standing, AttachError> {
        Ok(Standing::Waiting("the controller is away".to_owned()))
    }

    async fn give_up(&self, _: &str) -> Result<(), AttachError> {
        Ok(())
    }
}

struct Here {
    lab: Lab,
    loops: Arc<Loops>,
}

impl Here {
    async fn start(no_module: bool) -> Self {
        let dir = tempfile::tempdir().unwrap().keep();
        let loops = Arc::new(Loops { dir, no_module, attached: Mutex::default() });
        let lab = Lab::start("64Mi", Some(Arc::clone(&loops) as Arc<dyn Attacher>)).await;
        Self { lab, loops }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.lab.dir.path().join(name)
    }

    fn staging(&self, volume: &str) -> String {
        self.path(&format!("staging-{volume}")).to_str().unwrap().to_owned()
    }

    async fn stage(&self, volume: &str, export: &str, wanted: VolumeCapability) -> Result<(), Status> {
        let request = NodeStageVolumeRequest {
            volume_id: volume.to_owned(),
            publish_context: context(export),
            staging_target_path: self.staging(volume),
            volume_capability: Some(wanted),
            ..NodeStageVolumeRequest::default()
        };
        self.lab.node().node_stage_volume(request).await.map(drop)
    }

    async fn publish(
        &self,
        volume: &str,
        at: &str,
        readonly: bool,
        wanted: VolumeCapability,
    ) -> Result<PathBuf, Status> {
        let target = self.path(at);
        let request = NodePublishVolumeRequest {
            volume_id: volume.to_owned(),
            staging_target_path: self.staging(volume),
            target_path: target.to_str().unwrap().to_owned(),
            volume_capability: Some(wanted),
            readonly,
            ..NodePublishVolumeRequest::default()
        };
        self.lab.node().node_publish_volume(request).await.map(|_| target)
    }

    async fn unpublish(&self, volume: &str, at: &str) -> Result<(), Status> {
        let target_path = self.path(at).to_str().unwrap().to_owned();
        let request = NodeUnpublishVolumeRequest { volume_id: volume.to_owned(), target_path };
        self.lab.node().node_unpublish_volume(request).await.map(drop)
    }

    async fn unstage(&self, volume: &str) -> Result<(), Status> {
        let staging_target_path = self.staging(volume);
        let request = NodeUnstageVolumeRequest { volume_id: volume.to_owned(), staging_target_path };
        self.lab.node().node_unstage_volume(request).await.map(drop)
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.loops.dir);
    }
}

/// In a mount namespace of its own: what is left over goes with it.
fn apart(test: impl AsyncFnOnce() + Send + 'static) {
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNS).expect("mounts need root: run the tests as root");
        run("mount", &["--make-rprivate", "/"]);
        tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(test());
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn writer(fs: Option<&str>) -> VolumeCapability {
    capability(Mode::SingleNodeWriter, fs)
}

/// In a container root may lack what growing a mounted ext4 needs: CAP_SYS_RESOURCE, the 24th.
fn may_grow_ext4() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(held.trim(), 16).unwrap() & 1 << 24 != 0
}

/// In the namespace of this thread.
fn mounted() -> usize {
    let list = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    list.lines().filter(|line| line.contains("/dev/loop") || line.contains(" /loop")).count()
}

#[test]
fn a_file_system_is_made_once_mounted_shown_grown_and_kept() {
    apart(async || {
        for fs in ["ext4", "xfs"] {
            let here = Here::start(false).await;
            let before = mounted();
            let size = if fs == "xfs" { 320 * MIB } else { 16 * MIB };
            here.loops.make("v", size);
            for _ in 0..2 {
                here.stage("v", "v:1", writer(Some(fs))).await.unwrap();
            }
            let mut target = PathBuf::new();
            for _ in 0..2 {
                target = here.publish("v", "pod-1", false, writer(Some(fs))).await.unwrap();
            }
            fs::write(target.join("hello"), "world").unwrap();
            let other = here.publish("v", "pod-2", true, writer(Some(fs))).await.unwrap();
            assert_eq!(fs::read_to_string(other.join("hello")).unwrap(), "world");
            assert!(fs::write(other.join("hello"), "x").is_err(), "this one only reads");
            assert_eq!(code(here.publish("v", "pod-2", false, writer(Some(fs))).await), Code::AlreadyExists);
            assert_eq!(
                code(
                    here.publish("v", "pod-3", false, capability(Mode::SingleNodeSingleWriter, Some(fs)))
                        .await
                ),
                Code::FailedPrecondition
            );

            let total = async |at: &Path| {
                let volume_path = at.to_str().unwrap().to_owned();
                let request = NodeGetVolumeStatsRequest {
                    volume_id: "v".to_owned(),
                    volume_path,
                    ..Default::default()
                };
                here.lab
                    .node()
                    .node_get_volume_stats(request)
                    .await
                    .map(|reply| reply.into_inner().usage[0].total)
            };
            let small = total(&target).await.unwrap();
            let grow = NodeExpandVolumeRequest {
                volume_id: "v".to_owned(),
                volume_path: target.to_str().unwrap().to_owned(),
                capacity_range: Some(CapacityRange { required_bytes: 3 * size as i64, limit_bytes: 0 }),
                ..NodeExpandVolumeRequest::default()
            };
            if fs == "ext4" && !may_grow_ext4() {
                eprintln!(
                    "NOT TRIED: ext4 is not grown here, where root lacks CAP_SYS_RESOURCE; labs/csi does"
                );
            } else {
                for _ in 0..2 {
                    here.lab.node().node_expand_volume(grow.clone()).await.unwrap();
                }
                let large = total(&target).await.unwrap();
                assert!(large > 2 * small, "{fs}: {small} {large}");
            }
            assert_eq!(total(&here.path("nowhere")).await.unwrap_err().code(), Code::NotFound);
            let health = NodeGetVolumeHealthRequest { volume_id: "v".to_owned(), ..Default::default() };
            let health = here
                .lab
                .node()
                .node_get_volume_health(health)
                .await
                .unwrap()
                .into_inner()
                .volume_health
                .unwrap();
            assert_eq!(health.health_statuses[0].message, "the controller is away");

            assert_eq!(code(here.unstage("v").await), Code::FailedPrecondition, "two still use it");
            for at in ["pod-1", "pod-2", "pod-1"] {
                here.unpublish("v", at).await.unwrap();
            }
            assert!(!target.exists(), "what the driver made is gone");
            for _ in 0..2 {
                here.unstage("v").await.unwrap();
            }
            assert_eq!(mounted(), before, "{fs}");
            // With its content, at another epoch.
            here.stage("v", "v:2", writer(Some(fs))).await.unwrap();
            let target = here.publish("v", "pod-1", false, writer(Some(fs))).await.unwrap();
            assert_eq!(fs::read_to_string(target.join("hello")).unwrap(), "world");
            here.unpublish("v", "pod-1").await.unwrap();
            here.unstage("v").await.unwrap();
        }
    });
}

#[test]
fn nothing_is_overwritten_and_what_broke_off_is_begun_again() {
    apart(async || {
        let here = Here::start(false).await;
        for volume in ["used", "half", "wrong", "dirty"] {
            here.loops.make(volume, 16 * MIB);
        }
        let write = |volume: &str, at: u64, bytes: &[u8]| {
            File::options()
                .write(true)
                .open(here.loops.file(volume))
                .unwrap()
                .write_all_at(bytes, at)
                .unwrap();
        };
        write("used", 70_000, b"somebody's");
        assert_eq!(code(here.stage("used", "used:1", writer(Some("ext4"))).await), Code::FailedPrecondition);
        here.unstage("used").await.unwrap();

        // As it is when mkfs was killed: the mark in the last block, and anything before it.
        write("half", 2048, &[7; 4096]);
        let mark = "trestle: a file system is being made here; what there is of it may go\n";
        write("half", 16 * MIB - 4096, mark.as_bytes());
        here.stage("half", "half:1", writer(Some("ext4"))).await.unwrap();
        here.unstage("half").await.unwrap();
        let tail = &fs::read(here.loops.file("half")).unwrap()[16 * MIB as usize - 4096..];
        assert!(!tail.starts_with(mark.as_bytes()), "nobody takes it for unfinished any more");

        run("mkfs.ext4", &["-q", "-F", here.loops.file("wrong").to_str().unwrap()]);
        assert_eq!(code(here.stage("wrong", "wrong:1", writer(Some("xfs"))).await), Code::FailedPrecondition);
        here.unstage("wrong").await.unwrap();

        // Nothing to mount, and nobody may make it.
        assert_eq!(
            code(here.stage("dirty", "dirty:read", writer(Some("ext4"))).await),
            Code::FailedPrecondition
        );
        here.unstage("dirty").await.unwrap();
        assert_eq!(code(here.stage("dirty", "", writer(Some("ext4"))).await), Code::FailedPrecondition);
        assert_eq!(code(here.stage("dirty", "used:1", writer(Some("ext4"))).await), Code::FailedPrecondition);
        assert_eq!(
            code(here.publish("dirty", "pod", false, writer(Some("ext4"))).await),
            Code::FailedPrecondition
        );
        here.unpublish("dirty", "pod").await.unwrap();
    });
}

#[test]
fn a_block_device_is_a_block_device_and_a_kernel_without_them_says_so() {
    apart(async || {
        let here = Here::start(false).await;
        here.loops.make("b", 16 * MIB);
        for _ in 0..2 {
            here.stage("b", "b:1", writer(None)).await.unwrap();
            let target = here.publish("b", "dir/device", false, writer(None)).await.unwrap();
            assert!(fs::metadata(&target).unwrap().file_type().is_block_device());
        }
        File::options().write(true).open(here.path("dir/device")).unwrap().write_all(&[9; 4096]).unwrap();
        assert_eq!(code(here.publish("b", "dir/reader", true, writer(None)).await), Code::FailedPrecondition);
        here.unpublish("b", "dir/device").await.unwrap();
        here.unstage("b").await.unwrap();
        assert_eq!(fs::read(here.loops.file("b")).unwrap()[..4096], [9; 4096]);

        let without = Here::start(true).await;
        let refused = without.stage("b", "b:1", writer(None)).await.unwrap_err();
        assert!(refused.code() == Code::FailedPrecondition && refused.message().contains("nbd"), "{refused}");
        let probed = without.lab.identity().probe(storage_csi::proto::ProbeRequest {}).await.unwrap_err();
        assert!(probed.message().contains("modprobe nbd"), "{probed}");
    });
}
