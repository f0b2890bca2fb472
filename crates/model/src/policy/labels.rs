//! Labels and annotations: a small sorted list.
//!
//! Objects have a handful of labels and there are hundreds of thousands of objects; a tree node per object would be ten
//! times the size of what it holds.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
};

/// Ascending by key; keys are unique.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Labels(Vec<(String, String)>);

impl Labels {
    pub fn new() -> Self {
        Labels(Vec::new())
    }

    pub fn get(&self, key: &str) -> Option<&String> {
        self.find(key).ok().map(|at| &self.0[at].1)
    }

    pub fn contains_key(&self, key: &str) -> bool {
        self.find(key).is_ok()
    }

    /// The value it had before.
    pub fn insert(&mut self, key: String, value: String) -> Option<String> {
        match self.find(&key) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at].1, value)),
            Err(at) => {
                self.0.insert(at, (key, value));
                None
            }
        }
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&String, &String)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    fn find(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| other.as_str().cmp(key))
    }
}

/// Of several values for a key the last one counts.
impl FromIterator<(String, String)> for Labels {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(labels: I) -> Self {
        let mut labels: Vec<(String, String)> = labels.into_iter().collect();
        labels.sort_by(|(a, _), (b, _)| a.cmp(b));
        labels.reverse();
        labels.dedup_by(|(a, _), (b, _)| a == b);
        labels.reverse();
        labels.shrink_to_fit();
        Labels(labels)
    }
}

impl<const N: usize> From<[(String, String); N]> for Labels {
    fn from(labels: [(String, String); N]) -> Self {
        labels.into_iter().collect()
    }
}

impl IntoIterator for Labels {
    type Item = (String, String);
    type IntoIter = std::vec::IntoIter<(String, String)>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Labels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of labels")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels, A::Error> {
                let mut labels = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    labels.push(pair);
                }
                Ok(labels.into_iter().collect())
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_sorted_and_the_last_value_of_a_key_counts() {
        let labels: Labels = serde_json::from_str(r#"{"b":"1","a":"2","b":"3"}"#).unwrap();
        assert_eq!(serde_json::to_string(&labels).unwrap(), r#"{"a":"2","b":"3"}"#);
        assert_eq!((labels.get("b").map(String::as_str), labels.len()), (Some("3"), 2));
    }

    #[test]
    fn insert_replaces_and_keeps_the_order() {
        let mut labels = Labels::from([("b".to_string(), "1".to_string())]);
        assert_eq!(labels.insert("a".into(), "x".into()), None);
        assert_eq!(labels.insert("b".into(), "2".into()), Some("1".into()));
        let seen: Vec<_> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(seen, ["a=x", "b=2"]);
        assert!(labels.contains_key("a") && !labels.contains_key("c"));
    }
}
