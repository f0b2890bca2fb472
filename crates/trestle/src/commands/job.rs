//! `trestle job`, and how commands that start a job wait for it.

use std::io::{self, IsTerminal as _};

use anyhow::bail;
use clap::Subcommand;
use wire::trestle::v1::{
    ChangeOutcome, JobInfo, JobRequest, ListJobsRequest, orchestrator_client::OrchestratorClient,
};

use crate::{
    client::Connection,
    output::{Format, Rows, print},
    progress,
};

#[derive(Debug, Subcommand)]
#[command(
    after_help = "Commands that change clouds wait for their job and show its progress; with --detach they print it.

Examples:
  trestle rule add a.web --ping b.db --detach
  trestle job list
  trestle job wait 0192f0c4-…
  trestle job cancel 0192f0c4-…"
)]
pub enum JobCommand {
    /// All jobs, oldest first
    List,
    /// One job
    Get { id: String },
    /// Wait until a job has ended; fails if the job did
    Wait { id: String },
    /// End a job and take back what it wanted
    Cancel { id: String },
}

/// Flags of commands that change something.
#[derive(Clone, Debug, clap::Args)]
pub struct ChangeArgs {
    /// Show what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not wait; print the job
    #[arg(long, conflicts_with = "dry_run")]
    pub detach: bool,
}

pub async fn run(command: JobCommand, output: Format, connection: Connection) -> anyhow::Result<()> {
    let mut client = OrchestratorClient::new(connection.clone());
    match command {
        JobCommand::List => {
            let jobs = client.list_jobs(ListJobsRequest {}).await?.into_inner().jobs;
            output.list(&jobs)
        }
        JobCommand::Get { id } => {
            let mut jobs = client.watch_job(JobRequest { id }).await?.into_inner();
            match jobs.message().await? {
                Some(job) => output.one(&job),
                None => bail!("the controller said nothing of the job"),
            }
        }
        JobCommand::Wait { id } => {
            let job = wait(&mut client, id).await?;
            output.one(&job)
        }
        JobCommand::Cancel { id } => output.one(&client.cancel_job(JobRequest { id }).await?.into_inner()),
    }
}

/// Waits for the job of an outcome, unless told not to. False if there is nothing more to show.
pub async fn finish(
    outcome: ChangeOutcome,
    change: &ChangeArgs,
    output: Format,
    connection: &Connection,
) -> anyhow::Result<bool> {
    let Some(job) = outcome.job else {
        output.done(outcome.plan.trim_end(), &outcome.planned)?;
        return Ok(false);
    };
    if change.detach {
        output.done(&format!("Job: {}", job.id), &job)?;
        return Ok(false);
    }
    wait(&mut OrchestratorClient::new(connection.clone()), job.id).await?;
    Ok(true)
}

/// The same, of a job that somebody else began; fails if it did.
pub async fn until_ended(connection: &Connection, id: String) -> anyhow::Result<JobInfo> {
    wait(&mut OrchestratorClient::new(connection.clone()), id).await
}

/// Follows a job to its end, with its progress on standard error if that is a terminal.
async fn wait(client: &mut OrchestratorClient<Connection>, id: String) -> anyhow::Result<JobInfo> {
    let mut jobs = client.watch_job(JobRequest { id: id.clone() }).await?.into_inner();
    let shows = io::stderr().is_terminal();
    let mut last = None;
    while let Some(job) = jobs.message().await? {
        if shows {
            progress::draw(&line(&job));
        }
        last = Some(job);
    }
    if shows {
        progress::draw("");
    }
    match last {
        Some(job) if job.state == "done" => Ok(job),
        Some(job) if job.state == "running" => {
            bail!("the controller stopped; `trestle job wait {id}` goes on waiting")
        }
        Some(job) => bail!("{} {}: {}", job.what, job.state, job.message),
        None => bail!("the controller said nothing of job {id}"),
    }
}

fn line(job: &JobInfo) -> String {
    let done = job.steps.saturating_sub(job.steps_left);
    format!("{} ({done} of {} steps) {}", job.what, job.steps, job.message)
}

/// Prints a sentence for people, and an object for programs.
pub fn said(output: Format, sentence: &str, name: &str) -> anyhow::Result<()> {
    match output {
        Format::Table | Format::Wide | Format::Name => print(sentence),
        _ => output.done(sentence, &serde_json::json!({ "name": name })),
    }
}

impl Rows for JobInfo {
    const HEADER: &'static [&'static str] = &["id", "what", "state", "left", "message"];

    fn row(&self) -> Vec<String> {
        let left = self.steps_left.to_string();
        vec![self.id.clone(), self.what.clone(), self.state.clone(), left, self.message.clone()]
    }
}
