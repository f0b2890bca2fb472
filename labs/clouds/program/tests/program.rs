//! The program as `trestle up --demo --clouds sim` starts it.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Command, Stdio},
};

fn get(url: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: sim\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split("\r\n\r\n").nth(1).unwrap().to_owned()
}

#[test]
fn says_where_it_is_answers_questions_and_ends_with_its_input() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_trestle-clouds"))
        .args(["--plugins", "--listen", "127.0.0.1:0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said: serde_json::Value = serde_json::from_str(&line).unwrap();
    let plugins: Vec<_> = said["plugins"].as_object().unwrap().keys().collect();
    assert_eq!(plugins, ["aws", "azure", "gcp", "ibm"]);
    let url = said["url"].as_str().unwrap();
    assert_eq!(get(url, "/meter"), r#"{"requests":0,"seconds":0.0}"#);
    assert_eq!(get(url, "/left?cloud=gcp"), "[]");
    // To ask what is left lets everything that is under way come to its end.
    assert_eq!(get(url, "/meter"), r#"{"requests":0,"seconds":7200.0}"#);
    assert_eq!(get(url, "/wire?from=10.0.0.1&to=10.0.0.2"), "one of the two is nobody's address\n");
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
}
