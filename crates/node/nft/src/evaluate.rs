//! What a table does with a packet, without a kernel. For tests of what planes produce.
//!
//! Understands matching, sets and maps, marks and verdicts. An expression that looks at the world outside of the packet
//! is an error rather than a guess.

use std::net::IpAddr;

use crate::{
    Chain, Cmp, CtKey, Data, Element, Elements, Expr, Hook, MetaKey, PayloadBase, Policy, Reg, Reject, Rule,
    Set, Table, Verdict,
};

/// State bits of `ct state`.
pub const NEW: u32 = 8;
pub const ESTABLISHED: u32 = 2;

#[derive(Clone, Debug)]
pub struct Packet {
    /// Empty in hooks that have none.
    pub in_interface: String,
    pub out_interface: String,
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: u8,
    /// The first bytes behind the IP header.
    pub header: [u8; 4],
    pub mark: u32,
    pub ct_state: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Accept,
    Drop,
    Reject(Reject),
}

/// What became of the packet, its mark afterwards, and how many rules it met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    pub outcome: Outcome,
    pub mark: u32,
    pub rules: usize,
}

/// An expression that cannot be evaluated here, a name that is not there, or a loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck(pub String);

/// More jumps than the kernel bears.
const DEPTH: usize = 16;

/// Runs the packet through the hook's chains, by priority.
pub fn evaluate(table: &Table, hook: Hook, packet: &Packet) -> Result<Judgement, Stuck> {
    let mut run = Run { table, packet, mark: packet.mark, registers: [0; 64], rules: 0 };
    let mut bases: Vec<_> = table.chains.values().filter_map(|chain| Some((chain.base?, chain))).collect();
    bases.retain(|(base, _)| base.hook == hook);
    bases.sort_by_key(|(base, _)| base.priority);
    for (base, chain) in bases {
        let outcome = match run.chain(chain, 0)? {
            Flow::Stop(outcome) => outcome,
            Flow::Return if base.policy == Policy::Drop => Outcome::Drop,
            Flow::Return => Outcome::Accept,
        };
        if outcome != Outcome::Accept {
            return Ok(Judgement { outcome, mark: run.mark, rules: run.rules });
        }
    }
    Ok(Judgement { outcome: Outcome::Accept, mark: run.mark, rules: run.rules })
}

struct Run<'a> {
    table: &'a Table,
    packet: &'a Packet,
    mark: u32,
    registers: [u8; 64],
    rules: usize,
}

enum Flow {
    Stop(Outcome),
    /// Back to the caller, or to the chain's policy.
    Return,
}

/// What a rule comes to.
enum Effect {
    None,
    Verdict(Verdict),
    Stop(Outcome),
}

impl<'a> Run<'a> {
    fn chain(&mut self, chain: &'a Chain, depth: usize) -> Result<Flow, Stuck> {
        if depth > DEPTH {
            return Err(Stuck("too many jumps".into()));
        }
        for rule in &chain.rules {
            self.rules += 1;
            let verdict = match self.rule(rule)? {
                Effect::None => continue,
                Effect::Stop(outcome) => return Ok(Flow::Stop(outcome)),
                Effect::Verdict(verdict) => verdict,
            };
            match verdict {
                Verdict::Accept => return Ok(Flow::Stop(Outcome::Accept)),
                Verdict::Drop => return Ok(Flow::Stop(Outcome::Drop)),
                Verdict::Continue => {}
                Verdict::Return => return Ok(Flow::Return),
                Verdict::Goto(name) => return self.chain(self.find(&name)?, depth + 1),
                Verdict::Jump(name) => {
                    if let Flow::Stop(outcome) = self.chain(self.find(&name)?, depth + 1)? {
                        return Ok(Flow::Stop(outcome));
                    }
                }
            }
        }
        Ok(Flow::Return)
    }

    fn find(&self, name: &str) -> Result<&'a Chain, Stuck> {
        self.table.chains.get(name).ok_or_else(|| Stuck(format!("no chain {name}")))
    }

    fn rule(&mut self, rule: &Rule) -> Result<Effect, Stuck> {
        for expr in &rule.exprs {
            let matched = match expr {
                Expr::Verdict(verdict) => return Ok(Effect::Verdict(verdict.clone())),
                Expr::Reject(with) => return Ok(Effect::Stop(Outcome::Reject(*with))),
                Expr::VerdictMap { map, key } => {
                    return Ok(match self.lookup(map, *key)?.map(|element| &element.data) {
                        Some(Data::Verdict(verdict)) => Effect::Verdict((**verdict).clone()),
                        Some(_) => return Err(Stuck(format!("map {map} has no verdicts"))),
                        None => Effect::None,
                    });
                }
                other => self.expression(other)?,
            };
            if !matched {
                return Ok(Effect::None);
            }
        }
        Ok(Effect::None)
    }

    /// Whether the rule goes on.
    fn expression(&mut self, expr: &Expr) -> Result<bool, Stuck> {
        match expr {
            Expr::Payload { base, offset, len, to } => {
                let bytes = self.payload(*base, *offset, *len)?;
                self.write(*to, &bytes);
            }
            Expr::Meta { key, to } => {
                let value = self.meta(*key)?;
                self.write(*to, &value);
            }
            Expr::SetMeta { key: MetaKey::Mark, from } => {
                let bytes = self.read(*from, 4);
                self.mark = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            }
            Expr::Ct { key: CtKey::State, to, .. } => self.write(*to, &self.packet.ct_state.to_ne_bytes()),
            Expr::Bitwise { from, mask, xor, to } => {
                let value = self.read(*from, mask.len());
                let bits = value.iter().zip(mask).zip(xor).map(|((value, mask), xor)| (value & mask) ^ xor);
                let bits: Vec<u8> = bits.collect();
                self.write(*to, &bits);
            }
            Expr::Cmp { op, from, value } => {
                let order = self.read(*from, value.len()).as_slice().cmp(value);
                return Ok(match op {
                    Cmp::Eq => order.is_eq(),
                    Cmp::Ne => order.is_ne(),
                    Cmp::Lt => order.is_lt(),
                    Cmp::Le => order.is_le(),
                    Cmp::Gt => order.is_gt(),
                    Cmp::Ge => order.is_ge(),
                });
            }
            Expr::Range { inverted, from, low, high } => {
                let value = self.read(*from, low.len());
                return Ok((low <= &value && &value <= high) != *inverted);
            }
            Expr::InSet { set, key, inverted } => return Ok(self.lookup(set, *key)?.is_some() != *inverted),
            Expr::Map { map, key, to } => {
                let Some(element) = self.lookup(map, *key)? else { return Ok(false) };
                let Data::Value(value) = &element.data else {
                    return Err(Stuck(format!("map {map} has no values")));
                };
                self.write(*to, value);
            }
            Expr::Immediate { value, to } => self.write(*to, value),
            Expr::Counter => {}
            other => return Err(Stuck(format!("{other:?} depends on more than the packet"))),
        }
        Ok(true)
    }

    fn payload(&self, base: PayloadBase, offset: u32, len: u32) -> Result<Vec<u8>, Stuck> {
        let ipv6 = self.packet.source.is_ipv6();
        let octets = |address: IpAddr| match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        Ok(match (base, offset, len, ipv6) {
            (PayloadBase::Network, 12, 4, false) | (PayloadBase::Network, 8, 16, true) => {
                octets(self.packet.source)
            }
            (PayloadBase::Network, 16, 4, false) | (PayloadBase::Network, 24, 16, true) => {
                octets(self.packet.destination)
            }
            (PayloadBase::Transport, 0 | 2, 1 | 2, _) => {
                let (from, len) = (if offset == 0 { 0 } else { 2 }, if len == 1 { 1 } else { 2 });
                self.packet.header[from..from + len].to_vec()
            }
            _ => return Err(Stuck(format!("payload {base:?} {offset} {len}"))),
        })
    }

    fn meta(&self, key: MetaKey) -> Result<Vec<u8>, Stuck> {
        let name = |name: &str| crate::Key::new().interface(name).as_bytes().to_vec();
        Ok(match key {
            MetaKey::Mark => self.mark.to_ne_bytes().to_vec(),
            MetaKey::InInterfaceName => name(&self.packet.in_interface),
            MetaKey::OutInterfaceName => name(&self.packet.out_interface),
            MetaKey::Nfproto => vec![if self.packet.source.is_ipv6() { 10 } else { 2 }],
            MetaKey::L4Proto => vec![self.packet.protocol],
            other => return Err(Stuck(format!("meta {other:?}"))),
        })
    }

    /// A value fills its last register with zeroes, as in the kernel.
    fn write(&mut self, to: Reg, bytes: &[u8]) {
        let start = usize::from(to.0) * 4;
        let end = start + bytes.len().next_multiple_of(4);
        self.registers[start..end].fill(0);
        self.registers[start..start + bytes.len()].copy_from_slice(bytes);
    }

    fn read(&self, from: Reg, len: usize) -> Vec<u8> {
        let start = usize::from(from.0) * 4;
        self.registers[start..start + len].to_vec()
    }

    fn lookup(&self, name: &str, key: Reg) -> Result<Option<&'a Element>, Stuck> {
        let set = self.table.sets.get(name).ok_or_else(|| Stuck(format!("no set {name}")))?;
        let Some(elements) = &set.elements else { return Err(Stuck(format!("set {name} is dynamic"))) };
        let key = self.read(key, set.schema.key_len().next_multiple_of(4));
        Ok(find(set, elements, &key))
    }
}

fn find<'a>(set: &Set, elements: &'a Elements, key: &[u8]) -> Option<&'a Element> {
    if !set.schema.interval {
        return elements.get(key);
    }
    let covers = |first: &[u8], element: &Element| {
        let last = element.end.as_deref().unwrap_or(first);
        let mut at = 0;
        set.schema.key.iter().all(|field| {
            let range = at..at + field.len();
            at += field.len().next_multiple_of(4);
            first[range.clone()] <= key[range.clone()] && key[range.clone()] <= last[range]
        })
    };
    elements.iter().find(|(first, element)| covers(first, element)).map(|(_, element)| element)
}
