//! The servers under test, each a process of its own on a sparse file of its own.

use std::{
    io::{BufRead as _, BufReader},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use storage_backend::Backend as _;
use storage_nbd::{
    Access, Expected, NbdBackend, NbdServer, ServerConfig, Vault, VaultConfig,
    testing::{DirectoryKeys, TestAuthority},
};
use storage_provider::ConsumerId;
use tempfile::TempDir;
use uuid::Uuid;

use crate::client::Client;

/// The size of each volume, and our grant: the limit is in force in every measurement.
const SIZE: u64 = 1 << 30;

#[derive(Clone, Copy)]
pub(crate) enum Peer {
    Nbdkit,
    QemuNbd,
}

pub(crate) struct Server {
    pub(crate) name: &'static str,
    address: SocketAddr,
    /// Where the client's certificates are, with TLS.
    certificates: Option<PathBuf>,
    /// The same of another consumer, if the server has one.
    others: Option<PathBuf>,
    child: Child,
    dir: Option<TempDir>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    pub(crate) fn ours(tls: bool) -> Result<Self> {
        Self::ours_in(tempfile::tempdir()?, tls, false)
    }

    pub(crate) fn ours_encrypted(tls: bool) -> Result<Self> {
        let mut server = Self::ours_in(tempfile::tempdir()?, tls, true)?;
        server.name = "trestle, encrypted";
        Ok(server)
    }

    /// On what is in this directory already.
    pub(crate) fn ours_in(dir: TempDir, tls: bool, encrypted: bool) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--serve").arg(dir.path()).arg(if tls { "tls" } else { "plain" });
        command.arg(if encrypted { "encrypted" } else { "as-it-is" });
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("standard output was piped")?).read_line(&mut line)?;
        let [certificates, others] = ["client", "other"].map(|name| tls.then(|| dir.path().join(name)));
        Ok(Self {
            name: "trestle",
            address: line.trim().parse()?,
            certificates,
            others,
            child,
            dir: Some(dir),
        })
    }

    pub(crate) fn peer(peer: Peer, tls: bool) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("data");
        std::fs::File::create(&file)?.set_len(SIZE)?;
        // The peers take a port, not a socket: one that was free a moment ago.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let pki = dir.path().join("server");
        if tls {
            let authority = TestAuthority::new()?;
            certificates(&authority, &pki, &dir.path().join("client"))?;
        }
        let (name, mut command) = match peer {
            Peer::Nbdkit => ("nbdkit", nbdkit(&file, port, tls.then_some(&pki))),
            Peer::QemuNbd => ("qemu-nbd", qemu_nbd(&file, port, tls.then_some(&pki))),
        };
        let child = command.stdout(Stdio::null()).spawn().with_context(|| format!("starting {name}"))?;
        let certificates = tls.then(|| dir.path().join("client"));
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let others = certificates.clone();
        let server = Self { name, address, certificates, others, child, dir: Some(dir) };
        for _ in 0..100 {
            if TcpStream::connect(address).is_ok() {
                return Ok(server);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("{name} does not listen")
    }

    pub(crate) fn connect(&self) -> Result<Client> {
        Client::connect(self.name, self.address, self.certificates.as_deref())
    }

    /// Killed; what it served is in the directory.
    pub(crate) fn stop(mut self) -> TempDir {
        self.dir.take().expect("it is taken here only")
    }

    /// Another consumer's client; of a peer, another client.
    pub(crate) fn connect_other(&self) -> Result<Client> {
        Client::connect(self.name, self.address, self.others.as_deref())
    }

    /// Processor time so far, for people.
    pub(crate) fn busy(&self) -> Result<String> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let (_, after_name) = stat.rsplit_once(')').context("the process has a name")?;
        // User and system time, in hundredths of a second.
        let ticks: u64 =
            after_name.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum();
        Ok(format!("{:.2} s", ticks as f64 / 100.0))
    }

    /// A number of the process's status, such as `VmRSS:` in KiB.
    pub(crate) fn status(&self, name: &str) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find(|line| line.starts_with(name)).context("the process has a status")?;
        Ok(line.split_whitespace().nth(1).context("the line has a number")?.parse()?)
    }
}

fn nbdkit(file: &Path, port: u16, pki: Option<&PathBuf>) -> Command {
    let mut command = Command::new("nbdkit");
    command.args(["-f", "-i", "127.0.0.1", "-p", &port.to_string()]);
    if let Some(pki) = pki {
        command
            .args(["--tls=require", "--tls-verify-peer"])
            .arg(format!("--tls-certificates={}", pki.display()));
    }
    command.arg("file").arg(file);
    command
}

fn qemu_nbd(file: &Path, port: u16, pki: Option<&PathBuf>) -> Command {
    let mut command = Command::new("qemu-nbd");
    command.args(["-f", "raw", "-t", "-e", "1024", "-b", "127.0.0.1", "-x", "data", "-p", &port.to_string()]);
    if let Some(pki) = pki {
        let creds = format!("tls-creds-x509,id=t,endpoint=server,verify-peer=on,dir={}", pki.display());
        command.args(["--object", &creds, "--tls-creds", "t"]);
    }
    command.arg(file);
    command
}

fn certificates(authority: &TestAuthority, server: &Path, client: &Path) -> Result<()> {
    let shown = authority.server()?;
    let held = authority.client(&["spiffe://trestle/consumer/peer"])?;
    std::fs::create_dir_all(server)?;
    std::fs::write(server.join("ca-cert.pem"), authority.certificate())?;
    std::fs::write(server.join("server-cert.pem"), shown.certificate_chain)?;
    std::fs::write(server.join("server-key.pem"), shown.key)?;
    write_client(client, authority.certificate(), &held.certificate, &held.key)
}

pub(crate) fn write_client(dir: &Path, authority: &str, certificate: &str, key: &str) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    std::fs::write(dir.join("ca-cert.pem"), authority)?;
    std::fs::write(dir.join("client-cert.pem"), certificate)?;
    Ok(std::fs::write(dir.join("client-key.pem"), key)?)
}

/// A vault in a directory, with its keys beside it.
pub(crate) fn open(dir: &Path) -> Result<Vault> {
    let config = VaultConfig { root: dir.join("vault"), reserve: 0 };
    let keys = Arc::new(DirectoryKeys(dir.join("keys")));
    Ok(Vault::open_with(config, &Expected::default(), keys)?)
}

/// Our server, in the child process: two consumers, their limits in force. Prints where it listens.
pub(crate) fn serve(dir: &str, tls: bool, encrypted: bool) -> Result<()> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let dir = Path::new(dir);
        let [consumer, other] = [1, 2].map(|n| ConsumerId::new(Uuid::from_u128(n)));
        let vault = Arc::new(open(dir)?);
        let authority = Arc::new(TestAuthority::new()?);
        let access = if tls { Access::Tls(authority.server()?) } else { Access::PlainLoopback(consumer) };
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let config = ServerConfig { listen, access, max_connections: 4096, max_sessions: 4096 };
        let server = NbdServer::bind(Arc::clone(&vault), config).await?;
        let address = server.local_addr()?;
        let backend = NbdBackend::at(vault, authority, address);
        for (consumer, name) in [(consumer, "client"), (other, "other")] {
            backend.ensure_storage(consumer, SIZE, encrypted).await?;
            backend.set_quota(consumer, SIZE).await?;
            backend.ensure_credentials(consumer).await?;
            let details = backend.connection_details(consumer).await?;
            let secret = details.iter().find(|item| item.name == "nbd-client");
            let secret = &secret.context("details hold a secret")?.data;
            write_client(&dir.join(name), &secret["ca"], &secret["cert"], &secret["key"])?;
        }
        println!("{address}");
        server.run(tokio_util::sync::CancellationToken::new()).await;
        Ok(())
    })
}
