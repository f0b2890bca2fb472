//! How commands end: what is said on standard error, and the exit code.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use tonic::{Code, Status};

use crate::visible::visible;

/// Says why a command failed, and with which code it exits.
pub fn report(error: &anyhow::Error) -> ExitCode {
    let status = error.chain().find_map(|cause| cause.downcast_ref::<Status>());
    let text = match status {
        Some(status) => describe(status),
        None => error.chain().map(ToString::to_string).collect::<Vec<_>>().join(": "),
    };
    // Nobody is left to tell if standard error is closed.
    let _ = writeln!(io::stderr().lock(), "error: {}", visible(&text));
    ExitCode::from(code(error, status))
}

fn describe(status: &Status) -> String {
    let message =
        if status.message().is_empty() { "the controller gave no reason" } else { status.message() };
    format!("{message} ({})", server::failure::code_name(status.code()))
}

/// The codes of `trestle --help`.
fn code(error: &anyhow::Error, status: Option<&Status>) -> u8 {
    let unreachable = error.chain().any(|cause| cause.downcast_ref::<tonic::transport::Error>().is_some());
    match status.map(Status::code) {
        Some(Code::NotFound) => 3,
        Some(Code::Unauthenticated | Code::PermissionDenied) => 4,
        Some(Code::Unavailable | Code::DeadlineExceeded) => 5,
        None if unreachable => 5,
        _ => 1,
    }
}
