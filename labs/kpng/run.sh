#!/bin/bash
# KPNG's own client and nft backend, as they are, are a node's service proxy: real connections go where the controller says, and follow
# when Pods go and the controller restarts. Built from KPNG's source, of which KPNG names a checkout; nothing of it is kept here. Needs
# root: the node and its Pods are network namespaces. TRESTLE names a binary to use.
set -euo pipefail
cd "$(dirname "$0")/../.."
not_run() { echo "NOT RUN: labs/kpng needs $1" >&2; exit 0; }
[[ ${KPNG:-} ]] || not_run "KPNG, a checkout of KPNG's source"
[[ -d $KPNG/backends/nft ]] || not_run "a checkout of KPNG; $KPNG has no backends/nft"
[[ $(id -u) = 0 ]] || not_run "root, for network namespaces"
command -v go >/dev/null || PATH=$PATH:/usr/local/go/bin:/usr/lib/go/bin
command -v go >/dev/null || not_run "Go (golang.org/dl)"
scripts/test-deps labs/kpng/packages
root=$PWD
trestle=${TRESTLE:-$root/target/release/trestle}
[[ -x $trestle ]] || cargo build --release --locked -p trestle
work=$(mktemp -d)
node=kpng-$$ processes=()
finish() {
  for process in "${processes[@]}"; do kill "$process" 2>/dev/null || true; wait "$process" 2>/dev/null || true; done
  for one in "$node" "$node-a" "$node-b"; do ip netns delete "$one" 2>/dev/null || true; done
  rm -rf "$work"
}
trap finish EXIT
cp -r "$KPNG"/. "$work/kpng"
mkdir "$work/kpng/backends/nft/lab"
cp labs/kpng/main.go "$work/kpng/backends/nft/lab"
(cd "$work/kpng/backends/nft" && go build -o "$work/backend" ./lab)

# The node, and two of its Pods: a web server and a client.
for one in "$node" "$node-a" "$node-b"; do ip netns add "$one"; ip -n "$one" link set lo up; done
ip netns exec "$node" sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
pod() { # namespace, address
  ip -n "$node" link add "v$2" type veth peer name eth0 netns "$1"
  ip -n "$1" link set eth0 up; ip -n "$1" addr add "10.244.1.$2/32" dev eth0
  ip -n "$1" route add 169.254.1.1 dev eth0; ip -n "$1" route add default via 169.254.1.1
  ip -n "$node" link set "v$2" up; ip -n "$node" addr add 169.254.1.1/32 dev "v$2"; ip -n "$node" route add "10.244.1.$2" dev "v$2"
}
pod "$node-a" 10
pod "$node-b" 11
mkdir "$work/site"
echo "from web-1" >"$work/site/index.html"
ip netns exec "$node-a" python3 -m http.server 8080 --bind 10.244.1.10 --directory "$work/site" >/dev/null 2>&1 &
processes+=($!)

cd "$work"
export TRESTLE_CONTEXT=$work/context.json
on_node() { ip netns exec "$node" "$@"; }
up=
start() {
  ip netns exec "$node" "$trestle" up --data-dir data --http 127.0.0.1:8080 --grpc 127.0.0.1:8081 --watch 127.0.0.1:8443 --nbd 127.0.0.1:0 >up.log 2>&1 &
  up=$!
  processes+=("$up")
  for _ in $(seq 600); do grep -qs 'Trestle is up' up.log && return; sleep 0.1; done
  cat up.log >&2
  exit 1
}
fail() { echo "$1" >&2; tail -n 20 backend.log >&2; on_node nft list ruleset | tail -n 60 >&2; exit 1; }
answers() { ip netns exec "$node-b" curl --silent --max-time 2 http://10.96.0.10/ 2>/dev/null; }
# A client asks until it is answered, or is not any more.
until_answered() { for _ in $(seq 150); do [[ $(answers) = "from web-1" ]] && return; sleep 0.2; done; fail "$1"; }
until_silent() { for _ in $(seq 150); do [[ -z $(answers || true) ]] && return; sleep 0.2; done; fail "$1"; }

start
on_node "$trestle" apply -f "$root/docs/examples/services.yaml" >/dev/null
on_node "$trestle" cert issue node-1 --role node --out node >/dev/null
# KPNG's client takes roots of trust from the system only.
ip netns exec "$node" env SSL_CERT_FILE="$work/node.ca.pem" ./backend --api localhost:8081 --node-name node-1 --tls-crt node.pem --tls-key node.key \
  --tls-ca node.ca.pem --cluster-cidrs 10.244.0.0/16 >backend.log 2>&1 &
processes+=($!)
until_answered "a Pod does not reach the service through KPNG's backend"
on_node nft list ruleset | grep -q 10.244.1.10 || fail "it is not KPNG's backend that balances"
echo "a Pod reaches the service"

on_node "$trestle" delete service web -n shop >/dev/null
until_silent "a service that was deleted still answers"
on_node "$trestle" apply -f "$root/docs/examples/services.yaml" >/dev/null
until_answered "a service that was made anew does not answer"
echo "services come and go"

on_node "$trestle" delete pod web-1 -n shop >/dev/null
until_silent "an endpoint that is gone is still used"
on_node "$trestle" apply -f "$root/docs/examples/services.yaml" >/dev/null
until_answered "an endpoint that came back is not used"
echo "endpoints come and go"

kill "$up"; wait "$up" 2>/dev/null || true
[[ $(answers) = "from web-1" ]] || fail "without its controller the node balances no more"
start
on_node "$trestle" delete pod web-1 -n shop >/dev/null
until_silent "the backend does not follow a controller that restarted"
echo "KPNG's client and nft backend, as they are, serve a node, through a restart of the controller, too."
