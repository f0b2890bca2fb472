//! An error and what lies below it, as one line.

use std::error::Error;

/// `what was attempted: why it failed: what lay below`. A cause that the error above it has quoted is not said again.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(below) = source {
        let cause = below.to_string();
        if !text.ends_with(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
        source = below.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Layer(&'static str, Option<Box<Layer>>);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_ref().map(|below| &**below as _)
        }
    }

    #[test]
    fn every_cause_is_said_once() {
        let layer = |text, below| Layer(text, Some(Box::new(below)));
        let bottom = || Layer("no space left", None);
        assert_eq!(chain(&bottom()), "no space left");
        let written = layer("cannot write the state", layer("write", bottom()));
        assert_eq!(chain(&written), "cannot write the state: write: no space left");
        let quoting = layer("cannot write: no space left", bottom());
        assert_eq!(chain(&quoting), "cannot write: no space left");
    }
}
