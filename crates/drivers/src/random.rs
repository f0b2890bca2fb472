//! Randomness, from the system.

use aws_lc_rs::rand;

pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).expect("the system's random source works");
    bytes
}

/// A random UUID.
pub fn uuid() -> String {
    uuid::Builder::from_random_bytes(bytes()).into_uuid().to_string()
}
