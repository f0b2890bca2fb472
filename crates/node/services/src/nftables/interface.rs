//! Interfaces of a node by name, or by how their names begin.

use std::{fmt, str::FromStr};

/// What the kernel takes for a name, without the zero at its end.
const LONGEST: usize = 15;

/// `cni0`, or `veth*` for all whose names begin so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interfaces {
    name: String,
    is_beginning: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither an interface, as cni0, nor the beginning of names of interfaces, as veth*")]
pub struct NoInterface(String);

impl Interfaces {
    /// What a name is compared with, as far as it counts.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.name.clone().into_bytes();
        if !self.is_beginning {
            bytes.resize(LONGEST + 1, 0);
        }
        bytes
    }
}

impl FromStr for Interfaces {
    type Err = NoInterface;

    fn from_str(text: &str) -> Result<Self, NoInterface> {
        let name = text.strip_suffix('*').unwrap_or(text);
        let is_beginning = name.len() < text.len();
        let odd = |one: char| one.is_whitespace() || one.is_control() || matches!(one, '/' | ':' | '*');
        if name.is_empty() || name.len() > LONGEST || name == "." || name == ".." || name.contains(odd) {
            return Err(NoInterface(text.to_owned()));
        }
        Ok(Self { name: name.to_owned(), is_beginning })
    }
}

impl fmt::Display for Interfaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, if self.is_beginning { "*" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_compared_whole_and_a_beginning_as_far_as_it_goes() {
        let read = |text: &str| text.parse::<Interfaces>().expect("interfaces");
        assert_eq!(read("cni0").bytes(), *b"cni0\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(read("veth*").bytes(), *b"veth");
        assert_eq!(read("veth*").to_string(), "veth*");
        for bad in ["", "*", "a*b", "eth 0", "eth/0", "a-name-of-16-char", "..", "ve\0th"] {
            assert!(bad.parse::<Interfaces>().is_err(), "{bad:?} would make everybody a Pod, or nobody");
        }
    }
}
