# What a workload lives through: data on a mount while the driver, its bridge and the controller are killed; growth; snapshots and copies;
# another node that takes over while the old one still has it mounted. Sourced by inside.sh.
echo "── story"
mib=$((1 << 20))
mode() { echo "{\"access_mode\":{\"mode\":\"${2:-SINGLE_NODE_WRITER}\"},$1}"; }
as_fs() { mode "\"mount\":{\"fs_type\":\"$1\"}" "${2:-}"; }
create() { # NAME MIB FS [SOURCE]
  csi "" Controller/CreateVolume "{\"name\":\"$1\",\"capacity_range\":{\"required_bytes\":\"$(($2 * mib))\"},\"volume_capabilities\":[$(as_fs "$3")]${4:+,\"volume_content_source\":$4}}" >/dev/null
}
node_id() { csi "$1" Node/NodeGetInfo | sed -n 's/.*"nodeId": *"\([^"]*\)".*/\1/p'; }
give() { # NAME FS NODE-SUFFIX: to a node, staged and published there
  local id context
  id=$(node_id "$3")
  context=$(csi "" Controller/ControllerPublishVolume "{\"volume_id\":\"$1\",\"node_id\":\"$id\",\"volume_capability\":$(as_fs "$2")}" |
    sed -n 's/.*"export": *"\([^"]*\)".*/\1/p')
  [ -n "$context" ] || return 1
  csi "$3" Node/NodeStageVolume "{\"volume_id\":\"$1\",\"publish_context\":{\"export\":\"$context\"},\"staging_target_path\":\"$work/staging$3-$1\",\"volume_capability\":$(as_fs "$2")}" >/dev/null || return 1
  csi "$3" Node/NodePublishVolume "{\"volume_id\":\"$1\",\"staging_target_path\":\"$work/staging$3-$1\",\"target_path\":\"$work/pod$3-$1\",\"volume_capability\":$(as_fs "$2")}" >/dev/null
}
leave() { # NAME NODE-SUFFIX: unpublished and unstaged, but not given back
  csi "$2" Node/NodeUnpublishVolume "{\"volume_id\":\"$1\",\"target_path\":\"$work/pod$2-$1\"}" >/dev/null
  csi "$2" Node/NodeUnstageVolume "{\"volume_id\":\"$1\",\"staging_target_path\":\"$work/staging$2-$1\"}" >/dev/null
}
give_back() { csi "" Controller/ControllerUnpublishVolume "{\"volume_id\":\"$1\",\"node_id\":\"$(node_id "$2")\"}" >/dev/null; }
bridge_of() { pgrep -f "csi bridge --state $work/state$2 $1\$"; }

create shop 64 ext4 || fail "no volume"
give shop ext4 "" || fail "the volume does not come"
pod=$work/pod-shop
head -c 8388608 /dev/urandom >"$pod/data"
sync "$pod/data"
sum=$(sha256sum <"$pod/data")
say "a file system was made and mounted, and has data"

# Somebody who writes all the time, and never sees an error: each line is on the disk before the next is written.
(
  n=0
  while [ ! -e "$work/enough" ]; do
    n=$((n + 1))
    echo "$n" >>"$pod/lines" && sync "$pod/lines" || { echo "line $n" >"$work/broken"; break; }
  done
  echo "$n" >"$work/written"
) &
writer=$!
before=$(bridge_of shop "")
kill -9 $driver
sleep 3
[ "$(bridge_of shop "")" = "$before" ] || fail "the bridge went with the driver"
start_driver node-1
say "kill -9 of the driver: the mount went on, with the same bridge $before"
kill -9 $controller
sleep 5
start_controller
say "kill -9 of the controller, five seconds without: the mount waited and went on"
kill -9 "$(bridge_of shop "")"
until_so 60 bridge_of shop ""
# The kernel asks again for what the dead bridge had taken, within half a minute.
lines=$(wc -l <"$pod/lines")
more() { [ "$(wc -l <"$pod/lines")" -gt "$((lines + 20))" ]; }
until_so 120 more
say "kill -9 of the bridge: the driver started another, the mount waited and went on"
touch "$work/enough"
wait $writer
[ ! -e "$work/broken" ] || fail "a write failed: $(cat "$work/broken")"
seq "$(cat "$work/written")" | cmp - "$pod/lines" || fail "lines are missing"
[ "$(sha256sum <"$pod/data")" = "$sum" ] || fail "the data is another"
say "$(cat "$work/written") lines were written meanwhile, each synced; none failed, none is missing"

csi "" Controller/ControllerExpandVolume "{\"volume_id\":\"shop\",\"capacity_range\":{\"required_bytes\":\"$((256 * mib))\"}}" >/dev/null || fail "it does not grow"
small=$(df --output=size -B1 "$pod" | tail -n 1)
csi "" Node/NodeExpandVolume "{\"volume_id\":\"shop\",\"volume_path\":\"$pod\",\"capacity_range\":{\"required_bytes\":\"$((256 * mib))\"}}" >/dev/null || fail "the node does not grow it"
large=$(df --output=size -B1 "$pod" | tail -n 1)
[ "$large" -gt $((3 * small)) ] || fail "the file system did not grow: $small, $large"
say "64 MiB grew to 256 MiB under the mount: the file system has $large bytes, before $small"

sync
csi "" Controller/CreateSnapshot '{"source_volume_id":"shop","name":"monday"}' >/dev/null || fail "no snapshot"
echo tuesday >"$pod/data"
sync
create old 256 ext4 '{"snapshot":{"snapshot_id":"shop@monday"}}' || fail "no copy of a snapshot"
create twin 512 ext4 '{"volume":{"volume_id":"shop"}}' || fail "no copy of a volume"
give old ext4 "" || fail "the copy of the snapshot does not come"
give twin ext4 "" || fail "the copy of the volume does not come"
[ "$(sha256sum <"$work/pod-old/data")" = "$sum" ] || fail "the snapshot has other data"
[ "$(cat "$work/pod-twin/data")" = tuesday ] || fail "the copy has other data"
[ "$(df --output=size -B1 "$work/pod-twin" | tail -n 1)" -gt $((400 * mib)) ] || fail "the file system of a larger copy did not grow"
say "a snapshot has what was there, a copy what is there; the larger copy's file system fills it"
for volume in old twin; do
  leave $volume ""
  give_back $volume ""
  csi "" Controller/DeleteVolume "{\"volume_id\":\"$volume\"}" >/dev/null || fail "$volume is not deleted"
done

create xfs 320 xfs && give xfs xfs "" || fail "no xfs"
echo hello >"$work/pod-xfs/hello"
leave xfs "" && give xfs xfs "" && [ "$(cat "$work/pod-xfs/hello")" = hello ] || fail "xfs forgot"
leave xfs "" && give_back xfs ""
say "the same with xfs"

# Another node, while the first still has the volume mounted and writes.
driver node-2 2
if give shop ext4 2; then fail "two nodes write to one volume"; fi
{ csi 2 Controller/ControllerPublishVolume "{\"volume_id\":\"shop\",\"node_id\":\"$(node_id 2)\",\"volume_capability\":$(as_fs ext4)}" || true; } | grep -q FailedPrecondition || fail "not refused as it should be"
give_back shop ""
give shop ext4 2 || fail "the second node does not get it"
echo from-node-2 >"$work/pod2-shop/second"
sync "$work/pod2-shop/second"
refused() { ! (echo late >"$pod/late" && sync "$pod/late") 2>/dev/null; }
until_so 60 refused
say "the second node has the volume, and a write of the first, which still had it mounted, fails"
csi "" Node/NodeGetVolumeHealth '{"volume_id":"shop"}' | grep -q Refused || fail "the first node does not say why"
leave shop "" || fail "the first node does not get rid of it"
[ ! -e "$work/pod2-shop/late" ] && [ "$(cat "$work/pod2-shop/second")" = from-node-2 ] || fail "the first node wrote after all"
[ "$(tail -n 1 "$work/pod2-shop/lines")" = "$(cat "$work/written")" ] || fail "the second node lacks what was synced"
leave shop 2
give_back shop 2
e2fsck_clean() { give shop ext4 2 && leave shop 2; }
e2fsck_clean || fail "the file system is not whole"
say "the first node let go of it; what it had synced is there, what came late is not"
pgrep -f 'csi bridge' >/dev/null && fail "a bridge is left: $(pgrep -af 'csi bridge')"
say "no bridge is left"
