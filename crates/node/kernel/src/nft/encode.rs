//! Transactions as one batch of messages.

use node_nft::{BaseChain, Data, DataType, Element, FieldType, Op, Policy, Rule, SetSchema, Transaction};

use super::{
    TableId, expression,
    number::{self, chain, element, rule, set, table, userdata},
};
use crate::netlink::{ACK, APPEND, CREATE, EXCLUSIVE, Header, MessageWriter, REQUEST, Writer};

/// A list of elements is one attribute, of less than 64 KiB. The largest element is well below the margin.
const ELEMENTS_PER_MESSAGE: usize = 56 << 10;
/// `nft` refuses to print more.
const COMMENT: usize = 128;
const OWNER_COMMENT: &str = "trestle: kept as it should be, changes by others are undone";

/// Bytes of a batch, and which operation each message belongs to.
pub struct Batch {
    out: MessageWriter,
    seq: u32,
    /// Last sequence number of each operation, ascending.
    ends: Vec<u32>,
    next_set: u32,
}

impl Batch {
    /// `first_seq` and all that follow must be unused.
    pub fn new(table: &TableId, transaction: &Transaction, first_seq: u32) -> Self {
        let mut batch = Self { out: MessageWriter::new(), seq: first_seq, ends: Vec::new(), next_set: 0 };
        batch.marker(number::BATCH_BEGIN);
        let last = transaction.ops.len().saturating_sub(1);
        for (index, op) in transaction.ops.iter().enumerate() {
            // One acknowledgement tells a batch that was accepted from one that was never looked at.
            batch.operation(table, op, if index == last { ACK } else { 0 });
            batch.ends.push(batch.seq - 1);
        }
        batch.marker(number::BATCH_END);
        batch
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.out.as_bytes()
    }

    pub fn last_seq(&self) -> u32 {
        self.seq - 1
    }

    /// The operation that a message belongs to.
    pub fn operation_of(&self, seq: u32) -> Option<usize> {
        let index = self.ends.partition_point(|end| *end < seq);
        (index < self.ends.len()).then_some(index)
    }

    fn marker(&mut self, kind: u16) {
        let header = Header { kind, flags: REQUEST, seq: self.seq };
        let [high, low] = number::SUBSYSTEM.to_be_bytes();
        self.out.message(header, &[0, 0, high, low], |_| {});
        self.seq += 1;
    }

    fn message(&mut self, table: &TableId, kind: u16, flags: u16, attrs: impl FnOnce(&mut Writer<'_>)) {
        let header = Header { kind: message_kind(kind), flags: REQUEST | flags, seq: self.seq };
        self.out.message(header, &fixed(table), attrs);
        self.seq += 1;
    }

    fn operation(&mut self, id: &TableId, op: &Op, ack: u16) {
        let new = CREATE | EXCLUSIVE | ack;
        match op {
            Op::AddTable => self.message(id, number::NEW_TABLE, new, |out| {
                out.text(table::NAME, &id.name);
                out.bytes(table::USERDATA, &comment(OWNER_COMMENT));
            }),
            Op::DeleteTable => {
                self.message(id, number::DEL_TABLE, ack, |out| out.text(table::NAME, &id.name));
            }
            Op::AddChain { name, base } => self.message(id, number::NEW_CHAIN, new, |out| {
                out.text(chain::TABLE, &id.name);
                out.text(chain::NAME, name);
                base.iter().for_each(|base| base_chain(out, base));
            }),
            Op::DeleteChain { name } => self.message(id, number::DEL_CHAIN, ack, |out| {
                out.text(chain::TABLE, &id.name);
                out.text(chain::NAME, name);
            }),
            Op::FlushChain { name } => self.message(id, number::DEL_RULE, ack, |out| {
                out.text(rule::TABLE, &id.name);
                out.text(rule::CHAIN, name);
            }),
            Op::AddRule { chain, rule: new_rule } => {
                self.message(id, number::NEW_RULE, CREATE | APPEND | ack, |out| {
                    out.text(rule::TABLE, &id.name);
                    out.text(rule::CHAIN, chain);
                    out.nest(rule::EXPRESSIONS, |out| {
                        new_rule.exprs.iter().for_each(|expr| expression::write(out, expr, id.family));
                    });
                    out.bytes(rule::USERDATA, &rule_comment(new_rule));
                });
            }
            Op::AddSet { name, schema } => {
                self.next_set += 1;
                let number = self.next_set;
                self.message(id, number::NEW_SET, new, |out| {
                    out.text(set::TABLE, &id.name);
                    out.text(set::NAME, name);
                    set_schema(out, schema, number);
                });
            }
            Op::DeleteSet { name } => self.message(id, number::DEL_SET, ack, |out| {
                out.text(set::TABLE, &id.name);
                out.text(set::NAME, name);
            }),
            Op::AddElements { set, schema, elements } => {
                self.elements(id, number::NEW_ELEMENT, CREATE | ack, set, schema, elements);
            }
            Op::DeleteElements { set, schema, elements } => {
                self.elements(id, number::DEL_ELEMENT, ack, set, schema, elements);
            }
        }
    }

    fn elements(
        &mut self,
        id: &TableId,
        kind: u16,
        flags: u16,
        set: &str,
        schema: &SetSchema,
        elements: &[(Box<[u8]>, Element)],
    ) {
        let mut rest = elements;
        while !rest.is_empty() {
            self.message(id, kind, flags, |out| {
                out.text(element::TABLE, &id.name);
                out.text(element::SET, set);
                out.nest(element::LIST, |out| {
                    let start = out.written();
                    while let [(key, element), more @ ..] = rest
                        && out.written() - start < ELEMENTS_PER_MESSAGE
                    {
                        write_element(out, schema, key, element);
                        rest = more;
                    }
                });
            });
        }
    }
}

pub fn message_kind(kind: u16) -> u16 {
    number::SUBSYSTEM << 8 | kind
}

/// The fixed part of each message.
pub fn fixed(table: &TableId) -> [u8; 4] {
    [number::family(table.family), 0, 0, 0]
}

fn base_chain(out: &mut Writer<'_>, base: &BaseChain) {
    out.nest(chain::HOOK, |out| {
        out.be32(chain::HOOK_NUMBER, number::hook(base.hook));
        out.be32(chain::HOOK_PRIORITY, base.priority.cast_unsigned());
    });
    out.be32(chain::POLICY, u32::from(base.policy == Policy::Accept));
    out.text(chain::TYPE, number::chain_kind(base.kind));
}

fn set_schema(out: &mut Writer<'_>, schema: &SetSchema, number: u32) {
    let concat_ranges = schema.interval && schema.key.len() > 1;
    let flags = [
        (schema.interval, set::FLAG_INTERVAL),
        (concat_ranges, set::FLAG_CONCAT),
        (schema.data.is_some(), set::FLAG_MAP),
        (schema.timeout, set::FLAG_TIMEOUT),
        (schema.dynamic, set::FLAG_EVAL),
    ];
    out.be32(set::FLAGS, flags.iter().filter(|(on, _)| *on).map(|(_, flag)| flag).sum());
    out.be32(set::KEY_TYPE, packed_type(&schema.key));
    out.be32(set::KEY_LEN, len32(schema.key_len()));
    if let Some(data) = &schema.data {
        match data {
            DataType::Verdict => out.be32(set::DATA_TYPE, set::VERDICT_TYPE),
            DataType::Value(fields) => out.be32(set::DATA_TYPE, packed_type(fields)),
        }
        out.be32(set::DATA_LEN, len32(data.len()));
    }
    out.be32(set::ID, number);
    if schema.size > 0 || concat_ranges {
        out.nest(set::DESC, |out| {
            if schema.size > 0 {
                out.be32(set::DESC_SIZE, schema.size);
            }
            if concat_ranges {
                out.nest(set::DESC_CONCAT, |out| {
                    for field in &schema.key {
                        out.nest(number::LIST_ELEMENT, |out| out.be32(set::FIELD_LEN, len32(field.len())));
                    }
                });
            }
        });
    }
    out.bytes(set::USERDATA, &[byte_orders(schema), typeofs(schema)].concat());
}

fn packed_type(fields: &[FieldType]) -> u32 {
    fields.iter().fold(0, |packed, field| packed << 6 | field.number())
}

fn len32(len: usize) -> u32 {
    u32::try_from(len).expect("keys and values are at most 64 bytes")
}

/// Tells `nft` how to print single values; a concatenation's fields each know their own order.
fn byte_orders(schema: &SetSchema) -> Vec<u8> {
    let order = |fields: &[FieldType]| match fields {
        [field] if field.host_order() => userdata::HOST_ORDER,
        _ => userdata::BIG_ENDIAN,
    };
    let mut out = vec![userdata::SET_KEY_BYTE_ORDER, 4];
    out.extend(order(&schema.key).to_ne_bytes());
    if let Some(DataType::Value(fields)) = &schema.data {
        out.extend([userdata::SET_DATA_BYTE_ORDER, 4]);
        out.extend(order(fields).to_ne_bytes());
    }
    out
}

/// `nft` has no type for joined fields: it is told that they are so many bytes of a packet, and prints them as one number.
fn typeofs(schema: &SetSchema) -> Vec<u8> {
    let ([FieldType::Joined(len)], Some(DataType::Value(data))) = (&schema.key[..], &schema.data) else {
        return Vec::new();
    };
    if data[..] != [FieldType::Mark] {
        return Vec::new();
    }
    let bytes = [0, 0, userdata::NETWORK_LAYER, 0, u32::from(*len) * 8];
    let bytes: Vec<_> = userdata::PAYLOAD_DETAIL.into_iter().zip(bytes).flat_map(number_data).collect();
    let mark = number_data((userdata::META_KEY, userdata::META_MARK));
    let like = |kind, expression, detail: &[u8]| {
        let expression = number_data((userdata::TYPEOF_EXPRESSION, expression));
        user_data(kind, &[&expression[..], &user_data(userdata::TYPEOF_DETAIL, detail)].concat())
    };
    [
        like(userdata::SET_KEY_TYPEOF, userdata::PAYLOAD, &bytes),
        like(userdata::SET_DATA_TYPEOF, userdata::META, &mark),
    ]
    .concat()
}

fn number_data((kind, value): (u8, u32)) -> Vec<u8> {
    user_data(kind, &value.to_ne_bytes())
}

/// Kind, length and value.
fn user_data(kind: u8, value: &[u8]) -> Vec<u8> {
    let len = u8::try_from(value.len()).expect("comments are cut to 128 bytes, and all else is short");
    [&[kind, len], value].concat()
}

fn write_element(out: &mut Writer<'_>, schema: &SetSchema, key: &[u8], element: &Element) {
    let tree = schema.interval && schema.key.len() == 1;
    out.nest(number::LIST_ELEMENT, |out| {
        expression::value(out, element::KEY, cut(key, schema.key_len()));
        if let (Some(end), false) = (&element.end, tree) {
            expression::value(out, element::KEY_END, cut(end, schema.key_len()));
        }
        match &element.data {
            Data::None => {}
            Data::Value(value) => {
                let len = schema.data.as_ref().map_or(value.len(), DataType::len);
                expression::value(out, element::DATA, cut(value, len));
            }
            Data::Verdict(verdict) => expression::verdict(out, element::DATA, verdict),
        }
    });
    if !tree {
        return;
    }
    // The tree holds borders: an element where the range begins, and one, marked, right after its end.
    let end = cut(element.end.as_deref().unwrap_or(key), schema.key_len());
    if let Some(after) = successor(end) {
        out.nest(number::LIST_ELEMENT, |out| {
            expression::value(out, element::KEY, &after);
            out.be32(element::FLAGS, element::FLAG_INTERVAL_END);
        });
    }
}

/// A single field shorter than a register is padded in our keys, and not in the kernel's.
fn cut(bytes: &[u8], len: usize) -> &[u8] {
    bytes.get(..len).unwrap_or(bytes)
}

/// The next key, or `None` after the last one.
fn successor(key: &[u8]) -> Option<Vec<u8>> {
    let mut next = key.to_vec();
    for byte in next.iter_mut().rev() {
        let (sum, overflow) = byte.overflowing_add(1);
        *byte = sum;
        if !overflow {
            return Some(next);
        }
    }
    None
}

fn rule_comment(rule: &Rule) -> Vec<u8> {
    let fingerprint = format!(" #{:016x}", rule.fingerprint());
    let mut end = rule.comment.len().min(COMMENT - 1 - fingerprint.len());
    while !rule.comment.is_char_boundary(end) {
        end -= 1;
    }
    comment(&format!("{}{fingerprint}", &rule.comment[..end]))
}

/// With its zero.
fn comment(text: &str) -> Vec<u8> {
    user_data(userdata::COMMENT, &[text.as_bytes(), &[0]].concat())
}
