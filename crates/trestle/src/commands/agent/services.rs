//! Flags and configuration of the service proxy on a node.

use std::net::SocketAddr;

use agent::services::{NodePorts, ServiceSettings};
use anyhow::{Context as _, anyhow};
use ipnet::IpNet;
use node_kernel::{
    conntrack_settings::Conntrack,
    ipvs::Timeouts,
    services::{Mode, Settings},
};
use node_services::{
    ipvs,
    nftables::{self, Interfaces},
};
use serde::Deserialize;

/// Flags of `trestle agent` that are about services.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Services")]
pub struct ServiceArgs {
    /// How services are balanced on this node: nftables, ipvs or none; `trestle agent services MODE` changes it while
    /// the agent runs
    #[arg(long, value_name = "MODE")]
    services: Option<Mode>,
    /// Addresses of Pods, all nodes; who is not among them is from outside. Once per prefix
    #[arg(long, value_name = "PREFIX")]
    pod_prefix: Vec<IpNet>,
    /// Where packets of this node's own Pods come in: an interface, as cni0, or the beginning of names, as veth*. Beside or
    /// instead of --pod-prefix. Once per interface
    #[arg(long, value_name = "NAME")]
    pod_interface: Vec<Interfaces>,
    /// Addresses out of which services get theirs; packets to one that no service has are dropped. Once per prefix
    #[arg(long, value_name = "PREFIX")]
    service_prefix: Vec<IpNet>,
    /// Addresses that serve node ports: primary, all, or prefixes separated by commas
    #[arg(long, value_name = "WHICH")]
    node_port_addresses: Option<String>,
    /// Addresses that are left alone, whatever services claim. Once per prefix
    #[arg(long, value_name = "PREFIX")]
    exclude: Vec<IpNet>,
    /// Where /healthz and /livez of the service proxy are served, as kube-proxy does on 0.0.0.0:10256
    #[arg(long, value_name = "ADDR")]
    services_health: Option<SocketAddr>,
    /// How IPVS chooses among endpoints: rr, wrr, lc, wlc, sh, dh, sed, nq, mh …
    #[arg(long, value_name = "NAME")]
    ipvs_scheduler: Option<String>,
    /// With IPVS: do not answer ARP for services on the node's own networks
    #[arg(long)]
    strict_arp: bool,
    #[command(flatten)]
    conntrack: ConntrackArgs,
}

/// Without a flag the kernel's setting stays as it is.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Connection table")]
struct ConntrackArgs {
    /// Connections that the kernel remembers, for each core of the machine
    #[arg(long, value_name = "NUMBER")]
    conntrack_max_per_core: Option<u32>,
    /// Connections that it remembers at least
    #[arg(long, value_name = "NUMBER")]
    conntrack_min: Option<u32>,
    /// For how long it remembers a TCP connection that is silent
    #[arg(long, value_name = "SECONDS")]
    conntrack_tcp_established: Option<u32>,
    /// … one that the other side has closed
    #[arg(long, value_name = "SECONDS")]
    conntrack_tcp_close_wait: Option<u32>,
    /// … UDP without an answer
    #[arg(long, value_name = "SECONDS")]
    conntrack_udp: Option<u32>,
    /// … UDP that goes both ways
    #[arg(long, value_name = "SECONDS")]
    conntrack_udp_stream: Option<u32>,
    /// Segments outside of the window do not break a connection
    #[arg(long)]
    conntrack_tcp_be_liberal: bool,
}

/// The key `services` of the configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServicesFile {
    pub mode: Option<String>,
    pod_prefixes: Vec<IpNet>,
    pod_interfaces: Vec<String>,
    service_prefixes: Vec<IpNet>,
    node_port_addresses: Option<String>,
    exclude: Vec<IpNet>,
    health: Option<SocketAddr>,
    masquerade_all: bool,
    /// The bit of the packet mark that carries the decision to masquerade.
    masquerade_bit: Option<u8>,
    refuse_external_ips: bool,
    ipvs: IpvsFile,
    conntrack: ConntrackFile,
}

/// What is absent is left as the kernel has it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ConntrackFile {
    max_per_core: Option<u32>,
    min: Option<u32>,
    tcp_established_timeout_seconds: Option<u32>,
    tcp_close_wait_timeout_seconds: Option<u32>,
    udp_timeout_seconds: Option<u32>,
    udp_stream_timeout_seconds: Option<u32>,
    tcp_be_liberal: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct IpvsFile {
    scheduler: Option<String>,
    strict_arp: bool,
    tcp_timeout_seconds: u32,
    tcp_fin_timeout_seconds: u32,
    udp_timeout_seconds: u32,
}

impl ServicesFile {
    pub fn mode(&self) -> anyhow::Result<Option<Mode>> {
        let parse = |text: &String| text.parse::<Mode>().map_err(|err| anyhow!("services.mode: {err}"));
        self.mode.as_ref().map(parse).transpose()
    }
}

/// Flags outrank the file.
pub fn settings(
    args: ServiceArgs,
    file: ServicesFile,
) -> anyhow::Result<(ServiceSettings, Option<SocketAddr>)> {
    let either = |flags: Vec<IpNet>, file: Vec<IpNet>| if flags.is_empty() { file } else { flags };
    let mode = args.services.or(file.mode()?).unwrap_or_default();
    let defaults = nftables::Config::default();
    let bit = file.masquerade_bit.filter(|bit| *bit < 32);
    if file.masquerade_bit.is_some() && bit.is_none() {
        return Err(anyhow!("services.masquerade_bit is a number from 0 to 31"));
    }
    let pod_interfaces = match args.pod_interface {
        flags if flags.is_empty() => interfaces(&file.pod_interfaces)?,
        flags => flags,
    };
    let rules = nftables::Config {
        pod_interfaces,
        pod_prefixes: either(args.pod_prefix, file.pod_prefixes),
        service_prefixes: either(args.service_prefix, file.service_prefixes),
        masquerade_all: file.masquerade_all,
        masquerade_mark: bit.map_or(defaults.masquerade_mark, |bit| 1 << bit),
        node_addresses: Vec::new(),
    };
    let scheduler = args.ipvs_scheduler.or(file.ipvs.scheduler);
    let ipvs = ipvs::Config {
        scheduler: scheduler.unwrap_or_else(|| ipvs::Config::default().scheduler),
        strict_arp: args.strict_arp || file.ipvs.strict_arp,
        ..ipvs::Config::default()
    };
    let timeouts = Timeouts {
        tcp: file.ipvs.tcp_timeout_seconds,
        tcp_fin: file.ipvs.tcp_fin_timeout_seconds,
        udp: file.ipvs.udp_timeout_seconds,
    };
    let settings = ServiceSettings {
        mode,
        proxy: Settings { rules, ipvs, timeouts, ..Settings::default() },
        node_ports: node_ports(args.node_port_addresses.or(file.node_port_addresses).as_deref())?,
        excluded: either(args.exclude, file.exclude),
        refuse_external_ips: file.refuse_external_ips,
        conntrack: conntrack(args.conntrack, file.conntrack),
    };
    Ok((settings, args.services_health.or(file.health)))
}

fn interfaces(file: &[String]) -> anyhow::Result<Vec<Interfaces>> {
    file.iter().map(|text| text.parse().context("services.pod_interfaces")).collect()
}

fn conntrack(args: ConntrackArgs, file: ConntrackFile) -> Conntrack {
    Conntrack {
        max_per_core: args.conntrack_max_per_core.or(file.max_per_core),
        min: args.conntrack_min.or(file.min),
        tcp_established_seconds: args.conntrack_tcp_established.or(file.tcp_established_timeout_seconds),
        tcp_close_wait_seconds: args.conntrack_tcp_close_wait.or(file.tcp_close_wait_timeout_seconds),
        udp_seconds: args.conntrack_udp.or(file.udp_timeout_seconds),
        udp_stream_seconds: args.conntrack_udp_stream.or(file.udp_stream_timeout_seconds),
        tcp_be_liberal: args.conntrack_tcp_be_liberal || file.tcp_be_liberal,
    }
}

fn node_ports(text: Option<&str>) -> anyhow::Result<NodePorts> {
    match text {
        None | Some("primary") => Ok(NodePorts::Primary),
        Some("all") => Ok(NodePorts::All),
        Some(list) => {
            let prefixes = list.split(',').map(|text| text.trim().parse::<IpNet>());
            let prefixes = prefixes.collect::<Result<_, _>>();
            Ok(NodePorts::Within(prefixes.with_context(|| {
                format!("{list:?} is neither primary, all, nor a list of prefixes like 192.168.0.0/16")
            })?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_outrank_the_file_and_nonsense_is_refused() {
        let file = "{mode: nftables, pod_prefixes: [10.0.0.0/8], ipvs: {scheduler: lc}, masquerade_bit: 3}";
        let file = || serde_saphyr::from_str::<ServicesFile>(file).unwrap();
        let (settings, health) = self::settings(ServiceArgs::default(), file()).unwrap();
        assert_eq!((settings.mode, health), (Mode::Nftables, None));
        assert_eq!(settings.proxy.rules.masquerade_mark, 8);
        let args = ServiceArgs {
            services: Some(Mode::Ipvs),
            pod_prefix: vec!["10.1.0.0/16".parse().unwrap()],
            node_port_addresses: Some("192.168.0.0/16, fd00::/8".into()),
            ..ServiceArgs::default()
        };
        let (settings, _) = self::settings(args, file()).unwrap();
        assert_eq!((settings.mode, settings.proxy.ipvs.scheduler.as_str()), (Mode::Ipvs, "lc"));
        assert_eq!(settings.proxy.rules.pod_prefixes.len(), 1);
        assert!(matches!(settings.node_ports, NodePorts::Within(prefixes) if prefixes.len() == 2));
        let file = serde_saphyr::from_str("{conntrack: {min: 5, udp_timeout_seconds: 30}}").unwrap();
        let conntrack = ConntrackArgs { conntrack_min: Some(7), ..ConntrackArgs::default() };
        let args = ServiceArgs { conntrack, ..ServiceArgs::default() };
        let (settings, _) = self::settings(args, file).unwrap();
        let expected = Conntrack { min: Some(7), udp_seconds: Some(30), ..Conntrack::default() };
        assert_eq!(settings.conntrack, expected);
        let file = serde_saphyr::from_str("{pod_interfaces: [cni0, veth*]}").unwrap();
        let (settings, _) = self::settings(ServiceArgs::default(), file).unwrap();
        assert_eq!(settings.proxy.rules.pod_interfaces.len(), 2);
        for bad in [
            "{mode: iptables}",
            "{pod_interfaces: ['*']}",
            "{node_port_addresses: some}",
            "{masquerade_bit: 32}",
        ] {
            let file = serde_saphyr::from_str::<ServicesFile>(bad).unwrap();
            assert!(self::settings(ServiceArgs::default(), file).is_err(), "{bad}");
        }
        assert!(serde_saphyr::from_str::<ServicesFile>("{modus: ipvs}").is_err());
    }
}
