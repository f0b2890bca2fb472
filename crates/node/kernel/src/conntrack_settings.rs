//! Settings of the kernel's connection table that a proxy depends on: its size, and how long it remembers.
//!
//! In: what the node's configuration asks for. Out: the kernel so. What is not asked for is left as it is. They are set at every
//! start and stay when the agent goes, as kube-proxy's do.

use std::thread::available_parallelism;

use crate::sysctl::{self, SysctlError};

/// Nothing is set that is absent here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conntrack {
    /// Entries for each core of the machine.
    pub max_per_core: Option<u32>,
    /// Entries at least, however few cores there are.
    pub min: Option<u32>,
    pub tcp_established_seconds: Option<u32>,
    pub tcp_close_wait_seconds: Option<u32>,
    pub udp_seconds: Option<u32>,
    pub udp_stream_seconds: Option<u32>,
    /// Segments outside of the window are no reason to call a connection broken.
    pub tcp_be_liberal: bool,
}

impl Conntrack {
    /// Returns how many settings differed.
    pub fn ensure(&self) -> Result<usize, SysctlError> {
        let cores = available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX));
        sysctl::ensure(&self.settings(cores))
    }

    fn settings(&self, cores: u32) -> Vec<(&'static str, String)> {
        let scaled = self.max_per_core.map(|each| each.saturating_mul(cores));
        let max = scaled.map(|scaled| scaled.max(self.min.unwrap_or(0))).or(self.min);
        let numbers = [
            ("net/netfilter/nf_conntrack_max", max),
            ("net/netfilter/nf_conntrack_tcp_timeout_established", self.tcp_established_seconds),
            ("net/netfilter/nf_conntrack_tcp_timeout_close_wait", self.tcp_close_wait_seconds),
            ("net/netfilter/nf_conntrack_udp_timeout", self.udp_seconds),
            ("net/netfilter/nf_conntrack_udp_timeout_stream", self.udp_stream_seconds),
            ("net/netfilter/nf_conntrack_tcp_be_liberal", self.tcp_be_liberal.then_some(1)),
        ];
        numbers.into_iter().filter_map(|(name, value)| Some((name, value?.to_string()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_asked_for_is_set_and_the_size_follows_the_cores() {
        assert_eq!(Conntrack::default().settings(8), []);
        let max = |max_per_core, min| {
            let settings = Conntrack { max_per_core, min, ..Conntrack::default() }.settings(4);
            settings.first().map(|(_, value)| value.clone())
        };
        assert_eq!(max(Some(32_768), Some(131_072)).as_deref(), Some("131072"));
        assert_eq!(max(Some(65_536), Some(131_072)).as_deref(), Some("262144"));
        assert_eq!(max(Some(u32::MAX), None).as_deref(), Some("4294967295"));
        assert_eq!(max(None, Some(5)).as_deref(), Some("5"));
        let rest = Conntrack { udp_seconds: Some(30), tcp_be_liberal: true, ..Conntrack::default() };
        assert_eq!(
            rest.settings(1),
            [
                ("net/netfilter/nf_conntrack_udp_timeout", "30".to_owned()),
                ("net/netfilter/nf_conntrack_tcp_be_liberal", "1".to_owned()),
            ]
        );
    }
}
