//! Permissions, their plans and their proofs, as people read them.

use wire::trestle::v1::{AllowOutcome, BuildInfo, PermissionInfo, Proof};

use super::explained;

fn head(info: &PermissionInfo) -> String {
    format!("{} to {}: {}", info.from, info.to, info.traffic.join(", "))
}

fn rules(info: &PermissionInfo) -> Vec<String> {
    info.rules.iter().map(|rule| format!("  {:<12} {}: {}", rule.r#as, rule.at, rule.what)).collect()
}

/// What it is and what it gives.
pub fn permission(info: &PermissionInfo) -> String {
    let mut lines = vec![head(info), format!("  name         {}", info.name)];
    let message = if info.message.is_empty() { String::new() } else { format!(": {}", info.message) };
    lines.push(format!("  state        {}{message}", info.state));
    lines.extend(rules(info));
    lines.push(format!("  to undo      trestle deny {}", info.arguments));
    lines.join("\n")
}

/// What would be written and built.
pub fn plan(outcome: &AllowOutcome) -> String {
    let info = outcome.permission.clone().unwrap_or_default();
    let mut lines = vec![head(&info)];
    lines.extend(rules(&info));
    let planned = outcome.planned.clone().unwrap_or_default();
    lines.extend(planned.steps.iter().map(|step| format!("  step         {step}")));
    lines.extend(planned.notes.iter().map(|note| format!("  note         {note}")));
    lines.extend(planned.problems.iter().map(|problem| format!("  problem      {problem}")));
    if info.rules.is_empty() {
        lines.push("  nobody is at either end now; it takes effect when somebody is".to_owned());
    }
    lines.extend(outcome.build.as_ref().map(build));
    lines.join("\n")
}

fn build(build: &BuildInfo) -> String {
    let what = build
        .links
        .iter()
        .map(|link| format!("the link {link}"))
        .chain(build.gateways.iter().map(|gateway| format!("the gateway {gateway}")));
    let takes = match build.seconds {
        None => "how long that takes its clouds do not say".to_owned(),
        Some(seconds) if seconds < 90 => format!("usually takes {seconds} s"),
        Some(seconds) => format!("usually takes {} min", seconds.div_ceil(60)),
    };
    let costs = match build.cost.as_str() {
        "free" => "costs nothing",
        "hourly" => "costs by the hour as long as it is there, and by what passes",
        _ => "what that costs its clouds do not say",
    };
    format!("  builds       {}: {takes}; {costs}", what.collect::<Vec<_>>().join(", "))
}

/// That it is so, or who still denies it and what would change that.
pub fn proof(info: &PermissionInfo, proof: &Proof, back: &str) -> String {
    let mut lines = Vec::new();
    for pair in &proof.pairs {
        let explanation = pair.explanation.clone().unwrap_or_default();
        let sign = if explanation.allowed { "✓" } else { "✗" };
        lines.push(format!(
            "  {sign} {} to {}, {}: {}",
            pair.from, pair.to, pair.traffic, explanation.verdict
        ));
    }
    lines.extend(proof.notes.iter().map(|note| format!("  {note}")));
    let denied = proof.pairs.iter().filter_map(|pair| pair.explanation.as_ref()).find(|told| !told.allowed);
    if let Some(denied) = denied {
        lines.push(format!("\nIt is stored, and something still denies it:\n\n{}", explained(denied)));
    }
    match info.state.as_str() {
        "in force" => lines.push(format!("Allowed and in force: {}", info.name)),
        state => lines.push(format!("{} is {state}: {}", info.name, info.message)),
    }
    lines.push(format!("To take it back: {back}"));
    lines.join("\n")
}

/// That it is gone, and what permits the same without it.
pub fn taken_back(info: &PermissionInfo, proof: &Proof) -> String {
    let mut lines = vec![format!("Taken back: {}", head(info))];
    for pair in &proof.pairs {
        let explanation = pair.explanation.clone().unwrap_or_default();
        lines.push(format!("  {} to {}, {}: {}", pair.from, pair.to, pair.traffic, explanation.verdict));
        if explanation.verdict == "denied" {
            continue;
        }
        // What decides is the last step of each side.
        let sides = [("out", &explanation.egress), ("in", &explanation.ingress)];
        for (way, side) in sides {
            let Some(last) = side.as_ref().and_then(|side| side.steps.last()) else { continue };
            let details = last.details.join("; ");
            lines.push(format!("    still permitted {way} by {}: {} {details}", last.stage, last.outcome));
        }
    }
    lines.join("\n")
}
