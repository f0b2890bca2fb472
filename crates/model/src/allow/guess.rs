//! Which end a user means who wrote no kind before a name.
//!
//! In: the text, and who knows which names there are. Out: the one end that has this name; if several kinds have it, or none,
//! an error that says which. What is written with its kind is looked for in that kind only.

use super::{End, EndError, shortened};
use crate::{Address, ResourceName};

/// Who knows what there is.
pub trait Known {
    fn has(&self, end: &End) -> bool;

    /// Names of a kind that a user may have meant, for messages; a few.
    fn like(&self, text: &str) -> Vec<End>;
}

/// Why it is not known which end is meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuessError {
    #[error("there is no {} {}{}", end.kind(), end.name(), like(candidates))]
    Unknown { end: End, candidates: Vec<End> },
    #[error("there is no resource, host, Pod, tag or namespace {text:?}{}", like(candidates))]
    Nothing { text: String, candidates: Vec<End> },
    #[error("{text:?} may be {}; write which", listed(candidates))]
    Ambiguous { text: String, candidates: Vec<End> },
    #[error(transparent)]
    Form(#[from] EndError),
}

fn listed(ends: &[End]) -> String {
    ends.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

fn like(ends: &[End]) -> String {
    if ends.is_empty() { String::new() } else { format!("; is it {}?", listed(ends)) }
}

/// The end that a text means. `CLOUD.NAME` is a resource of `namespace`.
pub fn guess(text: &str, namespace: &str, known: &impl Known) -> Result<End, GuessError> {
    if let Ok(address) = text.parse::<Address>() {
        return Ok(End::Address(address));
    }
    let is_kind = |kind: &str| matches!(kind, "resource" | "host" | "pod" | "tag" | "namespace" | "ip");
    if text.split_once(':').is_some_and(|(kind, _)| is_kind(kind)) {
        let end = full(text, namespace)?;
        // Whether an address is anybody's does not matter.
        return match matches!(end, End::Address(_)) || known.has(&end) {
            true => Ok(end),
            false => Err(GuessError::Unknown { candidates: known.like(&end.name()), end }),
        };
    }
    let candidates: Vec<End> = possible(text, namespace).into_iter().filter(|end| known.has(end)).collect();
    match candidates.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(GuessError::Nothing { text: shortened(text), candidates: known.like(text) }),
        _ => Err(GuessError::Ambiguous { text: shortened(text), candidates }),
    }
}

/// `resource:a.web` is a resource of the namespace, like `a.web`.
fn full(text: &str, namespace: &str) -> Result<End, EndError> {
    match text.strip_prefix("resource:") {
        Some(name) if name.split('.').count() == 2 => format!("resource:{namespace}.{name}").parse(),
        _ => text.parse(),
    }
}

/// Every end that a text can be the name of.
fn possible(text: &str, namespace: &str) -> Vec<End> {
    let resource = text.parse::<ResourceName>().or_else(|_| format!("{namespace}.{text}").parse());
    let resource = resource.ok().map(End::Resource);
    let pod = text.split_once('/').and_then(|(namespace, name)| {
        Some(End::Pod { namespace: namespace.parse().ok()?, name: name.parse().ok()? })
    });
    // A resource's own leaf is no other thing than the resource.
    let is_leaf =
        |name: &str| matches!(&resource, Some(End::Resource(resource)) if resource.to_string() == name);
    let tag = text.parse().ok().filter(|_| !is_leaf(text)).map(End::Tag);
    let host = text.parse().ok().map(End::Host);
    let of_namespace = text.parse().ok().map(End::Namespace);
    [resource, host, pod, tag, of_namespace].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct These(&'static [&'static str]);

    impl Known for These {
        fn has(&self, end: &End) -> bool {
            self.0.contains(&end.to_string().as_str())
        }

        fn like(&self, text: &str) -> Vec<End> {
            let ends = self.0.iter().filter(|end| end.contains(text));
            ends.map(|end| end.parse().unwrap()).collect()
        }
    }

    const THESE: These = These(&[
        "resource:default.a.web",
        "tag:default.a.web",
        "tag:shop",
        "namespace:shop",
        "pod:shop/web-1",
        "host:h1",
        "tag:host.h1",
        "tag:db",
    ]);

    fn guessed(text: &str) -> String {
        match guess(text, "default", &THESE) {
            Ok(end) => end.to_string(),
            Err(err) => format!("error: {err}"),
        }
    }

    #[test]
    fn a_name_that_one_kind_has_is_that() {
        for (text, end) in [
            ("a.web", "resource:default.a.web"),
            ("default.a.web", "resource:default.a.web"),
            ("resource:a.web", "resource:default.a.web"),
            ("db", "tag:db"),
            ("h1", "host:h1"),
            ("shop/web-1", "pod:shop/web-1"),
            ("pod:shop/web-1", "pod:shop/web-1"),
            ("namespace:shop", "namespace:shop"),
            ("10.1.2.3/8", "ip:10.0.0.0/8"),
            ("2001:db8::1", "ip:2001:db8::1"),
            ("ip:192.0.2.0/24", "ip:192.0.2.0/24"),
        ] {
            assert_eq!(guessed(text), end, "{text}");
        }
    }

    #[test]
    fn what_several_kinds_have_is_asked_back_with_all_of_them() {
        assert_eq!(guessed("shop"), "error: \"shop\" may be tag:shop or namespace:shop; write which");
    }

    #[test]
    fn what_there_is_not_is_refused_with_what_there_is_like_it() {
        assert_eq!(guessed("tag:shopp"), "error: there is no tag shopp");
        assert_eq!(guessed("pod:shop/web"), "error: there is no pod shop/web; is it pod:shop/web-1?");
        let nothing = "error: there is no resource, host, Pod, tag or namespace";
        for text in ["webb", "", "a b", "a/b/c", "🦀", "shop/"] {
            assert!(guessed(text).starts_with(nothing), "{}", guessed(text));
        }
        assert!(guessed("ip:10.0.0.0/99").contains("address"), "{}", guessed("ip:10.0.0.0/99"));
    }
}
