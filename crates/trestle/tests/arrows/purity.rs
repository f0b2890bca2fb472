//! Pure rooms decide from what they are given: no clock, files, environment, randomness, network, threads.

use super::source::Source;

/// What gives a room away, and what it is. A name in code: `fs::` is found in `std::fs::read` and not in `Offs::new`.
const IMPURE: &[(&str, &str)] = &[
    ("::now(", "the clock"),
    ("::now_v7(", "the clock"),
    (".elapsed(", "the clock"),
    ("fs::", "files"),
    ("File::", "files"),
    ("OpenOptions", "files"),
    ("std::io::stdin", "files"),
    ("std::io::stdout", "files"),
    ("std::io::stderr", "files"),
    ("println!", "files"),
    ("eprintln!", "files"),
    ("env::", "the environment"),
    ("process::", "the environment"),
    ("rand::", "randomness"),
    ("fastrand", "randomness"),
    ("getrandom", "randomness"),
    ("thread_rng", "randomness"),
    ("SystemRandom", "randomness"),
    ("new_v4(", "randomness"),
    ("RandomState", "an order by chance"),
    ("HashMap", "an order by chance"),
    ("HashSet", "an order by chance"),
    ("TcpStream", "the network"),
    ("TcpListener", "the network"),
    ("UdpSocket", "the network"),
    ("UnixStream", "the network"),
    ("UnixListener", "the network"),
    ("ToSocketAddrs", "the network"),
    ("thread::", "threads"),
    ("tokio", "threads"),
    ("async ", "threads"),
    ("static mut", "threads"),
    ("thread_local!", "threads"),
];

/// What in a source is not pure: in words.
pub fn faults(source: &Source) -> Vec<String> {
    let mut found: Vec<String> = IMPURE
        .iter()
        .filter(|(name, _)| names(&source.code, name))
        .map(|(name, what)| format!("{}: `{name}` is {what}", source.path.display()))
        .collect();
    found.extend(grouped(&source.code).iter().map(|name| {
        format!("{}: `use std::{{{name}…}}` brings what a pure room has not", source.path.display())
    }));
    found
}

/// Whether the name occurs where no other name goes on into it.
fn names(code: &str, name: &str) -> bool {
    let begins = |at: usize| {
        let before = code[..at].chars().next_back();
        name.starts_with([':', '.']) || !before.is_some_and(|char| char.is_alphanumeric() || char == '_')
    };
    code.match_indices(name).any(|(at, _)| begins(at))
}

/// Modules of std that are brought in within braces: `use std::{env, fs}`.
fn grouped(code: &str) -> Vec<&'static str> {
    let lists = code.split("use std::{").skip(1).filter_map(|rest| rest.split(';').next());
    let words: Vec<&str> = lists.flat_map(|list| list.split(|char: char| !char.is_alphanumeric())).collect();
    ["env", "fs", "process", "thread"].into_iter().filter(|module| words.contains(module)).collect()
}
