//! A vault, a server and an authority, and how to call the clients.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Output, Stdio},
    sync::{Arc, Once, mpsc},
    time::Duration,
};

use storage_backend::Backend as _;
use storage_nbd::{
    Access, Expected, IssuedIdentity, NbdBackend, NbdServer, ServerConfig, Vault, VaultConfig,
    testing::{DirectoryKeys, TestAuthority},
};
use storage_provider::{ConsumerId, VolumeStep};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub(crate) const MIB: u64 = 1 << 20;

pub(crate) struct World {
    pub(crate) backend: Arc<NbdBackend>,
    pub(crate) authority: Arc<TestAuthority>,
    pub(crate) address: SocketAddr,
    pub(crate) dir: TempDir,
    stop: CancellationToken,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(crate) fn id(n: u128) -> ConsumerId {
    ConsumerId::new(Uuid::from_u128(n))
}

/// What makes a volume.
pub(crate) fn create(name: &str, size: u64) -> VolumeStep {
    VolumeStep::Create { name: name.to_owned(), size, encrypted: false }
}

/// Many connections need many descriptors.
fn raise_descriptor_limit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        limit.current = limit.maximum;
        let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
    });
}

/// A server with TLS on its own directory.
pub(crate) async fn world() -> World {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("vault");
    start(dir, &root, None).await
}

/// A server without TLS, for clients that speak the protocol by hand.
pub(crate) async fn plain_world(consumer: ConsumerId) -> World {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("vault");
    start(dir, &root, Some(consumer)).await
}

pub(crate) async fn start(dir: TempDir, root: &Path, plain: Option<ConsumerId>) -> World {
    raise_descriptor_limit();
    let config = VaultConfig { root: root.to_owned(), reserve: 0 };
    let keys = Arc::new(DirectoryKeys(dir.path().join("keys")));
    let vault = Arc::new(Vault::open_with(config, &Expected::default(), keys).unwrap());
    let authority = Arc::new(TestAuthority::new().unwrap());
    let access = match plain {
        Some(consumer) => Access::PlainLoopback(consumer),
        None => Access::Tls(authority.server().unwrap()),
    };
    let config = ServerConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        access,
        max_connections: 4096,
        max_sessions: 2048,
    };
    let server = NbdServer::bind(Arc::clone(&vault), config).await.unwrap();
    let address = server.local_addr().unwrap();
    let backend = Arc::new(NbdBackend::at(vault, Arc::clone(&authority) as _, address));
    let stop = CancellationToken::new();
    tokio::spawn(server.run(stop.clone()));
    World { backend, authority, address, dir, stop }
}

impl World {
    /// Ends all of it; what it leaves is in the directory, and nobody holds it when this returns.
    pub(crate) async fn stop(mut self, root: &Path) -> TempDir {
        let dir = std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap());
        drop(self);
        let lock = std::fs::File::open(root.join("lock")).unwrap();
        for _ in 0..400 {
            if lock.try_lock().is_ok() {
                return dir;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the vault is still in use");
    }

    /// A consumer with a volume `data` of its grant's size.
    pub(crate) async fn consumer(&self, n: u128, bytes: u64) -> ConsumerId {
        self.consumer_whose_data_is(n, bytes, false).await
    }

    /// The same, encrypted or not.
    pub(crate) async fn consumer_whose_data_is(&self, n: u128, bytes: u64, encrypted: bool) -> ConsumerId {
        self.backend.ensure_storage(id(n), bytes, encrypted).await.unwrap();
        self.backend.set_quota(id(n), bytes).await.unwrap();
        self.backend.ensure_credentials(id(n)).await.unwrap();
        id(n)
    }

    /// The certificates of a consumer as the directory that every NBD client takes.
    pub(crate) async fn certificates(&self, consumer: ConsumerId) -> PathBuf {
        let details = self.backend.connection_details(consumer).await.unwrap();
        let secret = &details.iter().find(|item| item.name == "nbd-client").unwrap().data;
        write_certificates(
            self.dir.path(),
            &consumer.to_string(),
            &secret["ca"],
            &secret["cert"],
            &secret["key"],
        )
    }

    pub(crate) fn identity_dir(&self, name: &str, identity: &IssuedIdentity) -> PathBuf {
        let server = self.authority.certificate();
        write_certificates(self.dir.path(), name, server, &identity.certificate, &identity.key)
    }

    pub(crate) fn uri(&self, certificates: &Path, export: &str) -> String {
        format!("nbds://{}/{export}?tls-certificates={}", self.address, certificates.display())
    }

    /// qemu's tools with TLS: arguments that name the device.
    pub(crate) fn qemu(&self, certificates: &Path, export: &str) -> Vec<String> {
        let (host, port) = (self.address.ip(), self.address.port());
        let creds = format!("tls-creds-x509,id=t,endpoint=client,dir={}", certificates.display());
        let image = format!(
            "driver=nbd,server.type=inet,server.host={host},server.port={port},export={export},tls-creds=t"
        );
        ["--object", &creds, "--image-opts", &image].map(str::to_owned).to_vec()
    }

    pub(crate) async fn used(&self, consumer: ConsumerId) -> u64 {
        self.backend.usage(consumer).await.unwrap().used
    }
}

pub(crate) fn write_certificates(
    dir: &Path,
    name: &str,
    authority: &str,
    certificate: &str,
    key: &str,
) -> PathBuf {
    let dir = dir.join(format!("certificates-{name}"));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("ca-cert.pem"), authority).unwrap();
    std::fs::write(dir.join("client-cert.pem"), certificate).unwrap();
    std::fs::write(dir.join("client-key.pem"), key).unwrap();
    dir
}

/// Runs a client and returns what it said. The server lives in this process, so this must not block its threads.
pub(crate) async fn run(program: &str, args: &[impl AsRef<str>]) -> Output {
    let mut command = Command::new("timeout");
    command.arg("60").arg(program).args(args.iter().map(|arg| arg.as_ref().to_owned()));
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    output.unwrap_or_else(|error| {
        panic!("running {program}: {error}; scripts/test-deps.d/storage lists the packages")
    })
}

/// Runs a client that must succeed; its standard output.
pub(crate) async fn must(program: &str, args: &[impl AsRef<str>]) -> String {
    let output = run(program, args).await;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} failed: {out}{err}");
    out.into_owned()
}

/// Runs a client that must fail; what it complained about.
pub(crate) async fn must_not(program: &str, args: &[impl AsRef<str>]) -> String {
    let output = run(program, args).await;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!output.status.success(), "{program} must fail: {out}{err}");
    assert_ne!(output.status.code(), Some(124), "{program} hung: {out}{err}");
    format!("{out}{err}")
}

/// A qemu-io that stays connected.
pub(crate) struct OpenClient {
    child: Child,
    input: ChildStdin,
    said: mpsc::Receiver<String>,
}

impl OpenClient {
    pub(crate) fn start(device: &[String]) -> Self {
        let mut child = Command::new("qemu-io")
            .args(device)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (tx, said) = mpsc::channel();
        let streams: [Box<dyn std::io::Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for stream in streams {
            let tx = tx.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let _ = tx.send(line);
                }
            });
        }
        Self { input: child.stdin.take().unwrap(), child, said }
    }

    /// Sends a command and waits for the line that tells its outcome.
    pub(crate) async fn ask(&mut self, command: &str) -> String {
        writeln!(self.input, "{command}").unwrap();
        tokio::task::block_in_place(|| {
            loop {
                let line = self
                    .said
                    .recv_timeout(Duration::from_secs(20))
                    .unwrap_or_else(|_| panic!("no answer to {command}"));
                if ["failed", "wrote", "read ", "discard "].iter().any(|word| line.contains(word)) {
                    return line;
                }
            }
        })
    }
}

impl Drop for OpenClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes that look random and are the same each time.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
