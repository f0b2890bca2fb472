//! Names: those that an orchestrator makes up become names of volumes, always the same.

use aws_lc_rs::digest::{SHA256, digest};
use common::hex;
use storage_provider::{DEFAULT_VOLUME, is_volume_name};

/// What begins so is made of a name that could not stay as it was.
const MADE: &str = "csi-";
const TOKEN: &str = "after:";

/// The volume that a name of CSI stands for: the name itself if it is one of a volume, else one made from its hash.
pub fn volume_name(name: &str) -> String {
    let plain = is_volume_name(name) && !name.contains('@');
    if plain && !name.starts_with(MADE) && name != DEFAULT_VOLUME {
        return name.to_owned();
    }
    let hash = digest(&SHA256, name.as_bytes());
    format!("{MADE}{}", hex(&hash.as_ref()[..16]))
}

pub fn snapshot_name(volume: &str, name: &str) -> String {
    format!("{volume}@{}", volume_name(name))
}

/// Where a list goes on: after a name, which may be gone by then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// `None`: no token of ours. The empty one is the beginning.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" => Some(Self(String::new())),
            text => text.strip_prefix(TOKEN).map(|name| Self(name.to_owned())),
        }
    }
}

/// A page of a list that is sorted by name, and the token of the next, if there is one. `most` of 0: all.
pub fn page<T>(all: Vec<T>, name: impl Fn(&T) -> &str, token: &Token, most: usize) -> (Vec<T>, String) {
    let mut rest: Vec<T> = all.into_iter().filter(|one| name(one) > token.0.as_str()).collect();
    if most == 0 || rest.len() <= most {
        return (rest, String::new());
    }
    rest.truncate(most);
    let next = rest.last().map(|last| format!("{TOKEN}{}", name(last))).unwrap_or_default();
    (rest, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_where_they_can_and_are_always_the_same() {
        let pvc = "pvc-0d9b9a4c-7a5e-4d5a-9f0e-2c1f0b8f3a11";
        assert_eq!(volume_name(pvc), pvc);
        for odd in ["data", "a b", "x/../y", "v@s", "-x", "", "csi-abc", &"n".repeat(128), "ünï"] {
            let name = volume_name(odd);
            assert!(is_volume_name(&name) && name.starts_with(MADE), "{odd}: {name}");
            assert_eq!(name, volume_name(odd));
        }
        assert_ne!(volume_name("a b"), volume_name("a  b"));
        assert!(is_volume_name(&snapshot_name(&volume_name(&"v".repeat(200)), &"s".repeat(200))));
    }

    #[test]
    fn a_list_goes_on_where_it_was_though_names_have_gone() {
        let all = || vec!["a", "b", "c", "d"];
        let (first, next) = page(all(), |name| name, &Token::parse("").unwrap(), 2);
        assert_eq!((first, next.as_str()), (vec!["a", "b"], "after:b"));
        let (rest, end) = page(vec!["a", "c", "d"], |name| name, &Token::parse(&next).unwrap(), 2);
        assert_eq!((rest, end.as_str()), (vec!["c", "d"], ""));
        assert_eq!(page(all(), |name| name, &Token::parse("").unwrap(), 0).0.len(), 4);
        assert_eq!(Token::parse("invalid-token"), None);
    }
}
