//! The store's promises: durable writes beside the raw engine and etcd, fan-out to watchers, memory.

#![expect(clippy::unwrap_used, reason = "a failed bench stops")]

use std::{
    env,
    io::BufRead as _,
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use benches::report;
use futures::StreamExt as _;
use redb::{Database, TableDefinition};
use store::{Event, Key, Prefix, Store, Transaction, WatchFrom, embedded, etcd};
use tempfile::TempDir;

const VALUE: usize = 256;
const ROUND: Duration = Duration::from_millis(1000);
const ROUNDS: usize = 4;
const WATCHERS: usize = 1000;
const OBJECTS: usize = 100_000;
const MEMORY_CHILD: &str = "TRESTLE_BENCH_MEMORY_DIR";

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if let Some(dir) = env::var_os(MEMORY_CHILD) {
        runtime.block_on(memory(PathBuf::from(dir)));
        return;
    }
    memory_in_a_process_of_its_own();
    runtime.block_on(async {
        writes(1).await;
        writes(64).await;
        watchers().await;
    });
}

/// On the disk of the build, not on a tmpfs: a sync must cost what it costs.
fn scratch() -> TempDir {
    let target = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target");
    tempfile::tempdir_in(target).unwrap()
}

fn key(text: &str) -> Key {
    text.parse().unwrap()
}

/// Floor and store take turns, so that a disk that changes its pace is fair to both. etcd, which writes on in the
/// background, comes after them.
async fn writes(writers: usize) {
    let (floor_dir, store_dir) = (scratch(), scratch());
    let floor = Database::create(floor_dir.path().join("floor")).unwrap();
    let store = embedded::open(store_dir.path()).unwrap();
    let (mut floor_count, mut store_count, mut peer_count) = (0, 0, 0);
    for _ in 0..ROUNDS {
        // On a thread of its own, as the store's writer is.
        floor_count += std::thread::scope(|scope| {
            scope.spawn(|| commit_raw(&floor, writers, floor_count)).join().unwrap()
        });
        store_count += write(&store, writers).await;
    }
    let peer = Member::start();
    if let Some(member) = &peer {
        let peer = etcd::Options::new([member.client.clone()]).connect().await.unwrap();
        for _ in 0..ROUNDS {
            peer_count += write(&peer, writers).await;
        }
    }
    let per_second = |count: u64| count as f64 / (ROUND * ROUNDS as u32).as_secs_f64();
    let name = format!("store.write{writers}");
    report(&name, "writes_per_s", per_second(store_count), "1/s");
    report(&format!("{name}.floor"), "writes_per_s", per_second(floor_count), "1/s");
    if peer.is_some() {
        report(&format!("{name}.peer"), "writes_per_s", per_second(peer_count), "1/s");
    }
}

/// The engine alone at its best: one table, ascending keys, one durable commit for as many values as there are
/// writers.
fn commit_raw(database: &Database, values: usize, first: u64) -> u64 {
    const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("raw");
    let end = Instant::now() + ROUND;
    let mut count = 0;
    while Instant::now() < end {
        let transaction = database.begin_write().unwrap();
        {
            let mut table = transaction.open_table(TABLE).unwrap();
            for n in 0..values as u64 {
                table.insert(first + count + n, [7; VALUE].as_slice()).unwrap();
            }
        }
        transaction.commit().unwrap();
        count += values as u64;
    }
    count
}

async fn write(store: &Store, writers: usize) -> u64 {
    let end = Instant::now() + ROUND;
    let tasks = (0..writers).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut count = 0_u64;
            while Instant::now() < end {
                let put = Transaction::new().put(key(&format!("w/{writer}/{}", count % 100)), vec![7; VALUE]);
                store.transact(put).await.unwrap();
                count += 1;
            }
            count
        })
    });
    futures::future::join_all(tasks).await.into_iter().map(Result::unwrap).sum()
}

/// From the call that writes to the receipt by each of the watchers; the floor is the write itself.
async fn watchers() {
    const CHANGES: usize = 200;
    let dir = scratch();
    let store = embedded::open(dir.path()).unwrap();
    let begin = Instant::now();
    let ready = Arc::new(tokio::sync::Barrier::new(WATCHERS + 1));
    let tasks: Vec<_> = (0..WATCHERS)
        .map(|_| {
            let mut watch = store.watch(&Prefix::all(), WatchFrom::Start);
            let ready = Arc::clone(&ready);
            tokio::spawn(async move {
                while !matches!(watch.next().await.unwrap().unwrap(), Event::InitDone { .. }) {}
                ready.wait().await;
                let mut delays = Vec::with_capacity(CHANGES);
                while delays.len() < CHANGES {
                    if let Event::Apply(entry) = watch.next().await.unwrap().unwrap() {
                        let sent = u64::from_le_bytes(entry.value[..8].try_into().unwrap());
                        delays.push(begin.elapsed().as_nanos() as u64 - sent);
                    }
                }
                delays
            })
        })
        .collect();
    ready.wait().await;
    let mut writes = Vec::new();
    for _ in 0..CHANGES {
        let sent = begin.elapsed().as_nanos() as u64;
        let mut value = vec![7; VALUE];
        value[..8].copy_from_slice(&sent.to_le_bytes());
        store.transact(Transaction::new().put(key("k"), value)).await.unwrap();
        writes.push(begin.elapsed().as_nanos() as u64 - sent);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut delays = Vec::new();
    for task in tasks {
        delays.extend(task.await.unwrap());
    }
    for (bench, mut sample) in [("store.watch", delays), ("store.watch.floor", writes)] {
        sample.sort_unstable();
        let at = |share: f64| sample[((sample.len() - 1) as f64 * share) as usize] as f64 / 1e6;
        report(bench, "p50_ms", at(0.5), "ms");
        report(bench, "p99_ms", at(0.99), "ms");
    }
}

fn memory_in_a_process_of_its_own() {
    let dir = scratch();
    let status = Command::new(env::current_exe().unwrap()).env(MEMORY_CHILD, dir.path()).status().unwrap();
    assert!(status.success());
}

async fn memory(dir: PathBuf) {
    let before = rss_mib();
    let store = embedded::open(&dir).unwrap();
    for start in (0..OBJECTS).step_by(100) {
        let many = (start..start + 100)
            .fold(Transaction::new(), |many, n| many.put(key(&format!("objects/{n:06}")), vec![7; VALUE]));
        store.transact(many).await.unwrap();
    }
    report("store.memory", "rss_mib", rss_mib() - before, "MiB");
    drop(store);
    let begin = Instant::now();
    let store = embedded::open(&dir).unwrap();
    report("store.open", "seconds", begin.elapsed().as_secs_f64(), "s");
    let begin = Instant::now();
    assert_eq!(store.list(&Prefix::all()).await.unwrap().entries.len(), OBJECTS);
    report("store.list", "seconds", begin.elapsed().as_secs_f64(), "s");
}

fn rss_mib() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: f64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096.0 / f64::from(1 << 20)
}

/// One etcd member with its data beside ours; ends with us, because the shell waits on our end of its input.
struct Member {
    shell: Child,
    client: String,
    _dir: TempDir,
}

impl Member {
    fn start() -> Option<Self> {
        Command::new("etcd").arg("--version").output().ok()?;
        let dir = scratch();
        let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [client, peer] =
            ports.map(|port| format!("http://127.0.0.1:{}", port.local_addr().unwrap().port()));
        let script = r#""$@" >/dev/null 2>&1 & etcd=$!; echo; cat >/dev/null; kill -KILL $etcd"#;
        let mut shell = Command::new("sh")
            .args(["-c", script, "sh", "etcd", "--data-dir"])
            .arg(dir.path().join("etcd"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .arg(format!("--initial-cluster=default={peer}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Some(Self { shell, client, _dir: dir })
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}
