#!/bin/bash
# Go clients of Azure NPM, the first generated from its published text, a later one with its later messages, connect to DataplaneEvents
# over TLS, receive everything, and then a change and a removal. Needs Go and the module proxy.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/test-deps labs/go/packages
command -v go >/dev/null || PATH=$PATH:/usr/local/go/bin:/usr/lib/go/bin
trestle=${TRESTLE:-$PWD/target/release/trestle}
if [[ ! -x $trestle ]]; then
  cargo build --release --locked -p trestle
fi
work=$(mktemp -d)
controller=
trap 'if [[ -n $controller ]]; then kill "$controller"; wait "$controller" || true; fi; rm -rf "$work"' EXIT

mkdir "$work/lab" "$work/lab/pb" "$work/lab/protos"
cp labs/go/main.go "$work/lab"
cp -r labs/go/later "$work/lab"
cp proto/protos/transport.proto "$work/lab/protos"
cp labs/go/seed.proto "$work/lab/pb"
(
  cd "$work/lab"
  export GOBIN=$work/bin PATH=$work/bin:$PATH GOFLAGS=-buildvcs=false
  go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.6
  go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.5.1
  protoc --go_out=. --go_opt=module=lab --go-grpc_out=. --go-grpc_opt=module=lab pb/seed.proto
  named=Mprotos/transport.proto=lab/protos
  protoc --go_out=. --go_opt=module=lab --go_opt=$named --go-grpc_out=. --go-grpc_opt=module=lab --go-grpc_opt=$named protos/transport.proto
  go mod init lab
  go get google.golang.org/grpc@v1.72.0 google.golang.org/protobuf@v1.36.6
  go build -o client .
  go build -o later-client ./later
)

cd "$work"
export TRESTLE_CONTEXT=$work/context.json
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
grpc=127.0.0.1:$(port)
"$trestle" up --data-dir data --http 127.0.0.1:"$(port)" --grpc "$grpc" --watch 127.0.0.1:"$(port)" --nbd 127.0.0.1:0 >up.log &
controller=$!
for _ in $(seq 300); do grep -qs 'Trestle is up' up.log && break; sleep 0.1; done
"$trestle" cert issue node-1 --role node --out node-1
"$trestle" cert issue node-2 --role node --out node-2
"$trestle" apply -f - <<'YAML'
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Pod
metadata: {namespace: shop, name: web, labels: {app: web}}
spec: {nodeName: node-1}
status: {podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}]}
---
apiVersion: v1
kind: Pod
metadata: {namespace: shop, name: db, labels: {app: db}}
spec: {nodeName: node-2}
status: {podIP: 10.0.0.2, podIPs: [{ip: 10.0.0.2}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: shop, name: first}
spec: {podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}
YAML
"$work/lab/client" "$grpc" node-1 node-1.ca.pem node-1.pem node-1.key \
  'APPLY POLICY first' 'APPLY POLICY second' 'REMOVE POLICY first' >client.log &
client=$!
"$work/lab/later-client" "$grpc" npm-x7k2p node-2 node-2.ca.pem node-2.pem node-2.key 10.0.0.2 >later.log 2>&1 &
later=$!
for _ in $(seq 100); do grep -q 'seen: APPLY POLICY first' client.log && break; sleep 0.1; done
sed 's/name: first/name: second/' >second.yaml <<'YAML'
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: shop, name: first}
spec: {podSelector: {}, policyTypes: [Egress]}
YAML
"$trestle" apply -f second.yaml
"$trestle" delete networkpolicy first --namespace shop
if ! wait "$client"; then
  cat client.log
  exit 1
fi
if ! wait "$later"; then
  cat later.log
  exit 1
fi
cat client.log later.log
echo 'The Go clients were sent everything Azure NPM promises.'
