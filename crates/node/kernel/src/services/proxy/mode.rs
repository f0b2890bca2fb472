//! How a node proxies services.

use std::{fmt, str::FromStr};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Services are none of our business.
    #[default]
    None,
    Nftables,
    Ipvs,
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "nftables" => Ok(Self::Nftables),
            "ipvs" => Ok(Self::Ipvs),
            _ => Err(format!("{text:?} is not one of nftables, ipvs, none")),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Nftables => "nftables",
            Self::Ipvs => "ipvs",
        })
    }
}
