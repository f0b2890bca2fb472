#!/bin/bash
# The figures of IPVS beside `ipvsadm -R`, on a kernel that has IPVS, this one or a VM's. In a VM only ratios count.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
if ! { modprobe ip_vs && modprobe dummy; } 2>/dev/null; then
    scripts/test-deps labs/vm/packages
    export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER=$root/labs/vm/run.sh
    export VM_TIMEOUT=${VM_TIMEOUT:-1800}
fi
cargo bench --quiet --locked -p benches --bench services -- ipvs
