#!/bin/bash
# The VPN lab: a link between two Linux clouds with ESP in the kernel, on this kernel if it has it, or a VM's.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
modules="esp4 xfrm_user xfrm_interface gcm seqiv veth tun nf_tables nft_chain_nat nft_masq nft_ct"
scripts/test-deps scripts/test-deps.d/cloud-linux
binary=$(cargo test -p cloud-linux --test vpn --no-run --message-format json | sed -n 's/.*"executable":"\([^"]*vpn[^"]*\)".*/\1/p' | tail -1)
run=()
if ! { ip link add trprobe type xfrm if_id 1 && ip link delete trprobe; } 2>/dev/null; then
    scripts/test-deps labs/vm/packages
    run=("$root/labs/vm/run.sh")
fi
EXPECT_ESP=kernel "${run[@]}" sh -c "for module in $modules; do modprobe \$module 2>/dev/null; done; \
    EXPECT_ESP=kernel $binary --nocapture --test-threads 1 ${*:-e4}"
