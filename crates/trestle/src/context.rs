//! The client's context: where the controller is and how to prove who calls.
//!
//! `trestle up` writes it, so that every other command just works; flags and environment override it.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use model::Secret;
use serde::{Deserialize, Serialize};

/// What the file holds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextFile {
    /// `https://host:port` of the gRPC listener.
    pub grpc: String,
    /// `https://host:port` of the HTTP listener.
    pub http: String,
    /// PEM file of the CA that the controller's certificate is from; absent for plaintext.
    pub ca: Option<PathBuf>,
    /// File that holds the bearer token.
    pub token_file: Option<PathBuf>,
    /// The namespace commands act in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

impl ContextFile {
    /// `$TRESTLE_CONTEXT`, else `context.json` in the user's configuration directory.
    pub fn path() -> anyhow::Result<PathBuf> {
        if let Some(path) = env::var_os("TRESTLE_CONTEXT") {
            return Ok(path.into());
        }
        Ok(user_dir("XDG_CONFIG_HOME", ".config")?.join("context.json"))
    }

    /// The context of the last `trestle up`, if there was one. Whoever has no home has none: who says it all by flags needs neither.
    pub fn load() -> anyhow::Result<Option<Self>> {
        let Ok(path) = Self::path() else {
            return Ok(None);
        };
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(err) => return Err(err).with_context(|| format!("cannot read {}", path.display())),
        };
        let context =
            serde_json::from_str(&text).with_context(|| format!("cannot understand {}", path.display()))?;
        Ok(Some(context))
    }

    pub fn save(&self) -> anyhow::Result<PathBuf> {
        let path = Self::path()?;
        let failed = || format!("cannot write {}", path.display());
        if let Some(dir) = path.parent() {
            files::create_dir(dir).with_context(failed)?;
        }
        let text = serde_json::to_vec_pretty(self)?;
        files::write(&path, &text).with_context(failed)?;
        Ok(path)
    }
}

/// Where `trestle up` keeps its data unless told otherwise.
pub fn default_data_dir() -> anyhow::Result<PathBuf> {
    user_dir("XDG_DATA_HOME", ".local/share")
}

/// Where `trestle up --demo` keeps its data unless told otherwise: it is emptied at the end.
pub fn demo_data_dir() -> anyhow::Result<PathBuf> {
    Ok(default_data_dir()?.with_file_name("trestle-demo"))
}

fn user_dir(variable: &str, below_home: &str) -> anyhow::Result<PathBuf> {
    if let Some(dir) = env::var_os(variable).filter(|dir| !dir.is_empty()) {
        return Ok(Path::new(&dir).join("trestle"));
    }
    match env::var_os("HOME") {
        Some(home) => Ok(Path::new(&home).join(below_home).join("trestle")),
        None => bail!("neither {variable} nor HOME is set; say where with a flag or set one of them"),
    }
}

/// Reads a token file.
pub fn read_token(path: &Path) -> anyhow::Result<Secret> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read the token in {}", path.display()))?;
    Ok(Secret::new(text.trim()))
}
