//! Expressions as attributes.

use node_nft::{Expr, Family, Reg, Reject, Verdict};

use super::number::{self, data};
use crate::netlink::Writer;

/// NFT_REG_VERDICT.
const VERDICT_REGISTER: u32 = 0;
/// NFT_REG32_00.
const FIRST_REGISTER: u32 = 8;
/// NF_NAT_RANGE_PROTO_RANDOM_FULLY.
const RANDOM_FULLY: u32 = 1 << 4;
const FIB_SOURCE: u32 = 1;
const FIB_DESTINATION: u32 = 2;

pub fn write(out: &mut Writer<'_>, expr: &Expr, within: Family) {
    match expr {
        Expr::Payload { base, offset, len, to } => named(out, "payload", |out| {
            register(out, 1, *to);
            out.be32(2, number::payload_base(*base));
            out.be32(3, *offset);
            out.be32(4, *len);
        }),
        Expr::Meta { key, to } => named(out, "meta", |out| {
            register(out, 1, *to);
            out.be32(2, number::meta_key(*key));
        }),
        Expr::SetMeta { key, from } => named(out, "meta", |out| {
            out.be32(2, number::meta_key(*key));
            register(out, 3, *from);
        }),
        Expr::Ct { key, direction, to } => named(out, "ct", |out| {
            register(out, 1, *to);
            out.be32(2, number::ct_key(*key));
            direction.iter().for_each(|direction| out.bytes(3, &[number::direction(*direction)]));
        }),
        Expr::SetCt { key, from } => named(out, "ct", |out| {
            out.be32(2, number::ct_key(*key));
            register(out, 4, *from);
        }),
        Expr::Fib { result, of_source, to } => named(out, "fib", |out| {
            register(out, 1, *to);
            out.be32(2, number::fib_result(*result));
            out.be32(3, if *of_source { FIB_SOURCE } else { FIB_DESTINATION });
        }),
        Expr::Numgen { mode, modulus, to } => named(out, "numgen", |out| {
            register(out, 1, *to);
            out.be32(2, *modulus);
            out.be32(3, number::numgen(*mode));
            out.be32(4, 0);
        }),
        Expr::Jhash { from, len, modulus, seed, to } => named(out, "hash", |out| {
            register(out, 1, *from);
            register(out, 2, *to);
            out.be32(3, *len);
            out.be32(4, *modulus);
            out.be32(5, *seed);
            out.be32(7, 0);
        }),
        Expr::Bitwise { from, mask, xor, to } => named(out, "bitwise", |out| {
            register(out, 1, *from);
            register(out, 2, *to);
            out.be32(3, u32::try_from(mask.len()).expect("a mask is as long as a register file at most"));
            value(out, 4, mask);
            value(out, 5, xor);
        }),
        Expr::Cmp { op, from, value: right } => named(out, "cmp", |out| {
            register(out, 1, *from);
            out.be32(2, number::cmp(*op));
            value(out, 3, right);
        }),
        Expr::Range { inverted, from, low, high } => named(out, "range", |out| {
            register(out, 1, *from);
            out.be32(2, u32::from(*inverted));
            value(out, 3, low);
            value(out, 4, high);
        }),
        Expr::InSet { set, key, inverted } => lookup(out, set, *key, None, *inverted),
        Expr::Map { map, key, to } => lookup(out, map, *key, Some(FIRST_REGISTER + u32::from(to.0)), false),
        Expr::VerdictMap { map, key } => lookup(out, map, *key, Some(VERDICT_REGISTER), false),
        Expr::Immediate { value: constant, to } => named(out, "immediate", |out| {
            register(out, 1, *to);
            value(out, 2, constant);
        }),
        Expr::Verdict(chosen) => named(out, "immediate", |out| {
            out.be32(1, VERDICT_REGISTER);
            verdict(out, 2, chosen);
        }),
        Expr::DynSet { set, op, key, data, timeout_ms } => named(out, "dynset", |out| {
            out.text(1, set);
            out.be32(3, number::dynset_op(*op));
            register(out, 4, *key);
            data.iter().for_each(|data| register(out, 5, *data));
            timeout_ms.iter().for_each(|timeout| out.be64(6, *timeout));
        }),
        Expr::Nat { .. }
        | Expr::Masquerade { .. }
        | Expr::Reject(_)
        | Expr::Counter
        | Expr::Limit { .. }
        | Expr::Log { .. }
        | Expr::Notrack => statement(out, expr, within),
    }
}

/// What acts on the packet rather than on registers.
fn statement(out: &mut Writer<'_>, expr: &Expr, within: Family) {
    match expr {
        Expr::Nat { kind, ipv6, address, port } => named(out, "nat", |out| {
            out.be32(1, number::nat_kind(*kind));
            out.be32(2, if *ipv6 { 10 } else { 2 });
            register(out, 3, *address);
            register(out, 4, *address);
            if let Some(port) = port {
                register(out, 5, *port);
                register(out, 6, *port);
            }
        }),
        Expr::Masquerade { random } => named(out, "masq", |out| {
            if *random {
                out.be32(1, RANDOM_FULLY);
            }
        }),
        Expr::Reject(with) => reject(out, *with, within),
        Expr::Counter => named(out, "counter", |_| {}),
        Expr::Limit { rate, unit, burst } => named(out, "limit", |out| {
            out.be64(1, *rate);
            out.be64(2, number::limit_unit(*unit));
            out.be32(3, *burst);
        }),
        Expr::Log { prefix, group } => named(out, "log", |out| {
            group.iter().for_each(|group| out.be16(1, *group));
            out.text(2, prefix);
        }),
        _ => named(out, "notrack", |_| {}),
    }
}

fn reject(out: &mut Writer<'_>, with: Reject, within: Family) {
    let (kind, code) = number::reject(with, within);
    named(out, "reject", |out| {
        out.be32(1, kind);
        code.iter().for_each(|code| out.bytes(2, &[*code]));
    });
}

fn lookup(out: &mut Writer<'_>, set: &str, key: Reg, to: Option<u32>, inverted: bool) {
    named(out, "lookup", |out| {
        out.text(1, set);
        register(out, 2, key);
        to.iter().for_each(|to| out.be32(3, *to));
        if inverted {
            out.be32(5, 1);
        }
    });
}

fn named(out: &mut Writer<'_>, name: &str, attrs: impl FnOnce(&mut Writer<'_>)) {
    out.nest(number::LIST_ELEMENT, |out| {
        out.text(number::rule::EXPRESSION_NAME, name);
        out.nest(number::rule::EXPRESSION_DATA, attrs);
    });
}

fn register(out: &mut Writer<'_>, kind: u16, register: Reg) {
    out.be32(kind, FIRST_REGISTER + u32::from(register.0));
}

pub fn value(out: &mut Writer<'_>, kind: u16, bytes: &[u8]) {
    out.nest(kind, |out| out.bytes(data::VALUE, bytes));
}

pub fn verdict(out: &mut Writer<'_>, kind: u16, verdict: &Verdict) {
    let code: i32 = match verdict {
        Verdict::Drop => 0,
        Verdict::Accept => 1,
        Verdict::Continue => -1,
        Verdict::Jump(_) => -3,
        Verdict::Goto(_) => -4,
        Verdict::Return => -5,
    };
    out.nest(kind, |out| {
        out.nest(data::VERDICT, |out| {
            out.be32(data::VERDICT_CODE, code.cast_unsigned());
            verdict.chain_name().iter().for_each(|chain| out.text(data::VERDICT_CHAIN, chain));
        });
    });
}
