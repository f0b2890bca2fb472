//! Truth tables: who should reach whom on which port, who does, and the difference as a matrix.
//!
//! A scenario is YAML: steps of objects to apply and delete, and for each what is expected, as rules of which the last
//! one that fits counts. A Pod always reaches itself.
//!
//! ```yaml
//! steps:
//!   - apply: [{kind: NetworkPolicy, …}]
//!     delete: [networkpolicy x/other]
//!     expect:
//!       tcp/80 udp/80: ["* -> * open", "* -> x/a closed", "x/* -> x/a open"]
//! ```

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use serde::Deserialize;

use super::{
    probe::{Port, Target, ask},
    world::World,
};

/// Silence for this long is a packet that was dropped; what was not expected to be silent is asked again.
const SILENCE: Duration = Duration::from_millis(700);
/// A busy machine may need this long to let a packet through.
const LATE: Duration = Duration::from_secs(4);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub name: String,
    pub steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    #[serde(default)]
    pub apply: Vec<serde_json::Value>,
    /// `NAMESPACE/NAME key=value …`: labels of a Pod beside the one that names it.
    #[serde(default)]
    pub label: Vec<String>,
    /// `KIND NAMESPACE/NAME`.
    #[serde(default)]
    pub delete: Vec<String>,
    #[serde(default)]
    pub expect: BTreeMap<String, Vec<String>>,
}

/// Source, destination, family, port.
pub type Cell = (String, String, bool, Port);

impl Scenario {
    pub fn read(text: &str) -> Self {
        serde_saphyr::from_str(text).unwrap_or_else(|err| panic!("a scenario cannot be read: {err}\n{text}"))
    }

    /// Plays all steps; what did not come out as expected, as text.
    pub fn play(&self, world: &mut World) -> Result<usize, String> {
        let mut probed = 0;
        for (number, step) in (1..).zip(&self.steps) {
            let documents: Vec<_> = step.apply.iter().map(ToString::to_string).collect();
            if !documents.is_empty() {
                world.apply(&documents.join("\n---\n"));
            }
            for change in &step.label {
                world.label(change);
            }
            for object in &step.delete {
                world.delete(object);
            }
            world.settle();
            let expected = step.expected(world);
            probed += expected.len();
            check(world, &expected).map_err(|text| format!("{}, step {number}:\n{text}", self.name))?;
        }
        Ok(probed)
    }
}

impl Step {
    fn expected(&self, world: &World) -> BTreeMap<Cell, bool> {
        let mut cells = BTreeMap::new();
        for (ports, rules) in &self.expect {
            for port in ports.split(' ').map(|text| text.parse::<Port>().unwrap()) {
                for (from, to) in pairs(world) {
                    let open = from == to
                        || rules.iter().rev().find_map(|rule| verdict(rule, &from, &to)).unwrap_or(true);
                    for ipv6 in [false, true] {
                        cells.insert((from.clone(), to.clone(), ipv6, port), open);
                    }
                }
            }
        }
        cells
    }
}

pub fn pairs(world: &World) -> Vec<(String, String)> {
    let names: Vec<_> = world.pods.keys().cloned().collect();
    names.iter().flat_map(|from| names.iter().map(move |to| (from.clone(), to.clone()))).collect()
}

/// What a rule says of a pair; none if it does not fit.
fn verdict(rule: &str, from: &str, to: &str) -> Option<bool> {
    let words: Vec<_> = rule.split_whitespace().collect();
    let [source, "->", destination, word] = words[..] else { panic!("{rule:?}: write `x/* -> y/a open`") };
    let open = match word {
        "open" => true,
        "closed" => false,
        _ => panic!("{rule:?}: open or closed"),
    };
    (fits(source, from) && fits(destination, to)).then_some(open)
}

fn fits(pattern: &str, pod: &str) -> bool {
    let (namespace, name) = pod.split_once('/').unwrap();
    match pattern.split_once('/') {
        None => pattern == "*",
        Some((a, b)) => (a == "*" || a == namespace) && (b == "*" || b == name),
    }
}

/// Probes all cells at once, and again those that are not as expected, until they are or it is too late.
pub fn check(world: &World, expected: &BTreeMap<Cell, bool>) -> Result<(), String> {
    let started = Instant::now();
    let mut actual = probe(world, expected.keys(), SILENCE);
    loop {
        let wrong: Vec<&Cell> = expected.keys().filter(|cell| actual[*cell] != expected[*cell]).collect();
        if wrong.is_empty() {
            return Ok(());
        }
        if started.elapsed() > LATE * 3 {
            return Err(print(world, expected, &actual));
        }
        let again = probe(world, wrong.into_iter(), LATE);
        actual.extend(again);
    }
}

fn probe<'a>(
    world: &World,
    cells: impl Iterator<Item = &'a Cell>,
    patience: Duration,
) -> BTreeMap<Cell, bool> {
    let mut by_source: BTreeMap<&str, Vec<&Cell>> = BTreeMap::new();
    for cell in cells {
        by_source.entry(&cell.0).or_default().push(cell);
    }
    let target =
        |cell: &Cell| Target { address: world.pods[&cell.1].addresses[usize::from(cell.2)], port: cell.3 };
    let asked: Vec<_> = by_source
        .into_iter()
        .map(|(source, cells)| {
            let targets = cells.iter().map(|cell| target(cell)).collect();
            (cells, ask(&world.pods[source].namespace, targets, patience))
        })
        .collect();
    let mut result = BTreeMap::new();
    for (cells, answers) in asked {
        let answers = answers.join().expect("probes do not fall");
        result.extend(cells.into_iter().map(|cell| (cell.clone(), answers[&target(cell)])));
    }
    result
}

/// One matrix per port and family that is not as expected: `.` open, `X` closed as expected; `!.` and `!X` not.
fn print(world: &World, expected: &BTreeMap<Cell, bool>, actual: &BTreeMap<Cell, bool>) -> String {
    let names: Vec<_> = world.pods.keys().cloned().collect();
    let mut tables: Vec<(bool, Port)> = expected
        .keys()
        .filter(|cell| actual[*cell] != expected[*cell])
        .map(|(_, _, ipv6, port)| (*ipv6, *port))
        .collect();
    tables.sort_unstable();
    tables.dedup();
    let mut text = String::new();
    for (ipv6, port) in tables {
        text.push_str(&format!(
            "{port} over IPv{}: rows send, `!` is not as expected\n",
            if ipv6 { 6 } else { 4 }
        ));
        text.push_str(&format!("{:8}", ""));
        names.iter().for_each(|name| text.push_str(&format!("{name:>6}")));
        text.push('\n');
        for from in &names {
            text.push_str(&format!("{from:8}"));
            for to in &names {
                let cell = (from.clone(), to.clone(), ipv6, port);
                let mark = match (actual.get(&cell), expected.get(&cell)) {
                    (Some(true), Some(true)) => ".",
                    (Some(false), Some(false)) => "X",
                    (Some(true), Some(false)) => "!.",
                    (Some(false), Some(true)) => "!X",
                    _ => "?",
                };
                text.push_str(&format!("{mark:>6}"));
            }
            text.push('\n');
        }
    }
    text
}
