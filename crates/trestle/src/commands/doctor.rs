//! `trestle doctor`: whether everything that can be seen from here is as it has to be, and the command that mends what is not.
//!
//! In: this machine, the context, the controller. Out: findings, each with its remedy. What is observed is judged in pure
//! code. Not here: what is wrong inside the controller's world (`status`), of which only the worst is told.

use std::{
    fs, io,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use tonic::metadata::MetadataMap;
use wire::{
    json::role_name,
    trestle::v1::{
        GetStatusRequest, Status, WhoAmIRequest, access_client::AccessClient, admin_client::AdminClient,
    },
};

use crate::{
    client::ConnectionArgs,
    context::ContextFile,
    exit::{Answer, answering},
    output::{Format, Rows, print},
    paint::{Tone, paint},
};

/// Ports that `trestle up` listens at.
const PORTS: [u16; 2] = [8080, 8081];
/// Clocks that differ by more make certificates of minutes and logs of two machines hard to use.
const SKEW: SignedDuration = SignedDuration::from_secs(5);
/// What the agent programs, with what it is for and how it is had.
const KERNEL: [(&str, &str, &str); 2] = [
    ("nf_tables", "policies in the kernel (trestle agent)", "sudo modprobe nf_tables"),
    ("ip_vs", "services with --services ipvs", "sudo modprobe ip_vs"),
];

/// Flags of `trestle doctor`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes with --exit-code: 0 all is well, 1 something is not; and 2 instead of 1 for what failed.

Example:
  trestle doctor"
)]
pub struct DoctorArgs {
    /// Exit with 1 if something is wrong
    #[arg(long)]
    exit_code: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Well,
    /// Worth knowing; nothing is broken.
    Note,
    Wrong,
}

/// What was found, and what to do about it.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Finding {
    what: &'static str,
    state: State,
    told: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    mend: String,
}

impl Finding {
    fn well(what: &'static str, told: impl Into<String>) -> Self {
        Self { what, state: State::Well, told: told.into(), mend: String::new() }
    }

    fn note(what: &'static str, told: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { what, state: State::Note, told: told.into(), mend: mend.into() }
    }

    fn wrong(what: &'static str, told: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { what, state: State::Wrong, told: told.into(), mend: mend.into() }
    }
}

impl Rows for Finding {
    const HEADER: &'static [&'static str] = &["what", "state", "found", "mend"];

    fn row(&self) -> Vec<String> {
        let state = match self.state {
            State::Well => "well",
            State::Note => "note",
            State::Wrong => "wrong",
        };
        vec![self.what.to_owned(), state.to_owned(), self.told.clone(), self.mend.clone()]
    }
}

pub async fn run(args: DoctorArgs, output: Format, connection: ConnectionArgs) -> anyhow::Result<()> {
    answering(args.exit_code, examine(args.exit_code, output, connection).await)
}

async fn examine(exit_code: bool, output: Format, connection: ConnectionArgs) -> anyhow::Result<()> {
    let mut findings = Vec::new();
    findings.extend(of_controller(connection).await?);
    findings.extend(of_machine());
    match output {
        Format::Table => print(&told(&findings))?,
        _ => output.list(&findings)?,
    }
    match findings.iter().any(|finding| finding.state == State::Wrong) && exit_code {
        true => Err(Answer(1).into()),
        false => Ok(()),
    }
}

async fn of_controller(connection: ConnectionArgs) -> anyhow::Result<Vec<Finding>> {
    let Some(place) = connection.place()? else {
        let mut findings = vec![Finding::wrong("controller", "none is known here", "trestle up")];
        findings
            .extend(PORTS.map(|port| of_port(port, TcpListener::bind((Ipv4Addr::LOCALHOST, port)).err())));
        return Ok(findings);
    };
    let mut findings = Vec::new();
    if let Some(path) = ContextFile::load()?.and_then(|context| context.token_file) {
        findings.extend(fs::metadata(&path).ok().and_then(|data| of_token(&path, data.permissions().mode())));
    }
    let connected = match connection.connect().await {
        Ok(connected) => connected,
        Err(err) => {
            let told = format!("{place} does not answer: {}", err.root_cause());
            findings.insert(
                0,
                Finding::wrong("controller", told, "trestle up; or name another one with --server"),
            );
            return Ok(findings);
        }
    };
    findings.push(Finding::well("controller", format!("{place} answers")));
    match AccessClient::new(connected.clone()).who_am_i(WhoAmIRequest {}).await {
        Ok(reply) => {
            findings.extend(of_clock(reply.metadata(), Timestamp::now()));
            let me = reply.into_inner();
            findings.push(Finding::well("identity", format!("{} ({})", me.name, role_name(me.role))));
        }
        Err(status) => {
            let told = status.message().to_owned();
            findings.push(Finding::wrong("identity", told, "trestle --token-file FILE whoami"));
            return Ok(findings);
        }
    }
    let status = AdminClient::new(connected).get_status(GetStatusRequest {}).await?.into_inner();
    findings.extend(of_status(&status, env!("CARGO_PKG_VERSION")));
    Ok(findings)
}

fn of_port(port: u16, failed: Option<io::Error>) -> Finding {
    match failed {
        None => Finding::well("port", format!("{port} is free")),
        Some(err) => Finding::wrong(
            "port",
            format!("{port} cannot be listened at: {err}"),
            format!("ss -ltnp sport = :{port}"),
        ),
    }
}

fn of_token(path: &Path, mode: u32) -> Option<Finding> {
    let shown = path.display();
    match mode & 0o077 {
        0 => None,
        _ => Some(Finding::wrong("token", format!("others can read {shown}"), format!("chmod 600 {shown}"))),
    }
}

/// By the time that the controller says in its replies.
fn of_clock(metadata: &MetadataMap, now: Timestamp) -> Option<Finding> {
    let said = metadata.get("date")?.to_str().ok()?;
    let theirs = jiff::fmt::rfc2822::parse(said).ok()?.timestamp();
    let apart = now.duration_since(theirs);
    // The header has whole seconds.
    if apart.abs() <= SKEW {
        return Some(Finding::well("clock", "as the controller's"));
    }
    let way = if apart.is_positive() { "ahead of" } else { "behind" };
    let told = format!("{} s {way} the controller's", apart.abs().as_secs());
    Some(Finding::wrong("clock", told, "timedatectl status"))
}

fn of_status(status: &Status, own: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if status.version == own {
        findings.push(Finding::well("version", format!("{own}, as the controller")));
    } else {
        let told = format!("this program is {own}, the controller {}", status.version);
        findings.push(Finding::note(
            "version",
            told,
            "install the same on both; docs/operating.md says in which order",
        ));
    }
    match status.ready {
        true => findings
            .push(Finding::well("ready", format!("{} store at revision {}", status.store, status.revision))),
        false => findings.push(Finding::wrong("ready", status.problems.join("; "), "trestle status")),
    }
    let attention = status.attention.iter().chain(&status.storage_trouble);
    findings.extend(attention.map(|what| Finding::wrong("attention", what.clone(), "trestle status")));
    findings
}

/// What an agent would need here.
fn of_machine() -> Vec<Finding> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let listed = |file: &str| {
        fs::read_to_string(format!("/lib/modules/{}/{file}", release.trim())).unwrap_or_default()
    };
    let (built_in, loadable) = (listed("modules.builtin"), listed("modules.dep"));
    let loaded = fs::read_to_string("/proc/modules").unwrap_or_default();
    let of = |name: &str| {
        let file = format!("/{name}.ko");
        Feature {
            is_there: loaded.lines().any(|line| line.split(' ').next() == Some(name))
                || built_in.contains(&file)
                || Path::new("/sys/module").join(name).exists(),
            can_be_loaded: loadable.contains(&file),
        }
    };
    KERNEL.iter().map(|(name, use_, mend)| of_kernel(name, use_, mend, of(name))).collect()
}

struct Feature {
    is_there: bool,
    can_be_loaded: bool,
}

fn of_kernel(name: &str, used_for: &str, mend: &str, feature: Feature) -> Finding {
    match feature {
        Feature { is_there: true, .. } => Finding::well("kernel", format!("{name} is there, for {used_for}")),
        Feature { can_be_loaded: true, .. } => {
            Finding::note("kernel", format!("{name} is not loaded; it is for {used_for}"), mend)
        }
        _ => Finding::note(
            "kernel",
            format!("no module {name} is seen, though it may be built in; it is for {used_for}"),
            mend,
        ),
    }
}

fn told(findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        let mark = match finding.state {
            State::Well => paint("✓", Tone::Good),
            State::Note => paint("•", Tone::Busy),
            State::Wrong => paint("!", Tone::Bad),
        };
        let mend = match finding.mend.as_str() {
            "" => String::new(),
            mend => format!("\n               {}", paint(mend, Tone::Faint)),
        };
        format!("{mark} {:<12} {}{mend}", finding.what, finding.told)
    };
    findings.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(findings: &[Finding]) -> Vec<(&'static str, State)> {
        findings.iter().map(|finding| (finding.what, finding.state)).collect()
    }

    #[test]
    fn a_clock_that_is_off_is_told_with_which_way() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let of = |date: &str| {
            let mut metadata = MetadataMap::new();
            metadata.insert("date", date.parse().unwrap());
            of_clock(&metadata, now)
        };
        assert_eq!(of("Thu, 01 Jan 2026 00:01:02 GMT").unwrap().state, State::Well);
        let ahead = of("Thu, 01 Jan 2026 00:00:00 GMT").unwrap();
        assert_eq!((ahead.state, ahead.told.as_str()), (State::Wrong, "60 s ahead of the controller's"));
        assert!(of("Thu, 01 Jan 2026 00:02:00 GMT").unwrap().told.contains("60 s behind"));
        assert_eq!(of("yesterday"), None);
        assert_eq!(of_clock(&MetadataMap::new(), now), None);
    }

    #[test]
    fn what_is_wrong_has_a_remedy() {
        let path = Path::new("/home/a/token");
        assert_eq!(of_token(path, 0o100_600), None);
        assert_eq!(of_token(path, 0o100_644).unwrap().mend, "chmod 600 /home/a/token");
        assert_eq!(of_port(8080, None).state, State::Well);
        assert!(of_port(8080, Some(io::Error::from(io::ErrorKind::AddrInUse))).mend.contains(":8080"));
        let status = Status {
            ready: false,
            version: "9.9.9".into(),
            attention: vec!["x".into()],
            ..Status::default()
        };
        let findings = of_status(&status, "0.1.0");
        assert_eq!(
            states(&findings),
            [("version", State::Note), ("ready", State::Wrong), ("attention", State::Wrong)]
        );
        assert!(findings.iter().all(|finding| !finding.mend.is_empty()));
        let feature =
            |is_there, can_be_loaded| of_kernel("nf_tables", "x", "m", Feature { is_there, can_be_loaded });
        assert_eq!(feature(true, false).state, State::Well);
        assert_eq!((feature(false, true).state, feature(false, false).state), (State::Note, State::Note));
    }
}
