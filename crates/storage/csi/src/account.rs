//! Who the driver is to the storage: the directory that `trestle consumer onboard` writes.
//!
//! In: the directory, and where the controller is. Out: calls with the consumer's certificate, and where volumes are opened. What is
//! renewed in the directory is used from the next call on. Not here: writing it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::Value;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use wire::trestle::v1::storage_client::StorageClient;

use crate::plan::mark;

const CONNECT: Duration = Duration::from_secs(5);
/// A copy of a large volume takes its time where the file system does not share blocks.
const ANSWER: Duration = Duration::from_secs(120);

pub(crate) const CA: &str = "ca-cert.pem";
pub(crate) const CERTIFICATE: &str = "client-cert.pem";
pub(crate) const KEY: &str = "client-key.pem";

#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    #[error("cannot read {path}: `trestle consumer onboard --out` writes it")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "{path} does not say where volumes are opened: is this storage on Ceph? Ceph's own driver is for it (docs/csi.md)"
    )]
    NoServer { path: PathBuf },
    #[error(
        "{server:?} is not a URL like https://storage.example.org:8081, or its certificates cannot be used"
    )]
    Server {
        server: String,
        #[source]
        source: tonic::transport::Error,
    },
}

/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct Account(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    server: String,
    mark: String,
    channel: Mutex<Option<(Vec<u8>, Channel)>>,
}

impl Account {
    /// `server` is the URL of the controller's gRPC listener.
    pub fn open(dir: &Path, server: &str) -> Result<Self, AccountError> {
        // Another kind of storage is told first: its credentials are others, too.
        server_of(dir)?;
        let consumer = String::from_utf8_lossy(&read(dir, "consumer-id")?).trim().to_owned();
        let inner = Inner {
            dir: dir.to_owned(),
            server: server.to_owned(),
            mark: mark(&consumer),
            channel: Mutex::default(),
        };
        let account = Self(Arc::new(inner));
        account.storage()?;
        Ok(account)
    }

    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    pub(crate) fn server(&self) -> &str {
        &self.0.server
    }

    /// What stands for the consumer where others see it.
    pub fn mark(&self) -> &str {
        &self.0.mark
    }

    /// The controller, as the consumer. It need not be there yet.
    pub(crate) fn storage(&self) -> Result<StorageClient<Channel>, AccountError> {
        let (ca, certificate, key) =
            (read(&self.0.dir, CA)?, read(&self.0.dir, CERTIFICATE)?, read(&self.0.dir, KEY)?);
        let shown = [ca.as_slice(), &certificate, &key].concat();
        let mut channel = self.0.channel.lock();
        if let Some((with, channel)) = channel.as_ref().filter(|(with, _)| *with == shown) {
            debug_assert_eq!(with.len(), shown.len());
            return Ok(StorageClient::new(channel.clone()));
        }
        let failed = |source| AccountError::Server { server: self.0.server.clone(), source };
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(ca))
            .identity(Identity::from_pem(certificate, key));
        let endpoint = Endpoint::from_shared(self.0.server.clone()).and_then(|it| it.tls_config(tls));
        let endpoint = endpoint.map_err(failed)?.connect_timeout(CONNECT).timeout(ANSWER).tcp_nodelay(true);
        let fresh = endpoint
            .http2_keep_alive_interval(Duration::from_secs(20))
            .keep_alive_timeout(Duration::from_secs(10))
            .connect_lazy();
        *channel = Some((shown, fresh.clone()));
        Ok(StorageClient::new(fresh))
    }
}

/// Host and port of the server on which volumes are opened, as the directory says.
pub(crate) fn server_of(dir: &Path) -> Result<(String, u16), AccountError> {
    let items: Value = serde_json::from_slice(&read(dir, "connection.json")?).unwrap_or_default();
    let item = items.as_array().and_then(|items| items.iter().find(|item| item["kind"] == "NBDServer"));
    let data = item.map(|item| &item["data"]);
    let host = data.and_then(|data| data["address"].as_str());
    let port = data.and_then(|data| data["port"].as_str()).and_then(|port| port.parse().ok());
    host.map(str::to_owned)
        .zip(port)
        .ok_or_else(|| AccountError::NoServer { path: dir.join("connection.json") })
}

pub(crate) fn read(dir: &Path, name: &str) -> Result<Vec<u8>, AccountError> {
    let path = dir.join(name);
    fs::read(&path).map_err(|source| AccountError::Read { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_without_a_server_is_another_kind_of_storage() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Account::open(dir.path(), "https://127.0.0.1:1");
        assert!(matches!(open(), Err(AccountError::Read { .. })));
        let ceph = r#"[{"name":"ceph-rbd","kind":"StorageClass","data":{"pool":"p"}}]"#;
        for text in
            [ceph, "[]", "nonsense", r#"[{"kind":"NBDServer","data":{"address":"h","port":"99999"}}]"#]
        {
            fs::write(dir.path().join("connection.json"), text).unwrap();
            assert!(matches!(open(), Err(AccountError::NoServer { .. })), "{text}");
        }
        let nbd = r#"[{"kind":"NBDServer","data":{"address":"h","port":"10809"}}]"#;
        fs::write(dir.path().join("connection.json"), nbd).unwrap();
        assert_eq!(server_of(dir.path()).unwrap(), ("h".to_owned(), 10809));
        assert!(matches!(open(), Err(AccountError::Read { .. })), "no credentials");
    }
}
