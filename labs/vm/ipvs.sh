#!/bin/bash
# The IPVS lab, on a kernel that has IPVS, this one or a VM's: tests of crates/node/kernel/tests/ipvs.rs, and an agent that
# goes over to IPVS and back by its configuration and SIGHUP while requests go on.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
run=()
if ! { modprobe ip_vs && modprobe dummy; } 2>/dev/null; then
    scripts/test-deps labs/vm/packages
    run=("$root/labs/vm/run.sh")
    export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER=$root/labs/vm/run.sh
    export VM_TIMEOUT=${VM_TIMEOUT:-1800}
fi
cargo test --locked -p node-kernel --test ipvs -- --ignored --test-threads=1 "$@"
[ $# = 0 ] || exit 0
binary=$(cargo test --locked -p trestle --test services_lab --no-run --message-format json |
    sed -n 's/.*"executable":"\([^"]*services_lab[^"]*\)".*/\1/p' | tail -1)
"${run[@]}" sh -c "modprobe -a ip_vs ip_vs_rr dummy; $binary --nocapture --test-threads 1 on_hangup"
