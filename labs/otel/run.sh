#!/bin/bash
# A controller sends its flows to collectors that others made: OpenTelemetry's, of its released parts, and one that reads IPFIX by its
# templates. The OpenTelemetry one is away for a while. Every row arrives, named as it is on record.
# Needs Go and what `go build` fetches; says so and ends if there is no Go. TRESTLE names a binary to use.
set -euo pipefail
cd "$(dirname "$0")"
if ! command -v go >/dev/null; then
  echo "NOT RUN: labs/otel needs Go 1.26 or later (golang.org/dl) and there is none here" >&2
  exit 0
fi
root=$(cd ../.. && pwd)
trestle=${TRESTLE:-$root/target/release/trestle}
[ -x "$trestle" ] || (cd "$root" && cargo build --release --locked -p trestle)
work=$(mktemp -d)
up= otel= ipfix=
finish() {
  for one in "$up" "$otel" "$ipfix"; do
    [ -z "$one" ] || kill "$one" 2>/dev/null || true
  done
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
go build -o "$work/collectors" .

read -r http grpc watch otlp flows <<<"$(python3 -c 'import socket
s=[socket.socket() for _ in range(5)]
[x.bind(("127.0.0.1",0)) for x in s]
print(*[x.getsockname()[1] for x in s])')"
cat >"$work/otel.yaml" <<YAML
receivers: {otlp: {protocols: {grpc: {endpoint: "127.0.0.1:$otlp"}}}}
exporters: {debug: {verbosity: detailed, sampling_initial: 100000}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {logs: {receivers: [otlp], exporters: [debug]}}
YAML
cat >"$work/config.yaml" <<YAML
data_dir: $work/data
listen: {http: "127.0.0.1:$http", grpc: "127.0.0.1:$grpc", watch: "127.0.0.1:$watch"}
flows:
  export:
  - otlp: http://127.0.0.1:$otlp
  - ipfix: tcp://127.0.0.1:$flows
YAML
"$work/collectors" ipfix "127.0.0.1:$flows" >"$work/ipfix.out" 2>"$work/ipfix.log" &
ipfix=$!
export TRESTLE_SERVER=https://127.0.0.1:$grpc TRESTLE_CA=$work/data/pki/ca.pem TRESTLE_TOKEN_FILE=$work/data/admin.token
"$trestle" serve --config "$work/config.yaml" >"$work/up.log" 2>&1 &
up=$!
until_said() { # text file what
  for _ in $(seq 600); do
    ! grep -q "$1" "$2" || return 0
    sleep 0.1
  done
  echo "$3" >&2
  tail -n 40 "$2" >&2
  exit 1
}
until_said "the controller listens" "$work/up.log" "the controller did not start"
until_said listening "$work/ipfix.log" "the collector of IPFIX did not start"
"$trestle" cert issue n1 --role node --out "$work/n1" >/dev/null
"$trestle" apply -f "$root/docs/examples/shop.yaml" >/dev/null
rows=5000
"$work/collectors" tell "127.0.0.1:$grpc" "$work/n1" "$rows"
# The record has them, and OpenTelemetry's collector comes late.
until_said "flows cannot be sent on" "$work/up.log" "nobody noticed that a collector is away"
"$work/collectors" otel --config "file:$work/otel.yaml" >"$work/otel.out" 2>&1 &
otel=$!
for _ in $(seq 600); do
  [ "$(grep -c "Body: Str(" "$work/otel.out")" -lt "$rows" ] || break
  sleep 0.2
done
python3 - "$work/otel.out" "$work/ipfix.out" "$rows" <<'P'
import ipaddress, json, re, sys
rows = int(sys.argv[3])
text = open(sys.argv[1]).read()
bodies = re.findall(r"Body: Str\((\w+) (\S+) -> (\S+) tcp/(\d+)\)", text)
assert sorted(int(port) for *_, port in bodies) == list(range(1, rows + 1)), len(bodies)
assert all((verdict == "denied") == (int(port) % 2 == 1) for verdict, *_, port in bodies), bodies[:3]
counts = [int(count) for count in re.findall(r"-> trestle.flow.count: Int\((\d+)\)", text)]
assert sum(counts) == rows * (rows + 1) // 2, sum(counts)
for part in ("-> host.name: Str(n1)", "-> service.name: Str(trestle)", "-> trestle.flow.rule: Str(isolated by NetworkPolicy shop/web)",
             "SeverityText: WARN", "SeverityText: INFO", "-> source.address: Str(10.0.0.2)"):
    assert part in text, part
read = [json.loads(line) for line in open(sys.argv[2])]
number = lambda record, element: int(record[str(element)], 16)
assert sorted(number(record, 11) for record in read) == list(range(1, rows + 1)), len(read)
for record in read:
    port = number(record, 11)
    assert (number(record, 233) == 3) == (port % 2 == 1) and number(record, 3) == port, record
    assert (ipaddress.ip_address(number(record, 8)), ipaddress.ip_address(number(record, 12))) == (
        ipaddress.ip_address("10.0.0.2"), ipaddress.ip_address("10.0.0.1")), record
    assert bytes.fromhex(record["335"]).decode() == "isolated by NetworkPolicy shop/web" and bytes.fromhex(record["300"]) == b"n1"
sequences = sorted({int(record["sequence"]) for record in read})
assert sequences[0] == 0 and sequences[-1] < rows, sequences
print(f"OpenTelemetry's collector took {len(bodies)} records, that of IPFIX {len(read)}, each as it is on record")
P
