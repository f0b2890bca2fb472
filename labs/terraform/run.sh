#!/bin/bash
# Terraform, as it is released, with our provider: everything that docs/terraform.md says, block by block, and then what it does not show:
# every kind made, changed, found again by import, differing because of somebody else, and taken away; refusals, and a machine that joins.
# The Go client's tests and example are run too. Needs Go with the module proxy; TRESTLE names a binary to use, TERRAFORM a terraform, which
# is otherwise taken from the PATH or built from Go modules into target/terraform (once, minutes). TRESTLE_BLESS=1 writes the reference.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
scripts/test-deps labs/go/packages
command -v go >/dev/null || PATH=$PATH:/usr/local/go/bin:/usr/lib/go/bin
if ! command -v go >/dev/null; then
  echo "NOT RUN: labs/terraform needs Go 1.25 or later (golang.org/dl) and there is none here" >&2
  exit 0
fi
trestle=${TRESTLE:-$PWD/target/release/trestle}
[[ -x $trestle ]] || cargo build --release --locked -p trestle
terraform=${TERRAFORM:-$(command -v terraform || true)}
[[ $terraform ]] || terraform=$(labs/terraform/build "$root/target/terraform")

work=$(mktemp -d)
controller=
finish() {
  status=$?
  if [[ -n $controller ]]; then kill "$controller"; wait "$controller" || true; fi
  if ((status)); then tail -n 20 "$work/up.log" >&2 || true; fi
  rm -rf "$work"
}
trap finish EXIT
mkdir "$work/bin" "$work/home"
ln -s "$trestle" "$work/bin/trestle"
ln -s "$(realpath "$terraform")" "$work/bin/terraform"
export GOPATH=${GOPATH:-$(go env GOPATH)} GOCACHE=${GOCACHE:-$(go env GOCACHE)}
export PATH=$work/bin:$PATH HOME=$work/home TRESTLE_CONTEXT=$work/context.json CHECKPOINT_DISABLE=1 TF_IN_AUTOMATION=1 TF_CLI_ARGS=-no-color
printf 'disable_checkpoint = true\n' >"$work/terraformrc"
export TF_CLI_CONFIG_FILE=$work/terraformrc

clients/terraform/install >"$work/installed"
(cd clients/go && go vet ./... && go test ./...)
(cd clients/terraform && go vet ./... && go test ./...)

port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
(cd "$work" && exec "$trestle" up --data-dir data --http "127.0.0.1:$(port)" --grpc "127.0.0.1:$(port)" --watch "127.0.0.1:$(port)" --nbd 127.0.0.1:0 \
  --cloud a=fake --cloud b=fake) >"$work/up.log" 2>&1 &
controller=$!
for _ in $(seq 300); do grep -qs 'Trestle is up' "$work/up.log" && break; sleep 0.2; done

fail() { echo "labs/terraform: $1" >&2; cat "$work/said" >&2 2>/dev/null || true; exit 1; }
# Terraform breaks lines where it likes.
says() { tr -s '[:space:]' ' ' <"$work/said" | grep -qF -- "$1" || fail "it does not say: $1"; }
# Both end with 0, so that what they say can be looked at; $code is how they ended.
tf() { code=0; echo "\$ terraform $*"; terraform "$@" >"$work/said" 2>&1 || code=$?; }
done_well() { ((code == 0)) || fail "it ended with $code"; }
refused() { ((code != 0)) || fail "it was not refused"; says "$1"; }
settled() { tf plan -detailed-exitcode; ((code == 0)) || fail "something differs although nothing was changed"; }
differs() { tf plan -detailed-exitcode; ((code == 2)) || fail "nothing differs ($code)"; }
applied() { tf apply -auto-approve; done_well; settled; }

echo "The Go client's example:"
(cd clients/go && go run ./example) >"$work/said"
for line in 'I am admin' 'stored: OUTCOME_CREATED as 1 change' 'example/web-0 to db: allowed' 'example/ci-0 to db: denied' 'nobody is absent: true'; do says "$line"; done
sed 's/^/    /' "$work/said"

echo "The reference:"
mkdir "$work/page" && cd "$work/page"
cat >main.tf <<'HCL'
terraform {
  required_providers {
    trestle = { source = "trestle/trestle" }
  }
}
HCL
tf init; done_well
terraform providers schema -json | python3 "$root/labs/terraform/reference.py" >"$work/reference.md"
if [[ ${TRESTLE_BLESS:-} ]]; then
  cp "$work/reference.md" "$root/docs/terraform-reference.md"
elif ! diff -u "$root/docs/terraform-reference.md" "$work/reference.md"; then
  fail "docs/terraform-reference.md is not what the provider says of itself: TRESTLE_BLESS=1 labs/terraform/run.sh"
fi
rm -r .terraform* main.tf

echo "docs/terraform.md, block by block:"
ln -s "$root/clients" clients
awk '
  /^```hcl$/ { getline; sub(/^# /, ""); print "cat >" $0 " <<\"HCL\""; hcl = 1; next }
  /^```sh$/ { sh = 1; next }
  /^```$/ { if (hcl) print "HCL"; hcl = sh = 0; next }
  hcl || sh
' "$root/docs/terraform.md" >../page.sh
bash -eux ../page.sh >"$work/said" 2>&1 || fail "docs/terraform.md does not work as it is written"
for line in 'Apply complete! Resources: 6 added' 'Something else still denies what was permitted' 'differs: 2' 'is there already' 'Import successful' 'Destroy complete!'; do says "$line"; done
[[ $(trestle tag list -o name) == example-db ]] || fail "destroy has left tags: $(trestle tag list)"

echo "And what it does not show:"
mkdir "$work/all" && cd "$work/all"
cp "$root"/labs/terraform/all.tf main.tf
tf init; done_well
applied
says 'No changes'
tf output -json
tf show -json; done_well
python3 - "$work/said" <<'PY'
import json, sys
values = json.load(open(sys.argv[1]))["values"]["root_module"]["resources"]
kinds = {(one["mode"], one["type"]) for one in values}
assert len([kind for mode, kind in kinds if mode == "managed"]) == 9, kinds
assert len([kind for mode, kind in kinds if mode == "data"]) == 13, kinds
look = {one["address"]: one["values"] for one in values}
assert look["data.trestle_tag.group"]["addresses"] == ["192.0.2.0/24", "203.0.113.5"], look["data.trestle_tag.group"]
assert look["data.trestle_explain.web_to_db"]["verdict"] == "allowed"
assert look["data.trestle_explain.db_to_web"]["verdict"] == "denied" and look["data.trestle_explain.db_to_web"]["remedies"]
assert [one["pinned"] for one in look["data.trestle_links.all"]["links"]] == [True]
assert {one["state"] for one in look["data.trestle_clouds.all"]["clouds"]} == {"ready"}
assert any(one["name"] == "names" and one["port"] == "53" for one in look["data.trestle_rules.web"]["rules"])
assert json.loads(look["data.trestle_object.policy"]["document"])["spec"] == {"podSelector": {}}
assert look["data.trestle_tickets.all"]["tickets"][0]["state"] == "valid"
assert look["trestle_ticket.t"]["text"] and look["trestle_join_token.t"]["servers"]
PY

echo "Each kind is found again by its id:"
import() { tf state rm "$1"; done_well; tf import "$1" "$2"; done_well; }
import trestle_tag.leaf leaf
import trestle_tag.group group
import trestle_namespace.n tf-n
import trestle_resource.web default.a.web
import trestle_rule.names resource:default.a.web/names
import trestle_rule.on_tag tag:group/ssh
import trestle_link.l default.b+default.a
import trestle_object.policy NetworkPolicy/shop/tf
import trestle_permission.p "$(trestle allow list -o name)"
tf import trestle_tag.nobody nobody; refused 'does not exist'
tf state rm trestle_tag.leaf; tf import trestle_tag.leaf no-such-tag; refused 'There is no tag no-such-tag'
tf import trestle_tag.leaf leaf; done_well
# What the controller does not tell (build, of what a resource was made, spelling) is stored as written, and nothing is made anew.
tf plan -out=plan; terraform show -json plan >"$work/said"
python3 - "$work/said" <<'PY'
import json, sys
for change in json.load(open(sys.argv[1])).get("resource_changes", []):
    actions = change["change"]["actions"]
    # An import names the ends of a link, a permission and a resource as the controller does, which is what the lab wrote.
    assert actions in (["no-op"], ["update"], ["read"]), (change["address"], actions)
PY
applied

echo "What somebody else changes, and takes away, is seen and mended:"
trestle tag set leaf --ip 198.51.100.1 >/dev/null
trestle tag set group --children 198.51.100.2 >/dev/null
trestle rule add a.web --out --protocol udp --port 54 --peer 9.9.9.9 --name names >/dev/null
differs
for line in '198.51.100.1' '198.51.100.2' '"54" -> "53"'; do says "$line"; done
applied
[[ $(trestle tag get leaf -o json) == *203.0.113.5* ]] || fail "the tag is not as it is written"
printf 'apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: tf, namespace: shop}\nspec: {podSelector: {}, policyTypes: [Egress]}\n' | trestle apply -f - >/dev/null
differs; says 'policyTypes'
applied
trestle delete networkpolicy tf -n shop >/dev/null
trestle rule delete --tag group --rule ssh >/dev/null
trestle allow remove "$(trestle allow list -o name)" >/dev/null
differs; says '3 to add'
applied
trestle link delete default.a default.b >/dev/null
differs; says 'trestle_link.l will be created'
applied

echo "Changes, in place and as something new:"
sed -i 's/"192.0.2.0\/24"/"192.0.2.128\/25"/; s/port      = "53"/port      = "5300-5310"/' main.tf
differs; says '2 to change, 0 to destroy'
applied
[[ $(trestle tag get group -o json) != *192.0.2.0/24* ]] || fail "a member that is not wanted any more is still there"
sed -i 's/name: tf,/name: tf-two,/' main.tf
differs; says 'must be replaced'
applied
if trestle get networkpolicy tf -n shop >/dev/null 2>&1; then fail "the old policy is still there"; fi

echo "What is wrong is said in the plan, in the controller's words:"
cat >wrong.tf <<'HCL'
resource "trestle_object" "wrong" {
  manifest = "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: a, namespace: b}, spec: {podSelecto: {}}}"
}
HCL
tf plan; refused 'did you mean "podSelector"'
printf 'resource "trestle_object" "wrong" { manifest = "{a: 1}\\n---\\n{b: 2}" }\n' >wrong.tf
tf plan; refused 'one document is one trestle_object'
printf 'resource "trestle_tag" "wrong" {\n  name = "w"\n  ip = "10.0.0.1"\n  members = ["leaf"]\n}\n' >wrong.tf
tf plan; refused 'Invalid Attribute Combination'
printf 'resource "trestle_rule" "wrong" {\n  tag = "group"\n  name = "w"\n  peers = ["leaf"]\n  port = "70000"\n}\n' >wrong.tf
tf plan; refused '"70000" is no port'
printf 'resource "trestle_tag" "wrong" {\n  name = "w"\n  members = ["no-such-tag"]\n}\n' >wrong.tf
tf apply -auto-approve; refused 'Cannot create tag w'; says 'no-such-tag'
printf 'resource "trestle_resource" "wrong" {\n  name = "default.a.web"\n  description = "west"\n}\n' >wrong.tf
tf apply -auto-approve; refused 'default.a.web'; says 'ALREADY_EXISTS'
printf 'resource "trestle_permission" "wrong" {\n  from = "resource:default.a.web"\n  to = "resource:default.b.db"\n  traffic = ["tcp 5432"]\n  build = true\n}\n' >wrong.tf
tf apply -auto-approve; refused 'terraform import trestle_permission.NAME'
rm wrong.tf
settled

echo "A controller that does not answer, and one that does not know us:"
TRESTLE_SERVER=https://127.0.0.1:1 tf plan; refused 'trestle doctor'
printf 'trestle-0000000000000000-00000000000000000000000000000000' >"$work/strange"
TRESTLE_TOKEN_FILE=$work/strange tf plan; refused 'UNAUTHENTICATED'
TRESTLE_CONTEXT=$work/nowhere.json tf plan; refused 'no controller is known'

echo "A machine joins while Terraform waits for it, and is gone with what was made of it:"
server=$(terraform output -raw server) token=$(terraform output -raw token)
cat >host.tf <<'HCL'
resource "trestle_host" "edge" {
  name = "edge-1"
}
data "trestle_host" "edge" {
  name = trestle_host.edge.name
}
HCL
(sleep 3; trestle join "$server" "$token" --name edge-1 --no-service --etc "$work/etc" --data-dir "$work/agent" --socket "$work/agent.sock") >"$work/join.log" 2>&1 &
join=$!
tf apply -auto-approve; wait "$join" || fail "the machine could not join: $(cat "$work/join.log")"; done_well
settled
[[ $(trestle host list -o name) == *edge-1* ]] || fail "the machine has not joined"
import trestle_host.edge edge-1
settled
trestle host remove edge-1 >/dev/null
differs; says 'trestle_host.edge will be created'
rm host.tf
settled

tf destroy -auto-approve; done_well
for list in 'link list' 'resource list' 'allow list' 'host list'; do
  # shellcheck disable=SC2086 # a command and its subcommand
  [[ -z $(trestle $list -o name) ]] || fail "destroy has left something: trestle $list"
done
[[ $(trestle ticket list -o json) != *'"valid"'* ]] || fail "destroy has left a ticket that is good"
echo "Terraform $(terraform version | sed -n '1s/Terraform v//p'): every kind is planned, made, compared, imported, changed and taken away."
