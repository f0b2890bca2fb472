//! What the kernel dumps, as values.

use node_nft::{
    BaseChain, CurrentChain, CurrentRule, CurrentSet, Data, DataType, Element, Elements, FieldType, OWNER,
    Policy, SetSchema, Verdict,
};

use super::number::{self, chain, data, element, rule, set, table, userdata};
use crate::netlink::{Attrs, NetlinkError};

type Read<T> = Result<T, NetlinkError>;

pub fn owned(attrs: &Attrs<'_>) -> Read<bool> {
    let comment = attrs.find(table::USERDATA)?.and_then(|attr| comment(attr.value));
    Ok(comment.is_some_and(|comment| comment.starts_with(OWNER)))
}

pub fn chain(attrs: &Attrs<'_>) -> Read<(String, CurrentChain)> {
    let name = attrs.get(chain::NAME)?.text();
    let Some(hook) = attrs.find(chain::HOOK)? else { return Ok((name, CurrentChain::default())) };
    let number = hook.nested().get(chain::HOOK_NUMBER)?.be32()?;
    let priority = hook.nested().get(chain::HOOK_PRIORITY)?.be32()?.cast_signed();
    let policy = if attrs.get(chain::POLICY)?.be32()? == 1 { Policy::Accept } else { Policy::Drop };
    let kind = number::chain_kind_from(&attrs.get(chain::TYPE)?.text());
    let base =
        kind.zip(number::hook_from(number)).map(|(kind, hook)| BaseChain { kind, hook, priority, policy });
    Ok((name, CurrentChain { base, rules: Vec::new() }))
}

/// The chain's name and the rule.
pub fn rule(attrs: &Attrs<'_>) -> Read<(String, CurrentRule)> {
    let chain = attrs.get(rule::CHAIN)?.text();
    let comment = attrs.find(rule::USERDATA)?.and_then(|attr| comment(attr.value));
    let fingerprint = comment.as_deref().and_then(|comment| comment.rsplit_once('#')).map(|(_, hex)| hex);
    let fingerprint = fingerprint.and_then(|hex| u64::from_str_radix(hex, 16).ok());
    Ok((chain, CurrentRule { fingerprint }))
}

/// The chain's name, and how many packets the rule has counted.
pub fn counted(attrs: &Attrs<'_>) -> Read<(String, u64)> {
    let chain = attrs.get(rule::CHAIN)?.text();
    let Some(expressions) = attrs.find(rule::EXPRESSIONS)? else { return Ok((chain, 0)) };
    let mut packets: u64 = 0;
    for expression in expressions.nested() {
        let expression = expression?.nested();
        if expression.get(rule::EXPRESSION_NAME)?.text() != "counter" {
            continue;
        }
        let counter = expression.get(rule::EXPRESSION_DATA)?.nested();
        let bytes = counter.get(rule::COUNTER_PACKETS)?.value;
        packets += bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    }
    Ok((chain, packets))
}

/// `None` for the nameless sets within rules.
pub fn set(attrs: &Attrs<'_>) -> Read<Option<(String, CurrentSet)>> {
    let flags = attrs.find(set::FLAGS)?.map_or(Ok(0), |attr| attr.be32())?;
    if flags & set::FLAG_ANONYMOUS != 0 {
        return Ok(None);
    }
    let schema = schema(attrs, flags)?;
    Ok(Some((attrs.get(set::NAME)?.text(), CurrentSet { schema, elements: Elements::new() })))
}

fn schema(attrs: &Attrs<'_>, flags: u32) -> Read<Option<SetSchema>> {
    let len = |kind| -> Read<usize> {
        Ok(attrs.find(kind)?.map_or(Ok(0), |len| len.be32())?.try_into().unwrap_or_default())
    };
    let key_len = len(set::KEY_LEN)?;
    let Some(key) = fields(attrs.get(set::KEY_TYPE)?.be32()?, key_len) else { return Ok(None) };
    let data = if flags & set::FLAG_MAP == 0 {
        None
    } else {
        match attrs.get(set::DATA_TYPE)?.be32()? {
            set::VERDICT_TYPE => Some(DataType::Verdict),
            packed => match fields(packed, len(set::DATA_LEN)?) {
                Some(fields) => Some(DataType::Value(fields)),
                None => return Ok(None),
            },
        }
    };
    let size = match attrs.find(set::DESC)? {
        Some(desc) => desc.nested().find(set::DESC_SIZE)?.map_or(Ok(0), |size| size.be32())?,
        None => 0,
    };
    let schema = SetSchema {
        key,
        data,
        interval: flags & set::FLAG_INTERVAL != 0,
        dynamic: flags & set::FLAG_EVAL != 0,
        timeout: flags & set::FLAG_TIMEOUT != 0,
        size,
    };
    Ok((key_len == schema.key_len()).then_some(schema))
}

fn fields(packed: u32, len: usize) -> Option<Vec<FieldType>> {
    let numbers = (0..5).rev().map(|index| packed >> (6 * index) & 0x3f).skip_while(|number| *number == 0);
    let fields: Option<Vec<_>> = numbers.map(|number| FieldType::from_number(number, len)).collect();
    fields.filter(|fields| !fields.is_empty())
}

/// A border of the tree, or a whole element.
pub struct Dumped {
    pub key: Box<[u8]>,
    ends_here: bool,
    pub element: Element,
}

pub fn elements(attrs: &Attrs<'_>, into: &mut Vec<Dumped>) -> Read<()> {
    let Some(list) = attrs.find(element::LIST)? else { return Ok(()) };
    for entry in list.nested() {
        let entry = entry?.nested();
        let value = |kind| -> Read<Option<Box<[u8]>>> {
            let Some(attr) = entry.find(kind)? else { return Ok(None) };
            Ok(Some(padded(attr.nested().get(data::VALUE)?.value)))
        };
        let flags = entry.find(element::FLAGS)?.map_or(Ok(0), |attr| attr.be32())?;
        let Some(key) = value(element::KEY)? else { continue };
        let content = match entry.find(element::DATA)? {
            None => Data::None,
            Some(attr) => element_data(&attr.nested())?,
        };
        let element = Element { end: value(element::KEY_END)?, data: content };
        into.push(Dumped { key, ends_here: flags & element::FLAG_INTERVAL_END != 0, element });
    }
    Ok(())
}

fn element_data(attrs: &Attrs<'_>) -> Read<Data> {
    if let Some(value) = attrs.find(data::VALUE)? {
        return Ok(Data::Value(padded(value.value)));
    }
    let verdict = attrs.get(data::VERDICT)?.nested();
    let chain = || verdict.get(data::VERDICT_CHAIN).map(|attr| attr.text());
    let verdict = match verdict.get(data::VERDICT_CODE)?.be32()?.cast_signed() {
        0 => Verdict::Drop,
        1 => Verdict::Accept,
        -3 => Verdict::Jump(chain()?),
        -4 => Verdict::Goto(chain()?),
        -5 => Verdict::Return,
        _ => Verdict::Continue,
    };
    Ok(Data::Verdict(Box::new(verdict)))
}

/// Joins the borders of an interval tree to ranges.
pub fn collect(schema: &SetSchema, mut dumped: Vec<Dumped>) -> Elements {
    if !schema.interval || schema.key.len() > 1 {
        return dumped.into_iter().map(|one| (one.key, one.element)).collect();
    }
    // Where one range ends and the next begins, the end comes first.
    dumped.sort_unstable_by(|a, b| a.key.cmp(&b.key).then(b.ends_here.cmp(&a.ends_here)));
    let mut elements = Elements::new();
    let mut open: Option<(Box<[u8]>, Data)> = None;
    let len = schema.key_len();
    for border in dumped {
        if let Some((first, data)) = open.take() {
            let end = Some(predecessor(&border.key, len));
            elements.insert(first, Element { end, data });
        }
        if !border.ends_here {
            open = Some((border.key, border.element.data));
        }
    }
    if let Some((first, data)) = open {
        elements.insert(first, Element { end: Some(padded(&vec![0xff; len])), data });
    }
    elements
}

fn predecessor(key: &[u8], len: usize) -> Box<[u8]> {
    let mut previous = key.to_vec();
    for byte in previous[..len].iter_mut().rev() {
        let (difference, borrow) = byte.overflowing_sub(1);
        *byte = difference;
        if !borrow {
            break;
        }
    }
    previous.into()
}

fn padded(bytes: &[u8]) -> Box<[u8]> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.into()
}

/// The comment among the user data: kind, length, value, one after the other.
fn comment(mut bytes: &[u8]) -> Option<String> {
    while let [kind, len, rest @ ..] = bytes {
        let value = rest.get(..usize::from(*len))?;
        if *kind == userdata::COMMENT {
            return Some(String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value)).into_owned());
        }
        bytes = &rest[value.len()..];
    }
    None
}
