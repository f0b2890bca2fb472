#!/bin/bash
# The Ceph backend against a real cluster: one monitor, one manager, one OSD in memory, on loopback.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/test-deps labs/ceph.packages
exec cargo test -p storage-ceph -- --include-ignored "$@"
