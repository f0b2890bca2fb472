//! Whether a rule is about a packet: the one place that knows, for `explain` and for surveys.

use model::policy::output::{NamedPort, PortRef, Protocol, Service};

/// The packet that opens a connection, peers aside. What is absent is left open: only rules that say nothing of it match.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    /// None: one that no rule can name.
    pub(crate) protocol: Option<Protocol>,
    pub(crate) port: Option<u16>,
    pub(crate) source_port: Option<u16>,
    /// Type and code.
    pub(crate) icmp: Option<(u8, u8)>,
}

impl Asked {
    /// Whether a rule with these services is about the packet. `names`: the named ports of the destination, where names
    /// can be looked up.
    pub(crate) fn meets<'a, N>(&self, services: &[Service], names: impl Fn() -> N) -> bool
    where
        N: Iterator<Item = &'a NamedPort>,
    {
        services.is_empty() || services.iter().any(|service| self.is(service, &names))
    }

    fn is<'a, N: Iterator<Item = &'a NamedPort>>(&self, service: &Service, names: &impl Fn() -> N) -> bool {
        Some(service.protocol) == self.protocol
            && match (&service.port, self.port) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(PortRef::Number(first)), Some(port)) => {
                    (*first..=service.end_port.unwrap_or(*first)).contains(&port)
                }
                (Some(PortRef::Name(name)), Some(port)) => names().any(|named| {
                    named.name == *name && named.protocol == service.protocol && named.port == port
                }),
            }
            && service.source_port.is_none_or(|first| {
                let range = first..=service.source_end_port.unwrap_or(first);
                self.source_port.is_some_and(|port| range.contains(&port))
            })
            && service.icmp_type.is_none_or(|wanted| {
                let is =
                    |(kind, code)| kind == wanted && service.icmp_code.is_none_or(|wanted| code == wanted);
                self.icmp.is_some_and(is)
            })
    }
}
