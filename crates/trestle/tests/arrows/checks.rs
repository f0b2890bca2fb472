//! The checkers on made-up sources: each thing they look for is found, and nothing else is.

use std::{collections::BTreeSet, fs};

use super::{
    knots::{knots, uses},
    leaving, purity,
    source::{Source, code, sources, without_tests},
};

fn source(path: &str, text: &str) -> Source {
    Source { path: path.into(), code: without_tests(&code(text)) }
}

fn faults(text: &str) -> usize {
    purity::faults(&source("a.rs", text)).len()
}

#[test]
fn what_is_not_pure_is_found_however_it_is_written() {
    for text in [
        "let now = std::time::Instant::now();",
        "let now = SystemTime::now();",
        "let at = jiff::Timestamp::now();",
        "if start.elapsed() > limit {}",
        "let text = std::fs::read_to_string(path);",
        "use std::{collections::BTreeMap, fs};",
        "use std::{\n    collections::BTreeMap,\n    env::{self, VarError},\n};",
        "use std::fs::File;\nfn f() {}",
        "File::open(path)",
        "let home = std::env::var(\"HOME\");",
        "let id = Uuid::new_v4();",
        "let id = Uuid::now_v7();",
        "let key: u64 = rand::random();",
        "aws_lc_rs::rand::SystemRandom::new()",
        "use std::collections::HashMap;",
        "let state = RandomState::new();",
        "let socket = UdpSocket::bind(address);",
        "std::thread::spawn(run);",
        "pub async fn run() {}",
        "static X: u8 = 1; tokio::spawn(run());",
        "println!(\"hello\");",
        "std::process::Command::new(\"ip\")",
    ] {
        assert!(faults(text) > 0, "{text}");
    }
}

#[test]
fn what_only_looks_impure_is_not() {
    for text in [
        "// std::fs::read\nfn f() {}",
        "/* Instant::now() /* nested */ SystemTime::now() */ fn f() {}",
        "let text = \"std::env::var and \\\" fs::read\"; let char = '\"'; let x = 1;",
        "let text = r#\"thread::spawn \"quoted\" \"#; let b = br\"File::open\"; let l: &'static str = x;",
        "const VERSION: &str = env!(\"CARGO_PKG_VERSION\");",
        "use rustc_hash::FxHashMap; let map: FxHashMap<u8, u8> = FxHashMap::default();",
        "let offs = Offs::new(); let brand::Name { .. } = x; prefs::read();",
        "use std::net::{IpAddr, Ipv4Addr};",
        "let unknown = x; let known(y) = z;",
        "fn f() {}\n#[cfg(test)]\nmod tests {\n    use std::fs;\n    fn g() { fs::read(\"a\"); }\n}\nfn h() {}",
        "#[cfg(test)]\nmod tests;\nfn h() {}",
        "#[cfg(any(test, feature = \"cases\"))]\npub fn at() -> Instant { Instant::now() }",
    ] {
        assert_eq!(faults(text), 0, "{text}: {:?}", purity::faults(&source("a.rs", text)));
    }
}

#[test]
fn code_after_a_test_and_after_a_text_is_seen() {
    for text in [
        "#[cfg(test)]\nmod tests { fn f() { let a = \"}\"; } }\nfn h() { fs::read(x); }",
        "let a = '\\''; let b = '{'; fs::read(x);",
        "#[cfg(test)]\nuse x::{a, b};\nfn h() { fs::read(x); }",
        "let a = \"\\\\\"; fs::read(x); let b = \"\";",
    ] {
        assert_eq!(faults(text), 1, "{text}");
    }
}

fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let sources: Vec<Source> = files.iter().map(|(path, text)| source(path, text)).collect();
    knots(&uses(&sources)).into_iter().map(|knot| knot.into_iter().collect()).collect()
}

#[test]
fn circles_are_found_however_modules_name_each_other() {
    let none: Vec<Vec<String>> = Vec::new();
    assert_eq!(found(&[("a.rs", "use crate::b::X;"), ("b.rs", "")]), none);
    assert_eq!(found(&[("a.rs", "use crate::b::X;"), ("b.rs", "use crate::a::Y;")]), [["a", "b"]]);
    let deep =
        [("a.rs", "use crate::{c, b::{X, Y}};"), ("b/deep.rs", "fn f() -> crate::a::Z {}"), ("c.rs", "")];
    assert_eq!(found(&deep), [["a", "b"]]);
    let round = [("a.rs", "crate::b::f()"), ("b.rs", "crate::c::f()"), ("c.rs", "crate::a::f()")];
    assert_eq!(found(&round), [["a", "b", "c"]]);
    assert_eq!(found(&[("a.rs", "use super::b::X;"), ("b/in.rs", "use super::super::a;")]), [["a", "b"]]);
    assert_eq!(found(&[("a.rs", "use crate::b::X;"), ("b/in.rs", "use super::a;")]), none, "b's own a");
    let given = [
        ("lib.rs", "pub use a::{One, Two as Three};"),
        ("a.rs", "use crate::b::X;"),
        ("b.rs", "use crate::One;"),
    ];
    assert_eq!(found(&given), [["a", "b"]]);
    let told = [
        ("a.rs", "use crate::b::X;"),
        ("b.rs", "//! See [`crate::a`].\n#[cfg(test)]\nmod tests { use crate::a; }"),
    ];
    assert_eq!(found(&told), none, "neither words nor tests");
}

#[test]
fn files_of_tests_are_no_sources_and_paths_out_of_the_crate_are_seen() {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("src/lib.rs", "mod a;");
    write("src/a.rs", "fn f() {}");
    write("src/a/tests.rs", "fn f() {}");
    write("src/a/tests/deep.rs", "fn f() {}");
    write(
        "tests/flat.rs",
        "#[path = \"support/x.rs\"]\nmod x;\n    #[path = \"../../other/tests/y.rs\"]\nmod y;",
    );
    write("tests/deep/main.rs", "#[path = \"../support/x.rs\"]\nmod x;");
    let paths: BTreeSet<String> =
        sources(&dir.path().join("src")).iter().map(|source| source.path.display().to_string()).collect();
    assert_eq!(paths, BTreeSet::from(["a.rs".to_owned(), "lib.rs".to_owned()]));
    let leaving = leaving(dir.path());
    assert!(leaving.len() == 1 && leaving[0].ends_with("flat.rs: ../../other/tests/y.rs"), "{leaving:?}");
}
