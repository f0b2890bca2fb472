//! The capacity field of a request: a Quantity message or plain text, told apart by its bytes.
//!
//! In: the raw bytes of the field. Out: the quantity, at least one byte large, and the form it came in, so that the
//! answer can be given in the same form.
//!
//! ```text
//!   the OCS design:         12 05  0a 03 31 54 69      field 2, a message with field 1 = "1Ti"
//!   every release:    12 03        31 54 69      field 2, the text "1Ti"
//! ```
//! No quantity starts with a line feed (0x0a), so the two cannot be mistaken for each other.

use crate::quantity::{Format, ParseQuantityError, Quantity};

/// Tag of field 1, length-delimited: the only field of the Quantity message.
const QUANTITY_TAG: u8 = 0x0a;

/// How the caller wrote the capacity, and how it will be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapacityForm {
    /// `k8s.io.apimachinery.pkg.api.resource.Quantity`.
    Message,
    /// A plain string.
    Text,
}

/// A capacity asked for: more than zero and countable in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    quantity: Quantity,
    bytes: u64,
    form: CapacityForm,
}

/// Why the field holds no capacity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CapacityError {
    #[error("the capacity is not text; send a Quantity message or a string such as 10Gi")]
    NotText,
    #[error(transparent)]
    Quantity(#[from] ParseQuantityError),
    #[error("the capacity {quantity} is not above zero")]
    NotPositive { quantity: Quantity },
    #[error("the capacity {quantity} is more bytes than 64 bits count")]
    TooLarge { quantity: Quantity },
}

impl Capacity {
    /// Reads the field as it came over the wire.
    pub fn decode(field: &[u8]) -> Result<Self, CapacityError> {
        let (text, form) = match field {
            // A present but empty message; as text it would be as invalid.
            [] => (field, CapacityForm::Message),
            [QUANTITY_TAG, length, text @ ..] if usize::from(*length) == text.len() => {
                (text, CapacityForm::Message)
            }
            text => (text, CapacityForm::Text),
        };
        Self::parse(std::str::from_utf8(text).map_err(|_| CapacityError::NotText)?, form)
    }

    pub fn parse(text: &str, form: CapacityForm) -> Result<Self, CapacityError> {
        let quantity: Quantity = text.parse()?;
        if !quantity.is_positive() {
            return Err(CapacityError::NotPositive { quantity });
        }
        let bytes = quantity.bytes().ok_or(CapacityError::TooLarge { quantity })?;
        Ok(Self { quantity, bytes, form })
    }

    /// So many bytes, where nobody has asked for a capacity.
    pub fn of(bytes: u64) -> Self {
        Self { quantity: Quantity::from_bytes(bytes, Format::BinarySi), bytes, form: CapacityForm::Text }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn quantity(&self) -> Quantity {
        self.quantity
    }

    pub fn form(&self) -> CapacityForm {
        self.form
    }

    /// What was granted, in the words of the request: the same text when all of it was granted.
    pub fn answer(&self, granted: u64) -> Quantity {
        if granted == self.bytes {
            self.quantity
        } else {
            Quantity::from_bytes(granted, self.quantity.format())
        }
    }
}

impl CapacityForm {
    /// The bytes of an answer's field.
    pub fn encode(self, quantity: Quantity) -> Vec<u8> {
        let text = quantity.to_string();
        match self {
            Self::Text => text.into_bytes(),
            Self::Message => {
                let length =
                    u8::try_from(text.len()).expect("a canonical quantity has at most 45 characters");
                [&[QUANTITY_TAG, length], text.as_bytes()].concat()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_and_answered_alike() {
        let message = Capacity::decode(&[0x0a, 3, 0x31, 0x54, 0x69]).unwrap();
        let text = Capacity::decode(b"1Ti").unwrap();
        assert_eq!((message.form(), text.form()), (CapacityForm::Message, CapacityForm::Text));
        assert_eq!((message.bytes(), text.bytes()), (1 << 40, 1 << 40));
        assert_eq!(message.form().encode(message.answer(1 << 40)), [0x0a, 3, 0x31, 0x54, 0x69]);
        assert_eq!(text.form().encode(text.answer(1 << 40)), b"1Ti");
    }

    #[test]
    fn a_smaller_grant_is_answered_in_the_requests_family() {
        let binary = Capacity::decode(b"10Gi").unwrap();
        assert_eq!(binary.answer(3 << 30).to_string(), "3Gi");
        assert_eq!(binary.answer(1001).to_string(), "1001");
        let decimal = Capacity::decode(b"10G").unwrap();
        assert_eq!(decimal.answer(3_000_000_000).to_string(), "3G");
        assert_eq!(Capacity::decode(b"1.5Gi").unwrap().answer(1_610_612_736).to_string(), "1536Mi");
    }

    #[test]
    fn what_cannot_be_granted_is_refused() {
        for bad in [
            &b""[..],
            b"abc",
            b"1i",
            b" 1",
            b"0",
            b"-1Gi",
            b"0Gi",
            b"20E",
            b"\xff\xfe",
            b"\n\x041Ti",
            b"\n\x021Ti",
            b"\n\0",
        ] {
            assert!(Capacity::decode(bad).is_err(), "{bad:?}");
        }
        assert!(matches!(Capacity::decode(b"0"), Err(CapacityError::NotPositive { .. })));
    }
}
