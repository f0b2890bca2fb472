//! `--sort-by`: the order of a list (pure), by a column as its heading has it, or by a path into the data.

use std::{cmp::Ordering, net::IpAddr};

use anyhow::bail;
use serde::Serialize;
use serde_json::Value;

use super::{Rows, jsonpath};

/// What is sorted by: numbers by their size, addresses by theirs, then texts; nothing before all.
#[derive(Debug, PartialEq)]
enum Key {
    Nothing,
    Number(f64),
    Address(IpAddr),
    Text(String),
}

impl Key {
    fn of(text: String) -> Self {
        if text.is_empty() {
            return Self::Nothing;
        }
        match (text.parse::<f64>(), text.parse()) {
            (Ok(number), _) if number.is_finite() => Self::Number(number),
            (_, Ok(address)) => Self::Address(address),
            _ => Self::Text(text),
        }
    }

    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(one), Self::Number(two)) => one.total_cmp(two),
            (Self::Address(one), Self::Address(two)) => one.cmp(two),
            (Self::Text(one), Self::Text(two)) => one.cmp(two),
            _ => self.rank().cmp(&other.rank()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Nothing => 0,
            Self::Number(_) => 1,
            Self::Address(_) => 2,
            Self::Text(_) => 3,
        }
    }
}

/// The items in order; those that are equal stay as they were.
pub fn sorted<'a, T: Rows + Serialize>(items: &'a [T], by: &str) -> anyhow::Result<Vec<&'a T>> {
    let mut keyed =
        items.iter().map(|item| Ok((key(item, by)?, item))).collect::<anyhow::Result<Vec<_>>>()?;
    keyed.sort_by(|(one, _), (two, _)| one.compare(two));
    Ok(keyed.into_iter().map(|(_, item)| item).collect())
}

fn key<T: Rows + Serialize>(item: &T, by: &str) -> anyhow::Result<Key> {
    if by.starts_with(['.', '[', '$', '{']) {
        let path = by.trim_start_matches('{').trim_end_matches('}');
        let data = serde_json::to_value(item)?;
        let found = jsonpath::find(path, &data).map_err(anyhow::Error::msg)?;
        return Ok(match found.first() {
            None | Some(Value::Null) => Key::Nothing,
            Some(Value::String(text)) => Key::of(text.clone()),
            Some(other) => Key::of(other.to_string()),
        });
    }
    let titles = || T::HEADER.iter().chain(T::WIDE);
    let same =
        |title: &&str| title.eq_ignore_ascii_case(by) || title.replace(' ', "-").eq_ignore_ascii_case(by);
    let Some(at) = titles().position(same) else {
        let known = titles().copied().collect::<Vec<_>>().join(", ");
        bail!("there is no column {by} to sort by; there are {known}, and paths such as .metadata.name");
    };
    Ok(Key::of(item.row().into_iter().chain(item.wide()).nth(at).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Host {
        name: &'static str,
        lag: Option<u32>,
        label: &'static str,
    }

    impl Rows for Host {
        const HEADER: &'static [&'static str] = &["name", "left over"];
        const WIDE: &'static [&'static str] = &["label"];

        fn row(&self) -> Vec<String> {
            vec![self.name.to_owned(), self.lag.map(|lag| lag.to_string()).unwrap_or_default()]
        }

        fn wide(&self) -> Vec<String> {
            vec![self.label.to_owned()]
        }
    }

    #[test]
    fn lists_are_sorted_by_columns_and_by_paths() {
        let host = |name, lag, label| Host { name, lag, label };
        let hosts = [host("b", Some(10), "x"), host("a", Some(9), "z"), host("c", None, "y")];
        for (by, order) in [
            ("name", "abc"),
            ("NAME", "abc"),
            ("left over", "cab"),
            ("left-over", "cab"),
            ("label", "bca"),
            (".lag", "cab"),
            ("{.name}", "abc"),
        ] {
            let names: String = sorted(&hosts, by).unwrap().iter().map(|host| host.name).collect();
            assert_eq!(names, order, "{by}");
        }
        let addresses =
            ["10.0.0.10", "", "10.0.0.9", "2001:db8::1", "none"].map(|label| host("a", None, label));
        let labels =
            sorted(&addresses, ".label").unwrap().into_iter().map(|host| host.label).collect::<Vec<_>>();
        assert_eq!(labels, ["", "10.0.0.9", "10.0.0.10", "2001:db8::1", "none"]);
        let refused = sorted(&hosts, "age").map(drop).unwrap_err().to_string();
        assert!(refused.contains("left over"), "{refused}");
        assert!(sorted(&hosts, ".[").is_err());
        assert!(sorted::<Host>(&[], "age").unwrap().is_empty());
    }
}
