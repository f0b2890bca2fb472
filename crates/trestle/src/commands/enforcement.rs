//! `--wait`: how commands that change something wait until it is in force.

use std::time::Duration;

use anyhow::{Context as _, bail};
use jiff::SignedDuration;
use server::CHANGE_HEADER;
use tokio::time::Instant;
use tonic::Response;
use wire::trestle::v1::{
    EnforcementRequest, EnforcementState, WaitingPlace, enforcement_client::EnforcementClient,
};

use super::access::duration;
use crate::{
    client::{Connection, MAX_MESSAGE},
    exit::Answer,
    output::{Format, print, warn},
    progress,
};

/// It is done, and not yet in force everywhere.
pub const NOT_YET: u8 = 7;
/// Places named on one line.
const NAMED: usize = 3;
/// Between two looks at the clock.
const TICK: Duration = Duration::from_millis(200);

/// Whether a command waits.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct WaitArgs {
    /// Return when it is in force at every node and cloud that it concerns, or after TIME (default 30s). If it is not in force
    /// everywhere then, say where and why, and exit with 7
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "30s",
        value_parser = duration
    )]
    wait: Option<SignedDuration>,
}

/// The changes that a command made, as the replies name them.
#[derive(Debug, Default)]
pub struct Changes(Vec<String>);

impl Changes {
    /// Takes the names out of a reply; one that changed nothing, of what is in force, has none.
    pub fn of<T>(&mut self, reply: Response<T>) -> T {
        let names = reply.metadata().get_all(CHANGE_HEADER).iter().filter_map(|name| name.to_str().ok());
        for name in names {
            if !self.0.iter().any(|known| known == name) {
                self.0.push(name.to_owned());
            }
        }
        reply.into_inner()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl WaitArgs {
    /// Refuses to wait for what is not waited for, or does not happen.
    pub fn check(self, is_idle: bool) -> anyhow::Result<()> {
        if is_idle && self.wait.is_some() {
            bail!("--wait waits until it is in force; leave out --detach or --dry-run, or --wait");
        }
        Ok(())
    }

    /// Waits, if it was asked for. Programs read what the command printed, and the exit code.
    pub async fn until_in_force(
        self,
        connection: &Connection,
        changes: Changes,
        output: Format,
    ) -> anyhow::Result<()> {
        let Some(limit) = self.wait else { return Ok(()) };
        if changes.is_empty() {
            if output == Format::Table {
                print("Nothing changed, and nothing of it is on its way")?;
            }
            return Ok(());
        }
        let state = until_in_force(connection, changes, limit.unsigned_abs()).await?;
        if state.state == ENFORCED {
            return match output {
                Format::Table => print(&everywhere(&state)),
                _ => Ok(()),
            };
        }
        for place in &state.waiting {
            warn(&format!("not in force at {}: {}", place.place, place.reason));
        }
        warn(&short_of(&state));
        Err(Answer(NOT_YET).into())
    }
}

pub const ENFORCED: &str = "enforced";

/// Waits until changes are in force, every place that has not has said that it could not, or for so long. Counts meanwhile.
pub async fn until_in_force(
    connection: &Connection,
    changes: Changes,
    limit: Duration,
) -> anyhow::Result<EnforcementState> {
    let until = Instant::now() + limit;
    let mut client = EnforcementClient::new(connection.clone()).max_decoding_message_size(MAX_MESSAGE);
    let mut states = client.watch_enforcement(EnforcementRequest { changes: changes.0 }).await?.into_inner();
    let mut last = EnforcementState::default();
    loop {
        match tokio::time::timeout_at(until.min(Instant::now() + TICK), states.message()).await {
            Ok(state) => match state.context("it is applied; whether it is in force cannot be told")? {
                Some(state) => last = state,
                None => return Ok(last),
            },
            Err(_) if Instant::now() >= until => return Ok(last),
            Err(_) => {}
        }
        if last.state == ENFORCED || has_failed(&last) {
            return Ok(last);
        }
        progress::note(line(&last));
    }
}

/// Nobody is on the way any more.
fn has_failed(state: &EnforcementState) -> bool {
    let waiting = usize::try_from(state.concerned.saturating_sub(state.enforced)).unwrap_or(usize::MAX);
    waiting > 0 && state.waiting.len() == waiting && state.waiting.iter().all(|place| place.failed)
}

/// As in `in force at 21 of 24 places; node-3: it is away since 5 s`.
fn line(state: &EnforcementState) -> String {
    let EnforcementState { concerned, enforced, .. } = state;
    if state.state == "computing" {
        return "working out whom it concerns".to_owned();
    }
    let mut named = state.waiting.iter().take(NAMED).map(of_place).collect::<Vec<_>>();
    let more = usize::try_from(concerned - enforced).unwrap_or_default().saturating_sub(named.len());
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    format!("in force at {enforced} of {}; {}", places(*concerned), named.join(", "))
}

fn of_place(WaitingPlace { place, reason, .. }: &WaitingPlace) -> String {
    format!("{place}: {reason}")
}

fn everywhere(state: &EnforcementState) -> String {
    match state.concerned {
        0 => "In force: no node and no cloud has to do anything for it".to_owned(),
        count => format!("In force at {} after {}", places(count), took(state.seconds)),
    }
}

fn short_of(state: &EnforcementState) -> String {
    let EnforcementState { concerned, enforced, .. } = state;
    match state.state.as_str() {
        "computing" | "" => "it is applied; whom it concerns is still being worked out".to_owned(),
        _ => format!("it is applied, and in force at {enforced} of {}", places(*concerned)),
    }
}

fn places(count: u32) -> String {
    if count == 1 { "1 place".to_owned() } else { format!("{count} places") }
}

/// `38 ms`, `2.1 s`.
pub fn took(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.0} ms", seconds * 1000.0) } else { format!("{seconds:.1} s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(concerned: u32, enforced: u32, waiting: &[(&str, bool)]) -> EnforcementState {
        let place = |(place, failed): &(&str, bool)| WaitingPlace {
            place: (*place).to_owned(),
            reason: "it sleeps".to_owned(),
            failed: *failed,
        };
        EnforcementState {
            state: if concerned == enforced { ENFORCED } else { "pending" }.to_owned(),
            concerned,
            enforced,
            seconds: 0.038,
            waiting: waiting.iter().map(place).collect(),
        }
    }

    #[test]
    fn who_has_it_not_is_counted_and_named() {
        let waiting = [("a", false), ("b", false), ("c", false), ("d", false)];
        let text = line(&state(24, 19, &waiting));
        assert_eq!(text, "in force at 19 of 24 places; a: it sleeps, b: it sleeps, c: it sleeps, and 2 more");
        assert_eq!(everywhere(&state(1, 1, &[])), "In force at 1 place after 38 ms");
        assert_eq!(everywhere(&state(0, 0, &[])), "In force: no node and no cloud has to do anything for it");
    }

    #[test]
    fn waiting_ends_early_only_when_nobody_is_on_the_way() {
        assert!(has_failed(&state(3, 2, &[("a", true)])));
        assert!(!has_failed(&state(3, 1, &[("a", true), ("b", false)])));
        // More than are named.
        assert!(!has_failed(&state(300, 0, &[("a", true)])));
        assert!(!has_failed(&state(0, 0, &[])));
    }
}
