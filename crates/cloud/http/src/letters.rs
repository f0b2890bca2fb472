//! Short names made from long ones: legal in every cloud, and the same each time.

/// Letters and digits that are legal in names everywhere, 32 of them.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// `length` letters, 32 at most, from SHA-256.
pub fn letters(text: &str, length: usize) -> String {
    aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes())
        .as_ref()
        .iter()
        .take(length)
        .map(|byte| char::from(ALPHABET[usize::from(byte & 31)]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of things that were made by an earlier version must stay what they were.
    #[test]
    fn letters_never_change() {
        assert_eq!(letters("trestle/ns.gcp", 8), "yd3iy4ad");
        assert_eq!(letters("", 40).len(), 32);
    }
}
