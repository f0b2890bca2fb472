#!/bin/bash
# A cloud plugin in Go that knows only Paraglider's proto is registered with a controller, and resources, rules and a link
# are made through it from the command line. Needs Go and the module proxy.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/test-deps labs/go/packages
command -v go >/dev/null || PATH=$PATH:/usr/local/go/bin:/usr/lib/go/bin
trestle=${TRESTLE:-$PWD/target/release/trestle}
if [[ ! -x $trestle ]]; then
  cargo build --release --locked -p trestle
fi
work=$(mktemp -d)
controller= plugin=
finish() {
  for process in $controller $plugin; do kill "$process"; wait "$process" || true; done
  rm -rf "$work"
}
trap finish EXIT

mkdir "$work/lab" "$work/lab/pb"
cp labs/go-plugin/main.go "$work/lab"
cp labs/go-plugin/seed.proto "$work/lab/pb"
(
  cd "$work/lab"
  export GOBIN=$work/bin PATH=$work/bin:$PATH GOFLAGS=-buildvcs=false
  go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.6
  go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.5.1
  protoc --go_out=. --go_opt=module=lab --go-grpc_out=. --go-grpc_opt=module=lab pb/seed.proto
  go mod init lab
  go get google.golang.org/grpc@v1.72.0 google.golang.org/protobuf@v1.36.6
  go build -o plugin .
)

cd "$work"
export TRESTLE_CONTEXT=$work/context.json
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
grpc=127.0.0.1:$(port) listen=127.0.0.1:$(port)
"$trestle" up --data-dir data --http 127.0.0.1:"$(port)" --grpc "$grpc" --watch 127.0.0.1:"$(port)" --nbd 127.0.0.1:0 \
  --cloud "azure=http://$listen" --cloud near=fake >up.log &
controller=$!
for _ in $(seq 100); do grep -qs 'Trestle is up' up.log && break; sleep 0.1; done
"$trestle" cert issue azure --role plugin --out azure
lab/plugin "$listen" "$grpc" azure.ca.pem azure.pem azure.key >plugin.log &
plugin=$!

fail() { echo "$1" >&2; cat plugin.log >&2; exit 1; }
expect() { grep -q -- "$1" <<<"$2" || fail "expected $1 in: $2"; }
refuse() { ! grep -q -- "$1" <<<"$2" || fail "did not expect $1 in: $2"; }

# The plugin is asked again until it answers.
for _ in $(seq 100); do "$trestle" resource create azure.vm --description vm >made.log 2>&1 && break; sleep 0.2; done
expect ready "$(cat made.log)"
expect 'the controller tells default of 10.0.0.0/16' "$(cat plugin.log)"
"$trestle" resource create azure.vm2 --description vm2
"$trestle" resource create near.db --description west
"$trestle" rule add azure.vm --ping azure.vm2
"$trestle" rule add azure.vm --out --protocol tcp --port 443 --peer 8.8.8.8 --name web
rules=$("$trestle" rule list azure.vm)
expect web "$rules"
expect ping-in-default-azure-vm2 "$rules"
expect 'permits default/vm OUTBOUND 6' "$(cat plugin.log)"
expect 'Everything is as it was made' "$("$trestle" check)"

# A rule that is replaced: known by content, the old one is deleted.
"$trestle" rule add azure.vm --out --protocol tcp --port 80 --peer 8.8.8.8 --name web
expect 'permits no more default/vm OUTBOUND 6 .*443' "$(cat plugin.log)"
# A tag below a rule changes: the plugin hears the difference.
"$trestle" tag set team --children 9.9.9.9
"$trestle" rule add azure.vm --out --protocol udp --port 53 --peer team --name names
"$trestle" tag set team --children 9.9.9.10
for _ in $(seq 50); do grep -q '9.9.9.9/\?[0-9]* 9.9.9.10' plugin.log && break; sleep 0.1; done
expect '9.9.9.10' "$(cat plugin.log)"
"$trestle" rule delete azure.vm --rule web
refuse web "$("$trestle" rule list azure.vm)"
expect 'Everything is as it was made' "$("$trestle" check)"

# A link: its gateway's number and BGP addresses are the plugin's own, and the other end is told them.
"$trestle" rule add azure.vm --ping near.db
"$trestle" rule add near.db --ping azure.vm
link=$("$trestle" link get default.azure default.near -o json)
expect 65515 "$link"
expect 169.254.21.1 "$link"
expect 169.254.22.1 "$link"
expect 'tunnels to near' "$(cat plugin.log)"

# What Paraglider's protocol cannot say is refused with that reason, and is not half done.
if "$trestle" resource delete azure.vm2 >deleted.log 2>&1; then fail 'a plugin of Paraglider cannot delete'; fi
expect "cannot take down what it made" "$(cat deleted.log)"
expect ping-in-default-azure-vm2 "$("$trestle" rule list azure.vm)"
refuse 'asked to delete what is not there' "$(cat plugin.log)"
echo "A plugin that knows only Paraglider's protocol is a cloud like any other, as far as that goes."
