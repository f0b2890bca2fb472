//! Text from elsewhere, as it may be shown (pure): names, versions and messages of nodes, clouds and users can hold sequences
//! that a terminal obeys. All that is printed for people goes through here.

/// Characters that a terminal, or the eye, would not take as text are written `\u001b`. A tab and the end of a line stay.
pub fn visible(text: &str) -> String {
    if !text.contains(is_hidden) {
        return text.to_owned();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match is_hidden(character) {
            true => shown.push_str(&format!("\\u{:04x}", u32::from(character))),
            false => shown.push(character),
        }
    }
    shown
}

/// The same for a text on one line.
pub fn visible_line(text: &str) -> String {
    visible(text).replace('\n', "\\n")
}

fn is_hidden(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        // What turns the direction of writing around, so that a text reads as another one.
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        // C0, DEL, and C1, of which U+009B begins a sequence as ESC [ does.
        _ => character.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        let title = "\u{1b}]0;owned\u{7}";
        assert_eq!(visible(title), "\\u001b]0;owned\\u0007");
        assert_eq!(visible("a\u{9b}2Jb\rc\u{8}\u{7f}"), "a\\u009b2Jb\\u000dc\\u0008\\u007f");
        assert_eq!(visible("pay \u{202e}evil"), "pay \\u202eevil");
    }

    #[test]
    fn text_stays_as_it_is() {
        for text in ["", "plain", "two\nlines\tand a tab", "Größe, 大きさ, ⠋", "\\u001b"] {
            assert_eq!(visible(text), text);
        }
        assert_eq!(visible_line("two\nlines"), "two\\nlines");
    }
}
