//! Kubernetes-style YAML or JSON, taken apart into documents; whoever brings it. Pure.
//!
//! In: a text. Out: its documents in order, each as JSON, with where it stood; lists are taken apart, empty documents skipped.
//! Not here: whether a document is one we take ([`super::Document`]).

use std::{fmt, io::Read};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::{Map, Value};
use thiserror::Error;

/// What all aliases of a document may stand for together: nodes of YAML, and twice that for their ends.
const MAX_REPLAYED: usize = 50_000;

/// Where a document stood: `document 2, item 1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// From 1; empty ones count not.
    pub document: usize,
    /// In a list, from 1.
    pub item: Option<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "document {}", self.document)?;
        self.item.map_or(Ok(()), |item| write!(f, ", item {item}"))
    }
}

/// Why a text could not be taken apart.
#[derive(Debug, Error)]
pub enum ManifestError {
    #[error("it is not valid YAML")]
    Yaml(#[source] serde_saphyr::Error),
    #[error("it cannot be written as JSON")]
    Json(#[source] serde_json::Error),
    #[error("{place} is a list without items: look at how `items` is written")]
    NoItems { place: Place },
}

/// Takes apart a text that anybody may have sent: what its aliases stand for is limited in all.
pub fn read(text: &str) -> Result<Vec<(Place, Vec<u8>)>, ManifestError> {
    let mut found = Vec::new();
    let documents: Vec<Written> =
        serde_saphyr::from_multiple_with_options(text, options()).map_err(ManifestError::Yaml)?;
    for (number, document) in (1..).zip(documents) {
        document.apart(number, &mut |place, json| found.push((place, json)))?;
    }
    Ok(found)
}

/// Takes apart what is read, one document after the other: of all there is, no more than one is in memory that is not handed over
/// yet, and of a list one item. What the aliases of one document stand for is limited.
pub fn each(mut reader: impl Read, mut take: impl FnMut(Place, Vec<u8>)) -> Result<(), ManifestError> {
    let documents = serde_saphyr::read_with_options::<_, Written>(&mut reader, options());
    for (number, document) in (1..).zip(documents) {
        document.map_err(ManifestError::Yaml)?.apart(number, &mut take)?;
    }
    Ok(())
}

fn options() -> serde_saphyr::Options {
    // A cluster's export is one document per object, and many of them. What is written out is as long as the text says;
    // what aliases stand for must not be much more: a few lines of them can stand for millions.
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_documents: 10_000_000,
            max_nodes: 100_000_000,
            max_events: 400_000_000,
            max_total_scalar_bytes: 4 << 30,
            max_reader_input_bytes: None,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_REPLAYED,
        },
    }
}

impl Written {
    /// Hands over the document, or each that it lists.
    fn apart(self, number: usize, take: &mut impl FnMut(Place, Vec<u8>)) -> Result<(), ManifestError> {
        let place = Place { document: number, item: None };
        let (mut fields, items) = match self {
            Self::Other(Value::Null) => return Ok(()),
            Self::Other(document) => {
                take(place, json(&document)?);
                return Ok(());
            }
            Self::Fields(fields, items) => (fields, items),
        };
        if !fields.get("kind").and_then(Value::as_str).is_some_and(is_list) {
            if let Some(items) = items {
                fields.insert("items".to_owned(), items.value()?);
            }
            take(place, json(&Value::Object(fields))?);
            return Ok(());
        }
        let items = match items {
            Some(Items::Listed(items)) => items,
            Some(Items::Other(Value::Null)) => Vec::new(),
            _ => return Err(ManifestError::NoItems { place }),
        };
        for (item, document) in (1..).zip(items) {
            take(Place { item: Some(item), ..place }, document);
        }
        Ok(())
    }
}

fn json(document: &Value) -> Result<Vec<u8>, ManifestError> {
    serde_json::to_vec(document).map_err(ManifestError::Json)
}

/// A document as it is written; what it lists is in its short form already, for it may be very much.
enum Written {
    Fields(Map<String, Value>, Option<Items>),
    Other(Value),
}

enum Items {
    Listed(Vec<Vec<u8>>),
    Other(Value),
}

impl Items {
    fn value(self) -> Result<Value, ManifestError> {
        let one = |item: Vec<u8>| serde_json::from_slice(&item).map_err(ManifestError::Json);
        match self {
            Self::Listed(items) => items.into_iter().map(one).collect::<Result<_, _>>().map(Value::Array),
            Self::Other(value) => Ok(value),
        }
    }
}

/// What a value is made of that is neither a list nor has fields.
macro_rules! plain {
    () => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a document")
        }

        fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
            Ok(Self::Value::Other(value.into()))
        }

        fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
            Ok(Self::Value::Other(value.into()))
        }

        fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
            Ok(Self::Value::Other(value.into()))
        }

        fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
            Ok(Self::Value::Other(value.into()))
        }

        fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
            Ok(Self::Value::Other(value.into()))
        }

        fn visit_none<E>(self) -> Result<Self::Value, E> {
            Ok(Self::Value::Other(Value::Null))
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Self::Value::Other(Value::Null))
        }
    };
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Document;

        impl<'de> Visitor<'de> for Document {
            type Value = Written;

            plain!();

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Written, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = list.next_element()? {
                    values.push(value);
                }
                Ok(Written::Other(Value::Array(values)))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Written, A::Error> {
                let (mut fields, mut items) = (Map::new(), None);
                while let Some(key) = map.next_key::<String>()? {
                    if key == "items" {
                        items = Some(map.next_value()?);
                    } else {
                        fields.insert(key, map.next_value()?);
                    }
                }
                Ok(Written::Fields(fields, items))
            }
        }

        deserializer.deserialize_any(Document)
    }
}

impl<'de> Deserialize<'de> for Items {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;

        impl<'de> Visitor<'de> for List {
            type Value = Items;

            plain!();

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Items, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element::<Value>()? {
                    items.push(serde_json::to_vec(&item).map_err(serde::de::Error::custom)?);
                }
                Ok(Items::Listed(items))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Items, A::Error> {
                Value::deserialize(MapAccessDeserializer::new(map)).map(Items::Other)
            }
        }

        deserializer.deserialize_any(List)
    }
}

fn is_list(kind: &str) -> bool {
    kind.ends_with("List")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever reads, finds the same.
    fn all(text: &str) -> Result<Vec<(Place, Value)>, ManifestError> {
        let value = |(place, json): (Place, Vec<u8>)| (place, serde_json::from_slice(&json).unwrap());
        let mut found = Vec::new();
        let read_on = each(text.as_bytes(), |place, json| found.push((place, json)));
        let read = read(text);
        assert_eq!(read.is_ok(), read_on.is_ok(), "{read:?} {read_on:?}");
        let read: Vec<_> = read?.into_iter().map(value).collect();
        assert_eq!(read, found.into_iter().map(value).collect::<Vec<_>>());
        Ok(read)
    }

    #[test]
    fn documents_and_lists_are_taken_apart_and_keep_their_place() {
        let text = "---\nkind: Pod\n---\n# nothing\n---\nkind: List\nitems:\n- kind: Pod\n- kind: Tier\n";
        let manifests = all(text).unwrap();
        let kinds: Vec<_> = manifests.iter().map(|(_, one)| one["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["Pod", "Pod", "Tier"]);
        let places: Vec<_> = manifests.iter().map(|(place, _)| place.to_string()).collect();
        assert_eq!(places, ["document 1", "document 2, item 1", "document 2, item 2"]);
        assert_eq!(all(r#"{"kind": "Pod"}"#).unwrap()[0].1["kind"], "Pod");
        assert_eq!(all("").unwrap(), []);
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
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 16), vec!["*a"; 90].join(", "));
        for bomb in [nested('[', ']', |_| "x, x, x".into()), nested('{', '}', |_| "x: y".into())] {
            let started = std::time::Instant::now();
            assert!(all(&bomb).is_err());
            // Nothing near the seconds that writing them out takes, on any machine.
            assert!(started.elapsed() < std::time::Duration::from_secs(2), "{:?}", started.elapsed());
        }
        assert!(all(&long).is_ok());
        let used = "a: &a {app: web}\nb: *a\nc: [*a, *a]\n";
        assert_eq!(all(used).unwrap()[0].1["c"][1]["app"], "web");
    }

    #[test]
    fn what_would_be_lost_silently_is_refused() {
        for (text, part) in [
            ("kind: Pod\nmetadata: {name: a, name: b}\n", "name"),
            (r#"{"kind": "Pod", "spec": {"nodeName": "a", "nodeName": "b"}}"#, "nodeName"),
            ("kind: List\nitmes:\n- kind: Pod\n", "items"),
        ] {
            let Err(error) = all(text) else { panic!("accepted: {text}") };
            let told = common::chain(&error);
            assert!(told.contains(part), "{told}");
        }
    }

    #[test]
    fn what_is_no_list_keeps_its_items_and_what_is_no_document_is_handed_on() {
        let one = |text: &str| all(text).unwrap().remove(0).1;
        let config = "kind: ConfigMap\nitems: [{a: 1}, [true, ~], 1.5, -3, x]\n";
        assert_eq!(one(config)["items"], serde_json::json!([{"a": 1}, [true, null], 1.5, -3, "x"]));
        assert_eq!(one("kind: ConfigMap\nitems: {a: b}\n")["items"]["a"], "b");
        assert_eq!([one("[1, 2]"), one("text")], [serde_json::json!([1, 2]), "text".into()]);
        assert_eq!(all("kind: PodList\nitems:\n").unwrap(), []);
        assert!(all("kind: PodList\nitems: text\n").is_err());
    }

    #[test]
    fn broken_yaml_is_named_with_its_line() {
        let Err(error) = all("a: [1\nb: 2\n") else { panic!("accepted") };
        assert!(common::chain(&error).contains("line"), "{error:?}");
    }
}
