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

/// A text that names no way to proxy services.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not one of nftables, ipvs, none")]
pub struct NoMode(String);

impl FromStr for Mode {
    type Err = NoMode;

    fn from_str(text: &str) -> Result<Self, NoMode> {
        match text {
            "none" => Ok(Self::None),
            "nftables" => Ok(Self::Nftables),
            "ipvs" => Ok(Self::Ipvs),
            _ => Err(NoMode(text.to_owned())),
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
