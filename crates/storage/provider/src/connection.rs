//! Connection details: the list of named items a consumer needs to use its storage.
//!
//! In: items from a backend. Out: the JSON the OCS design calls the "json blob", an array in the order given.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One item. `kind` says what it becomes on the consumer's side: a Secret, a ConfigMap, a StorageClass, an endpoint.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionItem {
    pub name: String,
    pub kind: String,
    pub data: BTreeMap<String, String>,
}

impl ConnectionItem {
    pub fn new<const N: usize>(name: &str, kind: &str, data: [(&str, String); N]) -> Self {
        let data = data.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        Self { name: name.to_owned(), kind: kind.to_owned(), data }
    }
}

/// Items hold keys of consumers: names print, values do not.
impl std::fmt::Debug for ConnectionItem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keys: Vec<_> = self.data.keys().collect();
        f.debug_struct("ConnectionItem")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("data", &keys)
            .finish()
    }
}

pub fn connection_json(items: &[ConnectionItem]) -> Vec<u8> {
    serde_json::to_vec(items).expect("strings and maps of strings always serialise")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_become_an_array_in_their_order_and_do_not_print_their_values() {
        let items = [
            ConnectionItem::new(
                "b",
                "Secret",
                [("userKey", "hunter2".to_owned()), ("userID", "x".to_owned())],
            ),
            ConnectionItem::new("a", "ConfigMap", []),
        ];
        let json = r#"[{"name":"b","kind":"Secret","data":{"userID":"x","userKey":"hunter2"}},{"name":"a","kind":"ConfigMap","data":{}}]"#;
        assert_eq!(connection_json(&items), json.as_bytes());
        assert!(!format!("{items:?}").contains("hunter2"));
    }
}
