#!/bin/bash
# Paraglider's own plugins of all published revisions, as their source had them: each registers, its revision is found by asking, and it
# understands rules as they were meant. PARAGLIDER names a clone of Paraglider with its history; nothing of it is kept here. Two words are
# added to what its examples answer: where the resource is, without which no rule can be about it. Needs Go and protoc. TRESTLE names a
# binary to use.
set -euo pipefail
cd "$(dirname "$0")/../.."
not_run() { echo "NOT RUN: labs/go-plugin/upstream.sh needs $1" >&2; exit 0; }
[[ ${PARAGLIDER:-} ]] || not_run "PARAGLIDER, a clone of Paraglider with its history"
git -C "$PARAGLIDER" cat-file -e fc1dfd44 2>/dev/null || not_run "a clone with history; $PARAGLIDER has no commit fc1dfd44"
command -v go >/dev/null || PATH=$PATH:/usr/local/go/bin:/usr/lib/go/bin
command -v go >/dev/null || not_run "Go (golang.org/dl)"
scripts/test-deps labs/go/packages
trestle=${TRESTLE:-$PWD/target/release/trestle}
[[ -x $trestle ]] || cargo build --release --locked -p trestle
work=$(mktemp -d)
plugin= controller=
stop() { for process in $plugin $controller; do kill "$process" 2>/dev/null || true; wait "$process" 2>/dev/null || true; done; plugin= controller=; }
finish() { stop; rm -rf "$work"; }
trap finish EXIT
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
fail() { echo "$1" >&2; cat up.log plugin.log >&2; exit 1; }

build() { # revision, commit, port
  local source=$work/source-$1
  mkdir "$source"
  git -C "$PARAGLIDER" archive "$2" | tar -x -C "$source"
  cd "$source"
  if [[ -d pkg/example_plugin ]]; then
    sed -i "s/1002/$3/; s|Name: \"vm\"}|Name: \"vm\", Uri: \"vm\", Ip: \"10.0.0.4\"}|" pkg/example_plugin/example_plugin.go
    go build -buildvcs=false -o "$work/plugin-$1" ./pkg/example_plugin
  else
    # Since April 2024 its generated code is not kept, and the example is its tests' plugin.
    export GOBIN=$work/bin PATH=$work/bin:$PATH
    go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.6
    go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.5.1
    find pkg -name '*.proto' -exec protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative {} \;
    sed -i 's|Uri: "resource_uri"}|Uri: "resource_uri", Ip: "10.0.0.4"}|; s|^func (s \*fakeCloudPluginServer) AddPermitListRules.*|&\n\tfmt.Println(req)|' \
      pkg/fake/cloudplugin/fake_cloud_plugin.go
    mkdir cmd/lab
    printf 'package main\n\nimport plugin "github.com/paraglider-project/paraglider/pkg/fake/cloudplugin"\n\nfunc main() {\n\tplugin.SetupFakePluginServer(%s)\n\tselect {}\n}\n' \
      "$3" >cmd/lab/main.go
    go build -buildvcs=false -o "$work/plugin-$1" ./cmd/lab
  fi
}

for of in 1:fc1dfd44 2:25f9c2de 3:e2b11d56 4:a08089b1; do
  revision=${of%:*}
  listen=$(port)
  (build "$revision" "${of#*:}" "$listen") >"$work/build.log" 2>&1 || { cat "$work/build.log" >&2; exit 1; }
  mkdir "$work/run-$revision"
  cd "$work/run-$revision"
  export TRESTLE_CONTEXT=$PWD/context.json
  "$work/plugin-$revision" >plugin.log 2>&1 &
  plugin=$!
  "$trestle" up --data-dir data --http "127.0.0.1:$(port)" --grpc "127.0.0.1:$(port)" --watch "127.0.0.1:$(port)" --nbd 127.0.0.1:0 \
    --cloud "one=http://127.0.0.1:$listen" >up.log 2>&1 &
  controller=$!
  for _ in $(seq 300); do grep -qs 'Trestle is up' up.log && break; sleep 0.1; done
  for _ in $(seq 150); do clouds=$("$trestle" cloud list); grep -q ready <<<"$clouds" && break; sleep 0.2; done
  grep -q "revision $revision" <<<"$clouds" || fail "not found to speak revision $revision: $clouds"
  "$trestle" resource create one.vm --description vm >made.log 2>&1 || fail "revision $revision: $(cat made.log)"
  "$trestle" rule add one.vm --out --protocol tcp --port 443 --peer 8.8.8.8 --name web >made.log 2>&1 || fail "revision $revision: $(cat made.log)"
  # Its own decoder has read it: everything is in the field it was meant for.
  said=$(tr -s ' ' <plugin.log)
  for word in direction:OUTBOUND dst_port:443 protocol:6 'targets:"8.8.8.8'; do
    grep -q -- "$word" <<<"$said" || fail "revision $revision: the plugin was not told $word"
  done
  stop
  echo "revision $revision: Paraglider's own plugin registers, is known for what it speaks, and understands rules"
done
