//! `trestle check` and `trestle fix`.

use wire::trestle::v1::{CheckCloudsRequest, DriftInfo, orchestrator_client::OrchestratorClient};

use crate::{
    client::Connection,
    exit::{Answer, answering},
    output::{Format, Rows},
};

/// Flags of `trestle check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Drift alone is no failure: what differs is listed, and the exit code is 0.
Exit codes with --exit-code: 0 nothing has drifted, 1 something has; and 2 instead of 1 for what failed.

Example:
  trestle check --exit-code && echo nothing has drifted")]
pub struct CheckArgs {
    /// Exit with 1 if something has drifted
    #[arg(long)]
    exit_code: bool,
}

pub async fn check(args: CheckArgs, output: Format, connection: Connection) -> anyhow::Result<()> {
    let CheckArgs { exit_code } = args;
    let drifted = run(false, output, connection).await.and_then(|has_drifted| match has_drifted {
        true if exit_code => Err(Answer(1).into()),
        _ => Ok(()),
    });
    answering(exit_code, drifted)
}

pub async fn fix(output: Format, connection: Connection) -> anyhow::Result<()> {
    run(true, output, connection).await.map(drop)
}

/// Whether something has drifted.
async fn run(fix: bool, output: Format, connection: Connection) -> anyhow::Result<bool> {
    let mut client = OrchestratorClient::new(connection);
    let drifts = client.check_clouds(CheckCloudsRequest { fix }).await?.into_inner().drifts;
    if drifts.is_empty() {
        output.done("Everything is as it was made.", &drifts)?;
        return Ok(false);
    }
    output.list(&drifts)?;
    // Of a cloud that did not answer nobody knows whether it has drifted: that is a failure, not a difference.
    let unknown: Vec<&str> = drifts.iter().filter_map(|drift| drift.object.strip_prefix("cloud/")).collect();
    if !unknown.is_empty() {
        anyhow::bail!("not compared: {}; see above why, and `trestle status`", unknown.join(", "));
    }
    Ok(true)
}

impl Rows for DriftInfo {
    const HEADER: &'static [&'static str] = &["object", "what", "mendable"];

    fn row(&self) -> Vec<String> {
        vec![self.object.clone(), self.what.clone(), self.mendable.to_string()]
    }
}
