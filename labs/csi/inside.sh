#!/bin/bash
# In the VM: a controller with storage, the driver on its node, then csi-sanity and the story. usage: inside.sh BIN [mount|block|story]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$1 only=${2:-}
work=/run/lab
mkdir -p "$work"
cd "$work"
export HOME=$work TRESTLE_LOG=${TRESTLE_LOG:-info} PATH=$bin:$PATH
# A disk for the volumes whose file system shares blocks.
truncate -s 4G disk
mkfs.xfs -q disk
mkdir data
modprobe loop 2>/dev/null || true
mount -o loop disk data
chmod 700 data
cat >controller.yaml <<Y
data_dir: $work/data
listen: { http: 127.0.0.1:9380, grpc: 127.0.0.1:9381, watch: 127.0.0.1:9382 }
storage:
  backend: { nbd: { listen: "127.0.0.1:10809" } }
Y
. "$here/lib.sh"
# The host's disk is far away.
cp "$TRESTLE" trestle
TRESTLE=$work/trestle
"$TRESTLE" version >/dev/null
start_controller
trestle ticket create --limit 2Gi >ticket
start_driver node-1
sanity() { # mount or block
  echo "── csi-sanity, $1"
  csi-sanity --csi.endpoint="$work/csi.sock" --csi.mountdir="$work/target" --csi.stagingdir="$work/staging" \
    --csi.testvolumesize=$((64 << 20)) --csi.testvolumeexpandsize=$((128 << 20)) --csi.testvolumeaccesstype="$1" \
    --csi.testnodevolumeattachlimit --ginkgo.junit-report="$work/sanity.xml" --ginkgo.no-color --ginkgo.succinct >sanity.log 2>&1 ||
    { tail -n 150 sanity.log; tail -n 50 driver.log; exit 1; }
  echo "   $(grep -c 'status="passed"' sanity.xml) cases passed, $(grep -c 'status="failed"' sanity.xml || true) failed; not run, as what they try is not offered, or switched off in csi-sanity itself:"
  sed -n 's/.*<testcase name="\([^"]*\)".*status="\(skipped\|pending\)".*/      \2: \1/p' sanity.xml
}
for form in mount block; do
  if [ -z "$only" ] || [ "$only" = "$form" ]; then sanity $form; fi
done
if [ -z "$only" ] || [ "$only" = story ]; then
  . "$here/story.sh"
fi
