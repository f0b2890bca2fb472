//! The expressions that rules are made of, at the level of registers.

/// A 4-byte register, 0 to 15. A value of n bytes fills the registers from its first one on, 4 bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reg(pub u8);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    /// Bytes of the packet into registers.
    Payload {
        base: PayloadBase,
        offset: u32,
        len: u32,
        to: Reg,
    },
    Meta {
        key: MetaKey,
        to: Reg,
    },
    SetMeta {
        key: MetaKey,
        from: Reg,
    },
    Ct {
        key: CtKey,
        direction: Option<Direction>,
        to: Reg,
    },
    SetCt {
        key: CtKey,
        from: Reg,
    },
    /// What the routing table says of the packet's source or destination address.
    Fib {
        result: FibResult,
        of_source: bool,
        to: Reg,
    },
    /// A number below `modulus`.
    Numgen {
        mode: NumgenMode,
        modulus: u32,
        to: Reg,
    },
    /// Jenkins hash of `len` bytes, below `modulus`.
    Jhash {
        from: Reg,
        len: u32,
        modulus: u32,
        seed: u32,
        to: Reg,
    },
    /// `(value & mask) ^ xor`; mask and xor have the value's length.
    Bitwise {
        from: Reg,
        mask: Vec<u8>,
        xor: Vec<u8>,
        to: Reg,
    },
    Cmp {
        op: Cmp,
        from: Reg,
        value: Vec<u8>,
    },
    /// Within `low..=high`, or outside of it if `inverted`.
    Range {
        inverted: bool,
        from: Reg,
        low: Vec<u8>,
        high: Vec<u8>,
    },
    /// Member of a set, or not a member if `inverted`.
    InSet {
        set: String,
        key: Reg,
        inverted: bool,
    },
    /// Value of a map; the rule ends without effect if the key is absent.
    Map {
        map: String,
        key: Reg,
        to: Reg,
    },
    /// Verdict of a verdict map; the rule ends without effect if the key is absent.
    VerdictMap {
        map: String,
        key: Reg,
    },
    Immediate {
        value: Vec<u8>,
        to: Reg,
    },
    Verdict(Verdict),
    Nat {
        kind: NatKind,
        ipv6: bool,
        address: Reg,
        port: Option<Reg>,
    },
    /// Source port fully at random if `random`.
    Masquerade {
        random: bool,
    },
    Reject(Reject),
    Counter,
    /// `rate` packets per `unit`; more do not match.
    Limit {
        rate: u64,
        unit: LimitUnit,
        burst: u32,
    },
    /// To a netlink log group, or to the kernel's log if `None`.
    Log {
        prefix: String,
        group: Option<u16>,
    },
    /// Adds to, refreshes or removes from a dynamic set or map.
    DynSet {
        set: String,
        op: DynSetOp,
        key: Reg,
        data: Option<Reg>,
        timeout_ms: Option<u64>,
    },
    Notrack,
}

impl Expr {
    /// The set or map that the expression reads or writes.
    pub fn set_name(&self) -> Option<&str> {
        match self {
            Self::InSet { set, .. } | Self::DynSet { set, .. } => Some(set),
            Self::Map { map, .. } | Self::VerdictMap { map, .. } => Some(map),
            _ => None,
        }
    }

    /// The chain that the expression leads to.
    pub fn chain_name(&self) -> Option<&str> {
        match self {
            Self::Verdict(verdict) => verdict.chain_name(),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Accept,
    Drop,
    Return,
    Continue,
    Jump(String),
    Goto(String),
}

impl Verdict {
    pub fn chain_name(&self) -> Option<&str> {
        match self {
            Self::Jump(chain) | Self::Goto(chain) => Some(chain),
            Self::Accept | Self::Drop | Self::Return | Self::Continue => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadBase {
    Link,
    Network,
    Transport,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaKey {
    Protocol,
    Mark,
    InInterface,
    OutInterface,
    InInterfaceName,
    OutInterfaceName,
    Nfproto,
    L4Proto,
    PacketType,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CtKey {
    State,
    Direction,
    Status,
    Mark,
    Protocol,
    ProtoSrc,
    ProtoDst,
    SrcIp,
    DstIp,
    SrcIp6,
    DstIp6,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Original,
    Reply,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FibResult {
    AddrType,
    OutInterface,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumgenMode {
    Incremental,
    Random,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatKind {
    Source,
    Destination,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    TcpReset,
    /// ICMP or ICMPv6 by the packet's family.
    PortUnreachable,
    /// ICMP or ICMPv6 by the packet's family.
    AdminProhibited,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitUnit {
    Second,
    Minute,
    Hour,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DynSetOp {
    Add,
    Update,
    Delete,
}
