//! How commands end: what is said on standard error, and the exit code.

use std::{
    fmt,
    io::{self, Write as _},
    process::ExitCode,
};

use tonic::{Code, Status};

use crate::visible::visible;

/// An answer that is given as the exit code, by a command that was asked to (`--exit-code`) and has said it already.
#[derive(Clone, Copy, Debug)]
pub struct Answer(pub u8);

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the answer is exit code {}", self.0)
    }
}

impl std::error::Error for Answer {}

/// Marks failures of a command whose answer is its exit code: they must not look like one.
#[derive(Clone, Copy, Debug)]
struct NoAnswer;

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no answer")
    }
}

/// The result of a command that answers by its exit code, if it was asked to.
pub fn answering(is_asked: bool, result: anyhow::Result<()>) -> anyhow::Result<()> {
    result.map_err(|err| if is_asked && !err.is::<Answer>() { err.context(NoAnswer) } else { err })
}

/// Says why a command failed, and with which code it exits.
pub fn report(error: &anyhow::Error) -> ExitCode {
    if let Some(Answer(code)) = error.downcast_ref() {
        return ExitCode::from(*code);
    }
    let is_marked = error.is::<NoAnswer>();
    let status = error.chain().find_map(|cause| cause.downcast_ref::<Status>());
    let text = match status {
        Some(status) => describe(status),
        None => {
            let causes = error.chain().skip(usize::from(is_marked));
            causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
        }
    };
    // Nobody is left to tell if standard error is closed.
    let _ = writeln!(io::stderr().lock(), "error: {}", visible(&text));
    match code(error, status) {
        1 if is_marked => ExitCode::from(2),
        code => ExitCode::from(code),
    }
}

fn describe(status: &Status) -> String {
    let message =
        if status.message().is_empty() { "the controller gave no reason" } else { status.message() };
    format!("{message} ({})", server::failure::code_name(status.code()))
}

/// The codes of `trestle --help`.
fn code(error: &anyhow::Error, status: Option<&Status>) -> u8 {
    let unreachable = error.chain().any(|cause| cause.downcast_ref::<tonic::transport::Error>().is_some());
    // A controller that answers that the time was up was reached; one that does not answer in time was not.
    let answered = status.is_some_and(|status| std::error::Error::source(status).is_none());
    match status.map(Status::code) {
        Some(Code::NotFound) => 3,
        Some(Code::Unauthenticated | Code::PermissionDenied) => 4,
        Some(Code::DeadlineExceeded) if answered => 1,
        Some(Code::Unavailable | Code::DeadlineExceeded) => 5,
        None if unreachable => 5,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_that_says_the_time_was_up_was_reached() {
        let code_of = |status: Status| {
            let error = anyhow::Error::from(status);
            let status = error.chain().find_map(|cause| cause.downcast_ref::<Status>());
            code(&error, status)
        };
        assert_eq!(code_of(Status::deadline_exceeded("it took longer than 30 s")), 1);
        assert_eq!(code_of(Status::unavailable("it stops")), 5);
        let mut silent = Status::deadline_exceeded("no answer");
        silent.set_source(std::sync::Arc::new(io::Error::from(io::ErrorKind::TimedOut)));
        assert_eq!(code_of(silent), 5);
    }
}
