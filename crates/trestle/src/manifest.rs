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

/// What all aliases of a text may stand for together: nodes of YAML, and twice that for their ends.
const MAX_REPLAYED: usize = 50_000;

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

/// Takes in every document of a text; lists are taken apart, empty documents skipped.
fn parse(origin: &str, text: &str, manifests: &mut Vec<Manifest>) -> anyhow::Result<()> {
    // A cluster's export is one document per object, and many of them. What is written out is as long as the text says;
    // what aliases stand for must not be much more: a few lines of them can stand for millions.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_documents: 10_000_000,
            max_nodes: 100_000_000,
            max_events: 400_000_000,
            max_total_scalar_bytes: 4 << 30,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_REPLAYED,
        },
    };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
        .with_context(|| format!("{origin} is not valid YAML"))?;
    for (index, document) in documents.into_iter().enumerate() {
        let origin = format!("{origin}, document {}", index + 1);
        match document {
            Value::Null => {}
            Value::Object(mut fields) if fields.get("kind").and_then(Value::as_str).is_some_and(is_list) => {
                let items = match fields.remove("items") {
                    Some(Value::Array(items)) => items,
                    Some(Value::Null) => Vec::new(),
                    _ => bail!("{origin} is a list without items: look at how `items` is written"),
                };
                for (item, document) in items.into_iter().enumerate() {
                    manifests.push(Manifest { origin: format!("{origin}, item {}", item + 1), document });
                }
            }
            document => manifests.push(Manifest { origin, document }),
        }
    }
    Ok(())
}

fn is_list(kind: &str) -> bool {
    kind.ends_with("List")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> anyhow::Result<Vec<Manifest>> {
        let mut manifests = Vec::new();
        parse("x.yaml", text, &mut manifests)?;
        Ok(manifests)
    }

    #[test]
    fn documents_and_lists_are_taken_apart_and_keep_their_origin() {
        let text = "---\nkind: Pod\n---\n# nothing\n---\nkind: List\nitems:\n- kind: Pod\n- kind: Tier\n";
        let manifests = read_text(text).unwrap();
        let kinds: Vec<_> = manifests.iter().map(|m| m.document["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["Pod", "Pod", "Tier"]);
        assert!(
            manifests[2].origin.starts_with("x.yaml, document ") && manifests[2].origin.ends_with("item 2")
        );
    }

    /// Ten lines that stand for ten to the tenth, in three shapes.
    #[test]
    fn aliases_that_stand_for_too_much_are_refused_before_they_are_written_out() {
        let nested = |open: char, close: char, item: fn(usize) -> String| {
            (1..10).fold(format!("a0: &a0 {open}{}{close}\n", item(0)), |text, level| {
                let items = (0..10).map(|n| match open {
                    '{' => format!("k{n}: *a{}", level - 1),
                    _ => format!("*a{}", level - 1),
                });
                let items = items.collect::<Vec<_>>().join(", ");
                format!("{text}a{level}: &a{level} {open}{items}{close}\n")
            })
        };
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), vec!["*a"; 90].join(", "));
        for bomb in [nested('[', ']', |_| "x, x, x".into()), nested('{', '}', |_| "x: y".into())] {
            let started = std::time::Instant::now();
            assert!(read_text(&bomb).is_err());
            // Nothing near the seconds that writing them out takes, on any machine.
            assert!(started.elapsed() < std::time::Duration::from_secs(2), "{:?}", started.elapsed());
        }
        assert!(read_text(&long).is_ok());
        let used = "a: &a {app: web}\nb: *a\nc: [*a, *a]\n";
        assert_eq!(read_text(used).unwrap()[0].document["c"][1]["app"], "web");
    }

    #[test]
    fn what_would_be_lost_silently_is_refused() {
        for (text, part) in [
            ("kind: Pod\nmetadata: {name: a, name: b}\n", "name"),
            (r#"{"kind": "Pod", "spec": {"nodeName": "a", "nodeName": "b"}}"#, "nodeName"),
            ("kind: List\nitmes:\n- kind: Pod\n", "items"),
        ] {
            let Err(error) = read_text(text) else { panic!("accepted: {text}") };
            assert!(format!("{error:#}").contains(part), "{error:#}");
        }
    }

    #[test]
    fn broken_yaml_is_named_with_its_line() {
        let Err(error) = read_text("a: [1\nb: 2\n") else { panic!("accepted") };
        assert!(format!("{error:#}").contains("line"), "{error:#}");
    }
}
