//! Kubernetes-style YAML from files, directories and standard input.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use model::policy::{Kind, TypeMeta};
use serde::Deserialize as _;
use serde_json::Value;

/// One document and where it came from.
pub struct Manifest {
    pub origin: String,
    pub document: Value,
}

impl Manifest {
    /// The kind here, the namespace and the name, as far as the document has them.
    pub fn identity(&self) -> anyhow::Result<(Kind, String, String)> {
        let types = TypeMeta::deserialize(&self.document).unwrap_or_default();
        let kind = types.kind().with_context(|| self.origin.clone())?;
        let field = |name: &str| self.document["metadata"][name].as_str().unwrap_or_default().to_owned();
        let namespace = match field("namespace") {
            namespace if kind.is_namespaced() && namespace.is_empty() => "default".to_owned(),
            namespace if kind.is_namespaced() => namespace,
            _ => String::new(),
        };
        Ok((kind, namespace, field("name")))
    }

    pub fn is_known(&self) -> bool {
        TypeMeta::deserialize(&self.document).is_ok_and(|types| types.kind().is_ok())
    }
}

const STDIN: &str = "standard input";

/// Reads all documents, in order; `-` is standard input, a directory stands for the YAML and JSON files below it. That may
/// take long, so it is done where the sign of life is not held up.
pub async fn read(paths: Vec<PathBuf>) -> anyhow::Result<Vec<Manifest>> {
    tokio::task::spawn_blocking(move || read_now(&paths)).await?
}

fn read_now(paths: &[PathBuf]) -> anyhow::Result<Vec<Manifest>> {
    let mut manifests = Vec::new();
    for path in paths {
        if path == Path::new("-") {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
            parse(STDIN, &text, &mut manifests)?;
            continue;
        }
        for file in files(path)? {
            let text =
                fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            parse(&file.display().to_string(), &text, &mut manifests)?;
        }
    }
    if manifests.is_empty() {
        let name = |path: &PathBuf| match path == Path::new("-") {
            true => STDIN.to_owned(),
            false => path.display().to_string(),
        };
        bail!("there is no document in {}", paths.iter().map(name).collect::<Vec<_>>().join(", "));
    }
    Ok(manifests)
}

fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let failed = || format!("cannot read {}", path.display());
    if !fs::metadata(path).with_context(failed)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    let mut entries =
        fs::read_dir(path).with_context(failed)?.collect::<Result<Vec<_>, _>>().with_context(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let is_manifest =
            path.extension().is_some_and(|ext| ["yaml", "yml", "json"].iter().any(|e| ext == *e));
        if path.is_dir() {
            found.extend(files(&path)?);
        } else if is_manifest {
            found.push(path);
        }
    }
    Ok(found)
}

/// Takes in every document of a text.
fn parse(origin: &str, text: &str, manifests: &mut Vec<Manifest>) -> anyhow::Result<()> {
    let found = server::manifests::read(text).with_context(|| format!("cannot read {origin}"))?;
    manifests.extend(
        found
            .into_iter()
            .map(|one| Manifest { origin: format!("{origin}, {}", one.place), document: one.document }),
    );
    Ok(())
}
