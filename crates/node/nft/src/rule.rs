//! A rule, and the few phrases that most rules are made of.

use std::fmt::{self, Write as _};

use crate::{
    Cmp, CtKey, Direction, DynSetOp, Expr, FibResult, MetaKey, NatKind, NumgenMode, PayloadBase, Reg, Reject,
    Verdict,
};

/// State bits of `ct state`.
const ESTABLISHED_RELATED: u32 = 2 | 4;
const INVALID: u32 = 1;
const NEW: u32 = 8;
/// IPS_SRC_NAT and IPS_DST_NAT of `ct status`.
const SNATED: u32 = 1 << 4;
const DNATED: u32 = 1 << 5;
/// RTN_LOCAL of `fib … type`.
const LOCAL: u32 = 2;

/// Takes text as it is printed: to keep it first takes as long again.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl fmt::Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 =
            text.bytes().fold(self.0, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        Ok(())
    }
}

/// Built left to right, each call appends one phrase.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    pub exprs: Vec<Expr>,
    /// Shown by `nft list`, without the fingerprint that follows it there.
    pub comment: String,
}

impl Rule {
    pub fn new(comment: impl Into<String>) -> Self {
        Self { exprs: Vec::new(), comment: comment.into() }
    }

    /// 64-bit FNV-1a of expressions and comment: how the rule is recognised after a restart.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = Fnv::default();
        write!(hash, "{:?}{}", self.exprs, self.comment).expect("a hash takes everything");
        hash.0
    }

    #[must_use]
    pub fn expr(mut self, expr: Expr) -> Self {
        self.exprs.push(expr);
        self
    }

    #[must_use]
    pub fn payload(self, base: PayloadBase, offset: u32, len: u32, to: Reg) -> Self {
        self.expr(Expr::Payload { base, offset, len, to })
    }

    #[must_use]
    pub fn ip_saddr(self, ipv6: bool, to: Reg) -> Self {
        let (offset, len) = if ipv6 { (8, 16) } else { (12, 4) };
        self.payload(PayloadBase::Network, offset, len, to)
    }

    #[must_use]
    pub fn ip_daddr(self, ipv6: bool, to: Reg) -> Self {
        let (offset, len) = if ipv6 { (24, 16) } else { (16, 4) };
        self.payload(PayloadBase::Network, offset, len, to)
    }

    #[must_use]
    pub fn sport(self, to: Reg) -> Self {
        self.payload(PayloadBase::Transport, 0, 2, to)
    }

    #[must_use]
    pub fn dport(self, to: Reg) -> Self {
        self.payload(PayloadBase::Transport, 2, 2, to)
    }

    #[must_use]
    pub fn meta(self, key: MetaKey, to: Reg) -> Self {
        self.expr(Expr::Meta { key, to })
    }

    #[must_use]
    pub fn l4proto(self, to: Reg) -> Self {
        self.meta(MetaKey::L4Proto, to)
    }

    #[must_use]
    pub fn is(self, from: Reg, value: &[u8]) -> Self {
        self.expr(Expr::Cmp { op: Cmp::Eq, from, value: value.to_vec() })
    }

    #[must_use]
    pub fn is_not(self, from: Reg, value: &[u8]) -> Self {
        self.expr(Expr::Cmp { op: Cmp::Ne, from, value: value.to_vec() })
    }

    #[must_use]
    pub fn in_set(self, key: Reg, set: impl Into<String>) -> Self {
        self.expr(Expr::InSet { set: set.into(), key, inverted: false })
    }

    #[must_use]
    pub fn not_in_set(self, key: Reg, set: impl Into<String>) -> Self {
        self.expr(Expr::InSet { set: set.into(), key, inverted: true })
    }

    #[must_use]
    pub fn map(self, key: Reg, map: impl Into<String>, to: Reg) -> Self {
        self.expr(Expr::Map { map: map.into(), key, to })
    }

    #[must_use]
    pub fn vmap(self, key: Reg, map: impl Into<String>) -> Self {
        self.expr(Expr::VerdictMap { map: map.into(), key })
    }

    /// `(value & mask) ^ xor` of one 32-bit value in host order.
    #[must_use]
    pub fn bits(self, from: Reg, mask: u32, xor: u32, to: Reg) -> Self {
        let (mask, xor) = (mask.to_ne_bytes().to_vec(), xor.to_ne_bytes().to_vec());
        self.expr(Expr::Bitwise { from, mask, xor, to })
    }

    #[must_use]
    pub fn ct_new(self) -> Self {
        self.ct_any(CtKey::State, NEW)
    }

    #[must_use]
    pub fn ct_established_or_related(self) -> Self {
        self.ct_any(CtKey::State, ESTABLISHED_RELATED)
    }

    #[must_use]
    pub fn ct_invalid(self) -> Self {
        self.ct_any(CtKey::State, INVALID)
    }

    /// The connection's destination was translated.
    #[must_use]
    pub fn ct_dnated(self) -> Self {
        self.ct_any(CtKey::Status, DNATED)
    }

    /// The connection's source was translated.
    #[must_use]
    pub fn ct_snated(self) -> Self {
        self.ct_any(CtKey::Status, SNATED)
    }

    /// The port that the connection was first sent to.
    #[must_use]
    pub fn ct_original_port(self, to: Reg) -> Self {
        self.expr(Expr::Ct { key: CtKey::ProtoDst, direction: Some(Direction::Original), to })
    }

    fn ct_any(self, key: CtKey, bits: u32) -> Self {
        let to = Reg(0);
        self.expr(Expr::Ct { key, direction: None, to }).bits(to, bits, 0, to).is_not(to, &[0; 4])
    }

    /// The source address belongs to this host.
    #[must_use]
    pub fn saddr_local(self) -> Self {
        let to = Reg(0);
        self.expr(Expr::Fib { result: FibResult::AddrType, of_source: true, to }).is(to, &LOCAL.to_ne_bytes())
    }

    /// The destination address belongs to this host.
    #[must_use]
    pub fn daddr_local(self) -> Self {
        let to = Reg(0);
        self.expr(Expr::Fib { result: FibResult::AddrType, of_source: false, to })
            .is(to, &LOCAL.to_ne_bytes())
    }

    #[must_use]
    pub fn mark_has(self, bits: u32) -> Self {
        let to = Reg(0);
        self.meta(MetaKey::Mark, to).bits(to, bits, 0, to).is_not(to, &[0; 4])
    }

    /// `mark = (mark & mask) ^ xor`.
    #[must_use]
    pub fn set_mark(self, mask: u32, xor: u32) -> Self {
        let reg = Reg(0);
        self.meta(MetaKey::Mark, reg)
            .bits(reg, mask, xor, reg)
            .expr(Expr::SetMeta { key: MetaKey::Mark, from: reg })
    }

    #[must_use]
    pub fn random(self, modulus: u32, to: Reg) -> Self {
        self.expr(Expr::Numgen { mode: NumgenMode::Random, modulus, to })
    }

    #[must_use]
    pub fn dnat(self, ipv6: bool, address: Reg, port: Option<Reg>) -> Self {
        self.expr(Expr::Nat { kind: NatKind::Destination, ipv6, address, port })
    }

    #[must_use]
    pub fn masquerade(self) -> Self {
        self.expr(Expr::Masquerade { random: true })
    }

    #[must_use]
    pub fn refresh(self, set: impl Into<String>, key: Reg, data: Option<Reg>, timeout_ms: u64) -> Self {
        let timeout_ms = Some(timeout_ms);
        self.expr(Expr::DynSet { set: set.into(), op: DynSetOp::Update, key, data, timeout_ms })
    }

    #[must_use]
    pub fn remove(self, set: impl Into<String>, key: Reg, data: Option<Reg>) -> Self {
        self.expr(Expr::DynSet { set: set.into(), op: DynSetOp::Delete, key, data, timeout_ms: None })
    }

    #[must_use]
    pub fn counter(self) -> Self {
        self.expr(Expr::Counter)
    }

    /// The packet is told to whoever listens to the log group.
    #[must_use]
    pub fn log(self, prefix: impl Into<String>, group: u16) -> Self {
        self.expr(Expr::Log { prefix: prefix.into(), group: Some(group) })
    }

    #[must_use]
    pub fn reject(self, with: Reject) -> Self {
        self.expr(Expr::Reject(with))
    }

    #[must_use]
    pub fn verdict(self, verdict: Verdict) -> Self {
        self.expr(Expr::Verdict(verdict))
    }

    #[must_use]
    pub fn accept(self) -> Self {
        self.verdict(Verdict::Accept)
    }

    #[must_use]
    pub fn discard(self) -> Self {
        self.verdict(Verdict::Drop)
    }

    #[must_use]
    pub fn jump(self, chain: impl Into<String>) -> Self {
        self.verdict(Verdict::Jump(chain.into()))
    }

    #[must_use]
    pub fn goto(self, chain: impl Into<String>) -> Self {
        self.verdict(Verdict::Goto(chain.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules in the kernel are known by it: another one for the same rule would have an update write all of them anew.
    #[test]
    fn a_rule_keeps_its_fingerprint_from_version_to_version() {
        let rule = Rule::new("the endpoint it had before").ip_daddr(false, Reg(0)).is(Reg(0), &[10, 0, 0, 1]);
        assert_eq!(rule.accept().fingerprint(), 0x5d8c_a45f_51c3_3877);
    }
}
