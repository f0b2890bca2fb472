# Beginnings and ends of what the lab runs, and how it is asked. Sourced by inside.sh.
trestle() { "$TRESTLE" --server https://127.0.0.1:9381 --ca "$work/data/pki/ca.pem" --token-file "$work/data/admin.token" "$@"; }
say() { echo "   $*"; }
fail() {
  echo "FAILED: $*" >&2
  for log in "$work"/*.log; do
    echo "── $log" >&2
    tail -n 30 "$log" >&2
  done
  exit 1
}
until_so() { # SECONDS COMMAND...: waits until it is so
  local end=$((SECONDS + $1))
  shift
  until "$@" >"$work/until.log" 2>&1; do
    [ $SECONDS -lt $end ] || fail "not so in time: $*"
    sleep 0.2
  done
}
start_controller() {
  "$TRESTLE" serve --config "$work/controller.yaml" >>"$work/controller.log" 2>&1 &
  controller=$!
  until_so 120 trestle status
}
driver() { # NAME, SUFFIX of its places
  "$TRESTLE" --server https://127.0.0.1:9381 --ca "$work/data/pki/ca.pem" csi --endpoint "unix://$work/csi$2.sock" --node "$1" \
    --credentials "$work/credentials$2" --state "$work/state$2" --ticket-file "$work/ticket" --capacity 1Gi >>"$work/driver.log" 2>&1 &
  until_so 120 csi "$2" Identity/Probe
}
start_driver() { driver "$1" ""; driver=$!; }
csi() { # SUFFIX, SERVICE/METHOD, JSON
  local suffix=$1
  shift
  call "$work/csi$suffix.sock" "$@"
}
