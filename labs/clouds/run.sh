#!/bin/sh
# The clouds' official clients drive the simulators. What they send is written to labs/clouds/sim/recordings, where
# `make test` replays it.
set -eu
cd "$(dirname "$0")/../.."
venv=${TRESTLE_VENV:-target/clouds-venv}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet 'boto3>=1.43' 'google-cloud-compute>=1.40' 'google-cloud-container>=2.60' \
    'google-api-python-client>=2.190' awscli 'moto[ec2,server]' \
    'azure-mgmt-network>=33' 'azure-mgmt-compute>=39' 'azure-mgmt-containerservice>=41' 'azure-identity>=1.27' \
    'ibm-vpc>=0.30' 'ibm-cloud-networking-services>=0.30'
# az by itself: it brings versions of its own of the clients above.
az=${TRESTLE_AZ_VENV:-target/az-venv}
[ -x "$az/bin/az" ] || { python3 -m venv "$az" && "$az/bin/pip" install --quiet azure-cli; }
cargo build --locked --quiet -p trestle-clouds
out=$(mktemp -d)
trap 'kill "$sim" 2>/dev/null || true; rm -rf "$out"' EXIT
drive() { # NAME COMMAND...: what it sends is kept as NAME
    name=$1
    shift
    rm -f "$out/said" # or the last one's words would be taken for this one's
    target/debug/trestle-clouds --listen 127.0.0.1:0 --speed 120 --record "$out/$name.jsonl" > "$out/said" &
    sim=$!
    for _ in $(seq 100); do
        grep -q url "$out/said" 2>/dev/null && break
        sleep 0.3
    done
    url=$(sed -n 's|.*"url":"\([^"]*\)".*|\1|p' "$out/said")
    # Without an address of ours, some clients would turn to the real cloud.
    [ -n "$url" ] || { echo "the simulators have not started for $name" >&2; exit 1; }
    "$@" "$url"
    kill "$sim"
    cp "$out/$name.jsonl" "labs/clouds/sim/recordings/$name.jsonl"
}
PATH=$(realpath "$venv")/bin:$PATH:$(realpath "$az")/bin
drive boto3 python labs/clouds/aws.py
drive aws-cli labs/clouds/aws-cli.sh
drive azure-mgmt python labs/clouds/azure_mgmt.py
drive az labs/clouds/az.sh
drive google-cloud-compute python labs/clouds/gcp.py
if command -v gcloud > /dev/null; then
    drive gcloud labs/clouds/gcloud.sh
else
    echo 'MISSING: gcloud is in no package index of Python; install the Google Cloud CLI (Debian: google-cloud-cli) to drive the simulated Compute Engine with it' >&2
fi
drive ibm-vpc python labs/clouds/ibm.py
if command -v go > /dev/null; then
    for cloud in aws azure gcp ibm; do drive "$cloud-go" labs/clouds/go/run.sh "$cloud"; done
    (cd labs/clouds/ibm-containers && go build -o "$out/ibm-containers" .)
    drive bluemix-go "$out/ibm-containers"
else
    echo 'MISSING: go; install Go 1.26 or later to drive the simulators with the clouds'"'"' Go clients' >&2
fi

# The AWS plugin against a simulation that is not ours.
moto_server -H 127.0.0.1 -p 15055 > "$out/moto" 2>&1 &
sim=$!
for _ in $(seq 50); do
    grep -q 'Running on' "$out/moto" && break
    sleep 0.2
done
TRESTLE_MOTO=http://127.0.0.1:15055 cargo test --locked --quiet -p cloud-aws --test moto -- --ignored
