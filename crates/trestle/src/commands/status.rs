//! `trestle status`: one screen that says what runs, what is unhealthy, and what to do.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde::Serialize;
use wire::trestle::v1::Status;

use super::overview::{Line, Overview, Trouble};
use crate::{
    client::Connection,
    output::{Format, print},
    paint::{Tone, paint},
};

/// The same for programs.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    status: Status,
    counts: Vec<Line>,
    troubles: Vec<Trouble>,
}

pub async fn run(output: Format, connection: Connection) -> anyhow::Result<()> {
    let overview = Overview::gather(connection).await?;
    let now = Timestamp::now();
    if output.is_for_people() {
        return print(screen(&overview, now).trim_end());
    }
    let (counts, troubles) = (overview.lines(), overview.troubles(now));
    output.data(&Report { status: overview.status, counts, troubles })
}

fn screen(overview: &Overview, now: Timestamp) -> String {
    let tone = if overview.status.ready { Tone::Good } else { Tone::Bad };
    let mut text = format!("{}\n\n", paint(&overview.headline(now), tone));
    // Of a controller that is not ready nothing else was asked.
    let lines = if overview.status.ready { overview.lines() } else { Vec::new() };
    for line in lines {
        let _ = writeln!(text, "  {:<11}{:>6}   {}", line.noun, line.count, line.detail);
    }
    let troubles = overview.troubles(now);
    if troubles.is_empty() {
        let _ = write!(text, "\n{}", paint("Nothing needs attention.", Tone::Good));
        return text;
    }
    let _ = writeln!(text, "\n{}", paint("Needs attention", Tone::Bad));
    for trouble in troubles {
        let _ = writeln!(
            text,
            "  {} {}\n    {}",
            paint("!", Tone::Bad),
            trouble.what,
            paint(&trouble.look, Tone::Faint)
        );
    }
    text
}
