//! Kubernetes-style YAML from files, directories and standard input.
//!
//! Files may be large: they are read document by document, and of each is kept what is sent, which is shorter.

use std::{
    fs,
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, bail};
use model::policy::{Kind, TypeMeta};
use serde::Deserialize;
use server::manifests::Place;

/// One document and where it came from.
pub struct Manifest {
    file: Arc<str>,
    place: Place,
    /// As JSON.
    pub document: Box<[u8]>,
}

/// What a document says of which it is.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Head {
    api_version: String,
    kind: String,
    metadata: Option<Names>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Names {
    namespace: Option<String>,
    name: Option<String>,
}

impl Manifest {
    /// The kind here, the namespace and the name, as far as the document has them.
    pub fn identity(&self) -> anyhow::Result<(Kind, String, String)> {
        let (types, names) = self.head();
        let kind = types.kind().with_context(|| self.origin())?;
        let namespace = match names.namespace.unwrap_or_default() {
            namespace if kind.is_namespaced() && namespace.is_empty() => "default".to_owned(),
            namespace if kind.is_namespaced() => namespace,
            _ => String::new(),
        };
        Ok((kind, namespace, names.name.unwrap_or_default()))
    }

    /// What cannot be read here is for the controller to refuse, with the reason.
    fn head(&self) -> (TypeMeta, Names) {
        match serde_json::from_slice(&self.document) {
            Ok(Head { api_version, kind, metadata }) => {
                (TypeMeta { api_version, kind }, metadata.unwrap_or_default())
            }
            Err(_) => (serde_json::from_slice(&self.document).unwrap_or_default(), Names::default()),
        }
    }

    pub fn is_known(&self) -> bool {
        self.head().0.kind().is_ok()
    }

    /// `policies.yaml, document 2`.
    pub fn origin(&self) -> String {
        format!("{}, {}", self.file, self.place)
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
            parse(STDIN, io::stdin().lock(), &mut manifests)?;
            continue;
        }
        for file in files(path)? {
            let name = file.display().to_string();
            let opened = fs::File::open(&file).with_context(|| format!("cannot read {name}"))?;
            parse(&name, opened, &mut manifests)?;
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

/// Takes in every document of a file.
fn parse(name: &str, file: impl Read, manifests: &mut Vec<Manifest>) -> anyhow::Result<()> {
    let name: Arc<str> = name.into();
    let take = |place, document: Vec<u8>| {
        manifests.push(Manifest { file: Arc::clone(&name), place, document: document.into() });
    };
    server::manifests::each(BufReader::new(file), take).with_context(|| format!("cannot read {name}"))
}
