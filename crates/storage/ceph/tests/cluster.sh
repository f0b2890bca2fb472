#!/bin/bash
# A Ceph cluster to try things on: one monitor, one manager, one OSD in memory, all in one folder, on loopback only.
#   cluster.sh start DIR [PORT]     prints nothing; returns when the cluster is healthy
#   cluster.sh stop DIR             ends its daemons, by the ids they wrote
#   cluster.sh end|term DIR NAME    ends one of them, killed or asked to
#   cluster.sh mon|osd DIR          starts the monitor or the OSD again
set -euo pipefail
action=$1 dir=$2
pid_of() { cat "$dir/run/$1.pid" 2>/dev/null || true; }
end() {
  local pid; pid=$(pid_of "$1")
  [ -n "$pid" ] && kill -"${2:-TERM}" "$pid" 2>/dev/null || return 0
  for _ in $(seq 300); do kill -0 "$pid" 2>/dev/null || return 0; sleep 0.1; done
  kill -KILL "$pid" 2>/dev/null || true
}
case $action in
stop) for name in osd.0 mgr.x mon.a; do end $name; done; exit 0 ;;
end) end "$3" KILL; exit 0 ;;
term) end "$3" TERM; exit 0 ;;
mon) exec ceph-mon -c "$dir/ceph.conf" -i a --keyring "$dir/mon/a/keyring" ;;
osd) exec ceph-osd -c "$dir/ceph.conf" -i 0 ;;
start) ;;
*) echo "usage: cluster.sh start|stop|end|term|mon|osd DIR" >&2; exit 2 ;;
esac
port=${3:-13300}
mkdir -p "$dir"/{mon,mgr/x,osd/0,run,log}
fsid=$(cat /proc/sys/kernel/random/uuid)
cat > "$dir/ceph.conf" <<CONF
[global]
fsid = $fsid
mon_initial_members = a
mon_host = [v2:127.0.0.1:$port/0,v1:127.0.0.1:$((port + 1))/0]
public_network = 127.0.0.0/8
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
auth_allow_insecure_global_id_reclaim = false
keyring = $dir/\$name.keyring
run_dir = $dir/run
pid_file = $dir/run/\$name.pid
log_file = $dir/log/\$name.log
crash_dir = $dir/log
mon_data = $dir/mon/\$id
mgr_data = $dir/mgr/\$id
osd_data = $dir/osd/\$id
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_allow_pool_delete = true
mon_warn_on_pool_no_redundancy = false
mon_max_pg_per_osd = 1000
mon_data_avail_warn = 2
mon_data_avail_crit = 1
mgr_stats_period = 1
paxos_propose_interval = 0.05
paxos_min_wait = 0.01
osd_objectstore = memstore
# The memory is saved to the folder when an OSD is asked to end, but not on its short way out.
osd_fast_shutdown = false
memstore_device_bytes = $((1 << 30))
osd_memory_target = 939524096
CONF
export CEPH_CONF="$dir/ceph.conf"
ceph-authtool --create-keyring "$dir/mon.keyring" --gen-key -n mon. --cap mon 'allow *' > /dev/null
ceph-authtool --create-keyring "$dir/client.admin.keyring" --gen-key -n client.admin \
  --cap mon 'allow *' --cap osd 'allow *' --cap mds 'allow *' --cap mgr 'allow *' > /dev/null
ceph-authtool "$dir/mon.keyring" --import-keyring "$dir/client.admin.keyring" > /dev/null
monmaptool --create --addv a "[v2:127.0.0.1:$port,v1:127.0.0.1:$((port + 1))]" --fsid "$fsid" "$dir/monmap" > /dev/null
ceph-mon --mkfs -i a --monmap "$dir/monmap" --keyring "$dir/mon.keyring"
cp "$dir/mon.keyring" "$dir/mon/a/keyring"
ceph-mon -i a --keyring "$dir/mon/a/keyring"
ceph() { command ceph -n client.admin -k "$dir/client.admin.keyring" --connect-timeout 30 "$@"; }
ceph auth get-or-create mgr.x mon 'allow profile mgr' osd 'allow *' mds 'allow *' -o "$dir/mgr.x.keyring"
ceph-mgr -i x
uuid=$(cat /proc/sys/kernel/random/uuid)
key=$(ceph-authtool --gen-print-key)
echo "{\"cephx_secret\": \"$key\"}" | ceph osd new "$uuid" -i - > /dev/null
ceph-authtool --create-keyring "$dir/osd.0.keyring" --name osd.0 --add-key "$key" > /dev/null
ceph-osd -i 0 --mkfs --osd-uuid "$uuid" --no-mon-config > /dev/null 2>&1
ceph-osd -i 0
for _ in $(seq 60); do
  case $(ceph status -f json 2>/dev/null) in *'"num_up_osds":1'*'"available":true'*) exit 0 ;; esac
  sleep 0.5
done
echo "the cluster did not become healthy; its logs are in $dir/log" >&2
exit 1
