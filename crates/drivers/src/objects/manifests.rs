//! Kubernetes-style YAML or JSON, taken apart into documents; whoever brings it. Pure.
//!
//! In: a text. Out: its documents in order, each with where it stood; lists are taken apart, empty documents skipped. Not
//! here: whether a document is one we take ([`super::Document`]).

use serde_json::Value;
use thiserror::Error;

/// What all aliases of a text may stand for together: nodes of YAML, and twice that for their ends.
const MAX_REPLAYED: usize = 50_000;

/// A document, and where it stood: `document 2, item 1`.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    pub place: String,
    pub document: Value,
}

/// Why a text could not be taken apart.
#[derive(Debug, Error)]
pub enum ManifestError {
    #[error("it is not valid YAML")]
    Yaml(#[source] serde_saphyr::Error),
    #[error("{place} is a list without items: look at how `items` is written")]
    NoItems { place: String },
}

/// Takes a text apart.
pub fn read(text: &str) -> Result<Vec<Manifest>, ManifestError> {
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
    let documents: Vec<Value> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(ManifestError::Yaml)?;
    let mut manifests = Vec::new();
    for (index, document) in documents.into_iter().enumerate() {
        let place = format!("document {}", index + 1);
        match document {
            Value::Null => {}
            Value::Object(mut fields) if fields.get("kind").and_then(Value::as_str).is_some_and(is_list) => {
                let items = match fields.remove("items") {
                    Some(Value::Array(items)) => items,
                    Some(Value::Null) => Vec::new(),
                    _ => return Err(ManifestError::NoItems { place }),
                };
                let items = items.into_iter().enumerate();
                manifests.extend(items.map(|(item, document)| Manifest {
                    place: format!("{place}, item {}", item + 1),
                    document,
                }));
            }
            document => manifests.push(Manifest { place, document }),
        }
    }
    Ok(manifests)
}

fn is_list(kind: &str) -> bool {
    kind.ends_with("List")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_and_lists_are_taken_apart_and_keep_their_place() {
        let text = "---\nkind: Pod\n---\n# nothing\n---\nkind: List\nitems:\n- kind: Pod\n- kind: Tier\n";
        let manifests = read(text).unwrap();
        let kinds: Vec<_> = manifests.iter().map(|m| m.document["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["Pod", "Pod", "Tier"]);
        assert!(manifests[2].place.starts_with("document ") && manifests[2].place.ends_with("item 2"));
        assert_eq!(read(r#"{"kind": "Pod"}"#).unwrap()[0].document["kind"], "Pod");
        assert_eq!(read("").unwrap(), []);
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
            assert!(read(&bomb).is_err());
            // Nothing near the seconds that writing them out takes, on any machine.
            assert!(started.elapsed() < std::time::Duration::from_secs(2), "{:?}", started.elapsed());
        }
        assert!(read(&long).is_ok());
        let used = "a: &a {app: web}\nb: *a\nc: [*a, *a]\n";
        assert_eq!(read(used).unwrap()[0].document["c"][1]["app"], "web");
    }

    #[test]
    fn what_would_be_lost_silently_is_refused() {
        for (text, part) in [
            ("kind: Pod\nmetadata: {name: a, name: b}\n", "name"),
            (r#"{"kind": "Pod", "spec": {"nodeName": "a", "nodeName": "b"}}"#, "nodeName"),
            ("kind: List\nitmes:\n- kind: Pod\n", "items"),
        ] {
            let Err(error) = read(text) else { panic!("accepted: {text}") };
            let told = common::chain(&error);
            assert!(told.contains(part), "{told}");
        }
    }

    #[test]
    fn broken_yaml_is_named_with_its_line() {
        let Err(error) = read("a: [1\nb: 2\n") else { panic!("accepted") };
        assert!(common::chain(&error).contains("line"), "{error:?}");
    }
}
