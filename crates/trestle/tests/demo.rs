//! `trestle up --demo` as a new user runs it: the story with its real results, with root and without, and nothing left of
//! it however it ends. Each runs in a world of its own (mounts, network, processes), so that "nothing" means nothing.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{path::Path, process::Command};

const TRESTLE: &str = env!("CARGO_BIN_EXE_trestle");

/// Runs a script in a world of its own, which has `/run` and `$home` to itself.
fn world(script: &str) -> String {
    assert!(rustix::process::geteuid().is_root(), "the demonstration needs root: run the tests as root");
    let home = tempfile::tempdir().unwrap();
    let prelude = r#"
        set -eu
        mount -t tmpfs none /run
        ip link set lo up
        export HOME=$1 trestle=$2
        unset XDG_DATA_HOME XDG_CONFIG_HOME TRESTLE_CONTEXT
        demo=$HOME/.local/share/trestle-demo
        # What a demonstration could leave behind. Processes by name: numbers differ.
        left() {
            ip netns list | sort; ip -o link | cut -d' ' -f2 | sort; nft list tables
            find /run "$HOME" -not -path /run/netns -not -path "$HOME/story*" -not -path "$HOME/before" -not -path "$HOME/after" | sort
            cat /proc/[0-9]*/comm | sort | uniq -c | grep -v -e cat -e sort -e uniq -e grep -e sh || true
            cat /proc/sys/net/ipv4/ip_forward
        }
        # The directories above it are made once and stay.
        mkdir -p "$HOME/.local/share" "$HOME/.config/trestle"; chmod 700 "$HOME/.config/trestle"
        left >"$HOME/before"
        nothing_left() { left >"$HOME/after"; diff "$HOME/before" "$HOME/after" >&2 || { echo "left behind after $1" >&2; exit 1; }; }
        await() { for _ in $(seq 600); do grep -q "$1" "$2" && return; sleep 0.1; done; echo "no '$1' in:" >&2; cat "$2" >&2; exit 1; }
    "#;
    let output = Command::new("unshare")
        .args(["--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c"])
        .arg(format!("{prelude}{script}"))
        .arg("sh")
        .arg(home.path())
        .arg(TRESTLE)
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    // However its lines were broken.
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Each of these is there, after the one before it.
#[track_caller]
fn in_order(said: &str, parts: &[&str]) {
    let mut rest = said;
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part:?} does not come in its place:\n{said}"));
        rest = &rest[at + part.len()..];
    }
}

#[test]
fn the_story_plays_with_real_packets_and_leaves_nothing() {
    let said = world(r#""$trestle" up --demo --once; nothing_left "the story""#);
    in_order(
        &said,
        &[
            "Watch it live",
            "$ trestle resource create a.web",
            "$ trestle resource create b.db",
            "a.web to b.db: blocked",
            "$ trestle tag set shop",
            "$ trestle rule add b.db --ping shop",
            "$ trestle link list",
            "2/2 2/2",
            "a.web to b.db: answered in",
            "$ trestle apply -f",
            "a.web to b.db: blocked",
            "$ trestle explain a.web b.db --proto icmp",
            "denied",
            "the agent of node-2 runs",
            "client to 10.244.2.20:5432: db answered in",
            "client to 10.244.2.20:5432: blocked",
            "web-1 to 10.244.2.20:5432: db answered in",
            "$ trestle explain shop/client shop/db --port 5432",
            "denied",
            "connections answered by web-1",
            "Storage is ready",
            "1 MiB written and read back, the same",
            "Everything is gone again",
        ],
    );
    assert!(!said.contains("Left out"), "{said}");
}

#[test]
fn ctrl_c_takes_everything_away_and_the_next_run_what_a_kill_has_left() {
    let said = world(
        r#"
        echo '{"grpc": "https://192.0.2.1:1", "http": "", "ca": null, "token_file": null}' >"$HOME/.config/trestle/context.json"
        left >"$HOME/before"
        # In the middle of the story, with agents, tunnels and Pods up.
        "$trestle" up --demo >"$HOME/story-1" 2>&1 & pid=$!
        await 'agent of node-2 runs' "$HOME/story-1"
        test -n "$(ip netns list)"
        # One directory, one demonstration.
        ! "$trestle" up --demo >"$HOME/story-2" 2>&1
        grep -q 'runs in .* already' "$HOME/story-2"
        kill -INT $pid; wait $pid
        nothing_left Ctrl-C

        "$trestle" up --demo >"$HOME/story-1" 2>&1 & pid=$!
        await 'It stays up' "$HOME/story-1"
        kill -9 $pid; wait $pid || true
        test -n "$(ip netns list)"
        "$trestle" up --demo --once
        grep -q 192.0.2.1 "$HOME/.config/trestle/context.json"
        nothing_left "kill -9 and another run"
        "#,
    );
    in_order(&said, &["was cut short", "a.web to b.db: answered in", "Everything is gone again"]);
}

#[test]
fn without_root_it_says_what_it_leaves_out_and_plays_the_rest() {
    let said = world(
        r#"
        cp "$trestle" "$HOME/trestle"; chmod 755 "$HOME" "$HOME/trestle"; chown -R nobody: "$HOME"
        left >"$HOME/before"
        setpriv --reuid nobody --regid nogroup --clear-groups env HOME="$HOME" "$HOME/trestle" up --demo --once
        nothing_left "the story"
        "#,
    );
    in_order(
        &said,
        &[
            "Left out",
            "need root",
            "$ trestle apply -f",
            "$ trestle explain shop/client shop/db --port 5432",
            "allowed",
            "$ trestle explain shop/web-1 shop/db --port 5432",
            "allowed",
            "$ trestle explain shop/client shop/db --port 5432",
            "denied",
            "$ trestle service explain",
            "1 MiB written and read back, the same",
            "Everything is gone again",
        ],
    );
    assert!(!said.contains("ip netns exec"), "{said}");
}

#[test]
fn four_simulated_clouds_without_root_and_they_stay_to_be_tried() {
    let clouds = Path::new(TRESTLE).with_file_name("trestle-clouds");
    assert!(clouds.exists(), "{} is missing: cargo build -p trestle-clouds", clouds.display());
    let said = world(
        r#"
        cp "$trestle" "$HOME/trestle"; chmod 755 "$HOME" "$HOME/trestle"; chown -R nobody: "$HOME"
        nobody="setpriv --reuid nobody --regid nogroup --clear-groups env HOME=$HOME"
        # The simulators are no part of the product.
        ! $nobody "$HOME/trestle" up --demo --clouds sim >"$HOME/story" 2>&1
        cat "$HOME/story"
        cp "$trestle-clouds" "$HOME/trestle-clouds"
        left >"$HOME/before"
        $nobody "$HOME/trestle" up --demo --clouds sim >"$HOME/story" 2>&1 & pid=$!
        await 'It stays up' "$HOME/story"
        cat "$HOME/story"
        # The reader's turn: the other pair is still there, and a ping is asked of the wire as the story shows it.
        $nobody "$HOME/trestle" resource list
        $nobody "$HOME/trestle" link list
        eval "$(grep -m1 -o "curl 'http.*to=10.3.0.4'" "$HOME/story" | sed 's/^curl/curl -sS/')"
        kill -INT $pid; wait $pid
        tail -1 "$HOME/story"
        nothing_left Ctrl-C
        # A controller of one's own with one of them. They end with whoever started them, however that ends.
        ! $nobody "$HOME/trestle" up --cloud lab=sim 2>&1
        $nobody "$HOME/trestle" up --cloud gcp=sim >"$HOME/story" 2>&1 & pid=$!
        await 'Stop with Ctrl-C' "$HOME/story"
        $nobody "$HOME/trestle" status | grep clouds
        grep -qx trestle-clouds /proc/[0-9]*/comm
        kill -9 $pid; wait $pid || true
        for _ in $(seq 100); do grep -qsx trestle-clouds /proc/[0-9]*/comm || exit 0; sleep 0.1; done
        echo "trestle-clouds outlives its parent" >&2; exit 1
        "#,
    );
    in_order(
        &said,
        &[
            "cargo build --release -p trestle-clouds",
            "four simulated clouds",
            "$ trestle resource create aws.web --file",
            "there: ",
            "$ trestle resource create azure.api --file",
            "$ trestle resource create gcp.db --file",
            "$ trestle resource create ibm.backup --file",
            "a ping from aws.web to gcp.db: blocked",
            "link default.aws and default.gcp by 4 tunnels",
            "$ trestle rule add aws.web --ping gcp.db",
            "a ping from aws.web to gcp.db: blocked",
            "$ trestle allow aws.web gcp.db --ping --yes",
            "Allowed and in force",
            "4/4 4/4",
            "a ping from aws.web to gcp.db: reached",
            "a ping from aws.web to ibm.backup: blocked",
            "$ trestle rule add ibm.backup --ping safe",
            "a ping from azure.api to ibm.backup: reached",
            "Everything is as it was made",
            "$ trestle deny aws.web gcp.db --ping",
            "a ping from aws.web to gcp.db: blocked",
            "nothing is left in aws and in gcp",
            "a ping from azure.api to ibm.backup: reached",
            "It stays up",
            // What the commands after it say.
            "default.azure.api westus2 ready",
            "default.azure default.ibm ready",
            "reached",
            "Everything is gone again",
            "no simulated cloud is called lab: aws, azure, gcp, ibm are",
            "clouds 1 gcp",
        ],
    );
}

/// A directory that is somebody's is not emptied.
#[test]
fn a_directory_of_somebody_else_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("thesis"), "years of work").unwrap();
    let any = "127.0.0.1:0";
    let output = Command::new(TRESTLE)
        .args([
            "up",
            "--demo",
            "--once",
            "--http",
            any,
            "--grpc",
            any,
            "--watch",
            any,
            "--nbd",
            any,
            "--data-dir",
        ])
        .arg(dir.path())
        .env("TRESTLE_CONTEXT", dir.path().join("context.json"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("--data-dir"), "{said}");
    assert!(Path::new(&dir.path().join("thesis")).exists());
}
