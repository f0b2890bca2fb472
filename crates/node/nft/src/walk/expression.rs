//! One rule, expression by expression, over sixteen registers.

use std::net::IpAddr;

use super::{End, Flow, Stop, World};
use crate::{
    Cmp, CtKey, Data, Direction, DynSetOp, Element, Expr, Family, FibResult, MetaKey, NatKind, PayloadBase,
    Reg, Rule, Set, Table, Verdict,
};

const REGISTERS: usize = 16;
/// Bits of `ct state` and `ct status`, and answers of `fib … type`.
const NEW: u32 = 8;
const SNATED: u32 = 1 << 4;
const DNATED: u32 = 1 << 5;
const LOCAL: u32 = 2;
const UNICAST: u32 = 1;

/// What a rule says.
pub enum Said {
    /// It does not match, or has done its work: the next rule.
    Goes,
    /// A translation: nothing more is asked in this chain.
    Accepts,
    Ends(End),
    Verdict(Verdict),
}

impl Table {
    /// Whether packets of the flow's family come here.
    pub(super) fn takes(&self, flow: &Flow) -> bool {
        match self.family {
            Family::Inet => true,
            Family::Ip => flow.destination.0.is_ipv4(),
            Family::Ip6 => flow.destination.0.is_ipv6(),
        }
    }
}

struct Registers([u8; REGISTERS * 4]);

impl Registers {
    /// Values are padded to whole registers.
    fn put(&mut self, to: Reg, value: &[u8]) {
        let start = usize::from(to.0) * 4;
        let end = start + value.len().next_multiple_of(4);
        self.0[start..end].fill(0);
        self.0[start..start + value.len()].copy_from_slice(value);
    }

    fn get(&self, from: Reg, len: usize) -> &[u8] {
        let start = usize::from(from.0) * 4;
        &self.0[start..start + len]
    }
}

impl World<'_> {
    pub(super) fn rule(&self, table: &Table, rule: &Rule, flow: &mut Flow) -> Result<Said, Stop> {
        let mut registers = Registers([0; REGISTERS * 4]);
        let mut effect = false;
        for expr in &rule.exprs {
            match self.expression(table, expr, &mut registers, flow)? {
                Step::Next => {}
                Step::Effect => effect = true,
                Step::NoMatch => return Ok(Said::Goes),
                Step::Said(said) => {
                    flow.steps.push(rule.comment.clone());
                    return Ok(said);
                }
            }
        }
        if effect {
            flow.steps.push(rule.comment.clone());
        }
        Ok(Said::Goes)
    }

    fn expression(
        &self,
        table: &Table,
        expr: &Expr,
        registers: &mut Registers,
        flow: &mut Flow,
    ) -> Result<Step, Stop> {
        let step = match expr {
            Expr::Payload { base, offset, len, to } => {
                let value = payload(flow, *base, *offset, *len)?;
                registers.put(*to, &value);
                Step::Next
            }
            Expr::Meta { key, to } => {
                registers.put(*to, &meta(flow, *key)?);
                Step::Next
            }
            Expr::SetMeta { key: MetaKey::Mark, from } => {
                flow.mark = number(registers.get(*from, 4));
                Step::Effect
            }
            Expr::Ct { key, direction, to } => {
                registers.put(*to, &connection(flow, *key, *direction)?);
                Step::Next
            }
            Expr::Fib { result: FibResult::AddrType, of_source, to } => {
                let address = if *of_source { flow.source.0 } else { flow.destination.0 };
                let kind = if (self.is_local)(address) { LOCAL } else { UNICAST };
                registers.put(*to, &kind.to_ne_bytes());
                Step::Next
            }
            Expr::Numgen { modulus, to, .. } | Expr::Jhash { modulus, to, .. } => {
                let said = flow.choose(*modulus)?;
                registers.put(*to, &said.to_ne_bytes());
                Step::Next
            }
            Expr::Bitwise { from, mask, xor, to } => {
                let value = registers.get(*from, mask.len()).iter().zip(mask).zip(xor);
                let value: Vec<u8> = value.map(|((byte, mask), xor)| byte & mask ^ xor).collect();
                registers.put(*to, &value);
                Step::Next
            }
            Expr::Cmp { op, from, value } => {
                let known = registers.get(*from, value.len());
                let holds = match op {
                    Cmp::Eq => known == &value[..],
                    Cmp::Ne => known != &value[..],
                    Cmp::Lt => known < &value[..],
                    Cmp::Le => known <= &value[..],
                    Cmp::Gt => known > &value[..],
                    Cmp::Ge => known >= &value[..],
                };
                Step::when(holds)
            }
            Expr::Range { inverted, from, low, high } => {
                let known = registers.get(*from, low.len());
                Step::when((known >= &low[..] && known <= &high[..]) != *inverted)
            }
            Expr::InSet { set, key, inverted } => {
                Step::when(self.find(table, set, *key, registers)?.is_some() != *inverted)
            }
            Expr::Map { map, key, to } => match self.find(table, map, *key, registers)? {
                Some(Data::Value(value)) => {
                    registers.put(*to, &value);
                    Step::Next
                }
                _ => Step::NoMatch,
            },
            Expr::VerdictMap { map, key } => match self.find(table, map, *key, registers)? {
                Some(Data::Verdict(verdict)) => Step::Said(Said::Verdict(*verdict)),
                _ => Step::NoMatch,
            },
            Expr::Immediate { value, to } => {
                registers.put(*to, value);
                Step::Next
            }
            Expr::Verdict(verdict) => Step::Said(Said::Verdict(verdict.clone())),
            Expr::Nat { kind: NatKind::Destination, ipv6, address, port } => {
                let address = read_address(registers.get(*address, if *ipv6 { 16 } else { 4 }));
                let port = port.map_or(flow.destination.1, |port| big_endian(registers.get(port, 2)));
                flow.translate((address, port));
                Step::Said(Said::Accepts)
            }
            Expr::Masquerade { .. } => {
                flow.masqueraded = true;
                Step::Said(Said::Accepts)
            }
            Expr::Reject(with) => Step::Said(Said::Ends(End::Rejected(*with))),
            Expr::DynSet { set, op, key, data, .. } => {
                let schema = &self.set(table, set)?.schema;
                let key = registers.get(*key, schema.key_len());
                let len = schema.data.as_ref().map_or(0, crate::DataType::len);
                let data = data.map(|data| registers.get(data, len)).unwrap_or_default();
                if *op != DynSetOp::Delete {
                    flow.remembered.insert((set.clone(), key.into()), data.into());
                }
                Step::Effect
            }
            Expr::Counter | Expr::Limit { .. } | Expr::Log { .. } | Expr::Notrack | Expr::SetCt { .. } => {
                Step::Next
            }
            Expr::SetMeta { .. } | Expr::Fib { .. } | Expr::Nat { .. } => {
                return Err(Stop::NotUnderstood(format!("{expr:?}")));
            }
        };
        Ok(step)
    }

    fn set<'t>(&self, table: &'t Table, name: &str) -> Result<&'t Set, Stop> {
        table.sets.get(name).ok_or_else(|| Stop::NotUnderstood(format!("there is no set {name}")))
    }

    fn find(&self, table: &Table, name: &str, key: Reg, registers: &Registers) -> Result<Option<Data>, Stop> {
        let set = self.set(table, name)?;
        let key = registers.get(key, set.schema.key_len());
        if set.schema.dynamic {
            let known = self.memory.get(&(name.to_owned(), key.into()));
            return Ok(known.map(|value| Data::Value(value.clone())));
        }
        let Some(elements) = &set.elements else { return Ok(None) };
        if !set.schema.interval {
            return Ok(elements.get(key).map(|element| element.data.clone()));
        }
        let within = |first: &[u8], element: &Element| {
            let last = element.end.as_deref().unwrap_or(first);
            let mut start = 0;
            set.schema.key.iter().all(|field| {
                let range = start..start + field.len();
                start += field.len().next_multiple_of(4);
                key[range.clone()] >= first[range.clone()] && key[range.clone()] <= last[range]
            })
        };
        let mut elements = elements.iter();
        Ok(elements.find(|(first, element)| within(first, element)).map(|(_, element)| element.data.clone()))
    }
}

enum Step {
    Next,
    /// Something was done.
    Effect,
    NoMatch,
    Said(Said),
}

impl Step {
    fn when(holds: bool) -> Self {
        if holds { Self::Next } else { Self::NoMatch }
    }
}

fn payload(flow: &Flow, base: PayloadBase, offset: u32, len: u32) -> Result<Vec<u8>, Stop> {
    let ipv6 = flow.destination.0.is_ipv6();
    match (base, offset, len) {
        (PayloadBase::Network, 12, 4) if !ipv6 => Ok(octets(flow.source.0)),
        (PayloadBase::Network, 16, 4) if !ipv6 => Ok(octets(flow.destination.0)),
        (PayloadBase::Network, 8, 16) if ipv6 => Ok(octets(flow.source.0)),
        (PayloadBase::Network, 24, 16) if ipv6 => Ok(octets(flow.destination.0)),
        (PayloadBase::Transport, 0, 1 | 2) => Ok(flow.source.1.to_be_bytes()[..len as usize].to_vec()),
        (PayloadBase::Transport, 2, 1 | 2) => Ok(flow.destination.1.to_be_bytes()[..len as usize].to_vec()),
        _ => Err(Stop::NotUnderstood(format!("{len} bytes at {offset} of {base:?}"))),
    }
}

fn meta(flow: &Flow, key: MetaKey) -> Result<Vec<u8>, Stop> {
    match key {
        MetaKey::Mark => Ok(flow.mark.to_ne_bytes().to_vec()),
        MetaKey::L4Proto => Ok(vec![flow.protocol]),
        MetaKey::Nfproto => Ok(vec![if flow.destination.0.is_ipv6() { 10 } else { 2 }]),
        MetaKey::InInterfaceName => Ok(crate::Key::new().interface(&flow.interfaces.0).as_bytes().to_vec()),
        MetaKey::OutInterfaceName => Ok(crate::Key::new().interface(&flow.interfaces.1).as_bytes().to_vec()),
        _ => Err(Stop::NotUnderstood(format!("meta {key:?}"))),
    }
}

/// Of the first packet of a connection.
fn connection(flow: &Flow, key: CtKey, direction: Option<Direction>) -> Result<Vec<u8>, Stop> {
    match (key, direction) {
        (CtKey::State, _) => Ok(NEW.to_ne_bytes().to_vec()),
        (CtKey::Status, _) => {
            let bit = |is: bool, bit: u32| if is { bit } else { 0 };
            let bits = bit(flow.masqueraded, SNATED) | bit(flow.translated, DNATED);
            Ok(bits.to_ne_bytes().to_vec())
        }
        (CtKey::DstIp | CtKey::DstIp6, Some(Direction::Original)) => Ok(octets(flow.original.0)),
        (CtKey::ProtoDst, Some(Direction::Original)) => Ok(flow.original.1.to_be_bytes().to_vec()),
        _ => Err(Stop::NotUnderstood(format!("ct {key:?} {direction:?}"))),
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn read_address(bytes: &[u8]) -> IpAddr {
    match <[u8; 4]>::try_from(bytes) {
        Ok(v4) => IpAddr::from(v4),
        Err(_) => IpAddr::from(<[u8; 16]>::try_from(bytes).expect("the caller asks for 4 or 16 bytes")),
    }
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes(bytes.try_into().expect("a register has 4 bytes"))
}

fn big_endian(bytes: &[u8]) -> u16 {
    u16::from_be_bytes(bytes.try_into().expect("the caller asks for 2 bytes"))
}
