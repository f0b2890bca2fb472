#!/bin/bash
# The CSI driver on a kernel with network block devices: a throw-away VM (labs/vm). All of csi-sanity, for file systems and for block devices;
# then what a workload lives through (story.sh). Needs Go 1.25 or later and root; says so and ends if one of them is not there.
set -euo pipefail
cd "$(dirname "$0")"
if ! command -v go >/dev/null; then
  echo "NOT RUN: labs/csi needs Go 1.25 or later (golang.org/dl) and there is none here" >&2
  exit 0
fi
if [ "$(id -u)" != 0 ]; then
  echo "NOT RUN: labs/csi needs root, for the VM's file system" >&2
  exit 0
fi
root=$(cd ../.. && pwd)
"$root/scripts/test-deps" "$PWD/packages"
bin=$root/target/csi
mkdir -p "$bin"
go build -buildvcs=false -trimpath -o "$bin/call" .
[ -x "$bin/csi-sanity" ] || go build -buildvcs=false -trimpath -o "$bin/csi-sanity" github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity
[ -n "${TRESTLE:-}" ] || (cd "$root" && cargo build --locked -p trestle)
# Without what debuggers want: the VM reads it over a slow line.
strip --strip-debug -o "$bin/trestle" "${TRESTLE:-${CARGO_TARGET_DIR:-$root/target}/debug/trestle}"
export VM_MEMORY=${VM_MEMORY:-4096} VM_TIMEOUT=${VM_TIMEOUT:-3000}
"$root/labs/vm/run.sh" env TRESTLE="$bin/trestle" "$PWD/inside.sh" "$bin" "$@"
