//! Sources as far as the walls care: code without comments, texts and tests, and where it stands.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A file below `src`, without what is only for tests.
pub struct Source {
    /// Relative to `src`.
    pub path: PathBuf,
    pub code: String,
}

impl Source {
    /// The module at the top of the crate that it belongs to.
    pub fn module(&self) -> &str {
        let first = self.path.iter().next().and_then(|part| part.to_str()).expect("a file has a name");
        first.trim_end_matches(".rs")
    }

    /// How many modules are around it: one for a module at the top.
    pub fn depth(&self) -> usize {
        self.path.iter().count()
    }

    pub fn is_root(&self) -> bool {
        ["lib.rs", "main.rs"].iter().any(|root| self.path == Path::new(root))
    }
}

/// The sources of a crate. Files of tests are not among them.
pub fn sources(src: &Path) -> Vec<Source> {
    let mut found = Vec::new();
    for file in files(src) {
        let path = file.strip_prefix(src).expect("it is below").to_owned();
        let is_test = path.iter().any(|part| part == "tests" || part == "tests.rs");
        if !is_test && file.extension().is_some_and(|extension| extension == "rs") {
            found.push(Source { path, code: without_tests(&code(&fs::read_to_string(&file).unwrap())) });
        }
    }
    assert!(!found.is_empty(), "no sources in {}", src.display());
    found
}

/// All files below a folder, in order.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())) {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

/// The text without comments, and with every literal empty.
pub fn code(text: &str) -> String {
    let bytes: Vec<char> = text.chars().collect();
    let at = |index: usize| bytes.get(index).copied().unwrap_or('\0');
    let (mut code, mut index) = (String::new(), 0);
    while index < bytes.len() {
        let is_word = |char: char| char.is_alphanumeric() || char == '_';
        let after_word = index > 0 && is_word(at(index - 1));
        match (at(index), at(index + 1)) {
            ('/', '/') => index = until(&bytes, index, |rest| rest[0] == '\n'),
            ('/', '*') => index = comment(&bytes, index),
            ('r', '"' | '#') | ('b', 'r') if !after_word && raw(&bytes, index).is_some() => {
                index = raw(&bytes, index).expect("just looked");
                code.push_str("\"\"");
            }
            ('"', _) => {
                index = text_end(&bytes, index);
                code.push_str("\"\"");
            }
            // A character, not a lifetime.
            ('\'', '\\') => index = until(&bytes, index + 3, |rest| rest[0] == '\'') + 1,
            ('\'', _) if at(index + 2) == '\'' => index += 3,
            (char, _) => {
                code.push(char);
                index += 1;
            }
        }
    }
    code
}

fn until(bytes: &[char], from: usize, ends: impl Fn(&[char]) -> bool) -> usize {
    (from..bytes.len()).find(|index| ends(&bytes[*index..])).unwrap_or(bytes.len())
}

/// Behind a comment, and those within it.
fn comment(bytes: &[char], from: usize) -> usize {
    let (mut depth, mut index) = (1, from + 2);
    while depth > 0 && index < bytes.len() {
        match bytes[index..] {
            ['/', '*', ..] => (depth, index) = (depth + 1, index + 2),
            ['*', '/', ..] => (depth, index) = (depth - 1, index + 2),
            _ => index += 1,
        }
    }
    index
}

fn text_end(bytes: &[char], from: usize) -> usize {
    let mut index = from + 1;
    while index < bytes.len() && bytes[index] != '"' {
        index += if bytes[index] == '\\' { 2 } else { 1 };
    }
    index + 1
}

/// Behind a raw text that begins here, if one does.
fn raw(bytes: &[char], from: usize) -> Option<usize> {
    let start = if bytes[from] == 'b' { from + 2 } else { from + 1 };
    let hashes = bytes[start..].iter().take_while(|char| **char == '#').count();
    if bytes.get(start + hashes) != Some(&'"') {
        return None;
    }
    let end: Vec<char> = ['"'].into_iter().chain(std::iter::repeat_n('#', hashes)).collect();
    Some(until(bytes, start + hashes + 1, |rest| rest.starts_with(&end)) + end.len())
}

/// Without what is compiled for tests alone: the item after `#[cfg(test)]`, or after one of `any(test, …)`.
pub fn without_tests(code: &str) -> String {
    let mut kept = String::new();
    let mut rest = code;
    while let Some(start) = rest.find("#[cfg(test)]").into_iter().chain(rest.find("#[cfg(any(test,")).min() {
        kept.push_str(&rest[..start]);
        let mut depth = 0;
        let end = rest[start..].char_indices().find(|(_, char)| {
            match char {
                '{' | '(' | '[' => depth += 1,
                '}' | ')' | ']' => depth -= 1,
                _ => {}
            }
            depth == 0 && matches!(char, ';' | '}')
        });
        rest = end.map_or("", |(index, _)| &rest[start + index + 1..]);
    }
    kept + rest
}
