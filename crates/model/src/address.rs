//! An address or a prefix, of either family, in one canonical form.

use std::{fmt, net::IpAddr, str::FromStr};

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a text is neither an address nor a prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is neither an IP address nor a prefix in CIDR form")]
pub struct ParseAddressError {
    text: String,
}

/// An IP address or prefix. Host bits are cleared (`2.3.4.5/20` is `2.3.0.0/20`), and a prefix that holds one
/// address prints as the address, so that equal things are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(IpNet);

impl Address {
    pub fn net(self) -> IpNet {
        self.0
    }

    /// The address, if it is not a prefix of several.
    pub fn single(self) -> Option<IpAddr> {
        (self.0.prefix_len() == self.0.max_prefix_len()).then(|| self.0.addr())
    }

    pub fn overlaps(self, other: Self) -> bool {
        self.0.contains(&other.0) || other.0.contains(&self.0)
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        Self(ip.into())
    }
}

impl From<IpNet> for Address {
    fn from(net: IpNet) -> Self {
        Self(net.trunc())
    }
}

impl FromStr for Address {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, ParseAddressError> {
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(ip.into());
        }
        match text.parse::<IpNet>() {
            Ok(net) => Ok(net.into()),
            Err(_) => Err(ParseAddressError { text: text.chars().take(64).collect() }),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.single() {
            Some(ip) => ip.fmt(f),
            None => self.0.fmt(f),
        }
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_have_one_canonical_form() {
        for (text, canonical) in [
            ("10.0.0.1", "10.0.0.1"),
            ("10.0.0.1/32", "10.0.0.1"),
            ("2.3.4.5/20", "2.3.0.0/20"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("2001:DB8:0:0::1", "2001:db8::1"),
            ("2001:db8::1/128", "2001:db8::1"),
            ("2001:db8::ffff/32", "2001:db8::/32"),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), canonical);
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for bad in
            ["", "tag/inside", "10.0.0.1/33", "010.0.0.1", "10.0.0", "10.0.0.1/", "::1/129", " 10.0.0.1"]
        {
            assert!(bad.parse::<Address>().is_err(), "{bad:?}");
        }
    }
}
