//! The story of four public clouds. Nobody moves a packet in it: the simulated wire says what would become of one.

use super::{Chapter, Fate, Step, run, run_for};

/// Files that the story's commands name, and what is in them.
pub const FILES: [(&str, &str); 4] = [
    ("aws-vm.json", include_str!("../../../../../docs/examples/clouds/aws-vm.json")),
    ("azure-vm.json", include_str!("../../../../../docs/examples/clouds/azure-vm.json")),
    ("gcp-vm.json", include_str!("../../../../../docs/examples/clouds/gcp-vm.json")),
    ("ibm-vm.json", include_str!("../../../../../docs/examples/clouds/ibm-vm.json")),
];

/// Two pairs of clouds; one is taken away again at the end, the other stays to be looked at.
pub fn story() -> Vec<Chapter> {
    let first = |fate| Step::Wire { from: "aws.web", to: "gcp.db", fate };
    let second = |fate| Step::Wire { from: "azure.api", to: "ibm.backup", fate };
    let across = Step::Wire { from: "aws.web", to: "ibm.backup", fate: Fate::Blocked };
    vec![
        Chapter {
            title: "Four public clouds, and nobody may talk",
            steps: vec![
                Step::Say(
                    "The plugins are those for the real clouds and speak the clouds' own APIs, to simulators that check \
                     each request against the clouds' descriptions. Beside each step: its time here, and what it would \
                     have taken there.",
                ),
                run_for("cloud list", "aws|azure|gcp|ibm"),
                run_for("resource create aws.web --file {dir}/aws-vm.json", "ready"),
                run_for("resource create azure.api --file {dir}/azure-vm.json", "ready"),
                run_for("resource create gcp.db --file {dir}/gcp-vm.json", "ready"),
                run_for("resource create ibm.backup --file {dir}/ibm-vm.json", "ready"),
                first(Fate::Blocked),
                second(Fate::Blocked),
            ],
        },
        Chapter {
            title: "One line to allow, and a VPN between AWS and Google Cloud",
            steps: vec![
                Step::Say(
                    "First what it would come to: what both ends get, what is built, how long that takes.",
                ),
                run_for(
                    "allow aws.web gcp.db --ping --dry-run",
                    "link default.aws and default.gcp|usually takes",
                ),
                Step::Say("A rule at one end only is half a permission, and builds nothing."),
                run("rule add aws.web --ping gcp.db"),
                run_for("link list", ""),
                first(Fate::Blocked),
                Step::Say("The permission is for both ends, and asks before it builds; --yes agrees."),
                run_for("allow aws.web gcp.db --ping --yes", "in force"),
                run_for("link list", "4/4"),
                first(Fate::Answered),
                Step::Say("What nobody permitted stays closed, to these two as well."),
                across.clone(),
            ],
        },
        Chapter {
            title: "A rule by tag, and a VPN between Azure and IBM Cloud",
            steps: vec![
                run("tag set safe --children default.azure.api,default.ibm.backup"),
                run("rule add azure.api --ping safe"),
                run("rule add ibm.backup --ping safe"),
                run_for("link list", "default.ibm"),
                second(Fate::Answered),
                across,
                run_for("check", "Everything is as it was made"),
            ],
        },
        Chapter {
            title: "The permission goes, and what it needed goes with it",
            steps: vec![
                run("deny aws.web gcp.db --ping"),
                first(Fate::Blocked),
                run("rule delete aws.web --rule ping-in-default-gcp-db,ping-out-default-gcp-db"),
                run("resource delete aws.web"),
                run("resource delete gcp.db"),
                Step::Gone(&["aws", "gcp"]),
                Step::Say("The other two are as they were."),
                second(Fate::Answered),
                run_for("status", "ready"),
            ],
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_is_blocked_before_its_rule_and_the_first_again_after_it() {
        let asked = |a: &str, b: &str| -> Vec<Fate> {
            let steps = story().into_iter().flat_map(|chapter| chapter.steps);
            let fates = steps.filter_map(|step| match step {
                Step::Wire { from, to, fate } if (from, to) == (a, b) => Some(fate),
                _ => None,
            });
            fates.collect()
        };
        let [closed, open] = [Fate::Blocked, Fate::Answered];
        assert_eq!(asked("aws.web", "gcp.db"), [closed, closed, open, closed]);
        assert_eq!(asked("azure.api", "ibm.backup"), [Fate::Blocked, Fate::Answered, Fate::Answered]);
        assert_eq!(asked("aws.web", "ibm.backup"), [Fate::Blocked, Fate::Blocked]);
    }

    #[test]
    fn its_files_are_descriptions_and_none_is_missing() {
        let named: Vec<_> = story()
            .iter()
            .flat_map(|chapter| &chapter.steps)
            .filter_map(|step| match step {
                Step::Run { words, .. } => words.split_once("--file {dir}/").map(|(_, name)| name),
                _ => None,
            })
            .collect();
        assert_eq!(named, FILES.map(|(name, _)| name));
        for (name, text) in FILES {
            assert!(
                serde_json::from_str::<serde_json::Value>(text).is_ok_and(|json| json.is_object()),
                "{name}"
            );
        }
    }
}
