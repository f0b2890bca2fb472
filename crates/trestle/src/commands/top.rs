//! `trestle top`: the controller, live in a terminal.
//!
//! Asks once a second, draws what fits, worst first. Keys: Tab or left and right for another noun, up and down to
//! scroll, q to leave. What is drawn is a pure function of what was heard and the size of the terminal.

use std::{
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

use anyhow::bail;
use crossterm::{
    cursor,
    event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
    execute, queue,
    style::Print,
    terminal::{self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen},
};
use jiff::Timestamp;

use super::overview::{Overview, bytes, duration};
use crate::{
    client::Connection,
    paint::{Tone, paint, tone_of},
    visible::visible,
};

/// How often the controller is asked.
const EVERY: Duration = Duration::from_secs(1);
/// How long a key is waited for before looking whether there is news.
const KEYS: Duration = Duration::from_millis(100);
const NOUNS: [&str; 6] = ["nodes", "policies", "resources", "links", "jobs", "consumers"];

/// What the user looks at.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    noun: usize,
    first: usize,
}

enum Key {
    Leave,
    Look(Look),
}

pub async fn run(connection: Connection) -> anyhow::Result<()> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        bail!("top needs a terminal; `trestle status` says the same once");
    }
    // Before the screen is taken, so that a controller that does not answer is told in the ordinary way.
    let first = Overview::gather(connection.clone()).await?;
    let screen = Screen::enter()?;
    let ended = follow(connection, first).await;
    drop(screen);
    ended
}

async fn follow(connection: Connection, first: Overview) -> anyhow::Result<()> {
    let mut heard: Result<Overview, String> = Ok(first);
    let mut look = Look::default();
    let mut next = tokio::time::Instant::now() + EVERY;
    loop {
        draw(&heard, look)?;
        match tokio::task::spawn_blocking(move || key(look)).await?? {
            Some(Key::Leave) => return Ok(()),
            Some(Key::Look(asked)) => look = asked,
            None => {}
        }
        if tokio::time::Instant::now() >= next {
            let asked = tokio::time::timeout(EVERY * 5, Overview::gather(connection.clone())).await;
            heard = match (asked, heard) {
                (Ok(Ok(overview)), _) => Ok(overview),
                (Ok(Err(err)), _) => Err(err.chain().map(ToString::to_string).collect::<Vec<_>>().join(": ")),
                (Err(_), _) => Err("the controller does not answer".to_owned()),
            };
            next = tokio::time::Instant::now() + EVERY;
        }
    }
}

/// Waits a moment for a key.
fn key(look: Look) -> io::Result<Option<Key>> {
    if !event::poll(KEYS)? {
        return Ok(None);
    }
    let Event::Key(key) = event::read()? else { return Ok(None) };
    if key.kind == KeyEventKind::Release {
        return Ok(None);
    }
    let turn = |by: usize| Key::Look(Look { noun: (look.noun + by) % NOUNS.len(), first: 0 });
    let scroll = |first| Key::Look(Look { first, ..look });
    Ok(match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::Leave),
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Leave),
        KeyCode::Tab | KeyCode::Right => Some(turn(1)),
        KeyCode::BackTab | KeyCode::Left => Some(turn(NOUNS.len() - 1)),
        KeyCode::Down => Some(scroll(look.first.saturating_add(1))),
        KeyCode::Up => Some(scroll(look.first.saturating_sub(1))),
        KeyCode::PageDown => Some(scroll(look.first.saturating_add(10))),
        KeyCode::PageUp => Some(scroll(look.first.saturating_sub(10))),
        _ => None,
    })
}

/// The terminal while it is ours; given back whatever happens.
struct Screen;

impl Screen {
    fn enter() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(Self)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(io::stdout(), cursor::Show, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

fn draw(heard: &Result<Overview, String>, look: Look) -> io::Result<()> {
    let (width, height) = terminal::size()?;
    let lines = match heard {
        Ok(overview) => screen(overview, look, usize::from(width), usize::from(height), Timestamp::now()),
        Err(text) => {
            vec![
                paint(&cut(text, usize::from(width)), Tone::Bad),
                String::new(),
                "q leaves; asking again every second".to_owned(),
            ]
        }
    };
    let mut out = io::stdout().lock();
    queue!(out, cursor::MoveTo(0, 0))?;
    for (row, line) in (0..height).zip(lines.iter().map(String::as_str).chain(std::iter::repeat(""))) {
        queue!(out, cursor::MoveTo(0, row), Print(line), Clear(ClearType::UntilNewLine))?;
    }
    out.flush()
}

/// The lines of the screen, each no wider than it.
fn screen(overview: &Overview, look: Look, width: usize, height: usize, now: Timestamp) -> Vec<String> {
    let ready = if overview.status.ready { Tone::Good } else { Tone::Bad };
    let mut lines = vec![paint(&cut(&overview.headline(now), width), ready)];
    let counts = overview.lines().into_iter().map(|line| format!("{} {}", line.count, line.noun));
    lines.push(cut(&counts.collect::<Vec<_>>().join("   "), width));
    let troubles = overview.troubles(now);
    lines.push(String::new());
    if troubles.is_empty() {
        lines.push(paint("Nothing needs attention.", Tone::Good));
    }
    let shown = troubles.len().min(4);
    lines.extend(
        troubles[..shown].iter().map(|trouble| paint(&cut(&format!("! {}", trouble.what), width), Tone::Bad)),
    );
    if troubles.len() > shown {
        lines.push(paint(
            &cut(&format!("  and {} more: trestle status", troubles.len() - shown), width),
            Tone::Faint,
        ));
    }
    lines.push(String::new());
    let tabs = NOUNS.iter().enumerate();
    let tabs = tabs.map(|(at, noun)| if at == look.noun { format!("[{noun}]") } else { format!(" {noun} ") });
    lines.push(cut(&tabs.collect::<Vec<_>>().join(" "), width));
    let (header, rows) = table(overview, look.noun, now);
    let room = height.saturating_sub(lines.len() + 2);
    let first = look.first.min(rows.len().saturating_sub(room));
    lines.extend(columns(&header, &rows, first, room, width));
    while lines.len() + 1 < height {
        lines.push(String::new());
    }
    lines.truncate(height.saturating_sub(1));
    let help = format!(
        "Tab: other noun   up, down: scroll   q: leave   {} of {}",
        (first + room).min(rows.len()),
        rows.len()
    );
    lines.push(paint(&cut(&help, width), Tone::Faint));
    lines
}

type Rows = Vec<Vec<String>>;

/// What there is of a noun, worst first.
fn table(overview: &Overview, noun: usize, now: Timestamp) -> (Vec<&'static str>, Rows) {
    match NOUNS[noun] {
        "nodes" => {
            let mut nodes: Vec<_> = overview.nodes.iter().collect();
            nodes.sort_by(|a, b| {
                (a.connected, b.errors.len())
                    .cmp(&(b.connected, a.errors.len()))
                    .then(b.lag_seconds.total_cmp(&a.lag_seconds))
                    .then(a.name.cmp(&b.name))
            });
            let row = |node: &&wire::trestle::v1::NodeStatus| {
                let state = match (
                    node.connected,
                    node.errors.is_empty(),
                    node.applied_revision == Some(node.revision),
                ) {
                    (false, ..) => "away",
                    (true, false, _) => "errors",
                    (true, true, false) => "behind",
                    (true, true, true) => "current",
                };
                let applied =
                    node.applied_revision.map_or_else(|| "-".to_owned(), |applied| applied.to_string());
                vec![
                    node.name.clone(),
                    state.into(),
                    applied,
                    node.revision.to_string(),
                    format!("{:.1} s", node.lag_seconds),
                    node.errors.len().to_string(),
                    node.peer.clone(),
                ]
            };
            (
                vec!["node", "state", "applied", "newest", "lag", "errors", "from"],
                nodes.iter().map(row).collect(),
            )
        }
        "policies" => {
            let mut policies: Vec<_> = overview.policies.iter().collect();
            policies.sort_by_key(|one| {
                (one.problems.is_empty() && one.failures.is_empty(), one.phase == "Realized")
            });
            let row = |one: &&wire::trestle::v1::PolicyState| {
                let problem = one.problems.first().map(|problem| problem.message.clone()).unwrap_or_default();
                vec![
                    one.name.clone(),
                    one.namespace.clone(),
                    one.phase.clone(),
                    format!("{}/{}", one.realized, one.span),
                    problem,
                ]
            };
            (vec!["policy", "namespace", "phase", "nodes", "problem"], policies.iter().map(row).collect())
        }
        "resources" => {
            let mut resources: Vec<_> = overview.resources.iter().collect();
            resources.sort_by_key(|one| (one.message.is_empty(), one.state == "ready"));
            let row = |one: &&wire::trestle::v1::ResourceInfo| {
                vec![
                    one.name.clone(),
                    one.state.clone(),
                    one.ip.clone(),
                    one.permit_list.len().to_string(),
                    one.message.clone(),
                ]
            };
            (vec!["resource", "state", "address", "permits", "message"], resources.iter().map(row).collect())
        }
        "links" => {
            let row = |one: &wire::trestle::v1::LinkInfo| {
                let ends = [&one.a, &one.b].map(|end| end.as_ref());
                let site = |at: usize| ends[at].map(|end| end.site.clone()).unwrap_or_default();
                let status = ends[0].and_then(|end| end.status.as_ref());
                let tunnels = status
                    .map(|status| format!("{}/{}", status.tunnels_up, status.tunnels))
                    .unwrap_or_default();
                let traffic = status
                    .map(|status| format!("{} out, {} in", bytes(status.bytes_out), bytes(status.bytes_in)));
                vec![
                    site(0),
                    site(1),
                    one.state.clone(),
                    tunnels,
                    traffic.unwrap_or_default(),
                    one.message.clone(),
                ]
            };
            (
                vec!["from", "to", "state", "tunnels", "traffic", "message"],
                overview.links.iter().map(row).collect(),
            )
        }
        "jobs" => {
            let row = |job: &wire::trestle::v1::JobInfo| {
                let start = job.created_at.parse::<Timestamp>().unwrap_or(now);
                let took = duration(job.ended_at.parse::<Timestamp>().unwrap_or(now).duration_since(start));
                vec![
                    job.what.clone(),
                    job.state.clone(),
                    format!("{}/{}", job.steps - job.steps_left.min(job.steps), job.steps),
                    took,
                    job.message.clone(),
                ]
            };
            let mut jobs: Vec<_> = overview.jobs.iter().rev().collect();
            jobs.sort_by_key(|job| job.state != "running");
            (vec!["job", "state", "steps", "took", "message"], jobs.into_iter().map(row).collect())
        }
        _ => {
            let row = |one: &wire::trestle::v1::Consumer| {
                let used = one.used_bytes.map_or_else(|| "-".to_owned(), bytes);
                vec![one.id.clone(), one.phase.clone(), used, bytes(one.granted_bytes), one.reason.clone()]
            };
            let consumers = overview.consumers.iter().flatten();
            (vec!["consumer", "phase", "used", "granted", "reason"], consumers.map(row).collect())
        }
    }
}

/// Rows under their header, in columns as wide as what is shown needs.
fn columns(header: &[&str], rows: &[Vec<String>], first: usize, room: usize, width: usize) -> Vec<String> {
    let shown = &rows[first.min(rows.len())..rows.len().min(first + room)];
    let mut widths: Vec<usize> = header.iter().map(|title| title.len()).collect();
    for row in shown {
        for (at, cell) in row.iter().enumerate() {
            widths[at] = widths[at].max(cell.chars().count().min(48));
        }
    }
    let line = |cells: &[String]| {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("{:<width$}", cut(cell, *width)));
        cut(cells.collect::<Vec<_>>().join("  ").trim_end(), width)
    };
    let titles: Vec<String> = header.iter().map(|title| title.to_uppercase()).collect();
    let mut lines = vec![paint(&line(&titles), Tone::Faint)];
    for row in shown {
        let text = line(row);
        // A word that names a state is coloured where it stands.
        let coloured = row.iter().find_map(|cell| tone_of(cell).map(|tone| (cell, tone)));
        lines.push(match coloured {
            Some((cell, tone)) => text.replacen(&format!("  {cell}"), &format!("  {}", paint(cell, tone)), 1),
            None => text,
        });
    }
    lines
}

fn cut(text: &str, width: usize) -> String {
    let clean = visible(&text.replace(['\n', '\r', '\t'], " "));
    match clean.chars().count() > width {
        true => clean.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
        false => clean,
    }
}

#[cfg(test)]
mod tests {
    use wire::trestle::v1::{NodeStatus, ResourceInfo};

    use super::*;

    fn overview(nodes: usize) -> Overview {
        let node =
            |n| NodeStatus { name: format!("node-{n:03}"), connected: n != 7, ..NodeStatus::default() };
        let resource =
            ResourceInfo { name: "x".repeat(300), message: "a\nb\x1b[2J".into(), ..ResourceInfo::default() };
        Overview { nodes: (0..nodes).map(node).collect(), resources: vec![resource], ..Overview::default() }
    }

    #[test]
    fn the_screen_is_never_larger_than_the_terminal() {
        for (width, height) in [(80, 24), (20, 5), (200, 60), (1, 1), (40, 0)] {
            for noun in 0..NOUNS.len() {
                let look = Look { noun, first: 1000 };
                let lines = screen(&overview(500), look, width, height, Timestamp::UNIX_EPOCH);
                assert!(lines.len() <= height.max(1), "{} lines of {height}", lines.len());
                for line in &lines {
                    assert!(line.chars().count() <= width.max(1), "{width}: {line:?}");
                    assert!(
                        !line.contains(['\n', '\x1b']),
                        "what others wrote commands no terminal: {line:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_is_worst_stands_first_and_scrolling_shows_the_rest() {
        let text =
            |first| screen(&overview(100), Look { noun: 0, first }, 80, 24, Timestamp::UNIX_EPOCH).join("\n");
        let at_top = text(0);
        assert!(at_top.find("node-007").unwrap() < at_top.find("node-001").unwrap(), "{at_top}");
        assert!(text(1000).contains("node-099") && !text(1000).contains("node-001"));
    }
}
