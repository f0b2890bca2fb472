//! Sets and maps: what their keys and values are, and the elements in them.

use std::collections::BTreeMap;

use crate::Verdict;

/// Sorted by first key. Intervals of one set must not overlap.
pub type Elements = BTreeMap<Box<[u8]>, Element>;

#[derive(Clone, Debug)]
pub struct Set {
    pub schema: SetSchema,
    /// `None`: the kernel fills the set itself (`dynamic`), its content is never compared.
    pub elements: Option<Elements>,
}

impl Set {
    pub fn new(schema: SetSchema) -> Self {
        let elements = (!schema.dynamic).then(Elements::new);
        Self { schema, elements }
    }

    /// Adds an element. A dynamic set has none of ours.
    pub fn insert(&mut self, key: impl Into<Box<[u8]>>, element: Element) {
        self.elements.get_or_insert_default().insert(key.into(), element);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetSchema {
    /// More than one field is a concatenation.
    pub key: Vec<FieldType>,
    /// `None` is a set, else a map.
    pub data: Option<DataType>,
    /// Keys are ranges: one field by a tree, several by range per field.
    pub interval: bool,
    /// Filled by rules.
    pub dynamic: bool,
    /// Elements may expire; rules or elements say when.
    pub timeout: bool,
    /// Most elements there may be; 0 is no limit. A dynamic set needs one, or a flood of clients fills memory.
    pub size: u32,
}

impl SetSchema {
    pub fn set(key: impl Into<Vec<FieldType>>) -> Self {
        Self { key: key.into(), data: None, interval: false, dynamic: false, timeout: false, size: 0 }
    }

    pub fn map(key: impl Into<Vec<FieldType>>, data: impl Into<Vec<FieldType>>) -> Self {
        Self { data: Some(DataType::Value(data.into())), ..Self::set(key) }
    }

    pub fn verdict_map(key: impl Into<Vec<FieldType>>) -> Self {
        Self { data: Some(DataType::Verdict), ..Self::set(key) }
    }

    #[must_use]
    pub fn interval(self) -> Self {
        Self { interval: true, ..self }
    }

    #[must_use]
    pub fn dynamic(self, size: u32) -> Self {
        Self { dynamic: true, timeout: true, size, ..self }
    }

    /// What one of ours costs the kernel, in elements of a hash table: a tree holds both borders of a range, and ranges of
    /// several fields are its slowest kind.
    pub(crate) fn element_weight(&self) -> usize {
        match (self.interval, self.key.len()) {
            (false, _) => 1,
            (true, 1) => 2,
            (true, _) => 16,
        }
    }

    pub fn key_len(&self) -> usize {
        padded_len(&self.key)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataType {
    Verdict,
    Value(Vec<FieldType>),
}

/// Bytes of a concatenation, each field padded to its registers.
pub(crate) fn padded_len(fields: &[FieldType]) -> usize {
    if let [field] = fields {
        field.len()
    } else {
        fields.iter().map(|field| field.len().next_multiple_of(4)).sum()
    }
}

impl DataType {
    pub fn len(&self) -> usize {
        match self {
            Self::Verdict => 0,
            Self::Value(fields) => padded_len(fields),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// `nft`'s type of whatever has no other.
const INTEGER: u32 = 4;

/// The kinds of value that `nft` can print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldType {
    Ipv4,
    Ipv6,
    /// Number of a protocol over IP.
    Proto,
    Port,
    /// A 32-bit number in host order.
    Mark,
    InterfaceName,
    IcmpType,
    Icmpv6Type,
    /// Several fields of so many bytes, one after the other, that are compared as one number: the key of a tree, where a
    /// concatenation of ranges is slow to change.
    Joined(u8),
}

impl FieldType {
    /// # Panics
    /// If they are longer than the kernel's registers.
    pub fn joined(fields: &[Self]) -> Self {
        let len: usize = fields.iter().map(|field| field.len().next_multiple_of(4)).sum();
        assert!(len <= crate::key::LONGEST, "a key of {len} bytes");
        Self::Joined(u8::try_from(len).expect("that is less"))
    }

    /// Number of the type in `nft`'s own table (`enum datatypes`); concatenations pack 6 bits each.
    pub fn number(self) -> u32 {
        match self {
            Self::Joined(_) => INTEGER,
            Self::Ipv4 => 7,
            Self::Ipv6 => 8,
            Self::Proto => 12,
            Self::Port => 13,
            Self::IcmpType => 14,
            Self::Mark => 19,
            Self::Icmpv6Type => 29,
            Self::InterfaceName => 41,
        }
    }

    /// A key of this many bytes has a single field of this type, or several.
    pub fn from_number(number: u32, len: usize) -> Option<Self> {
        if number == INTEGER {
            return u8::try_from(len).ok().map(Self::Joined);
        }
        [
            Self::Ipv4,
            Self::Ipv6,
            Self::Proto,
            Self::Port,
            Self::IcmpType,
            Self::Mark,
            Self::Icmpv6Type,
            Self::InterfaceName,
        ]
        .into_iter()
        .find(|field| field.number() == number)
    }

    #[expect(clippy::len_without_is_empty, reason = "no field is empty")]
    pub fn len(self) -> usize {
        match self {
            Self::Proto | Self::IcmpType | Self::Icmpv6Type => 1,
            Self::Port => 2,
            Self::Ipv4 | Self::Mark => 4,
            Self::Ipv6 | Self::InterfaceName => 16,
            Self::Joined(len) => len as usize,
        }
    }

    pub fn host_order(self) -> bool {
        matches!(self, Self::Mark | Self::InterfaceName)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// Last key of the range, itself included; `None` in sets without intervals.
    pub end: Option<Box<[u8]>>,
    pub data: Data,
}

impl Element {
    pub fn member() -> Self {
        Self::default()
    }

    pub fn value(value: impl Into<Box<[u8]>>) -> Self {
        Self { end: None, data: Data::Value(value.into()) }
    }

    pub fn verdict(verdict: Verdict) -> Self {
        Self { end: None, data: Data::Verdict(Box::new(verdict)) }
    }

    #[must_use]
    pub fn until(self, end: impl Into<Box<[u8]>>) -> Self {
        Self { end: Some(end.into()), ..self }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Data {
    #[default]
    None,
    Value(Box<[u8]>),
    Verdict(Box<Verdict>),
}
