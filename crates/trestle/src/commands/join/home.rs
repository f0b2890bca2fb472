//! What a host keeps of its joining.
//!
//! ```text
//!   DIR/host.key      0600, made before anything else; never leaves the host. The agent has its successor beside it (host.key.next)
//!   DIR/host.ca.pem   whom it trusts
//!   DIR/host.pem      its certificate, which the agent renews
//!   DIR/agent.yaml    how the agent runs; keys that others have added stay
//! ```

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use agent::{
    Uplink,
    join::{HostKey, Joined, pinned::fingerprint},
};
use anyhow::{Context as _, bail};
use model::Fingerprint;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::{Map, Value, json};

/// The first words of a configuration that is ours to change and to remove.
const MARK: &str = "# Written by `trestle join`";

pub struct Home {
    dir: PathBuf,
    /// What is in the configuration, if it is ours.
    config: Option<Map<String, Value>>,
}

impl Home {
    /// A directory to join in. A configuration that somebody else wrote is not touched.
    pub fn new(dir: &Path) -> anyhow::Result<Self> {
        let home = Self::at(dir);
        if home.config.is_none() && home.config_path().exists() {
            bail!(
                "{} is there and was not written by `trestle join`: move it away, or give another directory with --etc",
                home.config_path().display()
            );
        }
        // Whoever else writes there is who this host says it is.
        let made = match files::guarded_dir(dir) {
            Err(err)
                if err.kind() == io::ErrorKind::PermissionDenied && !rustix::process::geteuid().is_root() =>
            {
                Err(err).with_context(|| format!("cannot write to {}: joining needs root", dir.display()))
            }
            done => done.with_context(|| format!("cannot use {}", dir.display())),
        };
        made.map(|()| home)
    }

    /// What is there.
    pub fn at(dir: &Path) -> Self {
        let text = fs::read_to_string(dir.join("agent.yaml")).unwrap_or_default();
        let config = text.starts_with(MARK).then(|| serde_saphyr::from_str(&text).unwrap_or_default());
        Self { dir: dir.to_owned(), config }
    }

    pub fn config_path(&self) -> PathBuf {
        self.dir.join("agent.yaml")
    }

    pub fn key_path(&self) -> PathBuf {
        self.dir.join("host.key")
    }

    fn certificate_path(&self) -> PathBuf {
        self.dir.join("host.pem")
    }

    fn ca_path(&self) -> PathBuf {
        self.dir.join("host.ca.pem")
    }

    fn text(&self, key: &str) -> Option<String> {
        Some(self.config.as_ref()?.get(key)?.as_str()?.to_owned())
    }

    /// The name of the host that this machine is.
    pub fn joined_as(&self) -> Option<String> {
        self.text("node")
    }

    pub fn socket(&self) -> Option<PathBuf> {
        self.text("socket").map(PathBuf::from)
    }

    pub fn data_dir(&self) -> Option<PathBuf> {
        self.text("data_dir").map(PathBuf::from)
    }

    /// The fingerprint of the CA that this host trusts, if it has joined.
    pub fn ca(&self) -> anyhow::Result<Option<Fingerprint>> {
        let path = self.ca_path();
        let pem = match fs::read(&path) {
            Ok(pem) => pem,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(err) => return Err(err).with_context(|| format!("cannot read {}", path.display())),
        };
        let der = CertificateDer::from_pem_slice(&pem);
        let der = der.map_err(|err| {
            anyhow::anyhow!(
                "{} holds no certificate: {err}; `trestle leave --local` removes it",
                path.display()
            )
        })?;
        Ok(Some(fingerprint(&der)))
    }

    /// How the agent of this host reaches its controllers; none if it has not joined.
    pub fn uplink(&self) -> Option<Uplink> {
        let servers = self.config.as_ref()?.get("servers")?.as_array()?.iter();
        Some(Uplink {
            node: self.joined_as()?,
            servers: servers.filter_map(|server| Some(server.as_str()?.to_owned())).collect(),
            ca: Some(self.ca_path()),
            identity: Some((self.certificate_path(), self.key_path())),
        })
    }

    /// Keeps what a join came to. The configuration last: with it the host has joined.
    pub fn keep(
        &self,
        joined: &Joined,
        ca_pem: &str,
        server: &str,
        data_dir: &Path,
        socket: &Path,
    ) -> anyhow::Result<()> {
        let mut config = self.config.clone().unwrap_or_default();
        let mut servers: Vec<Value> =
            config.get("servers").and_then(Value::as_array).cloned().unwrap_or_default();
        if !servers.contains(&json!(server)) {
            servers.insert(0, json!(server));
        }
        for (key, value) in [
            ("node", json!(joined.host.name)),
            ("servers", Value::Array(servers)),
            ("ca", json!(self.ca_path())),
            ("cert", json!(self.certificate_path())),
            ("key", json!(self.key_path())),
            ("joined", json!(true)),
            ("data_dir", json!(data_dir)),
            ("socket", json!(socket)),
        ] {
            config.insert(key.to_owned(), value);
        }
        let text = format!(
            "{MARK} on {}; further keys may be added.\n{}",
            super::today(),
            serde_saphyr::to_string(&config)?
        );
        for (path, text) in [
            (self.ca_path(), ca_pem),
            (self.certificate_path(), joined.certificate_pem.as_str()),
            (self.config_path(), text.as_str()),
        ] {
            files::write(&path, text.as_bytes())
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// Removes all of it; whether there was any.
    pub fn remove(&self) -> anyhow::Result<bool> {
        let next = HostKey::next_path(&self.key_path());
        let mut paths = vec![self.key_path(), next, self.certificate_path(), self.ca_path()];
        if self.config.is_some() {
            paths.push(self.config_path());
        }
        let mut any = false;
        for path in paths {
            match fs::remove_file(&path) {
                Ok(()) => any = true,
                Err(err) if err.kind() == io::ErrorKind::NotFound => {}
                Err(err) => return Err(err).with_context(|| format!("cannot remove {}", path.display())),
            }
        }
        // Others may keep something there.
        let _ = fs::remove_dir(&self.dir);
        Ok(any)
    }
}
