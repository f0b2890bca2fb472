#!/bin/bash
# Antrea's own controller code beside this project's engine, on random object sets: which objects each takes, and what each makes of
# them. It is built from Antrea's source, of which ANTREA names a checkout (2.7 or later); nothing of it is kept here. COUNT sets
# (10,000) from seed FROM (1) on, some ten minutes on two cores. Differences that have a reason are in docs/policy.md.
set -euo pipefail
cd "$(dirname "$0")/../.."
not_run() { echo "NOT RUN: labs/antrea-controller needs $1" >&2; exit 0; }
[[ ${ANTREA:-} ]] || not_run "ANTREA, a checkout of Antrea's source"
[[ -d $ANTREA/pkg/controller/networkpolicy ]] || not_run "a checkout of Antrea; $ANTREA has no pkg/controller/networkpolicy"
command -v go >/dev/null || PATH=$PATH:/usr/local/go/bin:/usr/lib/go/bin
command -v go >/dev/null || not_run "Go (golang.org/dl), as new as Antrea's go.mod says"
cargo build --locked -p watch --example object_sets
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$ANTREA"/. "$work/antrea"
mkdir "$work/antrea/cmd/differential"
cp labs/antrea-controller/*.go "$work/antrea/cmd/differential"
# The controller needs two words of the agent's types. Left out are the others, and with them all of OpenFlow.
for file in "$work"/antrea/pkg/agent/types/*.go; do
  grep -q TransportAddressAnnotationKey "$file" || rm "$file"
done
(cd "$work/antrea" && GOFLAGS=-mod=mod go build -o "$work/differential" ./cmd/differential)
"$work/differential" -antrea "$work/antrea" -sets "${CARGO_TARGET_DIR:-target}/debug/examples/object_sets" \
  -from "${FROM:-1}" -count "${COUNT:-10000}" -workers "$(nproc)"
