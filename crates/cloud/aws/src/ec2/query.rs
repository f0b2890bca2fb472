//! Parameters as EC2's query protocol wants them: structures by dots, lists by numbers from 1. Pure.

use serde::Serialize;
use serde_json::Value;

/// What is none is left out.
pub(super) fn pairs(parameters: &impl Serialize) -> Vec<(String, String)> {
    let value = serde_json::to_value(parameters).expect("parameters are plain data with names as keys");
    let mut pairs = Vec::new();
    flatten("", &value, &mut pairs);
    pairs
}

fn flatten(prefix: &str, value: &Value, pairs: &mut Vec<(String, String)>) {
    let below = |name: &str| if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
    match value {
        Value::Null => {}
        Value::Object(fields) => fields.iter().for_each(|(name, value)| flatten(&below(name), value, pairs)),
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                flatten(&below(&(number + 1).to_string()), item, pairs);
            }
        }
        Value::String(text) => pairs.push((prefix.to_owned(), text.clone())),
        other => pairs.push((prefix.to_owned(), other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    #[serde(rename_all = "PascalCase")]
    struct One {
        id: &'static str,
        is_new: bool,
        rule: Vec<Rule>,
        none: Option<u8>,
    }

    #[derive(Serialize)]
    #[serde(rename_all = "PascalCase")]
    struct Rule {
        from_port: i32,
    }

    #[test]
    fn structures_and_lists_are_flattened_and_what_is_none_is_left_out() {
        let one = One {
            id: "x",
            is_new: true,
            rule: vec![Rule { from_port: -1 }, Rule { from_port: 2 }],
            none: None,
        };
        let pairs = pairs(&one);
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(pairs, ["Id=x", "IsNew=true", "Rule.1.FromPort=-1", "Rule.2.FromPort=2"]);
    }
}
