//! The commands in groups, the common ones first: what `trestle --help` shows.

use std::fmt::Write as _;

use clap::CommandFactory as _;

use super::Args;

/// Every command, once.
const GROUPS: &[(&str, &[&str])] = &[
    ("Begin here", &["up", "status", "top", "page", "apply", "allow", "explain", "flows"]),
    ("Who may talk to whom", &["deny", "policy", "rule", "tag", "try", "get", "delete"]),
    ("Before it is in force", &["test", "lint", "staged", "promote", "discard", "replay", "suggest"]),
    (
        "What there is",
        &["resource", "cloud", "link", "namespace", "service", "host", "node", "kubernetes", "job"],
    ),
    ("Storage for other clusters", &["ticket", "consumer", "volume"]),
    ("Look after it", &["doctor", "audit", "check", "fix", "store"]),
    ("Who gets in", &["token", "cert", "whoami"]),
    ("On a machine", &["join", "leave", "agent", "cni", "csi", "serve", "plugin", "install"]),
    ("This program", &["completion", "version", "help"]),
];

/// The command line as it is shown: the list of commands is ours, everything else clap's.
pub fn command() -> clap::Command {
    let mut command = Args::command();
    let listed = listed(&command);
    for name in GROUPS.iter().flat_map(|(_, names)| *names) {
        // Shown by us, and guessed all the same when it is misspelt.
        if command.find_subcommand(name).is_some() {
            command = command.mut_subcommand(*name, |one| one.hide(true));
        }
    }
    command.override_usage("trestle [OPTIONS] [COMMAND]").help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{listed}\n{{all-args}}{{after-help}}"
    ))
}

fn listed(command: &clap::Command) -> String {
    let widest = GROUPS.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for (title, names) in GROUPS {
        let _ = writeln!(text, "\u{1b}[1m\u{1b}[4m{title}:\u{1b}[0m");
        for name in *names {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            let about =
                about.map_or_else(|| "This text, or that of a command".to_owned(), ToString::to_string);
            let _ = writeln!(text, "  \u{1b}[1m{name:<widest$}\u{1b}[0m  {about}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let command = Args::command();
        let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
        let mut known: Vec<&str> = shown.map(clap::Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        known.push("help");
        known.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, known);
    }

    #[test]
    fn help_has_every_command_and_a_misspelt_one_is_guessed() {
        let help = command().render_help().to_string();
        for name in GROUPS.iter().flat_map(|(_, names)| *names) {
            assert!(help.contains(&format!("\n  {name} ")), "{name} is not in:\n{help}");
        }
        assert!(help.contains("--output") && help.contains("Exit codes"), "{help}");
        let refused = command().try_get_matches_from(["trestle", "polcy"]).unwrap_err().to_string();
        assert!(refused.contains("policy"), "{refused}");
    }
}
