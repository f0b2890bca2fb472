#!/bin/bash
# An agent's watches on an unmodified client-go, against a controller that changes all the time and is restarted twice.
# Needs Go and what `go build` fetches; says so and ends if there is no Go. TRESTLE names a binary to use.
set -euo pipefail
cd "$(dirname "$0")"
if ! command -v go >/dev/null; then
  echo "NOT RUN: labs/antrea-client needs Go 1.26 or later (golang.org/dl) and there is none here" >&2
  exit 0
fi
root=$(cd ../.. && pwd)
trestle=${TRESTLE:-$root/target/release/trestle}
[ -x "$trestle" ] || (cd "$root" && cargo build --release --locked -p trestle)
work=$(mktemp -d)
up= client=
finish() {
  [ -z "$client" ] || kill "$client" 2>/dev/null || true
  [ -z "$up" ] || kill "$up" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
go build -o "$work/client" .

# The same ports after a restart, as an agent expects: free ones, found once.
ports=$(python3 -c 'import socket
s=[socket.socket() for _ in range(3)]
[x.bind(("127.0.0.1",0)) for x in s]
print(*[x.getsockname()[1] for x in s])')
read -r http grpc watch <<<"$ports"
export TRESTLE_CONTEXT=$work/context.json
start() {
  (cd "$work" && exec "$trestle" up --data-dir data --http "127.0.0.1:$http" --grpc "127.0.0.1:$grpc" \
    --watch "127.0.0.1:$watch" --nbd 127.0.0.1:0) >"$work/up.log" 2>&1 &
  up=$!
  for _ in $(seq 300); do
    grep -q "Trestle is up." "$work/up.log" && return
    sleep 0.1
  done
  cat "$work/up.log" >&2
  exit 1
}
pods() { # from to tag: web Pods on node-1, half of them databases' neighbours on node-2
  for n in $(seq "$1" "$2"); do
    app=web; [ $((n % 3)) -ne 0 ] || app=db
    printf -- '---\napiVersion: v1\nkind: Pod\nmetadata: {name: churn-%s, namespace: shop, labels: {app: %s}}\n' "$n" "$app"
    printf 'spec: {nodeName: node-%s, containers: [{name: c, image: i}]}\n' $((n % 2 + 1))
    printf 'status: {phase: Running, podIPs: [{ip: 10.%s.%s.%s}]}\n' "$3" $((n / 200)) $((n % 200 + 1))
  done
}

start
(cd "$work" && "$trestle" apply -f "$root/docs/examples/shop.yaml") >/dev/null
"$work/client" --kubeconfig "$work/data/kubeconfig" --node node-2 --until "$work/done" >"$work/report" &
client=$!
for round in 1 2 3; do
  for step in 1 2 3 4 5; do
    pods $((step * 40)) $((step * 40 + 39)) $((round * 10 + step)) >"$work/pods.yaml"
    (cd "$work" && "$trestle" apply -f pods.yaml) >/dev/null
  done
  (cd "$work" && "$trestle" delete pod "churn-$((round + 50))" -n shop) >/dev/null
  if [ "$round" -lt 3 ]; then
    kill "$up"; wait "$up" || true
    start
  fi
done
touch "$work/done"
wait "$client" || { cat "$work/report" >&2; exit 1; }
client=
python3 - "$work/report" <<'P'
import json, sys
report = json.load(open(sys.argv[1]))
members = sum(len(m) for m in report["addressgroups"]["followed"].values())
syncs = {k: v["syncs"] for k, v in report.items() if "syncs" in v}
assert members > 100, members
assert all(n >= 3 for n in syncs.values()), syncs
print(f"client-go followed two restarts: {members} members, full syncs {syncs}, informer {report['informer']}")
P
