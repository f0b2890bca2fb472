//! Bare `trestle`: where you are, and what to do next.
//!
//! In: what the controller says, if there is one. Out: a few lines. What is suggested is decided in pure code.

use std::fmt::Write as _;

use jiff::Timestamp;
use wire::{
    json::role_name,
    trestle::v1::{WhoAmIRequest, access_client::AccessClient},
};

use super::overview::Overview;
use crate::{
    client::ConnectionArgs,
    output::print,
    paint::{Tone, paint},
};

/// Troubles that are told; `status` has them all.
const TOLD: usize = 3;

pub async fn run(connection: ConnectionArgs) -> anyhow::Result<()> {
    let Some(place) = connection.place()? else {
        let text = "There is no controller here yet.";
        return print(&format!("{}\n\n{}", paint(text, Tone::Bad), told(&first_steps())));
    };
    let connected = match connection.connect().await {
        Ok(connected) => connected,
        Err(err) => {
            let text = format!("{} does not answer: {}", place, err.root_cause());
            let steps = [
                ("trestle up", "starts a controller on this machine"),
                ("trestle --server URL --ca FILE --token-file FILE status", "asks another one"),
            ];
            return print(&format!("{}\n\n{}", paint(&text, Tone::Bad), told(&steps)));
        }
    };
    let me = AccessClient::new(connected.clone()).who_am_i(WhoAmIRequest {}).await?.into_inner();
    let overview = Overview::gather(connected).await?;
    let now = Timestamp::now();
    let tone = if overview.status.ready { Tone::Good } else { Tone::Bad };
    let mut text = paint(&overview.headline(now), tone);
    let _ = write!(text, "\nAt {place}, as {} ({})\n", me.name, role_name(me.role));
    let troubles = overview.troubles(now);
    for trouble in troubles.iter().take(TOLD) {
        let _ = write!(
            text,
            "\n{} {}\n  {}",
            paint("!", Tone::Bad),
            trouble.what,
            paint(&trouble.look, Tone::Faint)
        );
    }
    if troubles.len() > TOLD {
        let _ = write!(text, "\n  and {} more: trestle status", troubles.len() - TOLD);
    }
    let _ = write!(text, "{}\n{}", if troubles.is_empty() { "" } else { "\n" }, told(&next(&overview)));
    print(text.trim_end())
}

type Step = (&'static str, &'static str);

fn first_steps() -> [Step; 3] {
    [
        ("trestle up", "starts a controller on this machine; no configuration, no root"),
        ("sudo trestle up --demo", "plays a story with real packets, and takes it away again"),
        ("trestle --help", "every command"),
    ]
}

/// What people do next, by what there is.
fn next(overview: &Overview) -> Vec<Step> {
    let mut steps = Vec::new();
    let is_empty = overview.policies.is_empty() && overview.resources.is_empty() && overview.nodes.is_empty();
    if is_empty {
        steps.push((
            "kubectl get pods,networkpolicies -A -o yaml | trestle apply -f -",
            "takes in what a cluster has",
        ));
        steps.push(("trestle token create --join", "lets a machine join as a host"));
    } else {
        steps.push(("trestle explain FROM TO --port N", "says why a connection is permitted or denied"));
        steps.push(("trestle allow FROM TO --port N", "permits one, at both ends"));
    }
    if !overview.policies.is_empty() && overview.nodes.is_empty() {
        steps.push((
            "trestle cert issue NODE --role node --out NODE",
            "lets a node enforce the policies: nobody does yet",
        ));
    }
    steps.push(("trestle page --open", "shows everything in a browser"));
    steps.push(("trestle --help", "every command"));
    steps
}

fn told(steps: &[Step]) -> String {
    let wide = steps.iter().map(|(command, _)| command.len()).max().unwrap_or_default();
    let lines =
        steps.iter().map(|(command, what)| format!("  {command:<wide$}  {}", paint(what, Tone::Faint)));
    format!("Next:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use wire::trestle::v1::{NodeStatus, PolicyState};

    use super::*;

    #[test]
    fn what_is_suggested_fits_what_there_is() {
        let commands =
            |overview: &Overview| next(overview).into_iter().map(|(command, _)| command).collect::<Vec<_>>();
        let mut overview = Overview::default();
        assert!(commands(&overview)[0].contains("trestle apply"));
        overview.policies.push(PolicyState::default());
        assert!(commands(&overview).iter().any(|command| command.contains("cert issue")));
        overview.nodes.push(NodeStatus::default());
        assert!(commands(&overview)[0].contains("trestle explain"));
        assert!(!commands(&overview).iter().any(|command| command.contains("cert issue")));
    }
}
