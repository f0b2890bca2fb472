//! What a watcher asks for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use watch::{Query, asked::Page};

fuzz_target!(|text: &str| {
    let pairs = || text.split('&').filter_map(|pair| pair.split_once('='));
    let _ = Query::parse(pairs());
    let _ = Page::parse(pairs());
});
