#!/bin/sh
# The clouds' official clients drive the simulators. What they send is written to crates/cloud/sim/recordings, where
# `make test` replays it.
set -eu
cd "$(dirname "$0")/../.."
venv=${TRESTLE_VENV:-target/clouds-venv}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet 'boto3>=1.43' 'google-cloud-compute>=1.40' 'ibm-vpc>=0.30' \
    'ibm-cloud-networking-services>=0.30'
cargo build --locked --quiet -p cloud-sim --example clouds
out=$(mktemp -d)
trap 'kill "$sim" 2>/dev/null || true; rm -rf "$out"' EXIT
drive() { # NAME SCRIPT
    target/debug/examples/clouds 127.0.0.1:0 120 "$out/$1.jsonl" > "$out/said" &
    sim=$!
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        grep -q '^AWS' "$out/said" 2>/dev/null && break
        sleep 0.3
    done
    url=$(sed -n 's|^AWS \(.*\)/$|\1|p' "$out/said")
    "$venv/bin/python" "labs/clouds/$2" "$url"
    kill "$sim"
    cp "$out/$1.jsonl" "crates/cloud/sim/recordings/$1.jsonl"
}
drive boto3 aws.py
drive google-cloud-compute gcp.py
drive ibm-vpc ibm.py
