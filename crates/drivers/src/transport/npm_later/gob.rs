//! Values of Go as its package `encoding/gob` writes them, as far as Azure NPM's later clients read them.
//!
//! In: types by name and field, and values that fit them. Out: one stream: all types, then one value. Who reads goes by the
//! names of fields, so a type here may have fewer fields than its own.

/// Numbers of the types that every stream knows.
pub const BOOL: i64 = 1;
pub const INT: i64 = 2;
pub const STRING: i64 = 6;
/// The first type of a stream has the number after this.
const LAST_OF_OURS: i64 = 63;

/// A type of the stream. Others name it by its place: see [`numbered`].
pub enum Type {
    Slice { name: &'static str, of: i64 },
    Map { name: &'static str, from: i64, to: i64 },
    Struct { name: &'static str, fields: &'static [(&'static str, i64)] },
}

/// The number of the type at this place of a stream's list.
pub const fn numbered(place: i64) -> i64 {
    LAST_OF_OURS + 1 + place
}

/// A value. What is nothing of its kind is left out of structs, as Go does.
pub enum Value {
    Bool(bool),
    Int(i64),
    Text(String),
    List(Vec<Value>),
    Map(Vec<(Value, Value)>),
    /// Fields in the order of their type.
    Struct(Vec<Value>),
}

/// The stream of one value of the first of these types, which must not be a struct.
pub fn stream(types: &[Type], value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (place, kind) in (0..).zip(types) {
        let mut message = Vec::new();
        put_int(&mut message, -numbered(place));
        kind.describe(numbered(place), &mut message);
        put_message(&mut out, &message);
    }
    let mut message = Vec::new();
    put_int(&mut message, numbered(0));
    // No field of a struct.
    message.push(0);
    value.put(&mut message);
    put_message(&mut out, &message);
    out
}

impl Type {
    /// The fields of Go's `wireType`: 2 is a slice, 3 a struct, 4 a map. Each has a name and a number first.
    fn describe(&self, number: i64, out: &mut Vec<u8>) {
        let common = |name: &str| Value::Struct(vec![Value::Text(name.to_owned()), Value::Int(number)]);
        let (field, value) = match self {
            Self::Slice { name, of } => (2, vec![common(name), Value::Int(*of)]),
            Self::Struct { name, fields } => {
                let field = |(name, kind): &(&str, i64)| {
                    Value::Struct(vec![Value::Text((*name).to_owned()), Value::Int(*kind)])
                };
                (3, vec![common(name), Value::List(fields.iter().map(field).collect())])
            }
            Self::Map { name, from, to } => (4, vec![common(name), Value::Int(*from), Value::Int(*to)]),
        };
        put_uint(out, field);
        Value::Struct(value).put(out);
        out.push(0);
    }
}

impl Value {
    fn is_nothing(&self) -> bool {
        match self {
            Self::Bool(is_so) => !is_so,
            Self::Int(number) => *number == 0,
            Self::Text(text) => text.is_empty(),
            Self::List(items) => items.is_empty(),
            Self::Map(entries) => entries.is_empty(),
            // A struct that is pointed to is there, whatever is in it.
            Self::Struct(_) => false,
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Bool(is_so) => put_uint(out, (*is_so).into()),
            Self::Int(number) => put_int(out, *number),
            Self::Text(text) => {
                put_uint(out, text.len() as u64);
                out.extend_from_slice(text.as_bytes());
            }
            Self::List(items) => {
                put_uint(out, items.len() as u64);
                items.iter().for_each(|item| item.put(out));
            }
            Self::Map(entries) => {
                put_uint(out, entries.len() as u64);
                entries.iter().flat_map(|(key, value)| [key, value]).for_each(|item| item.put(out));
            }
            Self::Struct(fields) => {
                let mut last = 0;
                for (number, field) in (1..).zip(fields).filter(|(_, field)| !field.is_nothing()) {
                    put_uint(out, number - last);
                    field.put(out);
                    last = number;
                }
                out.push(0);
            }
        }
    }
}

fn put_message(out: &mut Vec<u8>, message: &[u8]) {
    put_uint(out, message.len() as u64);
    out.extend_from_slice(message);
}

/// Up to 127 as it is; more as the number of its bytes, negated, and these, the highest first.
fn put_uint(out: &mut Vec<u8>, number: u64) {
    if number < 128 {
        return out.push(number as u8);
    }
    let bytes = number.to_be_bytes();
    let digits = &bytes[number.leading_zeros() as usize / 8..];
    out.push((digits.len() as u8).wrapping_neg());
    out.extend_from_slice(digits);
}

/// The sign is the lowest bit, and what is negative is complemented.
fn put_int(out: &mut Vec<u8>, number: i64) {
    let shifted = (number as u64) << 1;
    put_uint(out, if number < 0 { !shifted } else { shifted });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        common::hex(bytes)
    }

    /// As `gob.NewEncoder(&buffer).Encode(&[]string{"a", "bc"})` writes it.
    #[test]
    fn a_list_of_texts() {
        let types = [Type::Slice { name: "", of: STRING }];
        let value = Value::List(vec![Value::Text("a".into()), Value::Text("bc".into())]);
        assert_eq!(hex(&stream(&types, &value)), GO_STRINGS);
    }

    const GO_STRINGS: &str = "0b7f020102ff8000010c000009ff8000020161026263";

    #[test]
    fn numbers_are_as_short_as_they_can_be() {
        let written = |number| {
            let mut out = Vec::new();
            put_int(&mut out, number);
            hex(&out)
        };
        for (number, bytes) in
            [(0, "00"), (-1, "01"), (63, "7e"), (64, "ff80"), (-65, "ff81"), (300, "fe0258")]
        {
            assert_eq!(written(number), bytes, "{number}");
        }
    }
}
