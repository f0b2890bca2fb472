//! An error and what lies below it, as one line.

use std::error::Error;

/// `what was attempted: why it failed: what lay below`.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(below) = source {
        text.push_str(": ");
        text.push_str(&below.to_string());
        source = below.source();
    }
    text
}
