//! Whether a document says nothing that is not known, found out while it is read: nothing is kept of it (pure).
//!
//! It is the answer for the many that are as they should be; what is wrong with the others is told by [`super::unknown`].

use std::fmt;

use serde::{
    Deserialize as _, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::{Shape, shape, versions};
use crate::policy::{Kind, TypeMeta};

/// Whether a document is of this kind and of a version that is known, and everything in it is known.
pub fn is_known<'de, D: Deserializer<'de>>(kind: Kind, document: D) -> Result<bool, D::Error> {
    document.deserialize_map(Root(kind))
}

/// A whole document.
struct Root(Kind);

impl<'de> Visitor<'de> for Root {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a document")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<bool, A::Error> {
        let (mut types, mut is_known) = (TypeMeta::default(), true);
        while let Some(key) = fields.next_key_seed(Key(shape(self.0)))? {
            match key {
                Found::Version => types.api_version = fields.next_value()?,
                Found::Kind => types.kind = fields.next_value()?,
                Found::Other(Some(shape)) => is_known &= fields.next_value_seed(Within(shape))?,
                Found::Other(None) => {
                    fields.next_value::<IgnoredAny>()?;
                    is_known = false;
                }
            }
        }
        let is_of_kind = types.kind().is_ok_and(|kind| kind == self.0);
        Ok(is_known && is_of_kind && versions(self.0).contains(&types.api_version.as_str()))
    }
}

/// A value in one place.
struct Within(&'static Shape);

impl<'de> DeserializeSeed<'de> for Within {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<bool, D::Error> {
        match self.0 {
            Shape::Any => IgnoredAny::deserialize(value).map(|_| true),
            Shape::Unsupported(_) => Option::<IgnoredAny>::deserialize(value).map(|value| value.is_none()),
            Shape::List(_) | Shape::Object(_) | Shape::Open(_) => value.deserialize_any(self),
        }
    }
}

/// What is of another type than the API has there is told by whoever reads the object.
impl<'de> Visitor<'de> for Within {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<bool, A::Error> {
        if !matches!(self.0, Shape::Object(_) | Shape::Open(_)) {
            return IgnoredAny.visit_map(fields).map(|_| true);
        }
        let mut is_known = true;
        while let Some(key) = fields.next_key_seed(Key(self.0))? {
            match key {
                Found::Other(Some(shape)) => is_known &= fields.next_value_seed(Within(shape))?,
                Found::Version | Found::Kind | Found::Other(None) => {
                    fields.next_value::<IgnoredAny>()?;
                    is_known &= !matches!(key, Found::Other(None));
                }
            }
        }
        Ok(is_known)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<bool, A::Error> {
        let Shape::List(entry) = self.0 else { return IgnoredAny.visit_seq(entries).map(|_| true) };
        let mut is_known = true;
        while let Some(entry) = entries.next_element_seed(Within(entry))? {
            is_known &= entry;
        }
        Ok(is_known)
    }

    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<bool, D::Error> {
        self.deserialize(value)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_none<E: Error>(self) -> Result<bool, E> {
        Ok(true)
    }
}

/// What a name stands for in an object of this shape.
struct Key(&'static Shape);

/// What a name stands for. `apiVersion` and `kind` are so called at the top of a document only, or where they are known.
enum Found {
    Version,
    Kind,
    /// What may stand there; none if the name is not known.
    Other(Option<&'static Shape>),
}

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Found;

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<Found, D::Error> {
        key.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Found, E> {
        // What an open one does not know is told by who reads it, so here it is as unknown as elsewhere: the long way decides.
        let (Shape::Object(object) | Shape::Open(object)) = self.0 else { return Ok(Found::Other(None)) };
        if let Some((_, shape)) = object.within.iter().find(|(known, _)| *known == name) {
            return Ok(Found::Other(Some(shape)));
        }
        Ok(match (object.known.contains(&name), name) {
            (false, _) => Found::Other(None),
            (true, "apiVersion") => Found::Version,
            (true, "kind") => Found::Kind,
            (true, _) => Found::Other(Some(&Shape::Any)),
        })
    }
}
