//! The kernel's numbers of messages, attributes and values (uapi `nf_tables.h`, `nfnetlink.h`).

use node_nft::{
    ChainKind, Cmp, CtKey, Direction, DynSetOp, Family, FibResult, Hook, LimitUnit, MetaKey, NatKind,
    NumgenMode, PayloadBase, Reject,
};

pub const SUBSYSTEM: u16 = 10;
pub const BATCH_BEGIN: u16 = 0x10;
pub const BATCH_END: u16 = 0x11;

pub const NEW_TABLE: u16 = 0;
pub const GET_TABLE: u16 = 1;
pub const DEL_TABLE: u16 = 2;
pub const NEW_CHAIN: u16 = 3;
pub const GET_CHAIN: u16 = 4;
pub const DEL_CHAIN: u16 = 5;
pub const NEW_RULE: u16 = 6;
pub const GET_RULE: u16 = 7;
pub const DEL_RULE: u16 = 8;
pub const NEW_SET: u16 = 9;
pub const GET_SET: u16 = 10;
pub const DEL_SET: u16 = 11;
pub const NEW_ELEMENT: u16 = 12;
pub const GET_ELEMENT: u16 = 13;
pub const DEL_ELEMENT: u16 = 14;
pub const NEW_GENERATION: u16 = 15;
pub const GET_GENERATION: u16 = 16;

pub const LIST_ELEMENT: u16 = 1;

pub mod table {
    pub const NAME: u16 = 1;
    pub const USERDATA: u16 = 6;
}

pub mod chain {
    pub const TABLE: u16 = 1;
    pub const NAME: u16 = 3;
    pub const HOOK: u16 = 4;
    pub const POLICY: u16 = 5;
    pub const TYPE: u16 = 7;
    pub const HOOK_NUMBER: u16 = 1;
    pub const HOOK_PRIORITY: u16 = 2;
}

pub mod rule {
    pub const TABLE: u16 = 1;
    pub const CHAIN: u16 = 2;
    pub const EXPRESSIONS: u16 = 4;
    pub const USERDATA: u16 = 7;
    pub const EXPRESSION_NAME: u16 = 1;
    pub const EXPRESSION_DATA: u16 = 2;
    pub const COUNTER_PACKETS: u16 = 2;
}

pub mod set {
    pub const TABLE: u16 = 1;
    pub const NAME: u16 = 2;
    pub const FLAGS: u16 = 3;
    pub const KEY_TYPE: u16 = 4;
    pub const KEY_LEN: u16 = 5;
    pub const DATA_TYPE: u16 = 6;
    pub const DATA_LEN: u16 = 7;
    pub const DESC: u16 = 9;
    pub const ID: u16 = 10;
    pub const USERDATA: u16 = 13;
    pub const DESC_SIZE: u16 = 1;
    pub const DESC_CONCAT: u16 = 2;
    pub const FIELD_LEN: u16 = 1;

    pub const FLAG_ANONYMOUS: u32 = 1;
    pub const FLAG_INTERVAL: u32 = 4;
    pub const FLAG_MAP: u32 = 8;
    pub const FLAG_TIMEOUT: u32 = 16;
    pub const FLAG_EVAL: u32 = 32;
    pub const FLAG_CONCAT: u32 = 128;

    pub const VERDICT_TYPE: u32 = 0xffff_ff00;
}

pub mod element {
    pub const TABLE: u16 = 1;
    pub const SET: u16 = 2;
    pub const LIST: u16 = 3;
    pub const KEY: u16 = 1;
    pub const DATA: u16 = 2;
    pub const FLAGS: u16 = 3;
    pub const KEY_END: u16 = 10;
    pub const FLAG_INTERVAL_END: u32 = 1;
}

pub mod data {
    pub const VALUE: u16 = 1;
    pub const VERDICT: u16 = 2;
    pub const VERDICT_CODE: u16 = 1;
    pub const VERDICT_CHAIN: u16 = 2;
}

/// Kinds of user data, as `nft` reads and prints them.
pub mod userdata {
    pub const COMMENT: u8 = 0;
    pub const SET_KEY_BYTE_ORDER: u8 = 0;
    pub const SET_DATA_BYTE_ORDER: u8 = 1;
    pub const SET_KEY_TYPEOF: u8 = 3;
    pub const SET_DATA_TYPEOF: u8 = 4;
    pub const TYPEOF_EXPRESSION: u8 = 0;
    pub const TYPEOF_DETAIL: u8 = 1;
    /// Bytes of a packet: protocol and field, which are not said, layer, first bit and number of bits.
    pub const PAYLOAD: u32 = 7;
    pub const PAYLOAD_DETAIL: [u8; 5] = [0, 1, 2, 3, 4];
    pub const NETWORK_LAYER: u32 = 2;
    pub const META: u32 = 9;
    pub const META_KEY: u8 = 0;
    pub const META_MARK: u32 = 3;
    pub const HOST_ORDER: u32 = 1;
    pub const BIG_ENDIAN: u32 = 2;
}

pub fn family(family: Family) -> u8 {
    match family {
        Family::Inet => 1,
        Family::Ip => 2,
        Family::Ip6 => 10,
    }
}

pub fn hook(hook: Hook) -> u32 {
    match hook {
        Hook::Prerouting => 0,
        Hook::Input => 1,
        Hook::Forward => 2,
        Hook::Output => 3,
        Hook::Postrouting => 4,
    }
}

pub fn hook_from(number: u32) -> Option<Hook> {
    [Hook::Prerouting, Hook::Input, Hook::Forward, Hook::Output, Hook::Postrouting]
        .into_iter()
        .find(|one| hook(*one) == number)
}

pub fn chain_kind(kind: ChainKind) -> &'static str {
    match kind {
        ChainKind::Filter => "filter",
        ChainKind::Nat => "nat",
        ChainKind::Route => "route",
    }
}

pub fn chain_kind_from(name: &str) -> Option<ChainKind> {
    [ChainKind::Filter, ChainKind::Nat, ChainKind::Route].into_iter().find(|kind| chain_kind(*kind) == name)
}

pub fn payload_base(base: PayloadBase) -> u32 {
    match base {
        PayloadBase::Link => 0,
        PayloadBase::Network => 1,
        PayloadBase::Transport => 2,
    }
}

pub fn meta_key(key: MetaKey) -> u32 {
    match key {
        MetaKey::Protocol => 1,
        MetaKey::Mark => 3,
        MetaKey::InInterface => 4,
        MetaKey::OutInterface => 5,
        MetaKey::InInterfaceName => 6,
        MetaKey::OutInterfaceName => 7,
        MetaKey::Nfproto => 15,
        MetaKey::L4Proto => 16,
        MetaKey::PacketType => 19,
    }
}

pub fn ct_key(key: CtKey) -> u32 {
    match key {
        CtKey::State => 0,
        CtKey::Direction => 1,
        CtKey::Status => 2,
        CtKey::Mark => 3,
        CtKey::Protocol => 10,
        CtKey::ProtoSrc => 11,
        CtKey::ProtoDst => 12,
        CtKey::SrcIp => 19,
        CtKey::DstIp => 20,
        CtKey::SrcIp6 => 21,
        CtKey::DstIp6 => 22,
    }
}

pub fn direction(direction: Direction) -> u8 {
    match direction {
        Direction::Original => 0,
        Direction::Reply => 1,
    }
}

pub fn fib_result(result: FibResult) -> u32 {
    match result {
        FibResult::OutInterface => 1,
        FibResult::AddrType => 3,
    }
}

pub fn numgen(mode: NumgenMode) -> u32 {
    match mode {
        NumgenMode::Incremental => 0,
        NumgenMode::Random => 1,
    }
}

pub fn cmp(op: Cmp) -> u32 {
    match op {
        Cmp::Eq => 0,
        Cmp::Ne => 1,
        Cmp::Lt => 2,
        Cmp::Le => 3,
        Cmp::Gt => 4,
        Cmp::Ge => 5,
    }
}

pub fn nat_kind(kind: NatKind) -> u32 {
    match kind {
        NatKind::Source => 0,
        NatKind::Destination => 1,
    }
}

/// Type and, for ICMP, code. Only tables of both families know the codes that the kernel translates; in others they
/// would be taken without complaint and answered with silence.
pub fn reject(reject: Reject, within: Family) -> (u32, Option<u8>) {
    const ICMP: u32 = 0;
    const RESET: u32 = 1;
    const TRANSLATED: u32 = 2;
    match (reject, within) {
        (Reject::TcpReset, _) => (RESET, None),
        (Reject::PortUnreachable, Family::Ip) => (ICMP, Some(3)),
        (Reject::PortUnreachable, Family::Ip6) => (ICMP, Some(4)),
        (Reject::PortUnreachable, Family::Inet) => (TRANSLATED, Some(1)),
        (Reject::AdminProhibited, Family::Ip) => (ICMP, Some(13)),
        (Reject::AdminProhibited, Family::Ip6) => (ICMP, Some(1)),
        (Reject::AdminProhibited, Family::Inet) => (TRANSLATED, Some(3)),
    }
}

pub fn limit_unit(unit: LimitUnit) -> u64 {
    match unit {
        LimitUnit::Second => 1,
        LimitUnit::Minute => 60,
        LimitUnit::Hour => 3_600,
    }
}

pub fn dynset_op(op: DynSetOp) -> u32 {
    match op {
        DynSetOp::Add => 0,
        DynSetOp::Update => 1,
        DynSetOp::Delete => 2,
    }
}
