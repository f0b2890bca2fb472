//! The small conversions from what users write to what nodes enforce; each fails with the field at fault.
//!
//! In: one block, port, protocol or selector. Out: its enforceable form, or a [`Problem`] whose path begins at that
//! value. Used by validation (which reports) and by the engine (which fails closed), so that they cannot disagree.

use std::{net::IpAddr, str::FromStr};

use ipnet::IpNet;

use super::{
    LabelSelector, Operator, Requirement,
    antrea::{Icmp, Igmp},
    kubernetes::{self, IntOrString, Port},
    output::{Action, IpBlock, PortRef, Problem, Protocol, Service},
    selector::{label_key, label_value},
};

impl Problem {
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Problem { path: path.into(), message: message.into() }
    }

    /// The same problem seen from the object that holds the value at `base`.
    pub fn under(mut self, base: &str) -> Self {
        self.path.insert_str(0, base);
        self
    }
}

/// Bits beyond the prefix length are ignored, as Kubernetes does.
pub fn prefix(text: &str) -> Result<IpNet, Problem> {
    match IpNet::from_str(text) {
        Ok(net) => Ok(net.trunc()),
        Err(_) => Err(Problem::new("", format!("`{text}` is not a CIDR such as 10.0.0.0/8 or fd00::/64"))),
    }
}

pub fn ip_block(block: &kubernetes::IpBlock) -> Result<IpBlock, Problem> {
    let cidr = prefix(&block.cidr).map_err(|p| p.under(".cidr"))?;
    let mut except = Vec::with_capacity(block.except.len());
    for (i, text) in block.except.iter().enumerate() {
        let at = |p: Problem| p.under(&format!(".except[{i}]"));
        let net = prefix(text).map_err(at)?;
        if !cidr.contains(&net) || net.prefix_len() <= cidr.prefix_len() {
            return Err(at(Problem::new(
                "",
                format!("{net} must be a strict part of the block's cidr {cidr}"),
            )));
        }
        except.push(net);
    }
    Ok(IpBlock { cidr, except })
}

pub fn port(port: &Port) -> Result<Service, Problem> {
    let name = port.protocol.as_deref().unwrap_or("TCP");
    let protocol = match Protocol::parse(name) {
        Some(p @ (Protocol::Tcp | Protocol::Udp | Protocol::Sctp)) if !name.is_empty() => p,
        _ => return Err(Problem::new(".protocol", format!("`{name}` is not one of TCP, UDP, SCTP"))),
    };
    let mut service = Service::any(protocol);
    service.port = match &port.port {
        None => None,
        Some(IntOrString::Int(n)) => Some(PortRef::Number(number(*n, ".port")?)),
        Some(IntOrString::Name(name)) => Some(PortRef::Name(port_name(name)?.into())),
    };
    service.end_port = match (port.end_port, &service.port) {
        (None, _) => None,
        (Some(end), Some(PortRef::Number(begin))) => Some(range_end(end, *begin, ".endPort")?),
        (Some(_), _) => return Err(Problem::new(".endPort", "needs a numeric port beside it")),
    };
    service.source_port = port.source_port.map(|n| number(n, ".sourcePort")).transpose()?;
    service.source_end_port = match (port.source_end_port, service.source_port) {
        (None, _) => None,
        (Some(end), Some(begin)) => Some(range_end(end, begin, ".sourceEndPort")?),
        (Some(_), None) => return Err(Problem::new(".sourceEndPort", "needs a sourcePort beside it")),
    };
    Ok(service)
}

fn number(n: i32, path: &str) -> Result<u16, Problem> {
    match u16::try_from(n) {
        Ok(port @ 1..) => Ok(port),
        _ => Err(Problem::new(path, format!("{n} is not a port between 1 and 65535"))),
    }
}

fn range_end(end: i32, begin: u16, path: &str) -> Result<u16, Problem> {
    let end = number(end, path)?;
    if end < begin {
        return Err(Problem::new(path, format!("{end} is below the first port {begin}")));
    }
    Ok(end)
}

fn port_name(name: &str) -> Result<&str, Problem> {
    let legal = (1..=15).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && name.bytes().any(|b| b.is_ascii_lowercase())
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--");
    if legal {
        Ok(name)
    } else {
        Err(Problem::new(".port", format!("`{name}` is neither a port number nor a port name")))
    }
}

pub fn icmp(icmp: &Icmp) -> Result<Service, Problem> {
    let byte = |value: Option<i32>, path: &str| match value.map(u8::try_from) {
        None => Ok(None),
        Some(Ok(byte)) => Ok(Some(byte)),
        Some(Err(_)) => Err(Problem::new(path, "must be between 0 and 255")),
    };
    let mut service = Service::any(Protocol::Icmp);
    service.icmp_type = byte(icmp.icmp_type, ".icmp.icmpType")?;
    service.icmp_code = byte(icmp.icmp_code, ".icmp.icmpCode")?;
    if service.icmp_code.is_some() && service.icmp_type.is_none() {
        return Err(Problem::new(".icmp.icmpCode", "needs an icmpType beside it"));
    }
    Ok(service)
}

pub fn igmp(igmp: &Igmp) -> Result<Service, Problem> {
    if !igmp.group_address.is_empty() {
        let multicast = IpAddr::from_str(&igmp.group_address).is_ok_and(|a| a.is_multicast());
        if !multicast {
            let message = format!("`{}` is not a multicast address", igmp.group_address);
            return Err(Problem::new(".igmp.groupAddress", message));
        }
    }
    let mut service = Service::any(Protocol::Igmp);
    service.igmp_type = igmp.igmp_type;
    service.group_address = igmp.group_address.clone();
    Ok(service)
}

pub fn action(text: &str) -> Result<Action, Problem> {
    Ok(match text {
        "Allow" => Action::Allow,
        "Drop" => Action::Drop,
        "Reject" => Action::Reject,
        "Pass" => Action::Pass,
        _ => {
            return Err(Problem::new(".action", format!("`{text}` is not one of Allow, Drop, Reject, Pass")));
        }
    })
}

/// Keys, values and operators must be legal: the name of a group is made of them and must not be ambiguous.
pub fn selector(selector: &LabelSelector) -> Result<(), Problem> {
    for (key, value) in selector.match_labels.iter() {
        let legal = label_key(key).and_then(|()| label_value(value));
        legal.map_err(|message| Problem::new(format!(".matchLabels[{key}]"), message))?;
    }
    for (i, requirement) in selector.match_expressions.iter().enumerate() {
        self::requirement(requirement).map_err(|p| p.under(&format!(".matchExpressions[{i}]")))?;
    }
    Ok(())
}

fn requirement(requirement: &Requirement) -> Result<(), Problem> {
    label_key(&requirement.key).map_err(|message| Problem::new(".key", message))?;
    for (i, value) in requirement.values.iter().enumerate() {
        label_value(value).map_err(|message| Problem::new(format!(".values[{i}]"), message))?;
    }
    match (&requirement.operator, requirement.values.is_empty()) {
        (Operator::Unknown(text), _) => {
            Err(Problem::new(".operator", format!("`{text}` is not one of In, NotIn, Exists, DoesNotExist")))
        }
        (Operator::In | Operator::NotIn, true) => {
            Err(Problem::new(".values", "must not be empty for In and NotIn"))
        }
        (Operator::Exists | Operator::DoesNotExist, false) => {
            Err(Problem::new(".values", "must be empty for Exists and DoesNotExist"))
        }
        (Operator::In | Operator::NotIn, false) | (Operator::Exists | Operator::DoesNotExist, true) => Ok(()),
    }
}
