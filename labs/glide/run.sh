#!/bin/bash
# Every command of Paraglider's command line, `glide`, as it is, against a controller with two clouds: made of network namespaces for
# root, else in memory, or what CLOUDS says. It is built from Paraglider's own source, of which PARAGLIDER names a checkout (labs/glide/build);
# GLIDE names one that is built already, TRESTLE a binary to use.
# What glide sends is written to RECORD, if that is set: crates/server/tests/recorded/glide.jsonl is such a file, made with
# CLOUDS=fake, and is played again by tests.
set -euo pipefail
cd "$(dirname "$0")/../.."
GLIDE=${GLIDE:-$(labs/glide/build "$PWD/target/glide" || true)}
if [[ ! -x $GLIDE ]]; then
  echo "NOT RUN: labs/glide needs glide, built from Paraglider's source; see above why it could not be built" >&2
  exit 0
fi
kind=${CLOUDS:-$([[ $(id -u) = 0 ]] && echo linux || echo fake)}
if [[ $kind = linux ]]; then
  scripts/test-deps scripts/test-deps.d/cloud-linux
fi
here=$PWD/labs/glide
trestle=${TRESTLE:-$PWD/target/release/trestle}
[[ -x $trestle ]] || cargo build --release --locked -p trestle
work=$(mktemp -d)
up= recorder= mark=
finish() {
  # glide cannot delete; clouds of namespaces outlive their controller.
  if [[ -n $up ]]; then
    for one in azure.web gcp.db; do "$trestle" resource delete "$one" >/dev/null 2>&1 || true; done
  fi
  for process in $recorder $up; do kill "$process" 2>/dev/null || true; wait "$process" 2>/dev/null || true; done
  # Empty networks of the run are left; its mark is in the name of everything it made.
  if [[ -n $mark ]]; then
    for one in $(ip netns list | grep -o "^tr[a-z]\.$mark[^ ]*"); do ip netns delete "$one"; done
    rm -rf "/run/trestle/$mark"
  fi
  rm -rf "$work"
}
trap finish EXIT
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
http=$(port) shown=$(port)
cd "$work"
export HOME=$work TRESTLE_CONTEXT=$work/context.json
"$trestle" up --data-dir data --plaintext-loopback --anonymous-role operator --http "127.0.0.1:$http" --grpc "127.0.0.1:$(port)" \
  --watch "127.0.0.1:$(port)" --nbd 127.0.0.1:0 --cloud "azure=$kind" --cloud "gcp=$kind" >up.log 2>&1 &
up=$!
for _ in $(seq 300); do grep -qs 'Trestle is up' up.log && break; sleep 0.1; done
python3 "$here/record.py" "$shown" "$http" "${RECORD:-$work/requests}" &
recorder=$!
for _ in $(seq 100); do (exec 3<>"/dev/tcp/127.0.0.1/$shown") 2>/dev/null && break; sleep 0.1; done

fail() { echo "$1" >&2; tail -n 20 up.log >&2; exit 1; }
glide() { echo "\$ glide $*"; "$GLIDE" "$@" >said 2>&1 || fail "glide $*: $(cat said)"; sed 's/^/    /' said; }
says() { grep -q -- "$1" said || fail "glide did not say $1: $(cat said)"; }
silent() { ! grep -q -- "$1" said || fail "glide says $1: $(cat said)"; }

glide server set "http://127.0.0.1:$shown"
glide server get; says "127.0.0.1:$shown"
glide namespace list; says default
glide namespace set default
glide namespace get; says default

printf '{}' >vm.json
if [[ $kind = fake ]]; then printf west >vm.json; fi
glide resource create azure web vm.json; says default.azure.web
mark=$(sed -n 's/.*netns:trr\.\([0-9a-f]*\)\..*/\1/p' said)
glide resource create gcp db vm.json; says default.gcp.db
glide tag list; says default.azure.web
glide tag get default.gcp.db; says default.gcp.db

glide rule add azure web --ping default.gcp.db
glide rule add gcp db --ping default.azure.web --ssh default.azure.web
cat >rules.json <<'JSON'
[{"name": "names", "direction": 1, "src_port": -1, "dst_port": 53, "protocol": 17, "tags": ["1.1.1.1"]}]
JSON
glide rule add azure web --rulefile rules.json
glide rule get azure web; says names; says ping-out-default-gcp-db
if [[ $kind = linux ]]; then
  address=$("$trestle" resource get gcp.db -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)["ip"])')
  "$trestle" resource exec azure.web -- ping -c1 -W5 "$address" >ping.log || fail "a rule that glide added does not let a ping through"
fi
glide rule delete azure web --rules names
glide rule get azure web; silent '"names"'; silent 'Name:names'

glide tag set team --children default.azure.web,default.gcp.db
glide tag get team; says default.azure.web
glide tag get team --resolve; says default.gcp.db
glide rule add team --ping 9.9.9.9
# A rule on a tag is the tag's, for all that are in it; glide lists those of a resource.
"$trestle" rule list gcp.db >said; says ping-in-9-9-9-9
glide tag set office --ip 203.0.113.7
glide tag delete team --member default.gcp.db
glide tag get team; silent default.gcp.db
# glide has no command for this.
"$trestle" rule delete --tag team --rule ping-in-9-9-9-9 --rule ping-out-9-9-9-9
glide tag delete team
glide tag delete office
glide tag list; silent team

# What is refused is refused with a reason.
if "$GLIDE" resource attach azure no-such-thing >said 2>&1; then fail "something that is not there was attached"; fi
says 'status code 4'
if "$GLIDE" rule add azure web --ping no-such-tag >said 2>&1; then fail "a rule about nobody was added"; fi
says no-such-tag
"$trestle" check >check.log || fail "not as it was made: $(cat check.log)"
echo "glide, as it is, does everything it has a command for."
