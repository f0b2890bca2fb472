//! A value that cannot be printed.

use std::fmt;

/// Holds a secret. Neither `Debug` nor `Display` nor serde shows it: to use it, one must write [`Secret::expose`].
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The secret itself. Every call is a place to look at in a review.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_print() {
        assert!(
            !format!("{:?} {:#?}", Secret::new("hunter2"), Some(Secret::new("hunter2"))).contains("hunter2")
        );
    }
}
