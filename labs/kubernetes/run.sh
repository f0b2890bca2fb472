#!/bin/bash
# Kubernetes' own API server, built from Go modules (once, into target/kubernetes; minutes), on loopback with an etcd of its own: read, and
# told what becomes of policies, with no more rights than `trestle kubernetes rbac` asks for; then what `trestle install kubernetes` makes, in
# use (installed.sh). Needs Go and root; says so and ends if one of them is not there.
set -euo pipefail
cd "$(dirname "$0")"
if ! command -v go >/dev/null; then
  echo "NOT RUN: labs/kubernetes needs Go 1.24 or later (golang.org/dl) and there is none here" >&2
  exit 0
fi
if [ "$(id -u)" != 0 ]; then
  echo "NOT RUN: labs/kubernetes needs root, for network and mount namespaces of its own" >&2
  exit 0
fi
root=$(cd ../.. && pwd)
"$root/scripts/test-deps" "$PWD/packages"
bin=$root/target/kubernetes
version=$(sed -n 's/^require k8s.io\/kubernetes //p' go.mod)
if [ ! -x "$bin/kube-apiserver-$version" ]; then
  mkdir -p "$bin"
  CGO_ENABLED=0 go build -buildvcs=false -trimpath -o "$bin/kube-apiserver.new" -ldflags "-s -w \
    -X k8s.io/component-base/version.gitVersion=$version -X k8s.io/component-base/version.gitMajor=1 \
    -X k8s.io/component-base/version.gitMinor=$(cut -d. -f2 <<<"$version")" k8s.io/kubernetes/cmd/kube-apiserver
  mv "$bin/kube-apiserver.new" "$bin/kube-apiserver-$version"
fi

[ -x "$bin/cnitool" ] || GOBIN=$bin go install github.com/containernetworking/cni/cnitool@v1.3.0
if [ -z "${TRESTLE_LAB_INSIDE:-}" ]; then
  (cd "$root" && cargo test --locked -p kubernetes --lib --no-run && cargo build --locked -p trestle)
  exec env TRESTLE_LAB_INSIDE=1 unshare --net --mount "$PWD/run.sh"
fi
ip link set lo up
# An API server wants an address of a network that leads somewhere.
ip link add up0 type veth peer name up1
ip link set up1 up
ip addr add 192.0.2.1/24 dev up0
ip link set up0 up
ip route add default via 192.0.2.254

work=$(mktemp -d)
etcd= api=
finish() {
  [ -z "$api" ] || kill "$api" 2>/dev/null || true
  [ -z "$etcd" ] || kill "$etcd" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
read -r client peer port <<<"$(python3 -c 'import socket
s=[socket.socket() for _ in range(3)]
[x.bind(("127.0.0.1",0)) for x in s]
print(*[x.getsockname()[1] for x in s])')"
openssl genrsa -out "$work/sa.key" 2048 2>/dev/null
openssl rsa -in "$work/sa.key" -pubout -out "$work/sa.pub" 2>/dev/null
token=$(openssl rand -hex 16)
echo "$token,admin,admin,system:masters" >"$work/tokens.csv"
etcd --data-dir "$work/etcd" --listen-client-urls "http://127.0.0.1:$client" --advertise-client-urls "http://127.0.0.1:$client" \
  --listen-peer-urls "http://127.0.0.1:$peer" >"$work/etcd.log" 2>&1 &
etcd=$!
"$bin/kube-apiserver-$version" --etcd-servers "http://127.0.0.1:$client" --bind-address 127.0.0.1 --secure-port "$port" \
  --cert-dir "$work/certs" --service-account-key-file "$work/sa.pub" --service-account-signing-key-file "$work/sa.key" \
  --service-account-issuer https://kubernetes.default.svc --token-auth-file "$work/tokens.csv" --authorization-mode RBAC \
  --service-cluster-ip-range 10.96.0.0/16 --allow-privileged --disable-admission-plugins ServiceAccount >"$work/api.log" 2>&1 &
api=$!
cat >"$work/kubeconfig" <<K
{"apiVersion": "v1", "kind": "Config", "current-context": "lab",
 "clusters": [{"name": "lab", "cluster": {"server": "https://127.0.0.1:$port", "certificate-authority": "$work/certs/apiserver.crt"}}],
 "users": [{"name": "lab", "user": {"token": "$token"}}],
 "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}]}
K
for _ in $(seq 600); do
  kill -0 "$api" "$etcd" || { tail -5 "$work/api.log" "$work/etcd.log" >&2; exit 1; }
  [ ! -s "$work/certs/apiserver.crt" ] || ! curl -sf --cacert "$work/certs/apiserver.crt" -H "authorization: Bearer $token" \
    "https://127.0.0.1:$port/readyz" >/dev/null || break
  sleep 0.2
done
cd "$root"
TRESTLE_LAB_KUBECONFIG=$work/kubeconfig cargo test --locked -p kubernetes --lib tests::real -- --ignored --nocapture
labs/kubernetes/installed.sh "${CARGO_TARGET_DIR:-$root/target}/debug/trestle" "$work/kubeconfig" "$port" "$work/certs/apiserver.crt" "$work" "$bin/cnitool"
echo "Kubernetes $version was read, and told, as the service account of trestle kubernetes rbac"
