//! Commands of resources: started with the resource, started again when they end, ended with it.

use std::time::Duration;

use cloud_api::Result;
use common::Backoff;
use model::ResourceName;
use serde::Deserialize;
use tokio::time::Instant;
use tracing::info;

use crate::{cloud::Inner, daemon::Daemon, state::State};

/// Pauses before a command that has ended is started again: the first, and the longest.
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);

/// Words, or a text for the shell.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Command {
    Text(String),
    Words(Vec<String>),
}

impl Command {
    fn words(&self) -> Vec<&str> {
        match self {
            Self::Text(text) => vec!["sh", "-c", text],
            Self::Words(words) => words.iter().map(String::as_str).collect(),
        }
    }

    /// Why it cannot be run; none if it can.
    pub(crate) fn refusal(&self) -> Option<&'static str> {
        match self {
            Self::Text(text) if text.trim().is_empty() => Some("the command is empty"),
            Self::Words(words) if words.first().is_none_or(String::is_empty) => {
                Some("the command has no program")
            }
            _ if self.words().iter().any(|word| word.contains('\0')) => {
                Some("the command has a zero byte in it")
            }
            _ => None,
        }
    }
}

/// A command that has ended before.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    not_before: Instant,
    backoff: Backoff,
}

impl Ended {
    fn new(now: Instant) -> Self {
        let mut backoff = Backoff::new(FIRST, LONGEST);
        Self { not_before: now + backoff.pause(), backoff }
    }
}

/// Names a command among all daemons of a cloud.
pub(crate) fn key(name: &ResourceName) -> String {
    format!("{name} command")
}

impl Inner {
    fn command_daemon(&self, name: &ResourceName) -> Daemon {
        Daemon::new(&self.run_dir(&key(name)), "command")
    }

    /// Starts the command of a resource, if it has one that does not run.
    pub(crate) fn start_command(&self, name: &ResourceName, command: &Command) -> Result {
        let daemon = self.command_daemon(name);
        if daemon.is_running() {
            return Ok(());
        }
        self.ensure_run_dir(&key(name))?;
        daemon.start(&self.names.resource(name), &command.words(), &[])
    }

    /// Ends the command of a resource and forgets it.
    pub(crate) async fn stop_command(&self, name: &ResourceName) {
        self.command_daemon(name).stop().await;
        self.ended.lock().remove(name);
        self.remove_run_dir(&key(name));
    }

    /// Starts commands again that have ended, each after a pause that grows while it keeps ending. Answers what is wrong.
    pub(crate) fn tend_commands(&self, state: &State) -> Vec<String> {
        let mut troubles = Vec::new();
        for (name, resource) in &state.resources {
            let Some(command) = resource.command() else { continue };
            if self.command_daemon(name).is_running() || !self.is_time_to_start(name) {
                continue;
            }
            match self.start_command(name, &command) {
                Ok(()) => info!(resource = %name, "the command of a resource was started again"),
                Err(err) => troubles.push(err.message),
            }
        }
        troubles
    }

    fn is_time_to_start(&self, name: &ResourceName) -> bool {
        let (mut ended, now) = (self.ended.lock(), Instant::now());
        let last = ended.entry(name.clone()).or_insert(Ended::new(now));
        if now < last.not_before {
            return false;
        }
        // One that has run for long ends as if for the first time.
        if now > last.not_before + 2 * LONGEST {
            last.backoff.reset();
        }
        last.not_before = now + last.backoff.pause();
        true
    }
}
