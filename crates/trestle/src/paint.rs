//! Colour, on a terminal and nowhere else.

use std::{
    env,
    io::{self, IsTerminal as _},
    sync::LazyLock,
};

use crate::visible::visible;

/// What a text is meant to say beside its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Good,
    Busy,
    Bad,
    Faint,
}

/// Standard output is a terminal, and nobody asked for no colour (<https://no-color.org>).
static COLOURED: LazyLock<bool> = LazyLock::new(|| {
    let asked_not_to = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !asked_not_to && env::var_os("TERM").is_none_or(|term| term != "dumb")
});

const GOOD: &str = "\x1b[32m";
const BUSY: &str = "\x1b[33m";
const BAD: &str = "\x1b[1;31m";
const FAINT: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

pub fn paint(text: &str, tone: Tone) -> String {
    if !*COLOURED {
        return text.to_owned();
    }
    let code = match tone {
        Tone::Good => GOOD,
        Tone::Busy => BUSY,
        Tone::Bad => BAD,
        Tone::Faint => FAINT,
    };
    format!("{code}{text}{PLAIN}")
}

/// The text as it may be printed: what a terminal would obey is made [`visible`], all but the colours of [`paint`].
pub fn shown(text: &str) -> String {
    if *COLOURED { shown_with_colours(text) } else { visible(text) }
}

fn shown_with_colours(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\x1b') {
        let (before, after) = rest.split_at(at);
        shown.push_str(&visible(before));
        let colour = [GOOD, BUSY, BAD, FAINT, PLAIN].into_iter().find(|code| after.starts_with(code));
        let taken = match colour {
            Some(code) => code,
            None => &after[..1],
        };
        shown.push_str(&if colour.is_some() { taken.to_owned() } else { visible(taken) });
        rest = &after[taken.len()..];
    }
    shown.push_str(&visible(rest));
    shown
}

/// How a word that names a state is meant.
pub fn tone_of(state: &str) -> Option<Tone> {
    match state {
        "ready" | "Ready" | "done" | "Realized" | "valid" | "yes" | "connected" | "current" => {
            Some(Tone::Good)
        }
        "making" | "wanted" | "running" | "removing" | "Realizing" | "Configuring" | "behind" => {
            Some(Tone::Busy)
        }
        "failed" | "Failed" | "away" | "errors" | "NOT READY" => Some(Tone::Bad),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_a_terminal_obeys_only_our_colours_are_left() {
        let painted = format!("{BAD}! node\u{1b}[2J{PLAIN} \u{9b}0m\u{1b}");
        assert_eq!(shown_with_colours(&painted), "\x1b[1;31m! node\\u001b[2J\x1b[0m \\u009b0m\\u001b");
    }
}
