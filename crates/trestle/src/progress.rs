//! A sign of life for what takes more than a second: on a terminal and nowhere else.
//!
//! It is one line on standard error, drawn over and over and gone before anything else is printed.

use std::{
    future::Future,
    io::{self, IsTerminal as _, Write as _},
    pin::pin,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crate::visible::visible_line;

/// What is quicker shows nothing.
const QUIET: Duration = Duration::from_secs(1);
const FRAME: Duration = Duration::from_millis(120);
const FRAMES: [char; 8] = ['⠋', '⠙', '⠸', '⢰', '⣠', '⣄', '⡆', '⠇'];

static SHOWN: AtomicBool = AtomicBool::new(false);
static NOTE: Mutex<String> = Mutex::new(String::new());

/// How far the work is, in a few words.
pub fn note(text: String) {
    *NOTE.lock().unwrap_or_else(PoisonError::into_inner) = text;
}

/// Takes the line away, so that something can be printed.
pub fn clear() {
    if SHOWN.swap(false, Ordering::Relaxed) {
        draw("");
    }
}

/// Does the work, and says that it goes on.
pub async fn during<T>(what: &str, work: impl Future<Output = T>) -> T {
    if !io::stderr().is_terminal() {
        return work.await;
    }
    let mut work = pin!(work);
    let start = Instant::now();
    if let Ok(done) = tokio::time::timeout(QUIET, &mut work).await {
        return done;
    }
    let mut frames = FRAMES.iter().cycle();
    loop {
        let note = NOTE.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let frame = frames.next().copied().unwrap_or_default();
        draw(&line(frame, what, &note, start.elapsed()));
        SHOWN.store(true, Ordering::Relaxed);
        if let Ok(done) = tokio::time::timeout(FRAME, &mut work).await {
            clear();
            return done;
        }
    }
}

fn line(frame: char, what: &str, note: &str, elapsed: Duration) -> String {
    let note = if note.is_empty() { String::new() } else { format!(": {note}") };
    format!("{frame} {what}{note} ({} s)", elapsed.as_secs())
}

/// Draws the line anew.
pub fn draw(text: &str) {
    // Nobody is left to tell if standard error is closed.
    let _ = write!(io::stderr().lock(), "\r\x1b[K{}", visible_line(text));
    let _ = io::stderr().flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_and_how_far_and_for_how_long() {
        assert_eq!(line('⠋', "Applying", "", Duration::from_millis(1900)), "⠋ Applying (1 s)");
        let text = line('⠙', "Applying", "2,000 of 9,000 objects", Duration::from_secs(3));
        assert_eq!(text, "⠙ Applying: 2,000 of 9,000 objects (3 s)");
    }
}
