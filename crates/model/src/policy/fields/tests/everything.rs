//! The document that a kind reads: every field of every struct, found by letting serde ask for them.

use std::{cell::RefCell, rc::Rc};

use serde::{
    Deserializer,
    de::{DeserializeSeed, MapAccess, SeqAccess, Visitor, value::Error},
    forward_to_deserialize_any,
};
use serde_json::{Map, Value};

use super::Kind;

/// One value that is asked for; what it turned out to be is left in the cell.
struct Place(Rc<RefCell<Value>>);

pub(super) fn read_by(kind: Kind) -> Value {
    let document = Rc::new(RefCell::new(Value::Null));
    kind.deserialize(Place(Rc::clone(&document))).unwrap();
    document.take()
}

impl<'de> Deserializer<'de> for Place {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let found = Rc::new(RefCell::new(Map::new()));
        let read =
            visitor.visit_map(Fields { names: fields.iter(), found: Rc::clone(&found), next: None })?;
        self.0.replace(found.take().into());
        Ok(read)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let entry = Rc::new(RefCell::new(Value::Null));
        let read = visitor.visit_seq(One(Some(Place(Rc::clone(&entry)))))?;
        self.0.replace(vec![entry.take()].into());
        Ok(read)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(Fields { names: [].iter(), found: Rc::default(), next: None })
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(false)
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i32(1)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i64(1)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_f64(1.0)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str("")
    }

    forward_to_deserialize_any! {
        i8 i16 i128 u8 u16 u32 u64 u128 f32 char str string bytes byte_buf unit unit_struct newtype_struct tuple
        tuple_struct enum identifier ignored_any
    }
}

struct Fields {
    names: std::slice::Iter<'static, &'static str>,
    found: Rc<RefCell<Map<String, Value>>>,
    next: Option<&'static str>,
}

impl<'de> MapAccess<'de> for Fields {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        self.next = self.names.next().copied();
        let name = self.next.map(serde::de::value::StrDeserializer::<Error>::new);
        name.map(|name| seed.deserialize(name)).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let value = Rc::new(RefCell::new(Value::Null));
        let read = seed.deserialize(Place(Rc::clone(&value)))?;
        self.found.borrow_mut().insert(self.next.unwrap_or_default().to_owned(), value.take());
        Ok(read)
    }
}

struct One(Option<Place>);

impl<'de> SeqAccess<'de> for One {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.0.take().map(|place| seed.deserialize(place)).transpose()
    }
}
