//! Every command that the documents show is one of this program, with flags and arguments that it takes.
//!
//! What they do is not tried here: the tutorial is (`tests/tutorial`).

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::{CommandFactory as _, error::ErrorKind};

/// The README, what else is at the top, and everything below `docs`.
fn pages() -> Vec<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut dirs = vec![top.join("docs"), top.join("clients")];
    let mut pages = vec![top.join("README.md"), top.join("CONTRIBUTING.md"), top.join("SECURITY.md")];
    while let Some(dir) = dirs.pop() {
        for path in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

/// The lines of all blocks of shell commands, those that go on in the next one joined, each with its number.
fn lines(page: &str) -> Vec<(usize, String)> {
    let (mut fence, mut begun, mut found) = (None, String::new(), Vec::new());
    for (index, line) in page.lines().enumerate() {
        if let Some(kind) = line.trim_start().strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(kind.split(' ').next().unwrap_or_default()) };
            begun.clear();
            continue;
        }
        if !fence.is_some_and(|kind| ["sh", "bash", "console"].contains(&kind)) {
            continue;
        }
        begun.push_str(line.strip_suffix('\\').unwrap_or(line));
        if !line.ends_with('\\') {
            found.push((index + 1, std::mem::take(&mut begun)));
        }
    }
    found
}

/// The words of each call of this program in a line of shell.
fn calls(line: &str) -> Vec<Vec<String>> {
    // What is called within another command, or in a group.
    let line = line.replace("$(", " ; ").replace("<(", " ; ").replace("; }", " ; ");
    let line = if line.contains(" ; ") { line.replace(')', " ") } else { line };
    let Some(words) = shlex::split(&line) else { return Vec::new() };
    let mut calls = Vec::new();
    for simple in words.split(|word| ["|", "||", "&&", ";", "&", "{", "("].contains(&word.as_str())) {
        let redirected =
            simple.iter().position(|word| word.starts_with(['>', '<']) || word.starts_with("2>"));
        let simple = &simple[..redirected.unwrap_or(simple.len())];
        let is_before =
            |word: &String| word == "sudo" || word == "-E" || word == "exec" || word.contains('=');
        let simple: Vec<String> = simple.iter().skip_while(|word| is_before(word)).cloned().collect();
        if simple.first().is_some_and(|word| word == "trestle" || word.ends_with("/trestle")) {
            // What stands for something is something of its form; what may be left out is.
            let words = simple.into_iter().filter(|word| !word.starts_with('['));
            let words = words.map(|word| if word == "HEX" { "0".repeat(64) } else { word });
            calls.push(words.map(|word| word.trim_end_matches(';').to_owned()).collect());
        }
    }
    calls
}

#[test]
fn every_command_in_the_documents_is_one() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in pages() {
        for (number, line) in lines(&fs::read_to_string(&page).unwrap()) {
            // A synopsis.
            if line.contains('…') || line.contains("...") {
                continue;
            }
            for call in calls(&line) {
                count += 1;
                let Err(error) = super::Args::command().try_get_matches_from(&call) else { continue };
                if !matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
                    wrong.push(format!("{}:{number}: {}\n{error}", page.display(), call.join(" ")));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 100, "only {count} commands were found");
}

#[test]
fn commands_are_found_wherever_they_stand_in_a_line() {
    let found = |line: &str| calls(line).into_iter().map(|call| call.join(" ")).collect::<Vec<_>>();
    assert_eq!(found("sudo -E trestle join URL 'a b'   # as root"), ["trestle join URL a b"]);
    assert_eq!(
        found("token=$(trestle token create --join) && X=y trestle whoami > file"),
        ["trestle token create --join", "trestle whoami"]
    );
    assert_eq!(found("trestle get pods -o json | jq ."), ["trestle get pods -o json"]);
    assert!(found("echo trestle").is_empty() && found("# trestle x").is_empty());
    assert_eq!(lines("```sh\na \\\nb\n```\n```json\nc\n```\n"), [(3, "a b".to_owned())]);
}
