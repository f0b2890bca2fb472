//! `trestle test` and `trestle lint`: what policies come to, held against what their authors rely on.

use std::{fmt::Write as _, path::PathBuf};

use wire::trestle::v1::{
    LintFinding, LintRequest, LintResponse, PolicyTestResult, RunPolicyTestsRequest, RunPolicyTestsResponse,
    policies_client::PoliciesClient,
};

use crate::{
    client::{Connection, MAX_MESSAGE},
    exit::{Answer, answering},
    manifest,
    output::{Format, Rows, warn},
};

/// Some test is not decided, and none failed.
const UNDECIDED: u8 = 6;

/// Flags of `trestle test`.
#[derive(Debug, clap::Args)]
#[command(after_help = "A test is an object beside the policies:

  apiVersion: trestle.dev/v1
  kind: PolicyTest
  metadata: {name: shop, namespace: shop}
  spec:
    tests:
    - {from: shop/app=web, to: shop/db-0, port: 5432, expect: allow}
    - {from: 198.51.100.7, to: shop/app=db, expect: deny}

from and to are what `trestle explain` takes, or NAMESPACE/LABEL=VALUE for all workloads there with that label.

Exit codes: 0 all passed, 1 some failed, 6 some are about workloads that are not there; 2 for what could not be run.

Examples:
  trestle test                     the tests that are stored
  trestle test -f policies/        as if these files were applied: their tests and those that are stored
  trestle test --staged            as if all that is staged were in force")]
pub struct TestArgs {
    /// YAML or JSON file, directory, or - for standard input
    #[arg(short, long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// As if all that is staged were in force
    #[arg(long)]
    staged: bool,
}

/// Flags of `trestle lint`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes with --exit-code: 0 nothing was found, 1 something was; 2 for what failed.

Examples:
  trestle lint                     all policies that are in force
  trestle lint --unused 30d        also rules that have decided no connection for so long, as nodes tell
  trestle lint -f policies/        these, as if they were applied"
)]
pub struct LintArgs {
    /// YAML or JSON file, directory, or - for standard input
    #[arg(short, long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Also rules that have decided no connection from then on, as nodes tell: a time, or how long ago, as in 30d
    #[arg(long, value_name = "TIME", default_value = "", hide_default_value = true)]
    unused: String,
    /// Exit with 1 if something is found
    #[arg(long)]
    exit_code: bool,
}

async fn documents(files: Vec<PathBuf>) -> anyhow::Result<Vec<Vec<u8>>> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let manifests = manifest::read(files).await?;
    Ok(manifests.into_iter().map(|manifest| manifest.document.into_vec()).collect())
}

pub async fn test(args: TestArgs, output: Format, connection: Connection) -> anyhow::Result<()> {
    answering(true, run(args, output, connection).await)
}

async fn run(args: TestArgs, output: Format, connection: Connection) -> anyhow::Result<()> {
    let documents = documents(args.files).await?;
    let request = RunPolicyTestsRequest { documents, staged: args.staged, deleted: Vec::new() };
    let mut policies = PoliciesClient::new(connection).max_decoding_message_size(MAX_MESSAGE);
    let told = policies.run_policy_tests(request).await?.into_inner();
    match output {
        Format::Table => output.done(&text(&told), &told)?,
        Format::Json | Format::Yaml => output.data(&told)?,
        Format::Wide | Format::Name => output.list(&told.results)?,
    }
    match (told.failed, told.undecided) {
        (0, 0) => Ok(()),
        (0, _) => Err(Answer(UNDECIDED).into()),
        _ => Err(Answer(1).into()),
    }
}

fn text(told: &RunPolicyTestsResponse) -> String {
    let mut text = String::new();
    for one in told.results.iter().filter(|one| one.outcome != "passed") {
        let PolicyTestResult { namespace, name, index, outcome, because, .. } = one;
        let _ = writeln!(text, "{outcome}: {namespace}/{name}, line {}: {because}", index + 1);
    }
    let RunPolicyTestsResponse { passed, failed, undecided, .. } = told;
    let undecided = match undecided {
        0 => String::new(),
        many => format!(", {many} undecided"),
    };
    let _ = match told.results.is_empty() {
        true => write!(text, "There are no policy tests; `trestle test --help` shows one"),
        false => write!(text, "{passed} passed, {failed} failed{undecided}"),
    };
    text
}

impl Rows for PolicyTestResult {
    const HEADER: &'static [&'static str] =
        &["namespace", "name", "line", "from", "to", "traffic", "expected", "outcome"];
    const WIDE: &'static [&'static str] = &["because"];

    fn row(&self) -> Vec<String> {
        let line = (self.index + 1).to_string();
        let Self { namespace, name, from, to, traffic, expected, outcome, .. } = self;
        [namespace, name, &line, from, to, traffic, expected, outcome].map(String::clone).to_vec()
    }

    fn wide(&self) -> Vec<String> {
        vec![self.because.clone()]
    }
}

pub async fn lint(args: LintArgs, output: Format, connection: Connection) -> anyhow::Result<()> {
    let is_asked = args.exit_code;
    answering(is_asked, look(args, output, connection).await)
}

async fn look(args: LintArgs, output: Format, connection: Connection) -> anyhow::Result<()> {
    let documents = documents(args.files).await?;
    let request = LintRequest { only_documents: !documents.is_empty(), documents, unused_since: args.unused };
    let mut policies = PoliciesClient::new(connection).max_decoding_message_size(MAX_MESSAGE);
    let LintResponse { findings, notes } = policies.lint(request).await?.into_inner();
    notes.iter().for_each(|note| warn(note));
    match output {
        Format::Table if findings.is_empty() => {
            crate::output::print("Nothing to tell: every rule does something")?
        }
        _ => output.list(&findings)?,
    }
    if args.exit_code && !findings.is_empty() { Err(Answer(1).into()) } else { Ok(()) }
}

impl Rows for LintFinding {
    const HEADER: &'static [&'static str] = &["kind", "namespace", "name", "rule", "problem", "proof"];

    fn row(&self) -> Vec<String> {
        let Self { kind, namespace, name, path, problem, proof } = self;
        let rule = if path.is_empty() { "-".to_owned() } else { path.clone() };
        vec![kind.clone(), namespace.clone(), name.clone(), rule, problem.clone(), proof.join("; ")]
    }
}
