//! Colour, on a terminal and nowhere else.

use std::{
    env,
    io::{self, IsTerminal as _},
    sync::LazyLock,
};

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

pub fn paint(text: &str, tone: Tone) -> String {
    if !*COLOURED {
        return text.to_owned();
    }
    let code = match tone {
        Tone::Good => "32",
        Tone::Busy => "33",
        Tone::Bad => "1;31",
        Tone::Faint => "2",
    };
    format!("\x1b[{code}m{text}\x1b[0m")
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
