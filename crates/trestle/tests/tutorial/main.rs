//! The tutorial, as its reader meets it: every command of `docs/tutorial.md` is run as it stands, in one shell, and what the
//! page says comes of it must come. It runs in a world of its own (mounts, network, processes). Needs root.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod page;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use page::{Block, Kind, blocks, matches};

const TRESTLE: &str = env!("CARGO_BIN_EXE_trestle");

fn repository() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap()
}

/// A line that no command prints, between the outputs of two blocks.
fn border(index: usize) -> String {
    format!("@@@ block {index} @@@")
}

/// One script of all blocks. A block that fails ends it.
fn script(blocks: &[Block]) -> String {
    // Its own /run and /tmp, and a place that neither of them hides.
    let mut script = String::from(
        "set -e\nmount -t tmpfs none /run\nmount --bind \"$1\" /mnt\nmount -t tmpfs none /tmp && chmod 1777 /tmp\n\
         ip link set lo up\nexport HOME=/mnt/home; mkdir $HOME; cd /mnt/repository\n\
         unset XDG_DATA_HOME XDG_CONFIG_HOME TRESTLE_CONTEXT\n",
    );
    for (index, block) in blocks.iter().enumerate() {
        script.push_str(&format!("echo '{}'\n", border(index)));
        match &block.kind {
            Kind::Run => script.push_str(&format!("{{\n{}\n}} 2>&1 </dev/null\n", block.commands)),
            Kind::Background(sign) => {
                let log = format!("$HOME/background-{index}");
                script.push_str(&format!(
                    "{{ exec {}; }} >\"{log}\" 2>&1 </dev/null & background=$!\n",
                    block.commands.trim()
                ));
                script.push_str(&format!(
                    "for _ in $(seq 300); do grep -q '{sign}' \"{log}\" && break; sleep 0.1; done; cat \"{log}\"\n"
                ));
            }
            Kind::Until(sign) => script.push_str(&format!(
                "for _ in $(seq 300); do {{\n{}\n}} >\"$HOME/said\" 2>&1 </dev/null\n\
                 grep -qF '{sign}' \"$HOME/said\" && break; sleep 0.1; done; cat \"$HOME/said\"\n",
                block.commands
            )),
            Kind::Interrupt => script.push_str("kill -INT $background; wait $background\n"),
        }
    }
    script.push_str(&format!("echo '{}'\n", border(blocks.len())));
    script
}

#[test]
fn every_command_of_the_tutorial_does_what_it_says() {
    assert!(rustix::process::geteuid().is_root(), "network namespaces need root: run the tests as root");
    let text = fs::read_to_string(repository().join("docs/tutorial.md")).unwrap();
    let blocks = blocks(&text).unwrap();
    assert!(blocks.len() > 10, "the page has hardly any blocks");
    // The repository as its reader has it after `make build`.
    let dir = tempfile::tempdir().unwrap();
    let repository_copy = dir.path().join("repository");
    fs::create_dir_all(repository_copy.join("target/release")).unwrap();
    // Copies, since the repository itself may be below the /tmp that the script hides.
    fs::copy(TRESTLE, repository_copy.join("target/release/trestle")).unwrap();
    let docs = Command::new("cp").arg("-r").arg(repository().join("docs")).arg(&repository_copy).status();
    assert!(docs.unwrap().success(), "the documents are copied");
    let file = dir.path().join("script");
    fs::write(&file, script(&blocks)).unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "bash"])
        .arg(&file)
        .arg(dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    for (index, block) in blocks.iter().enumerate() {
        let place = format!("docs/tutorial.md, line {}:\n{}", block.line, block.commands);
        let part = said
            .split(&border(index))
            .nth(1)
            .unwrap_or_else(|| panic!("not reached: {place}\n{said}{errors}"));
        let (part, rest) = part.split_once(&border(index + 1)).unwrap_or((part, ""));
        assert!(!rest.is_empty() || said.contains(&border(index + 1)), "failed: {place}\n{part}{errors}");
        if let Some(expected) = &block.output {
            let part = part.trim_matches('\n');
            assert!(matches(expected, part), "{place}\nshould say\n{expected}\nand says\n{part}");
        }
    }
    assert!(output.status.success(), "{errors}");
}
