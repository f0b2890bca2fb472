//! How the story is told on a terminal, or in a file.

use std::time::Duration;

use crate::{
    output::print,
    paint::{Tone, paint},
};

const WIDTH: usize = 100;

/// The beginning of a chapter.
pub fn chapter(number: usize, title: &str) -> anyhow::Result<()> {
    let line = format!("── {number}. {title} ");
    let rest = "─".repeat(WIDTH.saturating_sub(line.chars().count()));
    print(&format!("\n{}", paint(&format!("{line}{rest}"), Tone::Busy)))
}

pub fn say(text: &str) -> anyhow::Result<()> {
    print("")?;
    wrapped(text).iter().try_for_each(|line| print(&format!("  {line}")))
}

/// A command as the user would type it.
pub fn command(words: &str) -> anyhow::Result<()> {
    print(&format!("\n  $ {words}"))
}

/// What a command has printed, up to so many lines.
pub fn output(text: &str, most: usize) -> anyhow::Result<()> {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    for line in lines.iter().take(most) {
        print(format!("    {line}").trim_end())?;
    }
    match lines.len().saturating_sub(most) {
        0 => Ok(()),
        more => print(&paint(&format!("    … {more} more lines"), Tone::Faint)),
    }
}

/// How a step ended, and how long it took.
pub fn done(text: &str, took: Duration) -> anyhow::Result<()> {
    ended(text, &seconds(took))
}

/// The same, and what simulated clouds were asked meanwhile, by their own clock.
pub fn done_there(text: &str, took: Duration, there: Duration, requests: usize) -> anyhow::Result<()> {
    let there = match requests {
        0 => String::new(),
        1 => format!(" (there: {}, 1 request)", minutes(there)),
        many => format!(" (there: {}, {many} requests)", minutes(there)),
    };
    ended(text, &format!("{}{there}", seconds(took)))
}

fn ended(text: &str, took: &str) -> anyhow::Result<()> {
    let text = if text.is_empty() { String::new() } else { format!(" {text}") };
    print(&format!("    {}{text}  {}", paint("✓", Tone::Good), paint(took, Tone::Faint)))
}

pub fn seconds(took: Duration) -> String {
    match took.as_secs_f64() {
        short if short < 1.0 => format!("{:.0} ms", short * 1000.0),
        long => format!("{long:.1} s"),
    }
}

fn minutes(took: Duration) -> String {
    match took.as_secs() {
        short if short < 60 => format!("{short} s"),
        long => format!("{} min {} s", long / 60, long % 60),
    }
}

/// Words of a command, with quotes where a shell needs them. `$demo` stands for the demonstration's directory.
pub fn quoted(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-=,:@%+$".contains(c);
    // Double quotes, in which $demo is still the directory.
    let quote = |word: &String| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("\"{word}\""),
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if !line.is_empty() && line.chars().count() + word.chars().count() + 3 > WIDTH {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_and_nothing_is_lost() {
        let text = "word ".repeat(80);
        let lines = wrapped(&text);
        assert!(lines.len() > 1 && lines.iter().all(|line| line.len() + 2 <= WIDTH));
        assert_eq!(lines.join(" ").split(' ').count(), 80);
    }

    #[test]
    fn commands_can_be_pasted() {
        let words = ["apply", "-f", "$demo/a b.yaml", "$demo/x.yaml"].map(str::to_owned);
        assert_eq!(quoted(&words), "apply -f \"$demo/a b.yaml\" $demo/x.yaml");
    }

    #[test]
    fn times_are_read_at_a_glance() {
        assert_eq!(seconds(Duration::from_millis(42)), "42 ms");
        assert_eq!(seconds(Duration::from_millis(2140)), "2.1 s");
        assert_eq!(minutes(Duration::from_secs(42)), "42 s");
        assert_eq!(minutes(Duration::from_secs(1265)), "21 min 5 s");
    }
}
