//! What the controller gives to be signed, so that a proof is of now and for it.
//!
//! Nothing is kept of what was given: the time and a random part carry a code that only this process can make. So strangers who ask
//! for any number of them cost no memory. A proof that is shown twice within its time asks twice for a certificate of the same key, which
//! is of use to nobody but the key's owner.

use aws_lc_rs::hmac;
use drivers::random;
use jiff::Timestamp;
use tonic::Code;

use crate::failure::Failure;

/// How long one can be used.
const GOOD_FOR: i64 = 120;
/// Bytes of the time, of the random part, and of the code.
const TIME: usize = 8;
const RANDOM: usize = 8;
const CODE: usize = 16;

/// Gives nonces, and knows its own.
pub struct Nonces(hmac::Key);

impl Nonces {
    pub fn new() -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, &random::bytes::<32>()))
    }

    pub fn give(&self, now: Timestamp) -> String {
        let mut nonce = now.as_second().to_be_bytes().to_vec();
        nonce.extend(random::bytes::<RANDOM>());
        let code = hmac::sign(&self.0, &nonce);
        nonce.extend(&code.as_ref()[..CODE]);
        common::hex(&nonce)
    }

    pub fn check(&self, text: &str, now: Timestamp) -> Result<(), Failure> {
        let refused = |text| Err(Failure::new(Code::FailedPrecondition, text));
        let foreign = "what was signed was not given by this controller: it may have been restarted, or another one answered; \
                       try again";
        let Some(bytes) = bytes(text) else { return refused(foreign) };
        let (said, code) = bytes.split_at(TIME + RANDOM);
        let made = hmac::sign(&self.0, said);
        if aws_lc_rs::constant_time::verify_slices_are_equal(&made.as_ref()[..CODE], code).is_err() {
            return refused(foreign);
        }
        let given = i64::from_be_bytes(said[..TIME].try_into().expect("it was cut to this length"));
        match now.as_second() - given {
            0..=GOOD_FOR => Ok(()),
            // This process's own clock was set meanwhile.
            i64::MIN..0 => refused("what was signed is from the future of this controller; try again"),
            _ => refused("what was signed was given too long ago; try again"),
        }
    }
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    if text.len() != 2 * (TIME + RANDOM + CODE) || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_are_taken_and_only_for_a_while() {
        let (nonces, now) = (Nonces::new(), Timestamp::from_second(1_800_000_000).unwrap());
        let at = |seconds| Timestamp::from_second(now.as_second() + seconds).unwrap();
        let nonce = nonces.give(now);
        assert_ne!(nonce, nonces.give(now));
        assert!(nonces.check(&nonce, now).is_ok() && nonces.check(&nonce, at(GOOD_FOR)).is_ok());
        assert!(nonces.check(&nonce, at(GOOD_FOR + 1)).is_err() && nonces.check(&nonce, at(-1)).is_err());
        assert!(Nonces::new().check(&nonce, now).is_err(), "of another process");
        for place in 0..nonce.len() {
            let mut bad = nonce.clone().into_bytes();
            bad[place] = if bad[place] == b'0' { b'1' } else { b'0' };
            assert!(nonces.check(std::str::from_utf8(&bad).unwrap(), now).is_err(), "digit {place}");
        }
        for bad in ["", "x", "ä", &nonce[1..], &"é".repeat(32)] {
            assert!(nonces.check(bad, now).is_err(), "{bad}");
        }
    }
}
