//! Which flows are asked about.

use std::{net::IpAddr, str::FromStr};

use ipnet::IpNet;

use crate::{End, Flow, Verdict};

/// What is empty does not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    pub from: Option<EndFilter>,
    pub to: Option<EndFilter>,
    /// Either end.
    pub end: Option<EndFilter>,
    pub verdict: Option<Verdict>,
    /// Part of it.
    pub rule: String,
    pub node: String,
    pub protocol: Option<u8>,
    /// Before or after translation.
    pub port: Option<u16>,
    /// Milliseconds since 1970, both included.
    pub since: u64,
    pub until: u64,
}

impl Default for Ask {
    fn default() -> Self {
        Self {
            from: None,
            to: None,
            end: None,
            verdict: None,
            rule: String::new(),
            node: String::new(),
            protocol: None,
            port: None,
            since: 0,
            until: u64::MAX,
        }
    }
}

impl Ask {
    pub fn is_about(&self, flow: &Flow) -> bool {
        let kind = &flow.kind;
        let is = |filter: &Option<EndFilter>, ends: &[&End]| {
            filter.as_ref().is_none_or(|filter| ends.iter().any(|end| filter.is_about(end)))
        };
        let is_port =
            |port: u16| kind.port == Some(port) || kind.service.is_some_and(|service| service.port() == port);
        self.overlaps(flow.first, flow.last)
            && self.verdict.is_none_or(|verdict| kind.verdict == verdict)
            && self.protocol.is_none_or(|protocol| kind.protocol == protocol)
            && self.port.is_none_or(is_port)
            && (self.node.is_empty() || *kind.node == *self.node)
            && kind.rule.contains(&self.rule)
            && is(&self.from, &[&kind.from])
            && is(&self.to, &[&kind.to])
            && is(&self.end, &[&kind.from, &kind.to])
    }

    pub fn overlaps(&self, first: u64, last: u64) -> bool {
        first <= self.until && last >= self.since
    }
}

/// One end, by what users call it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndFilter {
    Block(IpNet),
    Namespace(String),
    /// `namespace/name`.
    Workload(String),
    Label(String, String),
    /// A tag, or a workload without a namespace.
    Name(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} names no end: give an address, a block, `namespace/name`, `namespace/`, a label `key=value` or a tag"
)]
pub struct FilterError(String);

impl FromStr for EndFilter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        if let Ok(block) = text.parse::<IpNet>() {
            return Ok(Self::Block(block.trunc()));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Block(address.into()));
        }
        // Keys of labels have slashes too.
        match (text.split_once('='), text.split_once('/')) {
            (Some((key, value)), _) if !key.is_empty() => Ok(Self::Label(key.to_owned(), value.to_owned())),
            (None, Some((namespace, ""))) if !namespace.is_empty() => {
                Ok(Self::Namespace(namespace.to_owned()))
            }
            (None, Some((namespace, name))) if !namespace.is_empty() && !name.contains('/') => {
                Ok(Self::Workload(text.to_owned()))
            }
            (None, None) if !text.is_empty() => Ok(Self::Name(text.to_owned())),
            _ => Err(FilterError(text.to_owned())),
        }
    }
}

impl EndFilter {
    fn is_about(&self, end: &End) -> bool {
        let workload = || end.workload.split_once(' ').map_or("", |(_, name)| name);
        match self {
            Self::Block(block) => end.address.is_some_and(|address| block.contains(&address)),
            Self::Namespace(name) => {
                workload().split_once('/').is_some_and(|(namespace, _)| namespace == name)
            }
            Self::Workload(name) => workload() == name,
            Self::Label(key, value) => end.labels.iter().any(|label| label.0 == *key && label.1 == *value),
            Self::Name(name) => end.tags.contains(name) || workload() == name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(text: &str) -> EndFilter {
        text.parse().expect("it names an end")
    }

    #[test]
    fn an_end_is_found_by_whatever_users_call_it() {
        let end = End {
            address: "10.0.0.7".parse().ok(),
            workload: "Pod shop/web-1".to_owned(),
            labels: vec![("app.kubernetes.io/name".to_owned(), "web".to_owned())],
            tags: vec!["default.shop".to_owned()],
        };
        for text in
            ["10.0.0.7", "10.0.0.0/24", "shop/web-1", "shop/", "app.kubernetes.io/name=web", "default.shop"]
        {
            assert!(filter(text).is_about(&end), "{text}");
        }
        for text in ["10.0.0.8", "10.0.1.0/24", "shop/web", "shop/web-11", "sho/", "app=web", "shop", "::/0"]
        {
            assert!(!filter(text).is_about(&end), "{text}");
        }
        let nobody = End::default();
        assert!(!filter("0.0.0.0/0").is_about(&nobody) && !filter("shop/").is_about(&nobody));
        let node = End { workload: "Node host-1".to_owned(), ..End::default() };
        assert!(filter("host-1").is_about(&node));
    }

    #[test]
    fn what_names_no_end_is_refused() {
        for text in ["", "/", "/x", "a/b/c", "=x"] {
            assert!(text.parse::<EndFilter>().is_err(), "{text}");
        }
    }
}
