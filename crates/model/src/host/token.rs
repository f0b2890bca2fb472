//! Join tokens as a line of text.
//!
//! ```text
//!   trestle-join-ID-SECRET-FINGERPRINT
//!                └ proves that an administrator lets the machine in      └ of the CA of the controller that lets it in
//! ```

use std::{fmt, str::FromStr};

use super::Fingerprint;
use crate::Secret;

const PREFIX: &str = "trestle-join-";
const ID_DIGITS: usize = 16;
const SECRET_DIGITS: usize = 32;

/// What lets a machine join: whoever has it is let in, and knows the controller by it.
#[derive(Clone, Debug)]
pub struct JoinToken {
    pub id: String,
    pub secret: Secret,
    /// Of the certificate that the controller's own is signed with.
    pub ca: Fingerprint,
}

/// The text is no join token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is no join token: one begins with `{PREFIX}` and is made with `trestle token create --join`; was it cut?"
)]
pub struct ParseJoinTokenError;

impl JoinToken {
    /// The whole line, with its secret.
    pub fn expose(&self) -> Secret {
        Secret::new(format!("{PREFIX}{}-{}-{}", self.id, self.secret.expose(), self.ca))
    }
}

impl FromStr for JoinToken {
    type Err = ParseJoinTokenError;

    fn from_str(text: &str) -> Result<Self, ParseJoinTokenError> {
        let rest = text.trim().strip_prefix(PREFIX).ok_or(ParseJoinTokenError)?;
        let mut parts = rest.split('-');
        let (Some(id), Some(secret), Some(ca), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(ParseJoinTokenError);
        };
        let is_hex = |part: &str, digits| {
            part.len() == digits && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        if !is_hex(id, ID_DIGITS) || !is_hex(secret, SECRET_DIGITS) {
            return Err(ParseJoinTokenError);
        }
        let ca = ca.parse().map_err(|_| ParseJoinTokenError)?;
        Ok(Self { id: id.to_owned(), secret: Secret::new(secret), ca })
    }
}

/// Without its secret.
impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_back_and_one_that_was_cut_is_not() {
        let token = JoinToken {
            id: "0".repeat(ID_DIGITS),
            secret: Secret::new("a".repeat(SECRET_DIGITS)),
            ca: "f".repeat(64).parse().unwrap(),
        };
        let text = token.expose().expose().to_owned();
        let read: JoinToken = format!(" {text}\n").parse().unwrap();
        assert_eq!((read.id, read.secret, read.ca), (token.id, token.secret, token.ca));
        for len in 0..text.len() {
            assert!(text[..len].parse::<JoinToken>().is_err(), "{len}");
        }
        assert!(format!("{text}-x").parse::<JoinToken>().is_err());
        assert!(text.to_uppercase().parse::<JoinToken>().is_err());
    }
}
