#!/bin/bash
# Clients of OCS's releases 4.10, 4.16 and today, in Go and generated from the published numbers of their messages, onboard with tickets
# signed as their provider signs them, are configured, report and leave. Needs Go and the module proxy. TRESTLE names a binary to use; OCS, a
# checkout of ocs-operator, is where OCS's own client package is taken from and run as well (since it is a module of its own, September 2024);
# OCS_CLIENTS are other programs built of it, each run with an address and a ticket.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/test-deps labs/go/packages
command -v go >/dev/null || PATH=$PATH:/usr/local/go/bin:/usr/lib/go/bin
trestle=${TRESTLE:-$PWD/target/release/trestle}
if [[ ! -x $trestle ]]; then
  cargo build --release --locked -p trestle
fi
ocs=${OCS:+$(realpath "$OCS")}
work=$(mktemp -d)
controller=
trap 'if [[ -n $controller ]]; then kill "$controller"; wait "$controller" || true; fi; rm -rf "$work"' EXIT

mkdir -p "$work/lab/pb"
cp labs/ocs/main.go "$work/lab"
cp labs/ocs/releases.proto "$work/lab/pb"
(
  cd "$work/lab"
  export GOBIN=$work/bin PATH=$work/bin:$PATH GOFLAGS=-buildvcs=false
  go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.6
  go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.5.1
  protoc --go_out=. --go_opt=module=lab --go-grpc_out=. --go-grpc_opt=module=lab pb/releases.proto
  go mod init lab
  go get google.golang.org/grpc@v1.72.0 google.golang.org/protobuf@v1.36.6
  go build -o client .
  if [[ $ocs ]]; then
    module=github.com/red-hat-storage/ocs-operator/services/provider/api/v4
    mkdir "$work/upstream"
    cp "$OLDPWD/labs/ocs/upstream/main.go" "$work/upstream"
    cd "$work/upstream"
    go mod init lab
    go mod edit -require "$module@v4.0.0" -replace "$module=$ocs/services/provider/api"
    go mod tidy
    go build -o upstream .
  fi
)
if [[ $ocs ]]; then
  OCS_CLIENTS="$work/upstream/upstream ${OCS_CLIENTS:-}"
else
  echo "NOT RUN: OCS's own client package; OCS names no checkout of ocs-operator" >&2
fi

cd "$work"
openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:4096 -out key.pem 2>key.log
openssl pkey -in key.pem -pubout -out public.pem
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
grpc=127.0.0.1:$(port)
cat >c.yaml <<YAML
data_dir: $work/data
listen: { http: 127.0.0.1:$(port), grpc: $grpc, watch: 127.0.0.1:$(port) }
storage:
  backend: { nbd: { listen: 127.0.0.1:0 } }
  trusted_ticket_keys: [$work/public.pem]
YAML
"$trestle" serve --config c.yaml >up.log 2>&1 &
controller=$!
for _ in $(seq 300); do (exec 3<>"/dev/tcp/${grpc%:*}/${grpc#*:}") 2>/dev/null && break; sleep 0.1; done
lab/client "$grpc" key.pem || { cat up.log >&2; exit 1; }
for client in ${OCS_CLIENTS:-}; do
  payload='{"id":"'$(basename "$client")'","expirationDate":"'$(($(date +%s) + 3600))'","subjectRole":"ocs-client"}'
  signature=$(printf %s "$payload" | openssl dgst -sha256 -sign key.pem | base64 -w0)
  "$client" "$grpc" "$(printf %s "$payload" | base64 -w0).$signature"
done
echo "Clients of OCS's releases are given storage, state and leave."
