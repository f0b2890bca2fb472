//! A real Ceph, with Ceph's own tools as the consumer.
//!
//! One cluster for all of it: it takes some seconds to start. Where Ceph is not installed this fails and says so.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use storage_backend::{
    Backend as _, BackendError,
    testing::{Subject, conforms},
};
use storage_ceph::{CephBackend, CephConfig, Target, connect, connect_by_command};
use storage_provider::{ConnectionItem, ConsumerId};
use tempfile::TempDir;
use uuid::Uuid;

const MIB: u64 = 1 << 20;

struct Cluster {
    dir: TempDir,
}

impl Cluster {
    fn start() -> Self {
        let found = Command::new("ceph-mon").arg("--version").output();
        assert!(found.is_ok(), "ceph-mon is not installed; labs/ceph.packages lists what this test needs");
        let cluster = Self { dir: tempfile::tempdir().unwrap() };
        // Two ports in a row are needed; the second is free as a rule.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        cluster.script(&["start", &port.to_string()]);
        cluster
    }

    /// `start`, `stop`, `end NAME`, `term NAME`, `mon`, `osd`.
    fn script(&self, args: &[&str]) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster.sh");
        let mut command = Command::new(script);
        command.arg(args[0]).arg(self.dir.path()).args(&args[1..]);
        // The daemons keep what they inherit open.
        let log = std::fs::File::create(self.dir.path().join("script.log")).unwrap();
        let status = command.stdout(Stdio::null()).stderr(log).status().unwrap();
        let said = std::fs::read_to_string(self.dir.path().join("script.log")).unwrap();
        assert!(status.success(), "cluster.sh {args:?}: {said}");
    }

    fn target(&self) -> Target {
        let dir = self.dir.path();
        Target {
            conf: dir.join("ceph.conf"),
            user: "client.admin".into(),
            keyring: dir.join("client.admin.keyring"),
        }
    }

    fn admin(&self, args: &[&str]) -> Output {
        let Target { conf, user, keyring } = self.target();
        Command::new("timeout")
            .args(["30", "ceph", "-n", &user])
            .arg("-c")
            .arg(conf)
            .arg("-k")
            .arg(keyring)
            .args(args)
            .output()
            .unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster.sh");
        let _ = Command::new(script).arg("stop").arg(self.dir.path()).status();
    }
}

/// A consumer's machine: it knows only what the connection details say.
struct Consumer {
    conf: PathBuf,
    keyring: PathBuf,
    user: String,
    pool: String,
}

impl Consumer {
    fn new(dir: &Path, details: &[ConnectionItem]) -> Self {
        let item = |name: &str| &details.iter().find(|item| item.name == name).unwrap().data;
        let user = item("rook-csi-rbd-node")["userID"].clone();
        let monitors: Vec<&str> = item("rook-ceph-mon-endpoints")["data"]
            .split(',')
            .map(|entry| entry.split_once('=').unwrap().1)
            .collect();
        let (conf, keyring) = (dir.join(format!("{user}.conf")), dir.join(format!("{user}.keyring")));
        let fsid = &item("rook-ceph-mon")["fsid"];
        let text =
            format!("[global]\nfsid = {fsid}\nmon_host = {}\nlog_file = /dev/null\n", monitors.join(","));
        std::fs::write(&conf, text).unwrap();
        let key = &item("rook-csi-rbd-node")["userKey"];
        std::fs::write(&keyring, format!("[client.{user}]\nkey = {key}\n")).unwrap();
        Self { conf, keyring, user, pool: item("ceph-rbd")["pool"].clone() }
    }

    fn command(&self, program: &str, seconds: u32, args: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args([&seconds.to_string(), program, "-n", &format!("client.{}", self.user), "-c"]);
        command.arg(&self.conf).arg("-k").arg(&self.keyring).args(args);
        command
    }

    fn run(&self, program: &str, args: &[&str]) -> bool {
        self.command(program, 15, args).output().unwrap().status.success()
    }
}

struct CephSubject {
    backend: CephBackend,
    dir: TempDir,
}

#[async_trait]
impl Subject for CephSubject {
    type Backend = CephBackend;

    fn backend(&self) -> &CephBackend {
        &self.backend
    }

    async fn store(&self, _: ConsumerId, details: &[ConnectionItem], bytes: u64) -> bool {
        let consumer = Consumer::new(self.dir.path(), details);
        let file = self.dir.path().join("object");
        std::fs::write(&file, vec![7; usize::try_from(bytes).unwrap()]).unwrap();
        let name =
            Uuid::from_u128(u128::from(Instant::now().elapsed().as_nanos() as u64) << 64 | u128::from(bytes));
        let stored =
            consumer.run("rados", &["-p", &consumer.pool, "put", &name.to_string(), file.to_str().unwrap()]);
        // What a pool holds is known to the monitors a moment later.
        tokio::time::sleep(Duration::from_millis(3500)).await;
        stored
    }
}

fn id(n: u128) -> ConsumerId {
    ConsumerId::new(Uuid::from_u128(n))
}

async fn make(backend: &CephBackend, id: ConsumerId, bytes: u64) {
    backend.ensure_storage(id, bytes, false).await.unwrap();
    backend.set_quota(id, bytes).await.unwrap();
    backend.ensure_credentials(id).await.unwrap();
}

async fn eventually<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    for _ in 0..100 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("{what} did not come true");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts a cluster and takes two minutes; labs/ceph.sh runs it"]
async fn ceph_serves_consumers() {
    let cluster = Cluster::start();
    let config = CephConfig { replicas: 1, placement_groups: 8 };
    let backend = CephBackend::new(connect(&cluster.target()).unwrap(), config.clone());
    consumers_reach_their_own_pool_and_nothing_else(&cluster, &backend).await;
    a_full_pool_is_told_and_raising_the_quota_frees_its_writers(&cluster, &backend).await;
    offboarding_ends_the_open_session(&cluster, &backend).await;
    what_others_did_to_our_pools_is_put_right(&cluster, &backend).await;
    a_pool_that_is_there_with_other_settings_is_put_right(&cluster, &backend).await;
    without_an_osd_the_status_says_so_and_the_steps_go_on(&cluster, &backend).await;
    let subject = CephSubject { backend, dir: tempfile::tempdir().unwrap() };
    conforms(&subject).await;
    let by_command = CephBackend::new(connect_by_command(&cluster.target()).unwrap(), config);
    the_command_does_what_the_library_does(&by_command, &subject.backend).await;
    a_cluster_without_monitor_fails_in_time_and_recovers(&cluster, &subject.backend).await;
}

async fn consumers_reach_their_own_pool_and_nothing_else(cluster: &Cluster, backend: &CephBackend) {
    make(backend, id(1), 64 * MIB).await;
    make(backend, id(2), 64 * MIB).await;
    let dir = cluster.dir.path();
    let a = Consumer::new(dir, &backend.connection_details(id(1)).await.unwrap());
    let b = Consumer::new(dir, &backend.connection_details(id(2)).await.unwrap());
    let file = a.conf.to_str().unwrap();
    assert!(a.run("rados", &["-p", &a.pool, "put", "object", file]));
    assert!(a.run("rbd", &["create", "--size", "16M", &format!("{}/image", a.pool)]));
    assert!(a.run("rbd", &["info", &format!("{}/image", a.pool)]));
    for args in [
        &["-p", &b.pool, "put", "object", file][..],
        &["-p", &b.pool, "ls"],
        &["-p", "device_health_metrics", "ls"],
        &["-p", &a.pool, "-N", "elsewhere", "mkpool"],
    ] {
        assert!(!a.run("rados", args), "{args:?}");
    }
    assert!(!a.run("rbd", &["ls", &b.pool]));
    for args in [
        &["osd", "pool", "create", "mine"][..],
        &["osd", "pool", "set-quota", &a.pool, "max_bytes", "0"],
        &["auth", "ls"],
        &["auth", "get", "client.admin"],
        // One instance may be put on the blocklist, to break the lock of a dead client; not a whole address.
        &["osd", "blocklist", "add", "127.0.0.1"],
        &["osd", "blocklist", "add", "127.0.0.1:0/0"],
        &["osd", "blocklist", "add", "127.0.0.1:0/4294967296"],
        &["osd", "blocklist", "range", "add", "127.0.0.0/8"],
        &["osd", "blocklist", "range", "add", "127.0.0.0/4294967304"],
        &["osd", "blocklist", "clear"],
        &["balancer", "off"],
        &["fs", "volume", "create", "mine"],
    ] {
        assert!(!a.run("ceph", args), "{args:?}");
    }
    let quota = String::from_utf8(cluster.admin(&["osd", "pool", "get-quota", &a.pool, "-f", "json"]).stdout)
        .unwrap();
    assert!(quota.contains("\"quota_max_bytes\":67108864"), "{quota}");
}

async fn a_full_pool_is_told_and_raising_the_quota_frees_its_writers(
    cluster: &Cluster,
    backend: &CephBackend,
) {
    backend.set_quota(id(1), 16 * MIB).await.unwrap();
    let consumer = Consumer::new(cluster.dir.path(), &backend.connection_details(id(1)).await.unwrap());
    let file = cluster.dir.path().join("large");
    std::fs::write(&file, vec![1; 20 << 20]).unwrap();
    assert!(
        consumer.run("rados", &["-p", &consumer.pool, "put", "large", file.to_str().unwrap()]),
        "the quota is late"
    );
    eventually("the pool is full", || async {
        backend.usage(id(1)).await.unwrap().notice.is_some_and(|notice| notice.contains("full"))
    })
    .await;
    assert!(matches!(backend.set_quota(id(1), MIB).await, Err(BackendError::BelowUse { .. })));
    let mut writer = consumer.command(
        "rados",
        40,
        &["-p", &consumer.pool, "put", "more", consumer.conf.to_str().unwrap()],
    );
    let mut writer = writer.spawn().unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(writer.try_wait().unwrap().is_none(), "a writer waits");
    backend.set_quota(id(1), 64 * MIB).await.unwrap();
    let status = tokio::task::spawn_blocking(move || writer.wait().unwrap()).await.unwrap();
    assert!(status.success(), "and goes on");
    eventually("the notice is gone", || async { backend.usage(id(1)).await.unwrap().notice.is_none() }).await;
}

struct Bench(Child);

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn offboarding_ends_the_open_session(cluster: &Cluster, backend: &CephBackend) {
    let consumer = Consumer::new(cluster.dir.path(), &backend.connection_details(id(2)).await.unwrap());
    backend.set_quota(id(2), 512 * MIB).await.unwrap();
    let mut command = consumer.command(
        "rados",
        60,
        &["-p", &consumer.pool, "bench", "50", "write", "-b", "4096", "-t", "2"],
    );
    let mut open = Bench(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(open.0.try_wait().unwrap().is_none(), "it writes");
    backend.revoke(id(2)).await.unwrap();
    let began = Instant::now();
    let mut ended = None;
    while ended.is_none() && began.elapsed() < Duration::from_secs(20) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        ended = open.0.try_wait().unwrap();
    }
    assert!(ended.is_some_and(|status| !status.success()), "an open session must be dead, not {ended:?}");
    assert!(!consumer.run("rados", &["-p", &consumer.pool, "ls"]), "nor does the key open a new one");
    backend.trash(id(2)).await.unwrap();
    assert!(backend.observe(id(2)).await.unwrap().trash);
    backend.purge(id(2)).await.unwrap();
    let pools = String::from_utf8(cluster.admin(&["osd", "pool", "ls"]).stdout).unwrap();
    assert!(!pools.contains(&id(2).to_string()), "{pools}");
}

async fn what_others_did_to_our_pools_is_put_right(cluster: &Cluster, backend: &CephBackend) {
    let pool = format!("trestle-{}", id(1));
    let shape = || async { backend.observe(id(1)).await.unwrap().storage.unwrap() };
    cluster.admin(&["osd", "pool", "set-quota", &pool, "max_bytes", "0"]);
    assert_eq!(shape().await.quota, None);
    cluster.admin(&["osd", "pool", "application", "disable", &pool, "rbd", "--yes-i-really-mean-it"]);
    assert!(!shape().await.in_shape);
    let user = format!("client.trestle-{}", id(1));
    cluster.admin(&["auth", "caps", &user, "mon", "allow *", "osd", "allow *"]);
    assert!(!backend.observe(id(1)).await.unwrap().credentials, "a user that may more is not right");
    make(backend, id(1), 64 * MIB).await;
    assert!(shape().await.in_shape && shape().await.quota == Some(64 * MIB));
    assert!(backend.observe(id(1)).await.unwrap().credentials);
    cluster.admin(&["osd", "pool", "delete", &pool, &pool, "--yes-i-really-really-mean-it"]);
    assert_eq!(backend.observe(id(1)).await.unwrap().storage, None);
    make(backend, id(1), 64 * MIB).await;
    assert!(shape().await.in_shape);

    let foreign = format!("trestle-{}", id(9));
    cluster.admin(&["osd", "pool", "create", &foreign, "8"]);
    cluster.admin(&["osd", "pool", "application", "enable", &foreign, "cephfs"]);
    assert!(matches!(backend.ensure_storage(id(9), MIB, false).await, Err(BackendError::NotOurs { .. })));
    cluster.admin(&["osd", "pool", "delete", &foreign, &foreign, "--yes-i-really-really-mean-it"]);
}

/// A pool of ours with another size, another number of placement groups, another quota and no application: as after a
/// change of the configuration, or an administrator's hand.
async fn a_pool_that_is_there_with_other_settings_is_put_right(cluster: &Cluster, backend: &CephBackend) {
    let pool = format!("trestle-{}", id(6));
    for args in [
        &["osd", "pool", "create", &pool, "4"][..],
        &["osd", "pool", "set", &pool, "size", "2"],
        &["osd", "pool", "set-quota", &pool, "max_bytes", "12345"],
    ] {
        assert!(cluster.admin(args).status.success(), "{args:?}");
    }
    let seen = backend.observe(id(6)).await.unwrap().storage.unwrap();
    assert_eq!((seen.in_shape, seen.quota), (false, Some(12345)));
    make(backend, id(6), 8 * MIB).await;
    let seen = backend.observe(id(6)).await.unwrap();
    let storage = seen.storage.unwrap();
    assert!(storage.in_shape && storage.quota == Some(8 * MIB) && seen.credentials, "{seen:?}");
    let consumer = Consumer::new(cluster.dir.path(), &backend.connection_details(id(6)).await.unwrap());
    assert!(consumer.run("rados", &["-p", &consumer.pool, "put", "o", consumer.conf.to_str().unwrap()]));
}

/// Monitors answer without OSDs, so grants can change; data cannot move, and the status says why.
async fn without_an_osd_the_status_says_so_and_the_steps_go_on(cluster: &Cluster, backend: &CephBackend) {
    let consumer = Consumer::new(cluster.dir.path(), &backend.connection_details(id(6)).await.unwrap());
    let conf = consumer.conf.to_str().unwrap().to_owned();
    let put = |seconds: u32| {
        let mut put = consumer.command("rados", seconds, &["-p", &consumer.pool, "put", "o", &conf]);
        put.output().unwrap().status.success()
    };
    cluster.script(&["term", "osd.0"]);
    eventually("the status tells of the OSD", || async {
        backend.usage(id(6)).await.unwrap().notice.is_some_and(|notice| notice.contains("0 of 1 OSDs"))
    })
    .await;
    assert!(!put(5), "nothing can be stored");
    backend.set_quota(id(6), 16 * MIB).await.unwrap();
    make(backend, id(7), 8 * MIB).await;
    cluster.script(&["osd"]);
    eventually("the OSD is back", || async { backend.usage(id(6)).await.unwrap().notice.is_none() }).await;
    assert!(put(40), "what waited goes on");
    for consumer in [id(6), id(7)] {
        backend.revoke(consumer).await.unwrap();
        backend.trash(consumer).await.unwrap();
        backend.purge(consumer).await.unwrap();
    }
}

async fn the_command_does_what_the_library_does(by_command: &CephBackend, by_library: &CephBackend) {
    make(by_command, id(5), 8 * MIB).await;
    assert_eq!(by_command.observe(id(5)).await, by_library.observe(id(5)).await);
    assert_eq!(by_command.connection_details(id(5)).await, by_library.connection_details(id(5)).await);
    by_command.revoke(id(5)).await.unwrap();
    by_command.trash(id(5)).await.unwrap();
    by_command.purge(id(5)).await.unwrap();
    assert_eq!(by_library.observe(id(5)).await.unwrap(), Default::default());
}

async fn a_cluster_without_monitor_fails_in_time_and_recovers(cluster: &Cluster, backend: &CephBackend) {
    cluster.script(&["end", "mon.a"]);
    let began = Instant::now();
    let failed = backend.observe(id(1)).await;
    assert!(matches!(failed, Err(BackendError::Failed { .. })), "{failed:?}");
    assert!(began.elapsed() < Duration::from_secs(30), "it must not hang");
    cluster.script(&["mon"]);
    eventually("the cluster is back", || async { backend.observe(id(1)).await.is_ok() }).await;
    assert!(backend.observe(id(1)).await.unwrap().storage.is_some());
}

#[test]
fn a_keyring_that_is_not_there_is_a_clear_error() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("ceph.conf"), "[global]\nmon_host = 127.0.0.1:1\nlog_file = /dev/null\n")
        .unwrap();
    let target = Target {
        conf: dir.path().join("ceph.conf"),
        user: "client.admin".into(),
        keyring: dir.path().join("none"),
    };
    let Err(error) = connect(&target) else { panic!("there is no cluster here") };
    let said = error.to_string();
    assert!(said.contains("ceph.conf") || said.contains("installed"), "{said}");
}
