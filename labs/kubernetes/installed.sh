#!/bin/bash
# What `trestle install kubernetes` makes, in use: a controller runs as its Pod would, with the configuration, the environment and the
# service account that the cluster has for it, and an agent joins with a token that the API server has made for its Pod. There is no
# kubelet: this script starts both where one would. In network and mount namespaces of its own. run.sh calls it.
# On that node a Pod's network is made by CNI's own library with ptp and our plugin after it.
#   installed.sh TRESTLE KUBECONFIG PORT CA WORK CNITOOL
set -euo pipefail
trestle=$1 kubeconfig=$2 port=$3 ca=$4 work=$5 cnitool=$6
export TRESTLE_CONFIG_DIR=$work/context HOME=$work
kubectl() { command kubectl --kubeconfig "$kubeconfig" -n trestle "$@"; }
fail() {
  echo "FAILED: $1" >&2
  tail -n 20 "$work"/*.log >&2 || true
  exit 1
}
until_true() { # SECONDS WHAT COMMAND…
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || fail "$what"
    sleep 0.2
  done
}
controller= agent= pod=
finish() {
  [ -z "$agent" ] || kill "$agent" 2>/dev/null || true
  [ -z "$controller" ] || kill "$controller" 2>/dev/null || true
  wait 2>/dev/null || true
  [ -z "$pod" ] || ip netns delete "$pod" 2>/dev/null || true
}
trap finish EXIT

"$trestle" install kubernetes --name lab --kubeconfig "$kubeconfig" --apply
"$trestle" install kubernetes --name lab --kubeconfig "$kubeconfig" --apply # again is no change
"$trestle" install kubernetes --name lab | kubectl apply --server-side --force-conflicts --dry-run=server -f - >/dev/null || fail "kubectl does not take what is printed"

# A node, and the Pod of its agent, as a kubelet and the DaemonSet's controller would have made them.
for node in n1 n2; do
  kubectl apply -f - >/dev/null <<Y
{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "$node"}}
Y
  kubectl apply -f - >/dev/null <<Y
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "agent-$node", "namespace": "trestle"},
 "spec": {"nodeName": "$node", "serviceAccountName": "trestle-agent", "hostNetwork": true, "containers": [{"name": "agent", "image": "trestle"}]}}
Y
  kubectl create token trestle-agent --audience trestle --bound-object-kind Pod --bound-object-name "agent-$node" >"$work/token-$node"
done

# What a Pod of the controller is given.
secrets=/var/run/secrets/kubernetes.io/serviceaccount
mkdir -p "$secrets" 2>/dev/null || { mount -t tmpfs none /run && mkdir -p "$secrets"; }
mount -t tmpfs none "$secrets"
kubectl create token trestle >"$secrets/token"
cp "$ca" "$secrets/ca.crt"
echo -n trestle >"$secrets/namespace"
mkdir -p /var/lib/trestle
mount -t tmpfs none /var/lib/trestle
kubectl get configmap trestle-config -o 'jsonpath={.data.trestle\.yaml}' >"$work/trestle.yaml"
KUBERNETES_SERVICE_HOST=127.0.0.1 KUBERNETES_SERVICE_PORT=$port "$trestle" serve --config "$work/trestle.yaml" --name 127.0.0.1 --name 10.96.0.99 \
  >"$work/controller.log" 2>&1 &
controller=$!
published() { kubectl get configmap trestle-ca -o 'jsonpath={.data.ca\.pem}' | tee "$work/ca.pem" | grep -q BEGIN; }
until_true 120 "the controller's CA is not in its ConfigMap" published

# An agent that is not on the node it says it is on gets nothing; the one that is joins, by itself, and is in sync.
admin() { "$trestle" --server https://127.0.0.1:9381 --ca "$work/ca.pem" --token-file /var/lib/trestle/data/admin.token "$@"; }
start_agent() { # NODE TOKEN
  NODE_NAME=$1 "$trestle" agent --kubernetes --server https://127.0.0.1:9381 --ca "$work/ca.pem" --token "$2" --identity-dir "$work/identity" \
    --data-dir "$work/agent" --socket "$work/agent.sock" --health none --pod-interfaces none >>"$work/agent.log" 2>&1 &
  agent=$!
}
start_agent n2 "$work/token-n1"
until_true 60 "an agent with another node's token was not refused" grep -q 'gives this host no certificate' "$work/agent.log"
kill "$agent"
wait "$agent" 2>/dev/null || true
[ ! -e "$work/identity/node.pem" ] || fail "an agent with another node's token has a certificate"
start_agent n1 "$work/token-n1"
in_sync() { "$trestle" agent status --socket "$work/agent.sock" -o json | grep -q '"synced": true'; }
until_true 120 "the agent is not in sync" in_sync
admin host list | grep -q '^n1 ' || fail "n1 is no host"
admin node list | grep -q '^n1 ' || fail "n1 is no node"

# A Pod, as a kubelet and its runtime would have it started: open when its network is there, and gone with it.
kubectl create namespace shop >/dev/null
kubectl -n shop apply -f - >/dev/null <<Y
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"},
 "spec": {"nodeName": "n1", "containers": [{"name": "web", "image": "web"}]}}
Y
mkdir -p "$work/net.d" "$work/cni"
ln -s /usr/lib/cni/* "$work/cni/"
cat >"$work/net.d/10-ptp.conflist" <<Y
{"cniVersion": "1.0.0", "name": "lab", "plugins": [{"type": "ptp", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.77.0.0/24"}]], "dataDir": "$work/ipam"}}]}
Y
"$trestle" cni install --bin-dir "$work/cni" --conf-dir "$work/net.d" --socket "$work/agent.sock"
ip netns add trestle-lab-web
pod=trestle-lab-web
uid=$(kubectl -n shop get pod web -o 'jsonpath={.metadata.uid}')
network() { # add, check or del
  NETCONFPATH=$work/net.d CNI_PATH=$work/cni CNI_ARGS="IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_UID=$uid" \
    "$cnitool" "$1" lab "/run/netns/$pod"
}
attached() { "$trestle" agent list --socket "$work/agent.sock" -o json; }
network add >"$work/added.log" || fail "no network for the Pod"
attached | grep -q '"closed": false' || fail "the Pod is not attached, or closed: $(attached)"
address=$(ip netns exec "$pod" ip -4 -o addr show eth0 | sed 's/.*inet \([0-9.]*\).*/\1/')
ping -c 1 -W 5 "$address" >/dev/null || fail "the node does not reach its Pod at $address"
network check || fail "the Pod's network is not as it was made"
network del || fail "the Pod's network does not go"
[ "$(attached | tr -d ' \n')" = '[]' ] || fail "the Pod is attached still: $(attached)"
network del || fail "the Pod's network does not go twice"
"$trestle" cni remove --bin-dir "$work/cni" --conf-dir "$work/net.d"
! grep -q trestle "$work/net.d/10-ptp.conflist" || fail "the plugin is named still"

# Its disk is lost: it is the same node.
kill "$agent"
wait "$agent" 2>/dev/null || true
rm -r "$work/identity" "$work/agent"
start_agent n1 "$work/token-n1"
until_true 120 "the agent does not come back after its disk was lost" in_sync
[ "$(admin host list -o name | wc -l)" = 1 ] || fail "there are other hosts than n1"
echo "installed: a controller with its Pod's rights, and an agent that joined by its Pod's token and attached a Pod by CNI"
