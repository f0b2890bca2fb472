//! A page of commands: blocks to run, and what they say.
//!
//! ```text
//!   ```sh                       commands, run in one shell
//!   ```sh background SIGN       a command that stays, until it has printed SIGN
//!   ```sh interrupt             Ctrl-C to the last of those
//!   ```sh until SIGN            commands that are repeated until they print SIGN, at most half a minute
//!   ```text                     what the block before it prints; … stands for anything in a line, a line of … for any lines
//! ```

/// How a block is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Run,
    Background(String),
    Interrupt,
    Until(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub kind: Kind,
    pub commands: String,
    pub output: Option<String>,
    /// Where it begins.
    pub line: usize,
}

/// The blocks of a page, in order.
pub fn blocks(text: &str) -> Result<Vec<Block>, String> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else { continue };
        let inside: Vec<&str> =
            lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
        let inside = inside.join("\n");
        let kind = match kind.split_once(' ').unwrap_or((kind, "")) {
            ("sh", "") => Kind::Run,
            ("sh", "interrupt") => Kind::Interrupt,
            ("sh", flags) if flags.starts_with("background ") => {
                Kind::Background(flags.trim_start_matches("background ").to_owned())
            }
            ("sh", flags) if flags.starts_with("until ") => {
                Kind::Until(flags.trim_start_matches("until ").to_owned())
            }
            ("text", "") => {
                let last =
                    blocks.last_mut().ok_or(format!("line {}: no command before this output", number + 1))?;
                last.output = Some(inside);
                continue;
            }
            _ => {
                return Err(format!(
                    "line {}: a block of {kind:?} is neither commands nor output",
                    number + 1
                ));
            }
        };
        blocks.push(Block { kind, commands: inside, output: None, line: number + 1 });
    }
    Ok(blocks)
}

/// Whether a text is as expected.
pub fn matches(expected: &str, text: &str) -> bool {
    let (expected, text): (Vec<_>, Vec<_>) = (expected.lines().collect(), text.lines().collect());
    lines_match(&expected, &text)
}

fn lines_match(expected: &[&str], text: &[&str]) -> bool {
    match expected.split_first() {
        None => text.is_empty(),
        Some((&"…", rest)) => (0..=text.len()).any(|skipped| lines_match(rest, &text[skipped..])),
        Some((line, rest)) => text
            .split_first()
            .is_some_and(|(first, after)| line_matches(line, first) && lines_match(rest, after)),
    }
}

/// Widths of columns depend on what is in them, so runs of spaces are one.
fn line_matches(expected: &str, line: &str) -> bool {
    let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (expected, line) = (squeeze(expected), squeeze(line));
    let mut parts = expected.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let parts: Vec<_> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return rest.is_empty() };
    for part in between {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[test]
fn placeholders_stand_for_anything_and_nothing_else_does() {
    assert!(matches("a … c", "a  b b c"));
    assert!(matches("x\n…\ny", "x\n1\n2\ny") && matches("x\n…\ny", "x\ny"));
    assert!(!matches("a … c", "a b d") && !matches("a", "a\nb") && !matches("a\nb", "a"));
    assert!(matches("time=… ms", "time=0.42 ms") && !matches("1 received", "0 received"));
}

#[test]
fn a_page_is_read_in_order() {
    let page = "x\n```sh\na\nb\n```\n```text\nout\n```\n```sh background up\nc\n```\n```sh interrupt\n```\n";
    let read = blocks(page).unwrap();
    assert_eq!(read.len(), 3);
    assert_eq!(
        (read[0].commands.as_str(), read[0].output.as_deref(), read[0].line),
        ("a\nb", Some("out"), 2)
    );
    assert_eq!(read[1].kind, Kind::Background("up".to_owned()));
    assert!(blocks("```text\nx\n```\n").is_err() && blocks("```json\n{}\n```\n").is_err());
}
